//! Cursors, verdicts over them and pages as data: what `watch`, `history` and `explain` print and the
//! control protocol carries.

use crate::exit::Failure;
use crate::report::{BlobText, EntryReport};
use crate::text::{KeyText, VersionText};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use strandline_core::id::hex;
use strandline_core::lifecycle::api::{
    Cursor, CursorReason, CursorVerdict, Entry, Page, Served, SubscriptionEnd,
};
use strandline_core::record::{Record, Version};
use strandline_core::verdict::Verdict;

/// A cursor as it is given: `SPACE:EPOCH.SEQUENCE`, or `EPOCH.SEQUENCE` for the log that is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CursorText {
    space: Option<[u8; 12]>,
    at: Version,
}

impl CursorText {
    /// The cursor for a replica whose own cursor is `ours`.
    pub(crate) fn of(self, ours: Cursor) -> Cursor {
        Cursor { space: self.space.unwrap_or(ours.space), at: self.at }
    }
}

impl From<Cursor> for CursorText {
    fn from(cursor: Cursor) -> Self {
        Self { space: Some(cursor.space), at: cursor.at }
    }
}

impl FromStr for CursorText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = Cursor::parse(text).map(Self::from);
        let bare = || Version::parse(text).map(|at| Self { space: None, at });
        whole.or_else(bare).ok_or_else(|| {
            format!("expected a cursor as SPACE:EPOCH.SEQUENCE or EPOCH.SEQUENCE, found {text:?}")
        })
    }
}

impl fmt::Display for CursorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.space {
            Some(space) => write!(f, "{}:{}", hex(&space), self.at),
            None => self.at.fmt(f),
        }
    }
}

impl Serialize for CursorText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CursorText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// The verdict over a cursor, with its evidence and what to do.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct CursorReport {
    /// `complete`, `gap`, `unknown` or `diverged`.
    pub(crate) verdict: String,
    /// Why, unless it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    pub(crate) cursor: CursorText,
    /// The evidence.
    pub(crate) floor: VersionText,
    pub(crate) tail: VersionText,
    pub(crate) incarnation: String,
    /// All of it in words.
    pub(crate) text: String,
    /// What a person can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<String>,
}

/// Where a replica stands, as evidence beside a verdict.
pub(crate) struct Stands {
    pub(crate) floor: Version,
    pub(crate) tail: Version,
    pub(crate) incarnation: String,
}

impl CursorReport {
    pub(crate) fn new(cursor: Cursor, verdict: &CursorVerdict, stands: &Stands) -> Self {
        let at = cursor.at;
        let (name, reason, text) = match verdict {
            Verdict::Complete { through, .. } if *through == at => {
                ("complete", None, format!("{at} is the durable tail: there is nothing after it yet"))
            }
            Verdict::Complete { through, .. } => {
                ("complete", None, format!("everything after {at} up to {through} is held"))
            }
            Verdict::Gap { to, reason, .. } => {
                ("gap", Some(*reason), format!("what came after {at} up to {to} is no longer held"))
            }
            Verdict::Unknown { reason } => {
                ("unknown", Some(*reason), format!("cannot tell what came after {cursor}"))
            }
            Verdict::Diverged(found) => {
                let text = format!("{at} is no version of this history, which has {} there", found.ours);
                ("diverged", Some(found.reason), text)
            }
        };
        Self {
            verdict: name.to_owned(),
            reason: reason.map(|reason| reason.name().to_owned()),
            cursor: cursor.into(),
            floor: VersionText(stands.floor),
            tail: VersionText(stands.tail),
            incarnation: stands.incarnation.clone(),
            text,
            advice: reason.map(|reason| advice(reason).to_owned()),
        }
    }

    /// Whether everything after the cursor is held.
    pub(crate) fn is_complete(&self) -> bool {
        self.verdict == "complete"
    }

    /// The failure of a command that cannot go on from this cursor.
    pub(crate) fn failure(&self) -> Failure {
        let reason = self.reason.as_deref().unwrap_or("complete");
        let failure = Failure::refused(format!("{}: {reason}: {}", self.verdict, self.text));
        match &self.advice {
            Some(advice) => failure.advise(advice),
            None => failure,
        }
    }
}

/// What to do about a cursor from which nothing can be replayed.
const fn advice(reason: CursorReason) -> &'static str {
    match reason {
        CursorReason::BelowFloor => {
            "take the state anew, and what comes after it: `strandline watch --reset`"
        }
        CursorReason::AheadOfTail => {
            "who gave out this cursor has changes that this replica lacks: ask that replica, or wait until \
             the tail in `strandline status` has reached it; if it never does, this replica lost history"
        }
        CursorReason::ForeignVersion => {
            "this cursor is of another history of this log: compare `strandline status` of the replica that \
             gave it; if that history is not wanted, take the state anew: `strandline watch --reset`"
        }
        CursorReason::OtherLog => {
            "ask a replica of the log that the cursor names, or give a cursor of this one"
        }
        CursorReason::ResetExpired => "begin the reset again, and read it faster",
    }
}

/// A page of a subscription.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "page", rename_all = "kebab-case")]
pub(crate) enum PageReport {
    /// Changes, each once.
    Changes { records: Vec<RecordReport>, from_memory: bool, behind: u64 },
    /// The replica holds no longer what comes next.
    Lost { verdict: CursorReport },
    /// The state at `cut` follows.
    ResetBegin { cut: VersionText },
    /// A part of it.
    State { records: Vec<RecordReport> },
    /// All of it was given.
    ResetEnd { cut: VersionText, keys: u64 },
    /// The subscription is over.
    Ended { why: String },
}

/// A change of a key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct RecordReport {
    #[serde(flatten)]
    pub(crate) key: KeyText,
    #[serde(flatten)]
    pub(crate) entry: EntryReport,
}

impl From<&Record> for RecordReport {
    fn from(record: &Record) -> Self {
        let Record { key, state, version, authority } = record.clone();
        Self { key: KeyText::from(&key), entry: EntryReport::from(&Entry { state, version, authority }) }
    }
}

impl RecordReport {
    /// What the change made of the key, in words.
    pub(crate) fn what(&self) -> String {
        match &self.entry.blob {
            Some(BlobText(blob)) => format!("put {blob}"),
            None => "deleted".to_owned(),
        }
    }
}

/// How changes follow a cursor; the replica may stand in another process.
pub(crate) trait Watch {
    /// What was vouched for when it began.
    fn verdict(&self) -> &CursorReport;
    /// The next page; `None` if none came within half a second or so.
    fn next(&mut self) -> Result<Option<PageReport>, Failure>;
    /// Begins anew with the state.
    fn reset(&mut self) -> Result<(), Failure>;
}

/// A page as data. `stands` tells where the replica stands now, for a verdict that comes later.
pub(crate) fn page_report(
    page: Page,
    cursor: Cursor,
    stands: impl FnOnce() -> Result<Stands, Failure>,
) -> Result<PageReport, Failure> {
    let records = |records: &[Record]| records.iter().map(RecordReport::from).collect();
    Ok(match page {
        Page::Changes { records: changes, served, behind } => {
            let from_memory = match served {
                Served::Memory => true,
                Served::Journal => false,
            };
            PageReport::Changes { records: records(&changes), from_memory, behind }
        }
        Page::Lost(verdict) => PageReport::Lost { verdict: CursorReport::new(cursor, &verdict, &stands()?) },
        Page::ResetBegin { cut } => PageReport::ResetBegin { cut: VersionText(cut) },
        Page::State { records: state } => PageReport::State { records: records(&state) },
        Page::ResetEnd { cut, keys } => PageReport::ResetEnd { cut: VersionText(cut), keys },
        Page::Ended(SubscriptionEnd::Closing) => PageReport::Ended { why: "the node is closing".into() },
        Page::Ended(SubscriptionEnd::Storage(fault)) => PageReport::Ended { why: fault.to_string() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_core::id::LogId;

    #[test]
    fn a_cursor_is_read_with_and_without_its_space() {
        let ours = Cursor::new(LogId([7; 16]), Version::new(1, 9));
        let at = Version::new(1, 2);
        let read = |text: &str| text.parse::<CursorText>().map(|cursor| cursor.of(ours));
        assert_eq!(read("1.2"), Ok(Cursor { at, ..ours }));
        let other = Cursor::new(LogId([8; 16]), at);
        assert_eq!(read(&other.to_string()), Ok(other));
        for bad in ["", "1", "1.2.3", "07:1.2", "x"] {
            assert!(read(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn every_reason_says_what_to_do() {
        for reason in CursorReason::ALL {
            assert!(advice(reason).len() > 20, "{reason}");
        }
    }
}
