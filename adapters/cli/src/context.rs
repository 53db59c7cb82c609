//! What every command is given: the directory, the form of the output, and the replica.

use crate::backend::{self, Backend};
use crate::exit::Failure;
use crate::output::Output;
use std::path::{Path, PathBuf};

/// Options that all commands share.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// `--dir`.
    pub(crate) dir: Option<PathBuf>,
    /// Where results go.
    pub(crate) output: Output,
}

impl Context {
    /// The replica's directory.
    pub(crate) fn dir(&self) -> Result<&Path, Failure> {
        self.dir.as_deref().ok_or_else(|| {
            Failure::usage("expected the replica's directory, found none")
                .advise("give --dir DIR or set STRANDLINE_DIR")
        })
    }

    /// Works on the replica, in the directory or through the node that serves it, and closes it.
    pub(crate) fn with_replica<T>(
        &self,
        work: impl FnOnce(&mut dyn Backend) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut opened = backend::open(self.dir()?)?;
        let done = work(opened.replica());
        // What failed first is what a person must know.
        match (done, opened.close()) {
            (Ok(done), Ok(())) => Ok(done),
            (Err(failure), _) | (Ok(_), Err(failure)) => Err(failure),
        }
    }
}
