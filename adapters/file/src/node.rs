//! A node: one log's directory, its executor, and the thread that owns the replica.

mod api;
mod handle;
mod links;
mod owner;
mod reply;
mod subscription;
mod waiters;

pub use api::{PutError, RequestFailed, Unavailable, WaitPolicy, WriteError, Written};
pub use handle::NodeHandle;
pub use links::LinkSink;
pub use subscription::{NodeSubscription, SubscribeFailed};

use crate::{BlobStore, Directory, Executor, ExecutorConfig, OpenError, OpenMode};
use api::Ending;
pub use owner::Clock;
use owner::{Input, Owner};
use reply::Waiting;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use strandline_core::error::StorageFault;
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::Event;
use strandline_core::lifecycle::command::Command;
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::lifecycle::recovery::{Init, NotRecovered, Recovery, RecoveryError, RecoveryReport};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::{Host, Machine, Next, Sent, drain};
use strandline_core::seed::Seed;

/// Folder of the blob store in a log's directory, unless another store is given.
const BLOBS: &str = "blobs";

/// Outputs of recovery between two looks at its progress.
const RECOVERY_OUTPUTS_MAX: u32 = 1024;

/// What a node is made of.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Limits and periods of the replica.
    pub replica: ReplicaConfig,
    /// Threads for files and blobs.
    pub executor: ExecutorConfig,
    /// Mutations, reads and requests that may be under way at once, over all handles.
    pub calls_max: usize,
    /// The blob store, if several logs share one; else the folder `blobs` in the log's directory. From
    /// one that several logs have used nothing is collected.
    pub blobs: Option<Arc<BlobStore>>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            replica: ReplicaConfig::default(),
            executor: ExecutorConfig::default(),
            calls_max: 64 << 10,
            blobs: None,
        }
    }
}

/// Why a node did not start. Each family has its own variants.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory, or its blob store, could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log could not be recovered or created.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The system gave no random bytes.
    #[error("expected 32 random bytes from the system, found: {0}")]
    Entropy(getrandom::Error),
}

/// A running replica: its directory is locked, its owner's thread runs.
///
/// Dropping a node closes it as [`NodeHandle::close`] does, without waiting for the end.
pub struct Node {
    handle: NodeHandle,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    /// Opens the log at `path`: locks the directory, recovers to the end, starts the owner. Blocks
    /// until the log is recovered.
    ///
    /// # Errors
    /// The directory is in use or cannot be read, it holds no log, or the log is damaged.
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub fn open(path: impl AsRef<Path>, config: NodeConfig) -> Result<(Self, RecoveryReport), StartError> {
        Self::start(path.as_ref(), OpenMode::Existing, config, None)
    }

    /// Creates a log at `path`, and the directory if it is missing, and starts the owner.
    ///
    /// # Errors
    /// The directory is in use or cannot be written, or holds a log already.
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub fn create(
        path: impl AsRef<Path>,
        init: Init,
        config: NodeConfig,
    ) -> Result<(Self, RecoveryReport), StartError> {
        Self::start(path.as_ref(), OpenMode::Create, config, Some(init))
    }

    /// The handle to reach it with.
    #[must_use]
    pub const fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    /// Closes the node as [`NodeHandle::close`] does and waits for the end of its thread.
    ///
    /// # Errors
    /// The fault that had stopped the journal.
    ///
    /// # Panics
    /// If the owner's thread has panicked.
    pub fn close(mut self) -> Result<(), StorageFault> {
        let (tx, rx) = channel();
        self.handle.close(move |ended| drop(tx.send(ended)));
        let ended = rx.recv().expect("every call is answered");
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the owner ends without a panic");
        }
        ended
    }

    fn start(
        path: &Path,
        mode: OpenMode,
        config: NodeConfig,
        init: Option<Init>,
    ) -> Result<(Self, RecoveryReport), StartError> {
        let directory = Arc::new(Directory::open(path, mode)?);
        let blobs = match config.blobs {
            Some(blobs) => blobs,
            None => Arc::new(BlobStore::open(path.join(BLOBS))?),
        };
        let (tx, rx) = channel();
        let completed = tx.clone();
        let executor = Executor::start(directory, Arc::clone(&blobs), config.executor, move |completion| {
            // The owner may have ended; then nobody asks any more.
            drop(completed.send(Input::Completed(completion)));
        });
        let clock = Clock::start();
        let seed = entropy()?;
        let recovery = match init {
            Some(init) => Recovery::create(clock.now(), seed, config.replica, init),
            None => Recovery::open(clock.now(), seed, config.replica),
        };
        let (replica, report) = recover(recovery, &rx, &executor, &clock)?;
        blobs.claim(replica.log(), replica.identity()).map_err(OpenError::from)?;
        let ending = Ending::default();
        let waiting = Waiting::new(config.calls_max);
        let handle = NodeHandle::new(tx.clone(), waiting, blobs, path.into(), Arc::clone(&ending));
        let thread = std::thread::Builder::new()
            .name("strandline-owner".into())
            .spawn(move || {
                let execute = |command| executor.execute(command);
                let ended = Owner::new(replica, (tx, rx), execute, clock).run();
                // Joins its threads and releases the directory, so that whoever is told can open it.
                drop(executor);
                ended.answer(&ending);
            })
            .expect("the system gives us a thread");
        Ok((Self { handle, thread: Some(thread) }, report))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.handle.close(|_| {});
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

pub(crate) fn entropy() -> Result<Seed, StartError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(StartError::Entropy)?;
    Ok(Seed::new(bytes))
}

/// Runs recovery to its end, with the drain and the channel that the owner uses after it.
fn recover(
    mut recovery: Recovery,
    inputs: &Receiver<Input<Replica>>,
    executor: &Executor,
    clock: &Clock,
) -> Result<(Replica, RecoveryReport), StartError> {
    let mut host = RecoveryHost(executor);
    loop {
        let now = clock.now();
        if recovery.pending().deadline.is_some_and(|deadline| deadline <= now.mono) {
            recovery.handle_timeout(now);
        }
        let next = drain(&mut recovery, &mut host, &mut Vec::new(), RECOVERY_OUTPUTS_MAX);
        recovery = match recovery.finish() {
            Ok(recovered) => return Ok(recovered),
            Err(NotRecovered::Working(recovery)) => *recovery,
            Err(NotRecovered::Failed(error)) => return Err(error.into()),
        };
        let input = match next {
            Next::More => inputs.try_recv().ok(),
            Next::Sleep(None) => inputs.recv().ok(),
            Next::Sleep(Some(deadline)) => inputs.recv_timeout(deadline.since(now.mono)).ok(),
        };
        if let Some(Input::Completed(completion)) = input {
            recovery.handle_completion(clock.now(), completion);
        }
    }
}

struct RecoveryHost<'a>(&'a Executor);

impl Host<Recovery> for RecoveryHost<'_> {
    fn execute(&mut self, command: Command) {
        self.0.execute(command);
    }
    fn notify(&mut self, _event: Event) {
        // Nobody listens yet, and what recovery did is in its report.
    }
    fn ready(&mut self) -> Option<LinkId> {
        None
    }
    fn send(&mut self, _channel: LinkId, _bytes: &[u8]) -> Sent {
        Sent::Enough
    }
    fn done(&mut self, _channel: LinkId) {}
}
