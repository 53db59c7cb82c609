//! Carrying a plan out: blobs a group at a time, then the group's mutations, each acknowledged
//! when it is durable.

use super::plan::{Candidate, Plan};
use crate::backend::{AddError, Backend, Group};
use crate::content::{self, CopyError};
use crate::exit::Failure;
use crate::tree::beneath::Beneath;
use crate::tree::path::RelPath;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Seek};
use std::path::Path;
use strandline_core::lifecycle::api::{Change, Mutation};
use strandline_core::record::{BlobKey, Key, Version};

/// Most blobs of one group: enough that the syncs of the store's folders do not count.
const GROUP_BLOBS_MAX: usize = 1_024;

/// Most bytes of one group, the last file aside: how much a killed import does over again.
const GROUP_BYTES_MAX: u64 = 64 << 20;

/// Most mutations of one batch.
const BATCH_MUTATIONS_MAX: usize = 256;

/// What an import did.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Counts {
    pub(crate) added: u64,
    pub(crate) changed: u64,
    pub(crate) unchanged: u64,
    pub(crate) deleted: u64,
    pub(crate) bytes_stored: u64,
    /// Left out by rule or because a path is too long for a key.
    pub(crate) skipped: u64,
    /// Seen and not readable later; their keys are as they were.
    pub(crate) failed: u64,
}

/// Who is told how the import goes.
pub(crate) trait Progress {
    /// A mutation is durable.
    fn acknowledged(&mut self, mutation: &Mutation, version: Version) -> Result<(), Failure>;
    /// A file could not be read; its key stays as it was.
    fn failed(&mut self, key: &[u8], error: &io::Error) -> Result<(), Failure>;
    /// A file or directory is dealt with.
    fn step(&mut self);
}

/// Carries out `plan` for the tree below `root`.
pub(crate) fn apply(
    replica: &mut dyn Backend,
    root: &Path,
    namespace: &[u8],
    plan: Plan,
    progress: &mut dyn Progress,
) -> Result<Counts, Failure> {
    let tree = Beneath::open(root).map_err(|e| Failure::io("open", root, &e))?;
    let mut work = Work { namespace, tree, progress, counts: Counts::default() };
    let mut candidates = plan.candidates.iter().peekable();
    while candidates.peek().is_some() {
        work.round(replica, &mut candidates)?;
    }
    let deletes: Result<Vec<_>, _> =
        plan.vanished.iter().map(|key| work.mutation(key, Change::Delete)).collect();
    work.submit(replica, &deletes?)?;
    work.counts.deleted = plan.vanished.len() as u64;
    Ok(work.counts)
}

/// The blobs and mutations of one round.
struct Round<'a> {
    replica: Option<&'a mut dyn Backend>,
    group: Option<Box<dyn Group + 'a>>,
    puts: Vec<(Vec<u8>, BlobKey)>,
    bytes: u64,
}

impl Round<'_> {
    const fn is_full(&self) -> bool {
        self.puts.len() >= GROUP_BLOBS_MAX || self.bytes >= GROUP_BYTES_MAX
    }

    /// A round in which nothing has changed opens no group.
    fn add(&mut self, from: &mut dyn io::Read) -> Result<BlobKey, AddError> {
        if let Some(replica) = self.replica.take() {
            self.group = Some(replica.group().map_err(AddError::Store)?);
        }
        let group = self.group.as_mut().expect("opened by the first blob");
        let (blob, bytes) = group.add(from)?;
        self.bytes += bytes;
        Ok(blob)
    }
}

struct Work<'a> {
    namespace: &'a [u8],
    tree: Beneath,
    progress: &'a mut dyn Progress,
    counts: Counts,
}

impl Work<'_> {
    fn round<'c>(
        &mut self,
        replica: &mut dyn Backend,
        candidates: &mut impl Iterator<Item = &'c Candidate>,
    ) -> Result<(), Failure> {
        let puts = self.store(replica, candidates)?;
        let mutations: Result<Vec<_>, _> =
            puts.iter().map(|(key, blob)| self.mutation(key, Change::Put { blob: *blob })).collect();
        self.submit(replica, &mutations?)
    }

    /// Stores the blobs of one round, durably: the keys that must name them.
    fn store<'c>(
        &mut self,
        replica: &mut dyn Backend,
        candidates: &mut impl Iterator<Item = &'c Candidate>,
    ) -> Result<Vec<(Vec<u8>, BlobKey)>, Failure> {
        let mut round = Round { replica: Some(replica), group: None, puts: Vec::new(), bytes: 0 };
        while !round.is_full() {
            let Some(candidate) = candidates.next() else { break };
            self.look(candidate, &mut round)?;
            self.progress.step();
        }
        self.counts.bytes_stored += round.bytes;
        if let Some(group) = round.group {
            group.commit()?;
        }
        Ok(round.puts)
    }

    /// Adds one file or directory to the round if its key names something else so far.
    fn look(&mut self, candidate: &Candidate, round: &mut Round<'_>) -> Result<(), Failure> {
        let key = &candidate.found.key;
        let blob = if candidate.found.is_directory() {
            self.changed(candidate, &mut io::empty(), round)
        } else {
            match self.open(key) {
                Ok(mut file) => self.changed(candidate, &mut file, round),
                Err(error) => Err(AddError::Source(error)),
            }
        };
        match blob {
            Ok(None) => self.counts.unchanged += 1,
            Ok(Some(blob)) => {
                match candidate.known {
                    Some(_) => self.counts.changed += 1,
                    None => self.counts.added += 1,
                }
                round.puts.push((key.clone(), blob));
            }
            Err(AddError::Source(error)) => {
                self.counts.failed += 1;
                self.progress.failed(key, &error)?;
            }
            Err(AddError::Store(failure)) => return Err(failure),
        }
        Ok(())
    }

    /// The new blob, or `None` if the content is what the key names. Known content is hashed before
    /// it is stored, so that importing again writes nothing.
    fn changed(
        &self,
        candidate: &Candidate,
        content: &mut (impl io::Read + Seek),
        round: &mut Round<'_>,
    ) -> Result<Option<BlobKey>, AddError> {
        if let Some(known) = candidate.known {
            let (found, _) = content::copy(content, &mut io::sink()).map_err(|error| match error {
                // The second never comes: a sink takes everything.
                CopyError::Source(error) | CopyError::Target(error) => AddError::Source(error),
            })?;
            if found == known {
                return Ok(None);
            }
            content.rewind().map_err(AddError::Source)?;
        }
        round.add(content).map(Some)
    }

    fn open(&mut self, key: &[u8]) -> io::Result<File> {
        let path = RelPath::parse(key).map_err(|why| io::Error::other(why.to_string()))?;
        let (parents, name) = path.split();
        self.tree.read(parents, name)
    }

    fn mutation(&self, key: &[u8], change: Change) -> Result<Mutation, Failure> {
        let key = Key::from_parts(self.namespace, key)
            .ok_or_else(|| Failure::usage("expected a namespace of at most 65535 bytes"))?;
        Ok(Mutation { key, change, if_version: None })
    }

    fn submit(&mut self, replica: &mut dyn Backend, mutations: &[Mutation]) -> Result<(), Failure> {
        for batch in mutations.chunks(BATCH_MUTATIONS_MAX) {
            let versions = replica.batch(batch)?;
            for (mutation, version) in batch.iter().zip(versions) {
                self.progress.acknowledged(mutation, version)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::Fake;
    use crate::backend::{scan_all, whole};
    use crate::mirror::plan::plan;
    use crate::tree::scan::scan;
    use std::collections::BTreeMap;
    use std::fs;
    use strandline_core::record::State;

    #[derive(Default)]
    struct Seen {
        acknowledged: Vec<(String, bool, Version)>,
        failed: usize,
    }

    impl Progress for Seen {
        fn acknowledged(&mut self, mutation: &Mutation, version: Version) -> Result<(), Failure> {
            let key = mutation.key.logical_key().escape_ascii().to_string();
            self.acknowledged.push((key, mutation.change == Change::Delete, version));
            Ok(())
        }
        fn failed(&mut self, _: &[u8], _: &io::Error) -> Result<(), Failure> {
            self.failed += 1;
            Ok(())
        }
        fn step(&mut self) {}
    }

    fn present(fake: &mut Fake) -> BTreeMap<Vec<u8>, BlobKey> {
        let mut present = BTreeMap::new();
        scan_all(fake, whole(b"files", b"", false), |key, entry| {
            if let State::Present { blob } = entry.state {
                present.insert(key.logical_key().to_vec(), blob);
            }
            Ok(())
        })
        .expect("scans");
        present
    }

    fn import(fake: &mut Fake, root: &Path) -> (Counts, Seen) {
        let found = scan(root, None, 1024).expect("scans").found;
        let plan = plan(found, present(fake));
        let mut seen = Seen::default();
        let counts = apply(fake, root, b"files", plan, &mut seen).expect("applies");
        (counts, seen)
    }

    #[test]
    fn importing_again_writes_only_what_changed() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("d/empty")).expect("creates");
        fs::write(at("d/f"), b"one").expect("writes");
        fs::write(at("same"), b"").expect("writes");
        let mut fake = Fake::default();
        let (counts, seen) = import(&mut fake, root.path());
        assert_eq!((counts.added, counts.bytes_stored), (4, 3));
        let keys: Vec<_> = seen.acknowledged.iter().map(|(key, ..)| key.as_str()).collect();
        assert_eq!(keys, ["d/", "d/empty/", "d/f", "same"]);

        let (counts, seen) = import(&mut fake, root.path());
        assert_eq!(counts, Counts { unchanged: 4, ..Counts::default() });
        assert!(seen.acknowledged.is_empty());

        fs::write(at("d/f"), b"two").expect("writes");
        fs::remove_dir(at("d/empty")).expect("removes");
        let (counts, seen) = import(&mut fake, root.path());
        assert_eq!((counts.changed, counts.deleted, counts.unchanged), (1, 1, 2));
        assert_eq!(seen.acknowledged[0], ("d/f".into(), false, Version::new(1, 5)));
        assert_eq!(seen.acknowledged[1], ("d/empty/".into(), true, Version::new(1, 6)));
    }

    #[test]
    fn more_than_a_batch_and_a_group_go_in_order() {
        let root = tempfile::tempdir().expect("a directory");
        for n in 0..GROUP_BLOBS_MAX + 2 {
            fs::write(root.path().join(format!("{n:05}")), n.to_string()).expect("writes");
        }
        let mut fake = Fake::default();
        let (counts, seen) = import(&mut fake, root.path());
        assert_eq!(counts.added, GROUP_BLOBS_MAX as u64 + 2);
        let versions: Vec<_> = seen.acknowledged.iter().map(|(.., version)| version.sequence).collect();
        assert!(versions.iter().copied().eq(1..=counts.added));
        assert!(seen.acknowledged.is_sorted_by_key(|(key, ..)| key.clone()));
    }

    #[test]
    fn a_file_that_cannot_be_read_keeps_its_key() {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("a"), b"one").expect("writes");
        fs::write(root.path().join("b"), b"two").expect("writes");
        let mut fake = Fake::default();
        import(&mut fake, root.path());
        let before = present(&mut fake);
        let found = scan(root.path(), None, 1024).expect("scans").found;
        fs::remove_file(root.path().join("a")).expect("removes");
        std::os::unix::fs::symlink("b", root.path().join("a")).expect("links");
        let plan = plan(found, before.clone());
        let mut seen = Seen::default();
        let counts = apply(&mut fake, root.path(), b"files", plan, &mut seen).expect("applies");
        assert_eq!((counts.failed, counts.unchanged, seen.failed), (1, 1, 1));
        assert_eq!(present(&mut fake), before);
    }
}
