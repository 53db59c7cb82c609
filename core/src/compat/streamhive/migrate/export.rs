//! A replica's state as v1 files.

use super::state_digest;
use crate::compat::streamhive::authority::{Authority, AuthorityError, AuthorityLimits};
use crate::compat::streamhive::checkpoint::{Checkpoint, CheckpointError, CheckpointLimits};
use crate::compat::streamhive::journal::{JournalError, JournalLimits, Writer};
use crate::compat::streamhive::membership::{Membership, MembershipError, MembershipLimits};
use crate::compat::streamhive::watermarks::{WatermarkError, WatermarkLimits, Watermarks};
use crate::error::{Classified, Family};
use crate::record::{AuthorityId, Record, Version};
use alloc::string::String;
use alloc::vec::Vec;

/// A member, and what it acknowledged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Who.
    pub identity: String,
    /// What it has.
    pub acked: Version,
}

/// The bytes of v1 files.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Exported {
    /// A journal without entries, its floor at the tail.
    pub journal: Vec<u8>,
    /// The state at the tail.
    pub checkpoint: Vec<u8>,
    /// Who writes, if anyone is to.
    pub authority: Option<Vec<u8>>,
    /// The members, if anyone said who they are.
    pub membership: Option<Vec<u8>>,
    /// What they acknowledged.
    pub watermarks: Vec<u8>,
    /// See [`super::state_digest`].
    pub digest: [u8; 32],
}

/// Why a state is none that v1 files can hold (family: caller).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ExportError {
    /// The state does not fit a checkpoint of the reference.
    #[error("checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The journal.
    #[error("journal: {0}")]
    Journal(#[from] JournalError),
    /// The authority.
    #[error("authority: {0}")]
    Authority(#[from] AuthorityError),
    /// A name that the reference does not take, or too many.
    #[error("membership: {0}")]
    Membership(#[from] MembershipError),
    /// What peers acknowledged.
    #[error("watermarks: {0}")]
    Watermarks(#[from] WatermarkError),
}

impl Classified for ExportError {
    const FAMILY: Family = Family::Caller;
}

/// Writes the state at `tail`, compacted to there: every key's last record, tombstones included, sorted
/// by key. Members that acknowledged more than the tail, which cannot be, count up to the tail.
///
/// # Errors
/// The reference's default limits do not hold it.
pub fn export(
    tail: Version,
    records: &[Record],
    authority: Option<&AuthorityId>,
    members: Option<&[Member]>,
) -> Result<Exported, ExportError> {
    let checkpoint = Checkpoint::new(tail, records.iter().cloned().map(Ok))?;
    let authority = authority.filter(|_| tail.epoch > 0);
    let authority = authority.map(|id| Authority::new(id.clone(), tail)?.encode(&AuthorityLimits::default()));
    let (of_members, of_marks) = (MembershipLimits::default(), WatermarkLimits::default());
    let names = members.map(|members| members.iter().map(|m| m.identity.as_bytes()).collect::<Vec<_>>());
    let membership = names.map(|names| Membership::new(&names, &of_members)?.encode(&of_members));
    let mut marks = Watermarks::default();
    for member in members.unwrap_or_default() {
        let peer = of_marks.peer(member.identity.as_bytes())?;
        let _ = marks.acknowledge(&peer, member.acked.min(tail), &of_marks)?;
    }
    Ok(Exported {
        journal: Writer::new(tail, JournalLimits::default())?.into_bytes(),
        checkpoint: checkpoint.encode(&CheckpointLimits::default())?,
        authority: authority.transpose()?,
        membership: membership.transpose()?,
        watermarks: marks.encode(&of_marks)?,
        digest: state_digest(records),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::streamhive::migrate::{Files, History};
    use crate::record::{RecordLimits, State};

    #[test]
    fn what_is_given_back_is_read_as_the_same_state() {
        let of = RecordLimits::default();
        let authority = of.authority("a").expect("a name");
        let records: Vec<Record> = (1..=9u64)
            .map(|n| {
                let key = of.key(b"documents", &[n as u8]).expect("a key");
                of.record(key, State::Deleted, Version::new(2, n), authority.clone()).expect("a record")
            })
            .collect();
        let tail = Version::new(2, 12);
        let members = [Member { identity: "b".into(), acked: Version::new(2, 40) }];
        let files = export(tail, &records, Some(&authority), Some(&members)).expect("fits");
        let history = History::read(&Files {
            journal: &files.journal,
            checkpoint: Some(&files.checkpoint),
            authority: files.authority.as_deref(),
            membership: files.membership.as_deref(),
            watermarks: Some(&files.watermarks),
        })
        .expect("whole");
        assert_eq!((history.tail(), history.digest()), (tail, files.digest));
        assert_eq!(history.authority(), Some(("a", tail)));
        assert_eq!(history.members(), Some(&["b".into()][..]));
        assert_eq!(history.watermarks(), [("b".into(), tail)]);
    }
}
