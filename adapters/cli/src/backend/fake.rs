//! A replica in memory, for tests of what commands and the control protocol do with one.

use super::{AddError, Backend, Group};
use crate::access::ReloadReport;
use crate::exit::Failure;
use crate::report::{FencedReport, MemberReport, StatusReport};
use crate::text::{Bytes, VersionText};
use crate::watch::{CursorReport, CursorText, PageReport, RecordReport, Stands, Watch};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{
    BadBlob, Change, Collect, Collected, Compacted, Entry, MembersChange, Mutation, MutationError,
    RequestError, Scan, ScanPage, Scrub, Scrubbed,
};
use strandline_core::lifecycle::api::{Cursor, CursorReason, Verified};
use strandline_core::lifecycle::authority::FenceRefusal;
use strandline_core::record::{AuthorityId, BlobKey, Key, State, Version};
use strandline_core::verdict::Verdict;
use strandline_file::backup::BackedUp;

#[derive(Default)]
struct Inside {
    records: BTreeMap<Key, Entry>,
    blobs: BTreeMap<BlobKey, Vec<u8>>,
    members: Option<Vec<String>>,
    tail: u64,
    floor: u64,
    /// The floor rises to the tail before anybody can watch.
    compacts_before_watch: bool,
}

/// Clones share one state.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<Inside>>);

impl Backend for Fake {
    fn status(&mut self) -> Result<StatusReport, Failure> {
        let inside = self.0.lock().expect("no test thread panicked");
        let tail = VersionText(Version::new(u64::from(inside.tail > 0), inside.tail));
        let present = inside.records.values().filter(|e| e.state != State::Deleted).count() as u64;
        let members = inside.members.iter().flatten();
        Ok(StatusReport {
            log: "00".repeat(16),
            identity: "fake".into(),
            incarnation: "00".repeat(12),
            namespaces: vec![Bytes(b"files".to_vec())],
            authority: Some("fake".into()),
            fenced: None,
            submitted: tail,
            tail,
            tail_digest: "00".repeat(32),
            floor: VersionText(Version::new(u64::from(inside.floor > 0), inside.floor)),
            entries: inside.tail - inside.floor,
            journal_bytes: 0,
            present,
            complete: tail,
            blobs_wanted: 0,
            tombstones: inside.records.len() as u64 - present,
            epoch: 1,
            compactable: inside.members.is_some().then_some(tail),
            blocked_by: None,
            members_configured: inside.members.is_some(),
            members: members
                .map(|m| MemberReport {
                    identity: m.clone(),
                    state: "joining".into(),
                    incarnation: None,
                    lag_entries: Some(0),
                    acked: tail,
                    complete: tail,
                    counts_at: None,
                    lag_bytes: 0,
                    lag_ms: 0,
                })
                .collect(),
            links: Vec::new(),
            subscriptions: Vec::new(),
            installing: false,
            compacting: false,
            halted: None,
        })
    }

    fn get(&mut self, key: &Key) -> Result<Option<Entry>, Failure> {
        Ok(self.0.lock().expect("no test thread panicked").records.get(key).cloned())
    }

    fn scan(&mut self, scan: &Scan) -> Result<ScanPage, Failure> {
        let inside = self.0.lock().expect("no test thread panicked");
        let mut found = inside.records.iter().filter(|(key, entry)| {
            scan.namespace.as_deref().is_none_or(|n| key.namespace() == n)
                && key.logical_key().starts_with(&scan.prefix)
                && scan.after.as_ref().is_none_or(|after| *key > after)
                && (scan.deleted || entry.state != State::Deleted)
        });
        // Short pages, so that every caller has to resume.
        let entries: Vec<_> = found.by_ref().take(3).map(|(k, e)| (k.clone(), e.clone())).collect();
        let next = found.next().and_then(|_| entries.last().map(|(key, _)| key.clone()));
        Ok(ScanPage { entries, next, at: Version::new(1, inside.tail) })
    }

    fn batch(&mut self, mutations: &[Mutation]) -> Result<Vec<Version>, Failure> {
        let mut inside = self.0.lock().expect("no test thread panicked");
        for mutation in mutations {
            let found = inside.records.get(&mutation.key).map_or(Version::ZERO, |e| e.version);
            if let Some(expected) = mutation.if_version.filter(|v| *v != found) {
                return Err(MutationError::Precondition { key: mutation.key.clone(), expected, found }.into());
            }
        }
        let mut versions = Vec::new();
        for mutation in mutations {
            inside.tail += 1;
            let version = Version::new(1, inside.tail);
            let state = match mutation.change {
                Change::Put { blob } => State::Present { blob },
                Change::Delete => State::Deleted,
            };
            let entry = Entry { state, version, authority: AuthorityId::from_text("fake") };
            inside.records.insert(mutation.key.clone(), entry);
            versions.push(version);
        }
        Ok(versions)
    }

    fn compact(&mut self, upto: Option<Version>) -> Result<Compacted, Failure> {
        let mut inside = self.0.lock().expect("no test thread panicked");
        if inside.members.is_none() {
            return Err(RequestError::MembershipMissing.into());
        }
        let floor = upto.map_or(inside.tail, |v| v.sequence);
        let entries_dropped = floor - inside.floor;
        inside.floor = floor;
        Ok(Compacted {
            floor: Version::new(1, floor),
            records: inside.records.len() as u64,
            checkpoint_bytes: 0,
            entries_dropped,
            tombstones_dropped: 0,
        })
    }

    fn members(&mut self, change: &MembersChange) -> Result<(), Failure> {
        let mut inside = self.0.lock().expect("no test thread panicked");
        let members = inside.members.get_or_insert_default();
        match change {
            MembersChange::Add(id) => members.push(id.clone()),
            MembersChange::Remove(id) => members.retain(|m| m != id),
            MembersChange::Clear => members.clear(),
        }
        Ok(())
    }

    fn pending(&mut self, key: &Key) -> Result<bool, Failure> {
        let inside = self.0.lock().expect("no test thread panicked");
        let entry = inside.records.get(key);
        Ok(entry.is_some_and(|entry| match entry.state {
            State::Present { blob } => !inside.blobs.contains_key(&blob),
            State::Deleted => false,
        }))
    }

    fn collect(&mut self, collect: Collect) -> Result<Collected, Failure> {
        let mut inside = self.0.lock().expect("no test thread panicked");
        let Inside { records, blobs, .. } = &mut *inside;
        let named =
            |blob: &BlobKey| records.values().any(|entry| entry.state == State::Present { blob: *blob });
        let mut found = Collected { looked: blobs.len() as u64, ..Collected::default() };
        for (blob, bytes) in blobs.iter().filter(|(blob, _)| !named(blob)) {
            found.blobs += 1;
            found.bytes += bytes.len() as u64;
            found.keys.push(*blob);
        }
        if !collect.dry_run {
            for blob in &found.keys {
                blobs.remove(blob);
            }
        }
        Ok(found)
    }

    fn scrub(&mut self, _: Scrub) -> Result<Scrubbed, Failure> {
        let inside = self.0.lock().expect("no test thread panicked");
        let mut found = Scrubbed::default();
        for (key, entry) in &inside.records {
            let State::Present { blob } = entry.state else { continue };
            found.keys += 1;
            match inside.blobs.get(&blob) {
                Some(bytes) if hash(bytes) == blob => found.bytes += bytes.len() as u64,
                other => {
                    found.bad += 1;
                    found.blobs.push(BadBlob { key: key.clone(), blob, damaged: other.is_some() });
                }
            }
        }
        Ok(found)
    }

    fn reload(&mut self) -> Result<ReloadReport, Failure> {
        Ok(ReloadReport { links_ended: 1, peers_called: 2 })
    }

    fn judge(&mut self, cursor: CursorText) -> Result<CursorReport, Failure> {
        let inside = self.0.lock().expect("no test thread panicked");
        let (floor, tail) = (Version::new(1, inside.floor), Version::new(1, inside.tail));
        let ours = Cursor::new(LogId([0; 16]), tail);
        let cursor = cursor.of(ours);
        let verdict = if cursor.at.sequence < floor.sequence {
            Verdict::Gap { from: cursor.at, to: floor, reason: CursorReason::BelowFloor }
        } else {
            Verdict::Complete { through: tail, verified: Verified::VersionOnly }
        };
        Ok(CursorReport::new(cursor, &verdict, &Stands { floor, tail, incarnation: "00".into() }))
    }

    fn watch(&mut self, cursor: Option<CursorText>) -> Result<Box<dyn Watch + '_>, Failure> {
        let cursor = cursor.unwrap_or_else(|| "0.0".parse().expect("a cursor"));
        {
            let mut inside = self.0.lock().expect("no test thread panicked");
            if inside.compacts_before_watch {
                inside.floor = inside.tail;
            }
        }
        Ok(Box::new(FakeWatch { verdict: self.judge(cursor)?, of: self.clone(), given: false }))
    }

    fn begin_backup(&mut self, to: &Path) -> Result<BackedUp, Failure> {
        let tail = Version::new(1, self.0.lock().expect("no test thread panicked").tail);
        Err(Failure::refused(format!("nothing at {tail} is on a disk that {} could get", to.display())))
    }

    fn fence(&mut self, epoch: u64) -> Result<FencedReport, Failure> {
        if epoch < 2 {
            return Err(RequestError::Fence(FenceRefusal { known: 1, found: epoch }).into());
        }
        let previous_end = VersionText(Version::new(1, self.0.lock().expect("no test thread panicked").tail));
        Ok(FencedReport { epoch, authority: "fake".into(), previous_end })
    }

    fn group(&mut self) -> Result<Box<dyn Group + '_>, Failure> {
        Ok(Box::new(FakeGroup { store: self, added: Vec::new() }))
    }

    fn blob(&mut self, key: BlobKey) -> Result<Option<Box<dyn Read + '_>>, Failure> {
        let inside = self.0.lock().expect("no test thread panicked");
        let bytes = inside.blobs.get(&key).cloned();
        Ok(bytes.map(|bytes| Box::new(io::Cursor::new(bytes)) as Box<dyn Read>))
    }

    fn verify(&mut self, key: BlobKey) -> Result<Option<u64>, Failure> {
        let inside = self.0.lock().expect("no test thread panicked");
        let Some(bytes) = inside.blobs.get(&key) else { return Ok(None) };
        if hash(bytes) == key { Ok(Some(bytes.len() as u64)) } else { Err(Failure::storage("damaged")) }
    }

    fn blob_count(&mut self) -> Result<u64, Failure> {
        Ok(self.0.lock().expect("no test thread panicked").blobs.len() as u64)
    }
}

impl Fake {
    /// Lets the next watch find that everything was compacted.
    pub(crate) fn compact_before_watch(&self) {
        self.0.lock().expect("no test thread panicked").compacts_before_watch = true;
    }

    /// Puts other bytes in a blob's place.
    pub(crate) fn damage(&self, key: BlobKey) {
        self.0.lock().expect("no test thread panicked").blobs.insert(key, b"damaged".to_vec());
    }

    /// Loses a blob.
    pub(crate) fn lose(&self, key: BlobKey) {
        self.0.lock().expect("no test thread panicked").blobs.remove(&key);
    }
}

fn hash(bytes: &[u8]) -> BlobKey {
    BlobKey(Sha256::digest(bytes).into())
}

/// Gives every record once, then nothing.
struct FakeWatch {
    verdict: CursorReport,
    of: Fake,
    given: bool,
}

impl Watch for FakeWatch {
    fn verdict(&self) -> &CursorReport {
        &self.verdict
    }

    fn next(&mut self) -> Result<Option<PageReport>, Failure> {
        if !self.verdict.is_complete() || std::mem::replace(&mut self.given, true) {
            return Ok(None);
        }
        let inside = self.of.0.lock().expect("no test thread panicked");
        let record = |(key, entry): (&Key, &Entry)| RecordReport { key: key.into(), entry: entry.into() };
        let records = inside.records.iter().map(record).collect();
        Ok(Some(PageReport::Changes { records, from_memory: true, behind: 0 }))
    }

    fn reset(&mut self) -> Result<(), Failure> {
        self.given = false;
        Ok(())
    }
}

struct FakeGroup<'a> {
    store: &'a Fake,
    added: Vec<Vec<u8>>,
}

impl Group for FakeGroup<'_> {
    fn add(&mut self, from: &mut dyn Read) -> Result<(BlobKey, u64), AddError> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).map_err(AddError::Source)?;
        let added = (hash(&bytes), bytes.len() as u64);
        self.added.push(bytes);
        Ok(added)
    }

    fn commit(self: Box<Self>) -> Result<(), Failure> {
        let mut inside = self.store.0.lock().expect("no test thread panicked");
        inside.blobs.extend(self.added.into_iter().map(|bytes| (hash(&bytes), bytes)));
        Ok(())
    }
}
