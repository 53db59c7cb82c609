//! A replica for programs without an asynchronous runtime: each call waits for its answer.

use crate::node::{
    Node, NodeConfig, NodeHandle, NodeSubscription, PutError, RequestFailed, StartError, SubscribeFailed,
    Unavailable, WaitPolicy,
};
use crate::node::{WriteError, Written};
use crate::{BlobStore, StoredBlob};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use strandline_core::error::StorageFault;
use strandline_core::lifecycle::api::{
    Change, Collect, Collected, Compacted, Cursor, CursorVerdict, Entry, MembersChange, Mutation, Page, Scan,
    ScanPage, Scrub, Scrubbed, Status, SubscriptionEnd,
};
use strandline_core::lifecycle::recovery::{Init, RecoveryReport};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::record::{BlobKey, Key, RecordError, Version};

/// A replica whose calls block. Share it between threads by reference or in an `Arc`: writes of
/// several threads become durable together.
///
/// ```
/// use strandline_core::id::LogId;
/// use strandline_core::lifecycle::recovery::Init;
/// use strandline_core::record::{AuthorityId, State};
/// use strandline_file::blocking::BlockingReplica;
/// use strandline_file::node::NodeConfig;
/// use std::io::Read;
///
/// let parent = tempfile::tempdir()?;
/// let init = Init {
///     log: LogId([7; 16]),
///     identity: "a".into(),
///     namespaces: vec![b"files".to_vec()],
///     authority: Some(AuthorityId::from_text("a")),
/// };
/// let path = parent.path().join("log");
/// let (replica, _) = BlockingReplica::create(&path, init, NodeConfig::default())?;
/// let key = replica.key(b"files", b"greeting")??;
/// let version = replica.put(key.clone(), &b"hello"[..])?;
/// replica.close()?;
///
/// let (replica, _) = BlockingReplica::open(&path, NodeConfig::default())?;
/// let entry = replica.get(&key)?.expect("what was answered is durable");
/// assert_eq!(entry.version, version);
/// let State::Present { blob } = entry.state else { panic!("it was put") };
/// let mut text = String::new();
/// replica.read_blob(blob)?.expect("stored").read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # replica.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BlockingReplica {
    node: Node,
}

impl BlockingReplica {
    /// Opens the log at `path`, and recovers it.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub fn open(path: impl AsRef<Path>, config: NodeConfig) -> Result<(Self, RecoveryReport), StartError> {
        let (node, report) = Node::open(path, config)?;
        Ok((Self { node }, report))
    }

    /// Creates a log at `path`.
    ///
    /// # Errors
    /// As [`Node::create`].
    pub fn create(
        path: impl AsRef<Path>,
        init: Init,
        config: NodeConfig,
    ) -> Result<(Self, RecoveryReport), StartError> {
        let (node, report) = Node::create(path, init, config)?;
        Ok((Self { node }, report))
    }

    /// The handle underneath, answered by callbacks.
    #[must_use]
    pub const fn handle(&self) -> &NodeHandle {
        self.node.handle()
    }

    /// The blob store, for many blobs in one round of syncs.
    #[must_use]
    pub fn blobs(&self) -> &Arc<BlobStore> {
        self.handle().blobs()
    }

    /// Judges a namespace and a logical key by this replica's limits.
    ///
    /// # Errors
    /// Outside: the replica cannot be asked. Inside: the value is no key.
    pub fn key(&self, namespace: &[u8], logical_key: &[u8]) -> Result<Result<Key, RecordError>, Unavailable> {
        let (namespace, logical_key) = (namespace.to_vec(), logical_key.to_vec());
        self.read(move |replica| replica.record_limits().key(&namespace, &logical_key))
    }

    /// Stores what `content` gives as a blob and lets `key` name it; both are durable on return.
    /// The blob is never in memory as a whole.
    ///
    /// # Errors
    /// [`PutError`] says how far it got.
    pub fn put(&self, key: Key, content: impl Read) -> Result<Version, PutError> {
        let stored = self.blobs().store_reader(content)?;
        Ok(self.put_stored(key, stored)?)
    }

    /// Lets `key` name a blob of this replica's store; durable on return. The blob must be durable.
    ///
    /// # Errors
    /// [`WriteError`] says whether anything was submitted.
    pub fn put_stored(&self, key: Key, stored: StoredBlob) -> Result<Version, WriteError> {
        self.one(Mutation { key, change: Change::Put { blob: stored.key }, if_version: None })
    }

    /// Deletes a key; durable on return. Deleting what is not there leaves a tombstone too.
    ///
    /// # Errors
    /// [`WriteError`] says whether anything was submitted.
    pub fn delete(&self, key: Key) -> Result<Version, WriteError> {
        self.one(Mutation { key, change: Change::Delete, if_version: None })
    }

    /// Submits many mutations as one unit, all or nothing, with one wait. The blobs they name must
    /// be durable. Waits while the write queue is full.
    ///
    /// # Errors
    /// [`WriteError`] says whether anything was submitted.
    pub fn write_batch(&self, mutations: Vec<Mutation>) -> Written {
        let (tx, rx) = channel();
        self.handle().submit(mutations, WaitPolicy::Wait, answer(tx));
        wait(&rx)
    }

    /// What a key durably is; `None` if the log has no record of it.
    ///
    /// # Errors
    /// The replica cannot be asked.
    pub fn get(&self, key: &Key) -> Result<Option<Entry>, Unavailable> {
        let key = key.clone();
        self.read(move |replica| replica.get(&key))
    }

    /// A blob, open for reading; `None` if it is not stored.
    ///
    /// # Errors
    /// What the system reports.
    pub fn read_blob(&self, blob: BlobKey) -> Result<Option<File>, StorageFault> {
        self.blobs().file(blob)
    }

    /// One page of the durable keys.
    ///
    /// # Errors
    /// The replica cannot be asked.
    pub fn scan(&self, scan: Scan) -> Result<ScanPage, Unavailable> {
        self.read(move |replica| replica.scan(&scan))
    }

    /// How the replica stands.
    ///
    /// # Errors
    /// The replica cannot be asked.
    pub fn status(&self) -> Result<Status, Unavailable> {
        self.read(Replica::status)
    }

    /// Compacts to the highest version allowed, or to exactly `upto`.
    ///
    /// # Errors
    /// [`RequestFailed`] says who refused it.
    pub fn compact(&self, upto: Option<Version>) -> Result<Compacted, RequestFailed> {
        let (tx, rx) = channel();
        self.handle().compact(upto, answer(tx));
        wait(&rx)
    }

    /// Changes who counts for compaction; durable on return.
    ///
    /// # Errors
    /// [`RequestFailed`] says who refused it.
    pub fn members(&self, change: MembersChange) -> Result<(), RequestFailed> {
        let (tx, rx) = channel();
        self.handle().members(change, answer(tx));
        wait(&rx)
    }

    /// Collects the blobs that nothing needs, or says which they are.
    ///
    /// # Errors
    /// [`RequestFailed`] says who refused it.
    pub fn collect(&self, collect: Collect) -> Result<Collected, RequestFailed> {
        let (tx, rx) = channel();
        self.handle().collect(collect, answer(tx));
        wait(&rx)
    }

    /// Looks for damage in the blobs that keys name, no faster than asked for.
    ///
    /// # Errors
    /// [`RequestFailed`] says who refused it.
    pub fn scrub(&self, scrub: Scrub) -> Result<Scrubbed, RequestFailed> {
        let (tx, rx) = channel();
        self.handle().scrub(scrub, answer(tx));
        wait(&rx)
    }

    /// Whether a key is present and its blob is not here yet.
    ///
    /// # Errors
    /// The replica cannot be asked.
    pub fn blob_pending(&self, key: &Key) -> Result<bool, Unavailable> {
        let key = key.clone();
        self.read(move |replica| replica.blob_pending(&key))
    }

    /// Subscribes to the changes after `cursor`.
    ///
    /// # Errors
    /// [`SubscribeFailed`] says who refused it.
    pub fn subscribe(&self, cursor: Cursor) -> Result<BlockingSubscription, SubscribeFailed> {
        BlockingSubscription::open(self.handle(), cursor)
    }

    /// What can be vouched for to who has everything up to `cursor`.
    ///
    /// # Errors
    /// The replica cannot be asked.
    pub fn judge(&self, cursor: Cursor) -> Result<CursorVerdict, Unavailable> {
        self.read(move |replica| replica.judge(cursor))
    }

    /// The cursor of who has everything that is durable now.
    ///
    /// # Errors
    /// The replica cannot be asked.
    pub fn cursor(&self) -> Result<Cursor, Unavailable> {
        self.read(Replica::cursor)
    }

    /// Writes what was submitted, seals the journal and releases the directory.
    ///
    /// # Errors
    /// The fault that had stopped the journal.
    pub fn close(self) -> Result<(), StorageFault> {
        self.node.close()
    }

    fn one(&self, mutation: Mutation) -> Result<Version, WriteError> {
        let accepted = self.write_batch(vec![mutation])?;
        Ok(accepted.first().expect("one mutation has one answer").version)
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (tx, rx) = channel();
        self.handle().read(move |replica| drop(tx.send(replica.map(read))));
        wait(&rx)
    }
}

/// A subscription whose pages are waited for. Dropping it ends it.
#[derive(Debug)]
pub struct BlockingSubscription {
    subscription: NodeSubscription,
    incoming: Receiver<Page>,
    asked: bool,
}

impl BlockingSubscription {
    /// Subscribes to the changes of a node after `cursor`.
    ///
    /// # Errors
    /// [`SubscribeFailed`] says who refused it.
    pub fn open(node: &NodeHandle, cursor: Cursor) -> Result<Self, SubscribeFailed> {
        let (tx, rx) = channel();
        let (pages, incoming) = channel();
        node.subscribe(cursor, move |page| drop(pages.send(page)), answer(tx));
        Ok(Self { subscription: wait(&rx)?, incoming, asked: false })
    }

    /// What was vouched for when it was opened. Unless it is `Complete`, no page comes before
    /// [`BlockingSubscription::reset`].
    pub const fn verdict(&self) -> &CursorVerdict {
        self.subscription.verdict()
    }

    /// Begins anew with the state of the key space. A page that was made before may still come first.
    pub fn reset(&self) {
        self.subscription.reset();
    }

    /// The next page, waited for at most `timeout`; `None` if none came.
    pub fn next_within(&mut self, timeout: Duration) -> Option<Page> {
        if !std::mem::replace(&mut self.asked, true) {
            self.subscription.want();
        }
        let page = match self.incoming.recv_timeout(timeout) {
            Ok(page) => page,
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => Page::Ended(SubscriptionEnd::Closing),
        };
        self.asked = false;
        Some(page)
    }
}

fn answer<T: Send + 'static>(to: Sender<T>) -> impl FnOnce(T) + Send + 'static {
    move |value| drop(to.send(value))
}

fn wait<T>(on: &Receiver<T>) -> T {
    on.recv().expect("the node answers every call")
}
