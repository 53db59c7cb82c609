//! The handle: cheap to clone, usable from any thread and runtime.

use crate::open::{EmbeddedOptions, OpenFailed, open};
use crate::shared::Shared;
use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use strandline_core::error::StorageFault;
use strandline_core::journal::log::Opened;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::embedded::{Embedded as Root, EmbeddedLimits};
use strandline_core::stream::{Layout, Outcome, StreamOp};
use strandline_streams::Backend;

/// How an embedded keyspace is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EmbeddedStatus {
    /// Checkpoints made since it was opened.
    pub checkpoints: u64,
    /// Length of the last of them.
    pub checkpoint_bytes: u64,
    /// Why the last checkpoint was not made, if it was not.
    pub not_checkpointed: Option<String>,
    /// Files that no longer count could not be removed.
    pub not_removed: Option<StorageFault>,
    /// What stopped it for good.
    pub fault: Option<StorageFault>,
}

/// A keyspace of streams in this process. Clones share it; when the last one is dropped it is closed.
#[derive(Clone, Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    _closes: Arc<Closes>,
}

/// Closes the keyspace when the last handle goes.
#[derive(Debug)]
struct Closes(Arc<Shared>);

impl Drop for Closes {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`; the fault was told to every operation it concerns.
        let _ = self.0.close();
    }
}

impl Embedded {
    /// Opens the keyspace in the directory at `path`, or makes one there. Blocks until it is recovered;
    /// then everything that is kept is durable.
    ///
    /// # Errors
    /// The directory is in use, cannot be written, holds something else, or is damaged.
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub fn open(path: impl AsRef<Path>, options: EmbeddedOptions) -> Result<(Self, Opened), OpenFailed> {
        let (shared, opened) = open(path.as_ref(), options)?;
        Ok((Self::of(shared), opened))
    }

    /// An empty keyspace that is gone with its last handle.
    ///
    /// # Panics
    /// If the system gives us no thread.
    #[must_use]
    pub fn in_memory() -> Self {
        let shared = Arc::new(Shared::new(Root::in_memory(EmbeddedLimits::default()), None));
        shared.start();
        Self::of(shared)
    }

    fn of(shared: Arc<Shared>) -> Self {
        let closes = Arc::new(Closes(Arc::clone(&shared)));
        Self { shared, _closes: closes }
    }

    /// Does one operation, at once and in the order of the calls. The future ends when the answer is
    /// durable with everything that it rests on.
    ///
    /// Cancel safe in part: the operation is asked by the call itself, and dropping the future does not
    /// take it back.
    pub fn apply(&self, op: StreamOp) -> impl Future<Output = Outcome> + Send + use<> {
        let (sender, answer) = oneshot::channel();
        self.shared.ask(op, sender);
        // While somebody waits the keyspace is there.
        let shared = Arc::clone(&self.shared);
        async move {
            let outcome = answer.await.expect("each operation is answered");
            drop(shared);
            outcome
        }
    }

    /// Waits until there may be an entry behind one of these positions, or the end of its generation, for
    /// at most `wait_ms`. Ringing for nothing is possible.
    ///
    /// Cancel safe.
    pub fn wait(&self, logs: Vec<LogPosition>, wait_ms: u64) -> impl Future<Output = Waited> + Send + use<> {
        let (sender, waited) = oneshot::channel();
        self.shared.wait(logs, wait_ms, sender);
        async move { waited.await.unwrap_or(Waited::Rung) }
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> EmbeddedStatus {
        self.shared.status()
    }

    /// Looks at the root; changes that are not durable yet are seen.
    pub fn with<T>(&self, read: impl FnOnce(&Root) -> T) -> T {
        self.shared.with(read)
    }

    /// Begins a checkpoint now. After the close it does nothing.
    pub fn checkpoint(&self) {
        self.shared.checkpoint();
    }

    /// Takes nothing more, waits until everything that was asked is answered and the journal is sealed,
    /// and releases the directory. Blocks while it does, also where another call closes it already; so it
    /// must not be called where an answer wakes a task.
    ///
    /// # Errors
    /// The fault that had stopped it.
    pub fn close(&self) -> Result<(), StorageFault> {
        self.shared.close()
    }
}

impl Backend for Embedded {
    fn layout(&self) -> Layout {
        Layout::Tagged
    }

    fn apply(&self, op: StreamOp) -> BoxFuture<'static, Outcome> {
        Self::apply(self, op).boxed()
    }

    fn wait(&self, logs: Vec<LogPosition>, wait_ms: u64) -> BoxFuture<'static, Waited> {
        Self::wait(self, logs, wait_ms).boxed()
    }
}
