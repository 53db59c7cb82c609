//! A replica for programs without an asynchronous runtime: each call waits for its answer.

use crate::node::{
    Node, NodeConfig, NodeHandle, PutError, RequestFailed, StartError, Unavailable, WaitPolicy,
};
use crate::node::{WriteError, Written};
use crate::{BlobStore, StoredBlob};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use strandline_core::error::StorageFault;
use strandline_core::lifecycle::api::{
    Change, Collect, Collected, Compacted, Entry, MembersChange, Mutation, Scan, ScanPage, Scrub, Scrubbed,
    Status,
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

fn answer<T: Send + 'static>(to: Sender<T>) -> impl FnOnce(T) + Send + 'static {
    move |value| drop(to.send(value))
}

fn wait<T>(on: &Receiver<T>) -> T {
    on.recv().expect("the node answers every call")
}
