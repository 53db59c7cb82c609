//! What a v1 directory holds, taken together.

use super::{State, state_digest};
use crate::compat::streamhive::authority::{AuthorityError, AuthorityLimits};
use crate::compat::streamhive::checkpoint::{Checkpoint, CheckpointError, CheckpointLimits};
use crate::compat::streamhive::envelope;
use crate::compat::streamhive::journal::{End, Journal, JournalError, JournalLimits};
use crate::compat::streamhive::membership::{Membership, MembershipFileError, MembershipLimits};
use crate::compat::streamhive::payload;
use crate::compat::streamhive::watermarks::{WatermarkFileError, WatermarkLimits, Watermarks};
use crate::error::{Classified, Family};
use crate::record::{BlobKey, Record, State as KeyState, Version};
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The bytes of a v1 directory's files, as far as they are there.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The journal.
    pub journal: &'a [u8],
    /// The checkpoint; needed where the journal has a floor.
    pub checkpoint: Option<&'a [u8]>,
    /// The authority.
    pub authority: Option<&'a [u8]>,
    /// The membership.
    pub membership: Option<&'a [u8]>,
    /// What peers acknowledged.
    pub watermarks: Option<&'a [u8]>,
}

/// Why files are no v1 directory, or none whose history is whole (family: storage).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MigrateError {
    /// The journal cannot be read.
    #[error("journal: {0}")]
    Journal(#[from] JournalError),
    /// The checkpoint cannot be read.
    #[error("checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The authority cannot be read.
    #[error("authority: {0}")]
    Authority(#[from] AuthorityError),
    /// The membership cannot be read.
    #[error("membership: {0}")]
    Membership(#[from] MembershipFileError),
    /// The watermarks cannot be read.
    #[error("watermarks: {0}")]
    Watermarks(#[from] WatermarkFileError),
    /// What was compacted away is not there.
    #[error("journal begins after {floor}: expected a checkpoint at or above that, found {found}")]
    Gap {
        /// The journal's floor.
        floor: Version,
        /// What stands for what lies before it.
        found: String,
    },
}

impl Classified for MigrateError {
    const FAMILY: Family = Family::Storage;
}

/// A v1 history: what was compacted, and what came after.
///
/// ```
/// use strandline_core::compat::streamhive::journal::{JournalLimits, Writer};
/// use strandline_core::compat::streamhive::migrate::{Files, History};
/// use strandline_core::record::{RecordLimits, State, Version};
/// let of = RecordLimits::default();
/// let key = of.key(b"documents", b"a")?;
/// let record = of.record(key, State::Deleted, Version::new(1, 1), of.authority("node-a")?)?;
/// let mut journal = Writer::new(Version::ZERO, JournalLimits::default())?;
/// journal.append(&record)?;
/// let none = None;
/// let files = Files { journal: journal.bytes(), checkpoint: none, authority: none, membership: none, watermarks: none };
/// let history = History::read(&files)?;
/// assert_eq!((history.tail(), history.journal()), (Version::new(1, 1), &[record][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct History {
    floor: Version,
    checkpoint: Vec<Record>,
    journal: Vec<Record>,
    state: State,
    end: End,
    authority: Option<(String, Version)>,
    members: Option<Vec<String>>,
    watermarks: Vec<(String, Version)>,
}

impl History {
    /// Reads the files with the reference's default limits. A crash between the reference's two renames
    /// of a compaction leaves a checkpoint above the journal's floor: it counts, with what the journal
    /// holds above it (finding e).
    ///
    /// # Errors
    /// See [`MigrateError`].
    pub fn read(files: &Files<'_>) -> Result<Self, MigrateError> {
        let journal = Journal::decode(files.journal, &JournalLimits::default())?;
        let limits = CheckpointLimits::default();
        let checkpoint = files.checkpoint.map(|bytes| Checkpoint::decode(bytes, &limits)).transpose()?;
        let floor = checkpoint.as_ref().map_or(Version::ZERO, Checkpoint::watermark);
        if floor < journal.floor {
            let found = checkpoint.map_or_else(|| "none".to_string(), |_| alloc::format!("one at {floor}"));
            return Err(MigrateError::Gap { floor: journal.floor, found });
        }
        let checkpoint = checkpoint.map_or_else(Vec::new, |checkpoint| checkpoint.records().to_vec());
        let end = journal.end;
        let journal: Vec<Record> =
            journal.records.into_iter().filter(|record| record.version > floor).collect();
        let mut state = State::new();
        for record in checkpoint.iter().chain(&journal) {
            state.insert(record.key.clone(), record.clone());
        }
        let authority = files.authority.map(read_authority).transpose()?;
        let members = files.membership.map(|bytes| Membership::decode(bytes, &MembershipLimits::default()));
        let members =
            members.transpose()?.map(|members| members.members().iter().map(ToString::to_string).collect());
        let watermarks = files.watermarks.map(|bytes| Watermarks::decode(bytes, &WatermarkLimits::default()));
        let watermarks = watermarks.transpose()?.map_or_else(Vec::new, |marks| {
            marks.iter().map(|(name, mark)| (name.to_string(), mark)).collect()
        });
        Ok(Self { floor, checkpoint, journal, state, end, authority, members, watermarks })
    }

    /// What the checkpoint stands for; zero if there is none.
    #[must_use]
    pub const fn floor(&self) -> Version {
        self.floor
    }

    /// The last version.
    #[must_use]
    pub fn tail(&self) -> Version {
        self.journal.last().map_or(self.floor, |record| record.version)
    }

    /// The records of the checkpoint, in the order of their keys.
    #[must_use]
    pub fn checkpoint(&self) -> &[Record] {
        &self.checkpoint
    }

    /// The records above it.
    #[must_use]
    pub fn journal(&self) -> &[Record] {
        &self.journal
    }

    /// How many keys have a record.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.state.len()
    }

    /// See [`state_digest`].
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        state_digest(self.state.values())
    }

    /// What was found behind the journal's last entry.
    #[must_use]
    pub const fn end(&self) -> End {
        self.end
    }

    /// Who writes, and the last version given out.
    #[must_use]
    pub fn authority(&self) -> Option<(&str, Version)> {
        self.authority.as_ref().map(|(name, version)| (name.as_str(), *version))
    }

    /// The members; `None` if nobody ever said who they are.
    #[must_use]
    pub fn members(&self) -> Option<&[String]> {
        self.members.as_deref()
    }

    /// What peers acknowledged.
    #[must_use]
    pub fn watermarks(&self) -> &[(String, Version)] {
        &self.watermarks
    }

    /// The namespaces of its records.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<Vec<u8>> {
        self.state.keys().map(|key| key.namespace().to_vec()).collect()
    }

    /// The blobs that present keys name.
    #[must_use]
    pub fn blobs(&self) -> BTreeSet<BlobKey> {
        self.state.values().filter_map(blob_of).collect()
    }

    /// The blobs that any record names, also one that a later record of its key supersedes.
    #[must_use]
    pub fn named_blobs(&self) -> BTreeSet<BlobKey> {
        self.checkpoint.iter().chain(&self.journal).filter_map(blob_of).collect()
    }
}

fn blob_of(record: &Record) -> Option<BlobKey> {
    match record.state {
        KeyState::Present { blob } => Some(blob),
        KeyState::Deleted => None,
    }
}

/// Reads an authority of whatever name.
fn read_authority(file: &[u8]) -> Result<(String, Version), MigrateError> {
    let limits = AuthorityLimits::default();
    let text = envelope::whole(file, limits.authority_file_bytes_max).map_err(AuthorityError::from)?;
    let (name, _) = payload::authority(text).map_err(AuthorityError::from)?;
    let name = name.into_owned();
    let authority =
        crate::compat::streamhive::authority::Authority::open(file, &name, Version::ZERO, &limits)?;
    Ok((name, authority.current()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::streamhive::journal::Writer;
    use crate::record::RecordLimits;

    fn record(name: &str, sequence: u64) -> Record {
        let of = RecordLimits::default();
        let key = of.key(b"documents", name.as_bytes()).expect("a key");
        let authority = of.authority("a").expect("a name");
        of.record(key, KeyState::Deleted, Version::new(1, sequence), authority).expect("a record")
    }

    fn journal(floor: u64, records: &[Record]) -> Vec<u8> {
        let floor = if floor == 0 { Version::ZERO } else { Version::new(1, floor) };
        let mut writer = Writer::new(floor, JournalLimits::default()).expect("room");
        for record in records {
            writer.append(record).expect("in order");
        }
        writer.into_bytes()
    }

    fn checkpoint(watermark: u64, records: &[Record]) -> Vec<u8> {
        let records = records.iter().cloned().map(Ok);
        let checkpoint = Checkpoint::new(Version::new(1, watermark), records).expect("sorted");
        checkpoint.encode(&CheckpointLimits::default()).expect("short")
    }

    fn files<'a>(journal: &'a [u8], checkpoint: Option<&'a [u8]>) -> Files<'a> {
        Files { journal, checkpoint, authority: None, membership: None, watermarks: None }
    }

    #[test]
    fn checkpoint_and_journal_are_one_history() {
        let journal = journal(4, &[record("a", 5), record("c", 7)]);
        let checkpoint = checkpoint(4, &[record("a", 2), record("b", 4)]);
        let history = History::read(&files(&journal, Some(&checkpoint))).expect("whole");
        assert_eq!(
            (history.floor(), history.tail(), history.keys()),
            (Version::new(1, 4), Version::new(1, 7), 3)
        );
        let expected = [record("a", 5), record("b", 4), record("c", 7)];
        assert_eq!(history.digest(), state_digest(&expected));
    }

    #[test]
    fn finding_e_a_checkpoint_above_the_floor_counts() {
        let journal = journal(0, &[record("a", 1), record("b", 2), record("c", 3)]);
        let checkpoint = checkpoint(2, &[record("a", 1), record("b", 2)]);
        let history = History::read(&files(&journal, Some(&checkpoint))).expect("whole");
        assert_eq!((history.floor(), history.journal()), (Version::new(1, 2), &[record("c", 3)][..]));
    }

    #[test]
    fn what_was_compacted_away_must_be_there() {
        let journal = journal(4, &[record("a", 5)]);
        let missing = History::read(&files(&journal, None));
        assert!(matches!(missing, Err(MigrateError::Gap { .. })), "{missing:?}");
        let below = checkpoint(3, &[record("a", 2)]);
        assert!(matches!(History::read(&files(&journal, Some(&below))), Err(MigrateError::Gap { .. })));
    }
}
