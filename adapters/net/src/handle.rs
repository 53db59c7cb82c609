//! The asynchronous handle of a node.

use crate::runtime::Runtime;
use futures::channel::oneshot;
use std::io;
use std::sync::Arc;
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::lifecycle::api::{
    Change, Compacted, Entry, Fenced, MembersChange, Mutation, Scan, ScanPage, Status,
};
use strandline_core::lifecycle::command::BlobPiece;
use strandline_core::lifecycle::epoch_source::{EpochSource, EpochStep};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::record::{BlobKey, Key, RecordError, Version};
use strandline_file::node::{
    NodeHandle, PutError, RequestFailed, Unavailable, WaitPolicy, WriteError, Written,
};
use strandline_file::{StoreError, StoredBlob};

/// Reaches a replica from asynchronous programs. Cheap to clone, and usable from any task.
///
/// **A dropped future undoes nothing.** Each method says what may have happened when its future is
/// dropped before it ends.
#[derive(Clone)]
pub struct Handle {
    node: NodeHandle,
    blocking: Arc<RunBlocking>,
}

const RUNTIME_ENDING: &str = "expected the runtime to do blocking work, found it ending";

type RunBlocking = dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync;

impl Handle {
    /// A handle on a node, whose blocking work runs on `runtime`.
    #[must_use]
    pub fn new<R: Runtime>(node: NodeHandle, runtime: R) -> Self {
        Self { node, blocking: Arc::new(move |work| runtime.run_blocking(work)) }
    }

    /// The handle underneath, answered by callbacks.
    #[must_use]
    pub const fn node(&self) -> &NodeHandle {
        &self.node
    }

    /// Judges a namespace and a logical key by this replica's limits.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// Outside: the node cannot be asked. Inside: the value is no key.
    pub async fn key(
        &self,
        namespace: &[u8],
        logical_key: &[u8],
    ) -> Result<Result<Key, RecordError>, Unavailable> {
        let (namespace, logical_key) = (namespace.to_vec(), logical_key.to_vec());
        self.read(move |replica| replica.record_limits().key(&namespace, &logical_key)).await
    }

    /// Stores `bytes` as a blob and lets `key` name it; ends when both are durable. Waits while the
    /// write queue is full.
    ///
    /// Dropped: the blob may be stored; the mutation may have happened or still happen.
    ///
    /// # Errors
    /// [`PutError`] says how far it got.
    pub async fn put(&self, key: Key, bytes: impl Into<Vec<u8>>) -> Result<Version, PutError> {
        let blob = self.store(bytes.into()).await?;
        let mutation = Mutation { key, change: Change::Put { blob: blob.key }, if_version: None };
        Ok(self.one(mutation).await?)
    }

    /// Stores `bytes` as a blob, durably, for a mutation that names it.
    ///
    /// Dropped: the blob may be stored, or be stored later; no key names it.
    ///
    /// # Errors
    /// The disk's, or that the runtime is ending.
    pub async fn store(&self, bytes: Vec<u8>) -> Result<StoredBlob, StoreError> {
        let blobs = Arc::clone(self.node.blobs());
        let ending = || io::Error::other(RUNTIME_ENDING);
        self.unblock(move || blobs.store_reader(&bytes[..]))
            .await
            .ok_or_else(|| StoreError::Source(ending()))?
    }

    /// Reads `bytes_max` bytes (4 MiB at most) of a blob at `offset`; fewer only where it ends.
    /// `None` if it is not stored.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// The disk's, or that the runtime is ending.
    pub async fn read_blob(
        &self,
        blob: BlobKey,
        offset: u64,
        bytes_max: u32,
    ) -> Result<Option<BlobPiece>, StorageFault> {
        let blobs = Arc::clone(self.node.blobs());
        let ending = || StorageFault {
            action: StorageAction::Read,
            file: blob.to_string(),
            offset: Some(offset),
            cause: StorageCause::Failed,
            detail: RUNTIME_ENDING.into(),
        };
        self.unblock(move || blobs.read(blob, offset, bytes_max)).await.ok_or_else(ending)?
    }

    /// Deletes a key; ends when that is durable. Deleting what is not there leaves a tombstone too.
    ///
    /// Dropped: it may have happened or still happen.
    ///
    /// # Errors
    /// [`WriteError`] says whether anything was submitted.
    pub async fn delete(&self, key: Key) -> Result<Version, WriteError> {
        self.one(Mutation { key, change: Change::Delete, if_version: None }).await
    }

    /// Submits many mutations as one unit, all or nothing, with one wait. The blobs they name must
    /// be durable, as those of [`Handle::store`] are.
    ///
    /// Dropped: all of them may have happened or still happen, or none.
    ///
    /// # Errors
    /// [`WriteError`] says whether anything was submitted.
    pub async fn batch(&self, mutations: Vec<Mutation>, policy: WaitPolicy) -> Written {
        let (tx, rx) = oneshot::channel();
        self.node.submit(mutations, policy, move |written| drop(tx.send(written)));
        rx.await.expect("the node answers every call")
    }

    /// What a key durably is; `None` if the log has no record of it.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// The node cannot be asked.
    pub async fn get(&self, key: Key) -> Result<Option<Entry>, Unavailable> {
        self.read(move |replica| replica.get(&key)).await
    }

    /// One page of the durable keys.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// The node cannot be asked.
    pub async fn scan(&self, scan: Scan) -> Result<ScanPage, Unavailable> {
        self.read(move |replica| replica.scan(&scan)).await
    }

    /// How the replica stands.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// The node cannot be asked.
    pub async fn status(&self) -> Result<Status, Unavailable> {
        self.read(Replica::status).await
    }

    /// Compacts to the highest version allowed, or to exactly `upto`.
    ///
    /// Dropped: it goes on.
    ///
    /// # Errors
    /// [`RequestFailed`] says who refused it.
    pub async fn compact(&self, upto: Option<Version>) -> Result<Compacted, RequestFailed> {
        let (tx, rx) = oneshot::channel();
        self.node.compact(upto, move |done| drop(tx.send(done)));
        rx.await.expect("the node answers every call")
    }

    /// Takes the right to write the log, in an epoch above all that are known; ends when the epoch has
    /// begun, durably.
    ///
    /// Dropped: the move goes on.
    ///
    /// # Errors
    /// As [`Handle::compact`].
    pub async fn fence(&self, epoch: u64) -> Result<Fenced, RequestFailed> {
        let (tx, rx) = oneshot::channel();
        self.node.fence(epoch, move |done| drop(tx.send(done)));
        rx.await.expect("the node answers every call")
    }

    /// Asks `source` once, on this task, and takes the epoch it gives if that is a new one; ends when the
    /// epoch has begun, durably. To be called from time to time: who holds a lease is nowhere told.
    ///
    /// Dropped: a move that has begun goes on.
    ///
    /// # Errors
    /// [`TakeEpochError`] says who was in the way; nothing was taken.
    pub async fn take_epoch<S: EpochSource>(
        &self,
        source: &mut S,
    ) -> Result<EpochTaken, TakeEpochError<S::Error>> {
        let given = source.epoch().map_err(TakeEpochError::Source)?;
        let step = self.read(move |replica| replica.epoch_step(given)).await;
        match step.map_err(RequestFailed::from)? {
            EpochStep::Take(epoch) => Ok(EpochTaken::Taken(self.fence(epoch).await?)),
            EpochStep::NotHeld => Ok(EpochTaken::NotHeld),
            EpochStep::Held => Ok(EpochTaken::Held),
            EpochStep::Over { known } => Ok(EpochTaken::Over { known }),
        }
    }

    /// Changes who counts for compaction; ends when the change is durable.
    ///
    /// Dropped: it goes on.
    ///
    /// # Errors
    /// As [`Handle::compact`].
    pub async fn members(&self, change: MembersChange) -> Result<(), RequestFailed> {
        let (tx, rx) = oneshot::channel();
        self.node.members(change, move |done| drop(tx.send(done)));
        rx.await.expect("the node answers every call")
    }

    /// Closes the node for all its handles: what was submitted becomes durable, links are told,
    /// the directory is released.
    ///
    /// Dropped: it goes on.
    ///
    /// # Errors
    /// The fault that had stopped the journal.
    pub async fn close(&self) -> Result<(), StorageFault> {
        let (tx, rx) = oneshot::channel();
        self.node.close(move |ended| drop(tx.send(ended)));
        rx.await.expect("the node answers every call")
    }

    async fn one(&self, mutation: Mutation) -> Result<Version, WriteError> {
        let accepted = self.batch(vec![mutation], WaitPolicy::Wait).await?;
        Ok(accepted.first().expect("one mutation has one answer").version)
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (tx, rx) = oneshot::channel();
        self.node.read(move |replica| drop(tx.send(replica.map(read))));
        rx.await.expect("the node answers every call")
    }

    /// `None` if the runtime dropped the work, as it does when it ends.
    async fn unblock<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (tx, rx) = oneshot::channel();
        (self.blocking)(Box::new(move || drop(tx.send(work()))));
        rx.await.ok()
    }
}

/// What came of the epoch that a source gave.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EpochTaken {
    /// It began now.
    Taken(Fenced),
    /// This replica writes in it already.
    Held,
    /// The source gave none: nothing was changed.
    NotHeld,
    /// It is over, or another one's: nothing was changed.
    Over {
        /// The highest epoch known here or at peers.
        known: u64,
    },
}

/// Why an epoch was not taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TakeEpochError<E> {
    /// The source could not be asked.
    #[error("expected an epoch of its source, found: {0}")]
    Source(E),
    /// The node did not take it.
    #[error(transparent)]
    Request(#[from] RequestFailed),
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

/// A handle goes to any task.
const _: () = {
    const fn goes<T: Clone + Send + Sync + 'static>() {}
    goes::<Handle>();
};
