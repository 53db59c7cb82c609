//! `strandline.ack`: an acknowledgement that also says up to where the blobs are there.

use super::{OwnFault, write_name};
use crate::record::Version;
use crate::wire::json_read::json_object;
use crate::wire::json_write::write_version;
use alloc::borrow::Cow;

/// What a receiver durably has. Records may be ahead of their blobs, never behind them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Acknowledgement {
    /// Everything up to here is applied and durable: compaction goes by it.
    pub watermark: Version,
    /// Up to here every record that is still the last of its key has its blob, too: collecting blobs,
    /// and "synced", go by it. At most the watermark.
    pub complete: Version,
}

impl Acknowledgement {
    pub(super) fn check(&self) -> Result<(), OwnFault> {
        if self.complete <= self.watermark {
            return Ok(());
        }
        Err(OwnFault::CompleteAboveWatermark { complete: self.complete, watermark: self.watermark })
    }

    pub(super) fn write(&self, out: &mut alloc::vec::Vec<u8>) {
        write_name("watermark", out);
        write_version(self.watermark, out);
        write_name("complete", out);
        write_version(self.complete, out);
    }

    pub(super) const fn from_object(object: &AckObject<'_>) -> Self {
        Self { watermark: object.watermark, complete: object.complete }
    }
}

json_object! {
    pub(super) struct AckObject<'de> = "strandline.ack" {
        kind: Cow<'de, str> = always "type",
        watermark: Version = always "watermark",
        complete: Version = always "complete",
    }
}

#[cfg(test)]
mod tests {
    use super::super::OwnMessage;
    use super::super::testing::{both_ways, refused_both_ways};
    use super::*;
    use alloc::format;

    fn text(watermark: u64, complete: u64) -> alloc::string::String {
        format!(
            r#"{{"type":"strandline.ack","watermark":{{"epoch":1,"sequence":{watermark}}},"complete":{{"epoch":1,"sequence":{complete}}}}}"#
        )
    }

    fn ack(watermark: u64, complete: u64) -> OwnMessage {
        let v = |sequence| Version::new(1, sequence);
        OwnMessage::Ack(Acknowledgement { watermark: v(watermark), complete: v(complete) })
    }

    #[test]
    fn complete_is_at_most_the_watermark() {
        both_ways(&ack(7, 7), &text(7, 7));
        both_ways(&ack(7, 3), &text(7, 3));
        let (complete, watermark) = (Version::new(1, 8), Version::new(1, 7));
        let fault = OwnFault::CompleteAboveWatermark { complete, watermark };
        refused_both_ways(&ack(7, 8), &text(7, 8), &fault);
    }
}
