//! Finding the replica: through the node that serves the directory, else by opening it.

use super::Backend;
use super::node::{self, NodeBackend};
use super::remote::Remote;
use crate::cut::Cut;
use crate::exit::Failure;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use strandline_core::lifecycle::recovery::{Init, RecoveryReport};
use strandline_file::OpenError;
use strandline_file::node::{Node, NodeConfig, StartError};

/// Longest time a command waits for a directory that another command has open, or whose node is
/// starting or ending.
const IN_USE: Duration = Duration::from_secs(5);

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A replica that is open; [`Opened::close`] ends it in order.
pub(crate) struct Opened {
    replica: Box<dyn Backend>,
    /// The node, if this process opened the directory.
    node: Option<Node>,
    /// What recovery cut, if this process opened the directory.
    cut: Option<Cut>,
}

/// Opens the replica of a directory.
pub(crate) fn open(dir: &Path) -> Result<Opened, Failure> {
    let opened = once_free(
        || match Remote::reach(dir) {
            Ok(Some(remote)) => Ok(Ok(Opened { replica: Box::new(remote), node: None, cut: None })),
            Ok(None) => node::open(dir).map(|opened| Ok(Opened::from(opened))),
            Err(failure) => Ok(Err(failure)),
        },
        is_in_use,
    );
    opened.map_err(|error| node::start_failure(dir, error))?
}

/// Opens the log of a directory in this process, and says what recovery cut.
pub(crate) fn open_here(dir: &Path, config: NodeConfig) -> Result<(Node, Option<Cut>), Failure> {
    let opened = once_free(|| node::open_with(dir, config.clone()), is_in_use);
    let (node, report) = opened.map_err(|error| node::start_failure(dir, error))?;
    Ok((node, Cut::of(&report)))
}

/// Creates the log of a directory.
pub(crate) fn create(dir: &Path, init: Init) -> Result<Opened, Failure> {
    node::create(dir, init).map(|node| Opened::of(node, None))
}

/// Tries again while the directory is in use, for at most [`IN_USE`].
pub(crate) fn once_free<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    is_in_use: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_in_use(&error) && start.elapsed() < IN_USE => thread::sleep(PAUSE),
            done => return done,
        }
    }
}

const fn is_in_use(error: &StartError) -> bool {
    matches!(error, StartError::Open(OpenError::InUse(_)))
}

impl From<(Node, RecoveryReport)> for Opened {
    fn from((node, report): (Node, RecoveryReport)) -> Self {
        Self::of(node, Cut::of(&report))
    }
}

impl Opened {
    fn of(node: Node, cut: Option<Cut>) -> Self {
        Self { replica: Box::new(NodeBackend::new(node.handle().clone())), node: Some(node), cut }
    }

    /// What recovery cut just now.
    pub(crate) const fn cut(&self) -> Option<&Cut> {
        self.cut.as_ref()
    }

    /// The replica.
    pub(crate) fn replica(&mut self) -> &mut dyn Backend {
        &mut *self.replica
    }

    /// Closes what this process opened: the journal is sealed, the directory released.
    pub(crate) fn close(self) -> Result<(), Failure> {
        drop(self.replica);
        match self.node {
            Some(node) => Ok(node.close()?),
            None => Ok(()),
        }
    }
}
