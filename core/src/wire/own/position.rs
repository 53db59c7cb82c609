//! `strandline.position`: where a replica of a log stands.

use super::{OwnFault, digest, write_digest, write_name};
use crate::record::{AuthorityId, RecordLimits, Version};
use crate::wire::json_read::{Filled, List, json_object};
use crate::wire::json_write::{write_list, write_number, write_string, write_version};
use crate::wire::limits::POSITION_EPOCHS_MAX;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// A version and the digest of the history up to it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Mark {
    /// The version; zero is "nothing yet".
    pub version: Version,
    /// The digest chain's value there, if it is known.
    pub digest: Option<[u8; 32]>,
}

/// An epoch of a log's authority.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EpochMark {
    /// Its number.
    pub epoch: u64,
    /// The first version in it, so that two histories whose epochs have the same number and part
    /// elsewhere can be told apart. Its sequence is 0 while there is none.
    pub start: Version,
    /// The last version before it: a record of an older epoch above it was written after that epoch had
    /// ended. Of a replica that began in the midst of this epoch, with a snapshot of a peer that tells
    /// no epochs, it is where that ended.
    pub previous_end: Version,
    /// Who gave out its versions.
    pub authority: AuthorityId,
}

/// Where a replica of a log stands. Judged before any repair frame.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Position {
    /// What compaction kept.
    pub floor: Mark,
    /// The durable tail; not below the floor.
    pub tail: Mark,
    /// The last 64 epochs, ascending.
    pub epochs: Vec<EpochMark>,
}

impl Position {
    pub(super) fn check(&self) -> Result<(), OwnFault> {
        if self.floor.version > self.tail.version {
            return Err(OwnFault::FloorAboveTail { floor: self.floor.version, tail: self.tail.version });
        }
        if self.epochs.len() > POSITION_EPOCHS_MAX as usize {
            let (length, length_max) = (self.epochs.len(), POSITION_EPOCHS_MAX);
            return Err(OwnFault::TooLong { field: "epochs", length, length_max });
        }
        check_epochs(&self.epochs)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_mark("floor", "floor_digest", &self.floor, out);
        write_mark("tail", "tail_digest", &self.tail, out);
        write_name("epochs", out);
        write_list(&self.epochs, out, |mark, out| {
            out.extend_from_slice(br#"{"epoch":"#);
            write_number(mark.epoch, out);
            write_name("start", out);
            write_version(mark.start, out);
            write_name("previous_end", out);
            write_version(mark.previous_end, out);
            write_name("authority", out);
            write_string(mark.authority.as_str(), out);
            out.push(b'}');
        });
    }

    pub(super) fn from_object(object: PositionObject<'_>, limits: &RecordLimits) -> Result<Self, OwnFault> {
        let mut epochs = Vec::with_capacity(object.epochs.0.len());
        for mark in object.epochs.0 {
            let authority = limits.authority(&mark.authority).map_err(OwnFault::Authority)?;
            let EpochObject { epoch, start, previous_end, .. } = mark;
            epochs.push(EpochMark { epoch, start, previous_end, authority });
        }
        Ok(Self {
            floor: mark(object.floor, "floor_digest", &object.floor_digest)?,
            tail: mark(object.tail, "tail_digest", &object.tail_digest)?,
            epochs,
        })
    }
}

/// Whether epochs are such as a position may tell: they ascend, and each begins above what came before
/// it. Whatever else tells epochs is held to it, too, since they are told on.
pub(crate) fn check_epochs(epochs: &[EpochMark]) -> Result<(), OwnFault> {
    if let Some(mark) = epochs.iter().find(|mark| mark.previous_end >= mark.start) {
        let (start, previous_end) = (mark.start, mark.previous_end);
        return Err(OwnFault::EpochEnd { start, previous_end });
    }
    let mut pairs = epochs.iter().zip(epochs.iter().skip(1));
    match pairs.find(|(previous, next)| previous.epoch >= next.epoch) {
        Some((previous, next)) => Err(OwnFault::EpochOrder { previous: previous.epoch, epoch: next.epoch }),
        None => Ok(()),
    }
}

fn mark(version: Version, field: &'static str, text: &Filled<Cow<'_, str>>) -> Result<Mark, OwnFault> {
    let digest = if text.0.is_empty() { None } else { Some(digest(field, &text.0)?) };
    Ok(Mark { version, digest })
}

fn write_mark(name: &str, digest_name: &str, mark: &Mark, out: &mut Vec<u8>) {
    write_name(name, out);
    write_version(mark.version, out);
    if let Some(digest) = &mark.digest {
        write_digest(digest_name, digest, out);
    }
}

json_object! {
    pub(super) struct PositionObject<'de> = "strandline.position" {
        kind: Cow<'de, str> = always "type",
        floor: Version = always "floor",
        floor_digest: Filled<Cow<'de, str>> = unless_empty "floor_digest",
        tail: Version = always "tail",
        tail_digest: Filled<Cow<'de, str>> = unless_empty "tail_digest",
        epochs: List<EpochObject<'de>> = always "epochs",
    }
}

json_object! {
    pub(super) struct EpochObject<'de> = "an epoch" {
        epoch: u64 = always "epoch",
        start: Version = always "start",
        previous_end: Version = always "previous_end",
        authority: Cow<'de, str> = always "authority",
    }
}

#[cfg(test)]
mod tests {
    use super::super::OwnMessage;
    use super::super::testing::{both_ways, decode, encode, refused_both_ways};
    use super::*;
    use crate::record::RecordError;
    use crate::wire::error::{EncodeError, WireError};
    use crate::wire::json_read::Refusal;
    use alloc::format;
    use alloc::string::String;

    fn epoch(epoch: u64) -> EpochMark {
        let (start, previous_end) = (Version::new(epoch, 9), Version::new(epoch - 1, 8));
        EpochMark { epoch, start, previous_end, authority: AuthorityId::from_text("a") }
    }

    fn position(epochs: &[u64]) -> OwnMessage {
        OwnMessage::Position(Position {
            floor: Mark { version: Version::new(1, 2), digest: None },
            tail: Mark { version: Version::new(2, 3), digest: Some([0xab; 32]) },
            epochs: epochs.iter().map(|&e| epoch(e)).collect(),
        })
    }

    fn text(epochs: &[u64]) -> String {
        let epochs: Vec<_> = epochs
            .iter()
            .map(|e| {
                let previous_end = format!(r#"{{"epoch":{},"sequence":8}}"#, e - 1);
                let start = format!(r#"{{"epoch":{e},"sequence":9}}"#);
                format!(r#"{{"epoch":{e},"start":{start},"previous_end":{previous_end},"authority":"a"}}"#)
            })
            .collect();
        format!(
            r#"{{"type":"strandline.position","floor":{{"epoch":1,"sequence":2}},"tail":{{"epoch":2,"sequence":3}},"tail_digest":"{}","epochs":[{}]}}"#,
            "ab".repeat(32),
            epochs.join(",")
        )
    }

    #[test]
    fn written_and_read_with_and_without_epochs() {
        both_ways(&position(&[]), &text(&[]));
        both_ways(&position(&[1, 2]), &text(&[1, 2]));
    }

    #[test]
    fn epochs_ascend() {
        let fault = OwnFault::EpochOrder { previous: 2, epoch: 2 };
        refused_both_ways(&position(&[1, 2, 2]), &text(&[1, 2, 2]), &fault);
    }

    #[test]
    fn an_epoch_begins_above_what_came_before_it() {
        let mut message = position(&[1]);
        let OwnMessage::Position(found) = &mut message else { unreachable!("it is one") };
        found.epochs[0].previous_end = Version::new(1, 9);
        let fault = OwnFault::EpochEnd { start: Version::new(1, 9), previous_end: Version::new(1, 9) };
        let text = text(&[1]).replace(r#""epoch":0,"sequence":8"#, r#""epoch":1,"sequence":9"#);
        refused_both_ways(&message, &text, &fault);
    }

    #[test]
    fn too_many_epochs() {
        let epochs: Vec<_> = (1..=65).collect();
        let fault = OwnFault::TooLong { field: "epochs", length: 65, length_max: 64 };
        refused_both_ways(&position(&epochs), &text(&epochs), &fault);
        both_ways(&position(&epochs[..64]), &text(&epochs[..64]));
    }

    #[test]
    fn floor_above_tail() {
        let message = OwnMessage::Position(Position {
            floor: Mark { version: Version::new(3, 0), digest: None },
            ..Position::default()
        });
        let fault = OwnFault::FloorAboveTail { floor: Version::new(3, 0), tail: Version::ZERO };
        assert_eq!(encode(&message), Err(EncodeError::Own { message: "strandline.position", fault }));
    }

    #[test]
    fn a_digest_is_lower_case_hexadecimal_or_left_out() {
        let upper = text(&[]).replace("abab", "ABAB");
        let fault = OwnFault::Digest { field: "tail_digest" };
        assert_eq!(decode(&upper), Err(WireError::Own { message: "strandline.position", fault }));
        let empty = text(&[]).replace(&"ab".repeat(32), "");
        assert_eq!(decode(&empty).expect_err("empty").refusal(), Some(Refusal::EmptyForAbsent));
    }

    #[test]
    fn an_epochs_authority_is_judged() {
        let refused = decode(&text(&[1]).replace(r#""a""#, "\"\""));
        let fault = OwnFault::Authority(RecordError::AuthorityEmpty { bytes_max: 128 });
        assert_eq!(refused, Err(WireError::Own { message: "strandline.position", fault }));
    }
}
