//! What every command is given: the directory, the form of the output, and the replica.

use crate::backend::{self, Backend};
use crate::cut::Cut;
use crate::exit::Failure;
use crate::output::Output;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Options that all commands share.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// `--dir`, or what the environment says.
    pub(crate) dir: Option<PathBuf>,
    /// Whether the directory was named on the command line itself.
    pub(crate) dir_was_given: bool,
    /// Where results go.
    pub(crate) output: Output,
}

impl Context {
    /// The replica's directory.
    pub(crate) fn dir(&self) -> Result<&Path, Failure> {
        let dir = self.named_dir()?.ok_or_else(|| {
            Failure::usage("expected the replica's directory, found none")
                .advise("give --dir DIR or set STRANDLINE_DIR")
        })?;
        Ok(dir)
    }

    /// The directory, if one is named.
    pub(crate) fn named_dir(&self) -> Result<Option<&Path>, Failure> {
        match self.dir.as_deref() {
            Some(dir) if dir.metadata().is_ok_and(|found| !found.is_dir()) => {
                let text = format!("expected a directory, found that {} is none", dir.display());
                Err(Failure::usage(text).advise("name the directory itself with --dir"))
            }
            named => Ok(named),
        }
    }

    /// Works on the replica, in the directory or through the node that serves it, and closes it.
    pub(crate) fn with_replica<T>(
        &self,
        work: impl FnOnce(&mut dyn Backend) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.with_recovered(|replica, _| work(replica))
    }

    /// The same for work that must know what recovery cut just now. A person is told in any case.
    pub(crate) fn with_recovered<T>(
        &self,
        work: impl FnOnce(&mut dyn Backend, Option<Cut>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut opened = backend::open(self.dir()?)?;
        let cut = opened.cut().cloned();
        self.tell_cut(cut.as_ref());
        let done = work(opened.replica(), cut);
        // What failed first is what a person must know.
        match (done, opened.close()) {
            (Ok(done), Ok(())) => Ok(done),
            (Err(failure), _) | (Ok(_), Err(failure)) => Err(failure),
        }
    }

    /// Says on standard error what recovery cut: it happens once, and nobody else will say it.
    pub(crate) fn tell_cut(&self, cut: Option<&Cut>) {
        #[derive(Serialize)]
        struct Line<'a> {
            cut: &'a Cut,
        }
        if let Some(cut) = cut {
            self.output.warning(format!("recovered: {cut}"), &Line { cut });
        }
    }
}
