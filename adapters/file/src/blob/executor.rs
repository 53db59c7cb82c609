//! The threads that execute blob commands.

use super::fans::fan_of;
use super::group::StoreGroup;
use super::store::{BlobStore, name};
use super::upload::Upload;
use crate::executor::ExecutorConfig;
use crate::fault::refused;
use crate::owed::Owed;
use crate::threads::{Complete, Job, Threads};
use crossbeam_channel::Receiver;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::lifecycle::command::{BlobCommand, BlobOutcome, Stored, blob_op};
use strandline_core::record::BlobKey;
use strandline_core::ticket::Completion;

/// Most puts and commits that share one round of syncs.
const GROUP_MAX: usize = 64;

/// Most uploads one thread keeps open. When one more begins, the one that rested longest goes.
const UPLOADS_MAX: usize = 64;

/// Executes blob commands on a store.
///
/// Reads run beside everything. Whatever stores is spread over threads by key, so that the commands
/// of one key keep their order; each thread takes up to 64 puts and commits at a time, syncs all
/// their bytes, renames them, syncs each folder once, and then answers them all.
///
/// An upload that nobody continues ends with the process, or when its thread has 64 newer ones; a
/// later piece of it is then answered with the cause `Missing`, and the upload begins anew.
#[derive(Debug)]
pub struct BlobExecutor {
    reads: Threads<Job<Arc<BlobStore>>>,
    lanes: Vec<Threads<Store>>,
    complete: Complete<Completion<BlobOutcome>>,
}

/// A command that stores.
#[derive(Debug)]
enum Store {
    Put { owed: Owed<blob_op::Put>, key: BlobKey, bytes: Vec<u8> },
    Write { owed: Owed<blob_op::Write>, key: BlobKey, offset: u64, bytes: Vec<u8> },
    Commit { owed: Owed<blob_op::Commit>, key: BlobKey, total: u64 },
    Abandon { owed: Owed<blob_op::Abandon>, key: BlobKey },
}

impl BlobExecutor {
    /// Starts the threads. `complete` is called on them, once per command; what it does delays the
    /// commands behind it, so it should only pass the completion on.
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub fn start(
        store: Arc<BlobStore>,
        config: ExecutorConfig,
        complete: impl Fn(Completion<BlobOutcome>) + Send + Sync + 'static,
    ) -> Self {
        let complete = Complete::new(complete);
        let lane = |_| {
            let store = Arc::clone(&store);
            Threads::owing("blobs", [move |work| Lane::new(&store).run(&work)])
        };
        let lanes = (0..config.blob_threads.max(1)).map(lane).collect();
        let reads = std::iter::repeat_n(Arc::clone(&store), config.read_threads.max(1));
        Self { reads: Threads::jobs("read blobs", reads), lanes, complete }
    }

    /// Starts a command and returns; its answer goes to `complete`. If its thread panics, the answer
    /// is a fault with the cause `Failed`.
    pub fn execute(&self, command: BlobCommand) {
        let complete = &self.complete;
        let (key, work) = match command {
            BlobCommand::Stat { ticket, keys } => {
                let owed = Owed::new(complete, ticket, StorageAction::Read, "blobs");
                let stat =
                    move |store: &mut Arc<BlobStore>| keys.into_iter().map(|key| store.stat(key)).collect();
                return self.reads.run(owed, stat);
            }
            BlobCommand::Read { ticket, key, offset, bytes_max } => {
                let owed = Owed::new(complete, ticket, StorageAction::Read, name(key));
                return self.reads.run(owed, move |store| store.read(key, offset, bytes_max));
            }
            BlobCommand::Put { ticket, key, bytes } => {
                let owed = Owed::new(complete, ticket, StorageAction::Write, name(key));
                (key, Store::Put { owed, key, bytes })
            }
            BlobCommand::List { ticket, after, count_max } => {
                let owed = Owed::new(complete, ticket, StorageAction::List, "blobs");
                return self.reads.run(owed, move |store| store.page(after, count_max));
            }
            BlobCommand::Remove { ticket, keys, untouched_ms } => {
                let owed = Owed::new(complete, ticket, StorageAction::Remove, "blobs");
                return self.reads.run(owed, move |store| store.remove(&keys, untouched_ms));
            }
            BlobCommand::Verify { ticket, key } => {
                let owed = Owed::new(complete, ticket, StorageAction::Read, name(key));
                return self.reads.run(owed, move |store| store.check(key));
            }
            BlobCommand::Abandon { ticket, key } => {
                let owed = Owed::new(complete, ticket, StorageAction::Remove, name(key));
                (key, Store::Abandon { owed, key })
            }
            BlobCommand::Write { ticket, key, offset, bytes } => {
                let owed = Owed::new(complete, ticket, StorageAction::Write, name(key));
                (key, Store::Write { owed, key, offset, bytes })
            }
            BlobCommand::Commit { ticket, key, total } => {
                let owed = Owed::new(complete, ticket, StorageAction::Sync, name(key));
                (key, Store::Commit { owed, key, total })
            }
        };
        self.lanes[usize::from(fan_of(key)) % self.lanes.len()].hand(work);
    }

    /// Finishes and answers what was started, and joins the threads. Dropping does the same.
    pub fn shutdown(self) {
        drop(self);
    }
}

/// One thread's share of the keys.
struct Lane<'a> {
    store: &'a BlobStore,
    uploads: BTreeMap<BlobKey, Resting<'a>>,
    /// Counts the pieces written, to tell which upload rested longest.
    pieces: u64,
    group: StoreGroup<'a>,
    /// Answered when the group is durable.
    waiting: Vec<(BlobKey, Waiting)>,
}

struct Resting<'a> {
    upload: Upload<'a>,
    since: u64,
}

enum Waiting {
    Put(Owed<blob_op::Put>),
    Commit(Owed<blob_op::Commit>),
}

impl<'a> Lane<'a> {
    fn new(store: &'a BlobStore) -> Self {
        // The lanes overlap with one another, so that none needs threads of its own for its syncs.
        let group = StoreGroup::new(store, 0);
        Self { store, uploads: BTreeMap::new(), pieces: 0, group, waiting: Vec::new() }
    }

    fn run(mut self, work: &Receiver<Store>) {
        while let Ok(first) = work.recv() {
            self.start(first);
            while self.waiting.len() < GROUP_MAX
                && let Ok(next) = work.try_recv()
            {
                self.start(next);
            }
            self.finish();
        }
    }

    fn start(&mut self, work: Store) {
        match work {
            Store::Put { owed, key, bytes } => {
                self.in_order(key);
                match self.group.add_keyed(key, &bytes) {
                    Ok(Stored::Stored) => self.waiting.push((key, Waiting::Put(owed))),
                    now @ (Ok(Stored::Mismatch) | Err(_)) => owed.give(now),
                }
            }
            Store::Write { owed, key, offset, bytes } => {
                self.in_order(key);
                owed.give(self.write(key, offset, &bytes));
            }
            Store::Abandon { owed, key } => {
                self.in_order(key);
                self.uploads.remove(&key);
                owed.give(Ok(()));
            }
            Store::Commit { owed, key, total } => {
                self.in_order(key);
                match self.commit(key, total) {
                    Ok(Stored::Stored) => self.waiting.push((key, Waiting::Commit(owed))),
                    now @ (Ok(Stored::Mismatch) | Err(_)) => owed.give(now),
                }
            }
        }
    }

    /// What is waiting for this key is finished before another command of it begins.
    fn in_order(&mut self, key: BlobKey) {
        if self.waiting.iter().any(|(waiting, _)| *waiting == key) {
            self.finish();
        }
    }

    fn write(&mut self, key: BlobKey, offset: u64, bytes: &[u8]) -> Result<(), StorageFault> {
        let mut upload = match (offset, self.uploads.remove(&key)) {
            (0, earlier) => {
                drop(earlier);
                Upload::new(self.store)?
            }
            (_, Some(resting)) => resting.upload,
            (_, None) => return Err(no_upload(key, StorageAction::Write, Some(offset))),
        };
        // An upload whose write failed is dropped, and never synced.
        upload.write(offset, bytes)?;
        self.make_room();
        self.pieces += 1;
        self.uploads.insert(key, Resting { upload, since: self.pieces });
        Ok(())
    }

    fn make_room(&mut self) {
        if self.uploads.len() < UPLOADS_MAX {
            return;
        }
        let oldest = self.uploads.iter().min_by_key(|(_, resting)| resting.since).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.uploads.remove(&key);
        }
    }

    /// Verifies an upload and adds it to the group.
    fn commit(&mut self, key: BlobKey, total: u64) -> Result<Stored, StorageFault> {
        let mut upload = match self.uploads.remove(&key) {
            Some(resting) => resting.upload,
            // An empty blob has no piece.
            None if total == 0 => Upload::new(self.store)?,
            None => return Err(no_upload(key, StorageAction::Sync, None)),
        };
        if upload.bytes() != total || upload.key()? != key {
            return Ok(Stored::Mismatch);
        }
        self.group.add_upload(key, upload).map(|()| Stored::Stored)
    }

    /// Makes the group durable and answers everyone in it.
    fn finish(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let committed = std::mem::replace(&mut self.group, StoreGroup::new(self.store, 0)).commit();
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            let stored = committed.clone().map(|()| Stored::Stored);
            match waiting {
                Waiting::Put(owed) => owed.give(stored),
                Waiting::Commit(owed) => owed.give(stored),
            }
        }
    }
}

fn no_upload(key: BlobKey, action: StorageAction, offset: Option<u64>) -> StorageFault {
    let detail = "expected an upload begun at offset 0, found none";
    refused(action, &name(key), offset, StorageCause::Missing, detail)
}
