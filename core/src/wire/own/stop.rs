//! `strandline.stop`: why repair stopped, so that both sides can show it to a person.

use super::{OwnFault, write_name};
use crate::record::Version;
use crate::wire::json_read::{Filled, json_object};
use crate::wire::json_write::{write_string, write_version};
use crate::wire::limits::{STOP_DETAIL_BYTES_MAX, STOP_REASON_BYTES_MAX};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// What kind of answer ended repair.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum StopVerdict {
    /// The peer is behind what is kept, and no snapshot will be sent.
    Gap,
    /// It cannot be told what the peer lacks.
    Unknown,
    /// The histories part.
    Diverged,
    /// A message or the storage failed.
    Fault,
}

impl StopVerdict {
    /// Every verdict.
    pub const ALL: [Self; 4] = [Self::Gap, Self::Unknown, Self::Diverged, Self::Fault];

    /// Its word on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Unknown => "unknown",
            Self::Diverged => "diverged",
            Self::Fault => "fault",
        }
    }
}

/// Why repair stopped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stop {
    /// What kind of answer.
    pub verdict: StopVerdict,
    /// Its reason out of a closed set of the sender's: lower-case letters, digits and hyphens, 1 to 64
    /// bytes.
    pub reason: String,
    /// The first version known to differ, if histories part. Left out of the message when absent.
    pub at: Option<Version>,
    /// The evidence, for a person; at most 1,024 bytes. Left out of the message when empty.
    pub detail: String,
}

impl Stop {
    pub(super) fn check(&self) -> Result<(), OwnFault> {
        within("reason", &self.reason, STOP_REASON_BYTES_MAX)?;
        within("detail", &self.detail, STOP_DETAIL_BYTES_MAX)?;
        let label = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if self.reason.is_empty() || !self.reason.bytes().all(label) {
            return Err(OwnFault::Reason);
        }
        Ok(())
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_name("verdict", out);
        write_string(self.verdict.name(), out);
        write_name("reason", out);
        write_string(&self.reason, out);
        if let Some(at) = self.at.filter(|at| !at.is_zero()) {
            write_name("at", out);
            write_version(at, out);
        }
        if !self.detail.is_empty() {
            write_name("detail", out);
            write_string(&self.detail, out);
        }
    }

    pub(super) fn from_object(object: StopObject<'_>) -> Result<Self, OwnFault> {
        let found = &*object.verdict;
        let verdict = StopVerdict::ALL.into_iter().find(|verdict| verdict.name() == found);
        Ok(Self {
            verdict: verdict.ok_or_else(|| OwnFault::Verdict { found: found.chars().take(32).collect() })?,
            reason: object.reason.into_owned(),
            at: (!object.at.0.is_zero()).then_some(object.at.0),
            detail: object.detail.0.into_owned(),
        })
    }
}

fn within(field: &'static str, text: &str, length_max: u32) -> Result<(), OwnFault> {
    if text.len() > length_max as usize {
        return Err(OwnFault::TooLong { field, length: text.len(), length_max });
    }
    Ok(())
}

json_object! {
    pub(super) struct StopObject<'de> = "strandline.stop" {
        kind: Cow<'de, str> = always "type",
        verdict: Cow<'de, str> = always "verdict",
        reason: Cow<'de, str> = always "reason",
        at: Filled<Version> = unless_empty "at",
        detail: Filled<Cow<'de, str>> = unless_empty "detail",
    }
}

#[cfg(test)]
mod tests {
    use super::super::OwnMessage;
    use super::super::testing::{both_ways, decode, refused_both_ways};
    use super::*;
    use crate::wire::error::WireError;
    use alloc::format;

    fn stop(verdict: StopVerdict, reason: &str, detail: &str) -> OwnMessage {
        OwnMessage::Stop(Stop { verdict, reason: reason.into(), at: None, detail: detail.into() })
    }

    fn text(verdict: &str, reason: &str, detail: &str) -> String {
        format!(r#"{{"type":"strandline.stop","verdict":"{verdict}","reason":"{reason}"{detail}}}"#)
    }

    #[test]
    fn each_verdict() {
        for verdict in StopVerdict::ALL {
            both_ways(
                &stop(verdict, "other-history", "at 1.7"),
                &text(verdict.name(), "other-history", r#","detail":"at 1.7""#),
            );
        }
        both_ways(&stop(StopVerdict::Gap, "x", ""), &text("gap", "x", ""));
    }

    #[test]
    fn where_histories_part() {
        let at = Some(Version::new(1, 7));
        let (reason, detail) = ("other-history".into(), String::new());
        both_ways(
            &OwnMessage::Stop(Stop { verdict: StopVerdict::Diverged, reason, at, detail }),
            &text("diverged", "other-history", r#","at":{"epoch":1,"sequence":7}"#),
        );
    }

    #[test]
    fn another_verdict() {
        let fault = OwnFault::Verdict { found: "complete".into() };
        assert_eq!(
            decode(&text("complete", "x", "")),
            Err(WireError::Own { message: "strandline.stop", fault })
        );
    }

    #[test]
    fn a_reason_is_a_label() {
        for reason in ["", "two words", "Upper", "caf\u{e9}"] {
            let (message, text) = (stop(StopVerdict::Fault, reason, ""), text("fault", reason, ""));
            refused_both_ways(&message, &text, &OwnFault::Reason);
        }
    }

    #[test]
    fn texts_are_bounded() {
        let (reason, detail) = ("r".repeat(65), "d".repeat(1025));
        let fault = OwnFault::TooLong { field: "reason", length: 65, length_max: 64 };
        refused_both_ways(&stop(StopVerdict::Fault, &reason, ""), &text("fault", &reason, ""), &fault);
        let fault = OwnFault::TooLong { field: "detail", length: 1025, length_max: 1024 };
        let payload = text("fault", "x", &format!(r#","detail":"{detail}""#));
        refused_both_ways(&stop(StopVerdict::Fault, "x", &detail), &payload, &fault);
    }
}
