//! What needs a second process, and an executor that is asked one command at a time.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::{Arc, mpsc};
use strandline_core::error::StorageFault;
use strandline_core::id::Run;
use strandline_core::journal::command::{StorageCommand, StorageOutcome};
use strandline_core::ticket::{Operation, Ticket, Tickets};
use strandline_file::{Directory, ExecutorConfig, OpenError, OpenMode, StorageExecutor};

pub(crate) const FOLDER: &str = "STRANDLINE_TEST_FOLDER";

/// Where the other process is to play, if this is it.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// This test, to be started again as the other process.
pub(crate) fn other(mut process: Process, test: &str, folder: &Path) -> Process {
    process.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(FOLDER, folder);
    process.stdout(Stdio::piped()).stdin(Stdio::piped());
    process
}

pub(crate) fn this_program() -> Process {
    Process::new(std::env::current_exe().unwrap())
}

pub(crate) fn open(path: &Path) -> Result<Directory, OpenError> {
    Directory::open(path, OpenMode::Existing)
}

/// A directory with an executor, asked one command at a time.
pub(crate) struct Files {
    executor: StorageExecutor,
    tickets: Tickets<()>,
    completions: mpsc::Receiver<strandline_core::journal::command::StorageCompletion>,
}

impl Files {
    pub(crate) fn open(folder: &Path) -> Self {
        let (complete, completions) = mpsc::channel();
        let complete = move |completion| complete.send(completion).unwrap();
        let directory = Arc::new(open(folder).unwrap());
        let executor = StorageExecutor::start(directory, ExecutorConfig::default(), complete);
        Self { executor, tickets: Tickets::new(Run(1)), completions }
    }

    pub(crate) fn run<Op: Operation>(
        &mut self,
        make: impl FnOnce(Ticket<Op>) -> StorageCommand,
    ) -> Result<(), StorageFault> {
        self.executor.execute(make(self.tickets.mint(())));
        match self.tickets.settle(self.completions.recv().unwrap()).unwrap().1 {
            StorageOutcome::Prepare(result)
            | StorageOutcome::Append(result)
            | StorageOutcome::Replace(result)
            | StorageOutcome::Write(result)
            | StorageOutcome::Sync(result)
            | StorageOutcome::Remove(result) => result,
            StorageOutcome::List(result) => result.map(drop),
            StorageOutcome::Read(result) => result.map(drop),
            StorageOutcome::Cut(result) => result.map(drop),
        }
    }
}
