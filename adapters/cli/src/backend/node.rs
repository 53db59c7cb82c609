//! The replica in this process: what `serve` serves, and what a command opens by itself.

use super::{AddError, Backend, Group, watching};
use crate::access::{Reload, ReloadReport};
use crate::exit::Failure;
use crate::report::{FencedReport, StatusReport};
use crate::watch::{CursorReport, CursorText, Watch};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use strandline_core::error::{StorageCause, StorageFault};
use strandline_core::lifecycle::api::{
    Collect, Collected, Compacted, Entry, MembersChange, Mutation, Scan, ScanPage, Scrub, Scrubbed,
};
use strandline_core::lifecycle::recovery::{Init, RecoveryError, RecoveryReport};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::record::{BlobKey, Key, Version};
use strandline_file::backup::BackedUp;
use strandline_file::node::{
    Node, NodeConfig, NodeHandle, RequestFailed, StartError, Unavailable, WaitPolicy, WriteError,
};
use strandline_file::{BlobHold, BlobStore, OpenError, StoreError, StoreGroup};

/// Opens the log in a directory, recovering it.
pub(crate) fn open(dir: &Path) -> Result<(Node, RecoveryReport), StartError> {
    open_with(dir, NodeConfig::default())
}

/// The same, with limits and policies of a person's own.
pub(crate) fn open_with(dir: &Path, config: NodeConfig) -> Result<(Node, RecoveryReport), StartError> {
    Node::open(dir, config)
}

/// Creates a log in a directory.
pub(crate) fn create(dir: &Path, init: Init) -> Result<Node, Failure> {
    Node::create(dir, init, NodeConfig::default()).map(|(node, _)| node).map_err(|e| start_failure(dir, e))
}

/// What a person is told when a directory cannot be opened.
pub(crate) fn start_failure(dir: &Path, error: StartError) -> Failure {
    let at =
        |failure: Failure| Failure { message: format!("{}: {}", dir.display(), failure.message), ..failure };
    at(match error {
        StartError::Open(OpenError::InUse(in_use)) => Failure::refused(in_use.to_string())
            .advise("wait for the other command; a node that serves it takes commands once it is ready"),
        StartError::Open(OpenError::Storage(fault)) => opening_failure(dir, fault),
        StartError::Recovery(error) => recovery_failure(error),
        StartError::Entropy(error) => Failure::storage(format!("the system gave no random bytes: {error}")),
    })
}

/// What a person is told when the files of a directory cannot be opened.
pub(crate) fn opening_failure(dir: &Path, fault: StorageFault) -> Failure {
    if fault.cause == StorageCause::Missing && !dir.exists() {
        return Failure::refused("expected a directory, found none of this name")
            .advise("look at what --dir or STRANDLINE_DIR says; a new log is made with `strandline init`");
    }
    fault.into()
}

fn recovery_failure(error: RecoveryError) -> Failure {
    let text = error.to_string();
    match error {
        RecoveryError::Config(_) | RecoveryError::Init { .. } => Failure::usage(text),
        RecoveryError::NoLog => Failure::refused(text).advise("make one with `strandline init`"),
        RecoveryError::Exists { .. } => Failure::refused(text).advise("name another directory"),
        RecoveryError::Storage(fault) => fault.into(),
    }
}

/// Reaches the node of this process. Clones reach the same one.
#[derive(Clone)]
pub(crate) struct NodeBackend {
    node: NodeHandle,
    blobs: Arc<BlobStore>,
    /// Absent where this process serves nobody.
    reload: Option<Reload>,
    /// Keeps the blobs of a backup for as long as who asked for it is there.
    hold: Option<Arc<BlobHold>>,
}

impl NodeBackend {
    pub(crate) fn new(node: NodeHandle) -> Self {
        let blobs = Arc::clone(node.blobs());
        Self { node, blobs, reload: None, hold: None }
    }

    /// Of a node that is served, and can be told to reload.
    pub(crate) fn reloaded_by(self, reload: Reload) -> Self {
        Self { reload: Some(reload), ..self }
    }

    pub(super) const fn handle(&self) -> &NodeHandle {
        &self.node
    }

    pub(super) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Replica) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, answered) = channel();
        self.node.read(move |replica| drop(answer.send(replica.map(read))));
        answered.recv().expect("the node answers every call").map_err(|e| unavailable(&e))
    }
}

pub(super) fn unavailable(error: &Unavailable) -> Failure {
    Failure::refused(error.to_string()).advise("try again")
}

fn request_failure(error: RequestFailed) -> Failure {
    match error {
        RequestFailed::Refused(error) => error.into(),
        RequestFailed::BlobsKept(error) => Failure::refused(error.to_string()),
        RequestFailed::Unavailable(error @ Unavailable::Busy { .. }) => unavailable(&error),
        RequestFailed::Unavailable(error @ Unavailable::Closed) => Failure::uncertain(error.to_string())
            .advise("the status after the node's next start tells whether it was done"),
    }
}

fn write_failure(error: WriteError) -> Failure {
    match error {
        WriteError::Refused(error) => error.into(),
        WriteError::Unavailable(error) => unavailable(&error),
        WriteError::Uncertain(_) => Failure::uncertain(error.to_string())
            .advise("restart the node if one runs, which recovers the log; then look at the keys"),
    }
}

impl Backend for NodeBackend {
    fn status(&mut self) -> Result<StatusReport, Failure> {
        self.read(|replica| StatusReport::from(&replica.status()))
    }

    fn get(&mut self, key: &Key) -> Result<Option<Entry>, Failure> {
        let key = key.clone();
        self.read(move |replica| replica.get(&key))
    }

    fn scan(&mut self, scan: &Scan) -> Result<ScanPage, Failure> {
        let scan = scan.clone();
        self.read(move |replica| replica.scan(&scan))
    }

    fn batch(&mut self, mutations: &[Mutation]) -> Result<Vec<Version>, Failure> {
        let (answer, answered) = channel();
        self.node.submit(mutations.to_vec(), WaitPolicy::Wait, move |written| drop(answer.send(written)));
        let accepted = answered.recv().expect("the node answers every call").map_err(write_failure)?;
        Ok(accepted.into_iter().map(|accepted| accepted.version).collect())
    }

    fn compact(&mut self, upto: Option<Version>) -> Result<Compacted, Failure> {
        let (answer, answered) = channel();
        self.node.compact(upto, move |done| drop(answer.send(done)));
        answered.recv().expect("the node answers every call").map_err(request_failure)
    }

    fn members(&mut self, change: &MembersChange) -> Result<(), Failure> {
        let (answer, answered) = channel();
        self.node.members(change.clone(), move |done| drop(answer.send(done)));
        answered.recv().expect("the node answers every call").map_err(request_failure)
    }

    fn pending(&mut self, key: &Key) -> Result<bool, Failure> {
        let key = key.clone();
        self.read(move |replica| replica.blob_pending(&key))
    }

    fn collect(&mut self, collect: Collect) -> Result<Collected, Failure> {
        let (answer, answered) = channel();
        self.node.collect(collect, move |done| drop(answer.send(done)));
        answered.recv().expect("the node answers every call").map_err(request_failure)
    }

    fn scrub(&mut self, scrub: Scrub) -> Result<Scrubbed, Failure> {
        let (answer, answered) = channel();
        self.node.scrub(scrub, move |done| drop(answer.send(done)));
        answered.recv().expect("the node answers every call").map_err(|error| match error {
            // It can be asked again: nothing about it is uncertain.
            RequestFailed::Unavailable(error) => unavailable(&error),
            error @ (RequestFailed::Refused(_) | RequestFailed::BlobsKept(_)) => request_failure(error),
        })
    }

    fn reload(&mut self) -> Result<ReloadReport, Failure> {
        match &self.reload {
            Some(reload) => reload.now(),
            None => Err(Failure::refused("no node serves the directory: there is nothing to reload")
                .advise("the next `strandline serve` reads the files anyway")),
        }
    }

    fn judge(&mut self, cursor: CursorText) -> Result<CursorReport, Failure> {
        watching::judge(self, cursor)
    }

    fn watch(&mut self, cursor: Option<CursorText>) -> Result<Box<dyn Watch + '_>, Failure> {
        watching::watch(self, cursor)
    }

    fn begin_backup(&mut self, to: &Path) -> Result<BackedUp, Failure> {
        let begun = strandline_file::backup::begin(&self.node, to);
        let (moment, hold) = begun.map_err(|e| crate::command::backup::failure(to, e))?;
        self.hold = Some(Arc::new(hold));
        Ok(moment)
    }

    fn fence(&mut self, epoch: u64) -> Result<FencedReport, Failure> {
        let (answer, answered) = channel();
        self.node.fence(epoch, move |done| drop(answer.send(done)));
        let fenced = answered.recv().expect("the node answers every call").map_err(request_failure)?;
        Ok(FencedReport::from(fenced))
    }

    fn group(&mut self) -> Result<Box<dyn Group + '_>, Failure> {
        Ok(Box::new(self.blobs.group()))
    }

    fn blob(&mut self, key: BlobKey) -> Result<Option<Box<dyn Read + '_>>, Failure> {
        Ok(self.blobs.file(key)?.map(|file| Box::new(file) as Box<dyn Read>))
    }

    fn verify(&mut self, key: BlobKey) -> Result<Option<u64>, Failure> {
        Ok(self.blobs.verify(key)?)
    }

    fn blob_count(&mut self) -> Result<u64, Failure> {
        let mut count = 0;
        for key in self.blobs.keys() {
            key?;
            count += 1;
        }
        Ok(count)
    }
}

impl Group for StoreGroup<'_> {
    fn add(&mut self, from: &mut dyn Read) -> Result<(BlobKey, u64), AddError> {
        match StoreGroup::add(self, from) {
            Ok(stored) => Ok((stored.key, stored.bytes)),
            Err(StoreError::Source(error)) => Err(AddError::Source(error)),
            Err(StoreError::Storage(fault)) => Err(AddError::Store(fault.into())),
        }
    }

    fn commit(self: Box<Self>) -> Result<(), Failure> {
        Ok(StoreGroup::commit(*self)?)
    }
}
