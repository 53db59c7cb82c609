//! Opening a directory: lock, executor, recovery.

use crate::shared::Shared;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock, Weak};
use strandline_core::journal::command::{StorageCommand, StorageCompletion};
use strandline_core::journal::log::{Never, Opened};
use strandline_core::machine::{Host, Machine, Next, Sent, drain};
use strandline_core::seed::Seed;
use strandline_core::stream::embedded::{
    Embedded as Root, EmbeddedError, EmbeddedLimits, NotRecovered, StreamRecovery,
};
use strandline_file::{Clock, Directory, ExecutorConfig, OpenError, OpenMode, StorageExecutor};

/// Outputs of recovery between two looks at its progress.
const OUTPUTS_MAX: u32 = 1024;

/// How an embedded keyspace works.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EmbeddedOptions {
    /// Its bounds. Those of what is stored already must be allowed still.
    pub limits: EmbeddedLimits,
    /// Threads for its files.
    pub executor: ExecutorConfig,
}

/// Why a keyspace was not opened. Each family has its own variants.
#[derive(Debug, thiserror::Error)]
pub enum OpenFailed {
    /// The directory could not be opened, or is open already.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The keyspace could not be recovered.
    #[error(transparent)]
    Keyspace(#[from] EmbeddedError),
    /// The system gave no random bytes.
    #[error("expected 32 random bytes from the system, found: {0}")]
    Entropy(getrandom::Error),
}

pub(crate) fn open(path: &Path, options: EmbeddedOptions) -> Result<(Arc<Shared>, Opened), OpenFailed> {
    let directory = Arc::new(Directory::open(path, OpenMode::Create)?);
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(OpenFailed::Entropy)?;
    let live: Arc<OnceLock<Weak<Shared>>> = Arc::default();
    let (tx, completions) = channel();
    let target = Arc::clone(&live);
    let executor = StorageExecutor::start(directory, options.executor, move |completion| {
        match target.get() {
            Some(shared) => {
                if let Some(shared) = shared.upgrade() {
                    shared.completed(completion);
                }
            }
            // Who opened may have given up; then nobody asks any more.
            None => drop(tx.send(completion)),
        }
    });
    let recovery = StreamRecovery::open(options.limits, Seed::new(seed));
    let (root, opened) = recover(recovery, &completions, &executor)?;
    let shared = Arc::new(Shared::new(root, Some(executor)));
    live.set(Arc::downgrade(&shared)).expect("set once");
    shared.start();
    Ok((shared, opened))
}

fn recover(
    mut recovery: StreamRecovery,
    completions: &Receiver<StorageCompletion>,
    executor: &StorageExecutor,
) -> Result<(Root, Opened), OpenFailed> {
    let clock = Clock::start();
    loop {
        let next = drain(&mut recovery, &mut Opening(executor), &mut Vec::new(), OUTPUTS_MAX);
        recovery = match recovery.finish() {
            Ok(done) => return Ok(done),
            Err(NotRecovered::Working(working)) => *working,
            Err(NotRecovered::Failed(error)) => return Err(error.into()),
        };
        if matches!(next, Next::Sleep(_)) {
            let completion = completions.recv().expect("the executor answers every command");
            recovery.handle_completion(clock.now(), completion);
        }
    }
}

struct Opening<'a>(&'a StorageExecutor);

impl Host<StreamRecovery> for Opening<'_> {
    fn execute(&mut self, command: StorageCommand) {
        self.0.execute(command);
    }
    fn notify(&mut self, event: Never) {
        match event {}
    }
    fn ready(&mut self) -> Option<Never> {
        None
    }
    fn send(&mut self, channel: Never, _: &[u8]) -> Sent {
        match channel {}
    }
    fn done(&mut self, channel: Never) {
        match channel {}
    }
}
