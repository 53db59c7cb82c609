//! Which thread does what.

use crate::appender::Appender;
use crate::blob::{BlobExecutor, BlobStore};
use crate::construction::Construction;
use crate::directory::Directory;
use crate::owed::Owed;
use crate::threads::{Complete, Job, Threads};
use std::sync::Arc;
use strandline_core::error::StorageAction;
use strandline_core::journal::command::{FileName, StorageCommand, StorageCompletion};
use strandline_core::lifecycle::command::{Command, ReplicaCompletion};

/// Threads for what may run beside an append but touches the directory: one may be busy preparing
/// a segment while the other replaces a sidecar.
const STEP_THREADS: usize = 2;

/// How many threads do what may run side by side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ExecutorConfig {
    /// Threads that read files, and as many that read blobs. At least 1 is taken.
    pub read_threads: usize,
    /// Threads that store blobs. At least 1 is taken.
    pub blob_threads: usize,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self { read_threads: 2, blob_threads: 4 }
    }
}

/// Executes the commands of a root that has no blobs: a bare journal, or the files of a replica.
///
/// Appends and cuts run on one thread in the order given; so do writes, syncs and removals on
/// another. Everything else runs beside them. Nothing waits for a thread: the queues are as long as
/// the root's own limits let them grow.
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use strandline_core::id::Run;
/// use strandline_core::journal::command::{SegmentNumber, StorageCommand, StorageOutcome};
/// use strandline_core::ticket::Tickets;
/// use strandline_file::{Directory, ExecutorConfig, OpenMode, StorageExecutor};
///
/// let parent = tempfile::tempdir()?;
/// let directory = Arc::new(Directory::open(parent.path().join("log"), OpenMode::Create)?);
/// let (complete, completions) = mpsc::channel();
/// let complete = move |completion| complete.send(completion).expect("we listen");
/// let executor = StorageExecutor::start(directory, ExecutorConfig::default(), complete);
///
/// let mut tickets = Tickets::new(Run(1));
/// let (segment, bytes) = (SegmentNumber(1), 1 << 20);
/// executor.execute(StorageCommand::Prepare { ticket: tickets.mint("prepare"), segment, bytes });
/// let (purpose, outcome) = tickets.settle(completions.recv()?).expect("our run");
/// assert!(matches!((purpose, outcome), ("prepare", StorageOutcome::Prepare(Ok(())))));
/// executor.shutdown();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StorageExecutor {
    threads: StorageThreads,
    complete: Complete<StorageCompletion>,
}

#[derive(Debug)]
struct StorageThreads {
    appender: Threads<Job<Appender>>,
    construction: Threads<Job<Construction>>,
    steps: Threads<Job<Arc<Directory>>>,
    reads: Threads<Job<Arc<Directory>>>,
}

impl StorageExecutor {
    /// Starts the threads. `complete` is called on them, once per command; what it does delays the
    /// commands behind it, so it should only pass the completion on.
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub fn start(
        directory: Arc<Directory>,
        config: ExecutorConfig,
        complete: impl Fn(StorageCompletion) + Send + Sync + 'static,
    ) -> Self {
        let share = |count: usize| std::iter::repeat_n(Arc::clone(&directory), count);
        let threads = StorageThreads {
            appender: Threads::jobs("append", [Appender::new(Arc::clone(&directory))]),
            construction: Threads::jobs("files", [Construction::new(Arc::clone(&directory))]),
            steps: Threads::jobs("steps", share(STEP_THREADS)),
            reads: Threads::jobs("read", share(config.read_threads.max(1))),
        };
        Self { threads, complete: Complete::new(complete) }
    }

    /// Starts a command and returns; its answer goes to `complete`. If its thread panics, the answer
    /// is a fault with the cause `Failed`.
    pub fn execute(&self, command: StorageCommand) {
        let Self { threads: to, complete } = self;
        match command {
            StorageCommand::List { ticket } => {
                let owed = Owed::new(complete, ticket, StorageAction::List, ".");
                to.steps.run(owed, |directory| directory.list());
            }
            StorageCommand::Read { ticket, file, offset, bytes_max } => {
                let owed = Owed::new(complete, ticket, StorageAction::Read, file);
                to.reads.run(owed, move |directory| directory.read(file, offset, bytes_max));
            }
            StorageCommand::Prepare { ticket, segment, bytes } => {
                let owed = Owed::new(complete, ticket, StorageAction::Prepare, FileName::Segment(segment));
                to.steps.run(owed, move |directory| directory.prepare(segment, bytes));
            }
            StorageCommand::Append { ticket, segment, offset, bytes } => {
                let owed = Owed::new(complete, ticket, StorageAction::Write, FileName::Segment(segment));
                to.appender.run(owed, move |appender| appender.append(segment, offset, &bytes));
            }
            StorageCommand::Cut { ticket, segment, offset } => {
                let owed = Owed::new(complete, ticket, StorageAction::Cut, FileName::Segment(segment));
                to.appender.run(owed, move |appender| appender.cut(segment, offset));
            }
            StorageCommand::Replace { ticket, file, bytes } => {
                let owed = Owed::new(complete, ticket, StorageAction::Replace, file);
                to.steps.run(owed, move |directory| directory.replace(file, &bytes));
            }
            StorageCommand::Write { ticket, file, offset, bytes } => {
                let owed = Owed::new(complete, ticket, StorageAction::Write, file);
                to.construction.run(owed, move |construction| construction.write(file, offset, &bytes));
            }
            StorageCommand::Sync { ticket, file } => {
                let owed = Owed::new(complete, ticket, StorageAction::Sync, file);
                to.construction.run(owed, move |construction| construction.sync(file));
            }
            StorageCommand::Remove { ticket, files } => {
                let owed = Owed::new(complete, ticket, StorageAction::Remove, ".");
                to.construction.run(owed, move |construction| construction.remove(&files));
            }
        }
    }

    /// Finishes and answers what was started, and joins the threads. Dropping does the same.
    pub fn shutdown(self) {
        drop(self);
    }
}

/// Executes the commands of a replica: [`StorageExecutor`] and [`BlobExecutor`] side by side.
#[derive(Debug)]
pub struct Executor {
    storage: StorageExecutor,
    blobs: BlobExecutor,
}

impl Executor {
    /// Starts the threads; `complete` as in [`StorageExecutor::start`]. One store may serve the
    /// executors of several directories.
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub fn start(
        directory: Arc<Directory>,
        blobs: Arc<BlobStore>,
        config: ExecutorConfig,
        complete: impl Fn(ReplicaCompletion) + Send + Sync + 'static,
    ) -> Self {
        let complete = Arc::new(complete);
        let same = Arc::clone(&complete);
        Self {
            storage: StorageExecutor::start(directory, config, move |completion| same(completion.into())),
            blobs: BlobExecutor::start(blobs, config, move |completion| complete(completion.into())),
        }
    }

    /// Starts a command and returns; its answer goes to `complete`. If its thread panics, the answer
    /// is a fault with the cause `Failed`.
    pub fn execute(&self, command: Command) {
        match command {
            Command::Storage(command) => self.storage.execute(command),
            Command::Blob(command) => self.blobs.execute(command),
        }
    }

    /// Finishes and answers what was started, and joins the threads. Dropping does the same.
    pub fn shutdown(self) {
        drop(self);
    }
}
