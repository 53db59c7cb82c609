//! Finding the replica: through the node that serves the directory, else by opening it.

use super::Backend;
use super::node::{self, NodeBackend};
use super::remote::Remote;
use crate::exit::Failure;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use strandline_core::lifecycle::recovery::Init;
use strandline_file::OpenError;
use strandline_file::node::{Node, StartError};

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
}

/// Opens the replica of a directory.
pub(crate) fn open(dir: &Path) -> Result<Opened, Failure> {
    let start = Instant::now();
    loop {
        if let Some(remote) = Remote::reach(dir)? {
            return Ok(Opened { replica: Box::new(remote), node: None });
        }
        match node::open(dir) {
            Ok((node, _)) => return Ok(Opened::from(node)),
            Err(StartError::Open(OpenError::InUse(_))) if start.elapsed() < IN_USE => thread::sleep(PAUSE),
            Err(error) => return Err(node::start_failure(dir, error)),
        }
    }
}

/// Creates the log of a directory.
pub(crate) fn create(dir: &Path, init: Init) -> Result<Opened, Failure> {
    node::create(dir, init).map(Opened::from)
}

impl From<Node> for Opened {
    fn from(node: Node) -> Self {
        Self { replica: Box::new(NodeBackend::new(node.handle().clone())), node: Some(node) }
    }
}

impl Opened {
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
