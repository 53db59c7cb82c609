//! The verdict over a cursor, as one table.

use crate::id::LogId;
use crate::lifecycle::api::{Cursor, CursorDivergence, CursorReason, CursorVerdict, Verified};
use crate::lifecycle::history::History;
use crate::record::Version;
use crate::verdict::Verdict;

/// The rows of the table: where a cursor lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// In another log.
    OtherLog,
    /// Below our floor.
    BelowFloor,
    /// At our floor, or at a record of ours.
    Ours,
    /// Between floor and tail, where we have no record.
    Between,
    /// Above our durable tail.
    AboveTail,
}

fn place(history: &History, log: LogId, cursor: Cursor) -> Place {
    let at = cursor.at;
    if cursor.space != log.id_space() {
        Place::OtherLog
    } else if at < history.floor() {
        Place::BelowFloor
    } else if at > history.tail() {
        Place::AboveTail
    } else if history.contains(at) {
        Place::Ours
    } else {
        Place::Between
    }
}

/// The table: what each place means. `history` is the durable one: nothing else is vouched for.
pub(super) fn judge(history: &History, log: LogId, cursor: Cursor) -> CursorVerdict {
    let at = cursor.at;
    let diverged = |ours, reason| Verdict::Diverged(CursorDivergence { at, ours, reason });
    match place(history, log, cursor) {
        Place::OtherLog => Verdict::Unknown { reason: CursorReason::OtherLog },
        Place::BelowFloor => gap(at, history.floor(), CursorReason::BelowFloor),
        Place::Ours => {
            // There is only one way to have nothing yet.
            let verified = if at.is_zero() { Verified::Digest } else { Verified::VersionOnly };
            Verdict::Complete { through: history.tail(), verified }
        }
        Place::Between => {
            let next = history.first_after(at).map_or(history.tail(), |(_, version)| version);
            diverged(next, CursorReason::ForeignVersion)
        }
        Place::AboveTail => diverged(history.tail(), CursorReason::AheadOfTail),
    }
}

/// What a subscriber at `from` is told when the floor is above it.
pub(super) const fn gap(from: Version, floor: Version, reason: CursorReason) -> CursorVerdict {
    Verdict::Gap { from, to: floor, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Lsn;
    use crate::record::AuthorityId;

    const LOG: LogId = LogId([7; 16]);

    /// Floor 1.10, records 1.11, 1.13 and 2.1.
    fn history() -> History {
        let mut history = History::new(Version::new(1, 10), [3; 32]);
        let authority = AuthorityId::from_text("a");
        for (lsn, version) in [(5, Version::new(1, 11)), (6, Version::new(1, 13)), (8, Version::new(2, 1))] {
            history.push(Lsn::new(lsn).expect("not zero"), version, &authority, b"bytes");
        }
        history
    }

    fn judged(at: Version) -> CursorVerdict {
        judge(&history(), LOG, Cursor::new(LOG, at))
    }

    #[test]
    fn other_log() {
        let cursor = Cursor::new(LogId([8; 16]), Version::new(1, 11));
        assert_eq!(judge(&history(), LOG, cursor), Verdict::Unknown { reason: CursorReason::OtherLog });
    }

    #[test]
    fn below_floor() {
        let (from, to) = (Version::new(1, 9), Version::new(1, 10));
        assert_eq!(judged(from), Verdict::Gap { from, to, reason: CursorReason::BelowFloor });
        let from = Version::ZERO;
        assert_eq!(judged(from), Verdict::Gap { from, to, reason: CursorReason::BelowFloor });
    }

    #[test]
    fn ours() {
        let through = Version::new(2, 1);
        for at in [Version::new(1, 10), Version::new(1, 13), through] {
            assert_eq!(judged(at), Verdict::Complete { through, verified: Verified::VersionOnly });
        }
        let empty = judge(&History::new(Version::ZERO, [0; 32]), LOG, Cursor::new(LOG, Version::ZERO));
        assert_eq!(empty, Verdict::Complete { through: Version::ZERO, verified: Verified::Digest });
    }

    #[test]
    fn between() {
        let (at, ours) = (Version::new(1, 12), Version::new(1, 13));
        let reason = CursorReason::ForeignVersion;
        assert_eq!(judged(at), Verdict::Diverged(CursorDivergence { at, ours, reason }));
    }

    #[test]
    fn above_tail() {
        let (at, ours) = (Version::new(2, 2), Version::new(2, 1));
        let reason = CursorReason::AheadOfTail;
        assert_eq!(judged(at), Verdict::Diverged(CursorDivergence { at, ours, reason }));
    }
}
