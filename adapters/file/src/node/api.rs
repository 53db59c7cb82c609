//! What callers of a node see: policies, requests, outcomes.

use super::reply::Reply;
use crate::{BlobsKept, StoreError};
use std::sync::{Arc, OnceLock};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{
    Accepted, Collect, Done, LinkRefused, MembersChange, MutationError, RequestError, Scrub,
};
use strandline_core::record::Version;

/// What happens to a submission that finds the write queue full.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WaitPolicy {
    /// It waits, first come first served, and is tried again as the disk catches up.
    #[default]
    Wait,
    /// It is refused with [`MutationError::Full`].
    Fail,
}

/// Something a replica does beside writing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Request {
    /// Compact to the highest version allowed, or to exactly `upto`.
    Compact { upto: Option<Version> },
    /// Change who counts for compaction.
    Members(MembersChange),
    /// Collect the blobs that nothing needs.
    Collect(Collect),
    /// Look for damage in the blobs that keys name.
    Scrub(Scrub),
    /// Take the right to write the log.
    Fence { epoch: u64 },
}

/// Why a node could not take a call; it did nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unavailable {
    /// Too many calls are under way.
    #[error("node is busy: {under_way} mutations and calls are under way, at most {max} may be")]
    Busy {
        /// What is under way over all handles.
        under_way: usize,
        /// The limit: `calls_max` of the node's configuration.
        max: usize,
    },
    /// The node is closing or closed.
    #[error("the node is closed")]
    Closed,
}

/// How a submission ended that did not become durable. An ending, not a family of its own: it says
/// which of the families answered.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WriteError {
    /// Nothing was submitted: the caller's mistake, or a limit.
    #[error(transparent)]
    Refused(#[from] MutationError),
    /// Nothing was submitted: the node could not take the call.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// It may have happened or not; only recovery of the log tells.
    #[error("whether this was written is uncertain until the log is recovered: {0}")]
    Uncertain(StorageFault),
}

/// Why a put did not become durable.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The blob was not stored; no mutation was submitted.
    #[error(transparent)]
    Blob(#[from] StoreError),
    /// The blob is stored; this became of the mutation.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Why what was asked of a node was not done.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestFailed {
    /// The node could not take the call. If it closed while the request was under way, its status
    /// after the next start tells whether it was done.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The replica refused it, or its disk failed.
    #[error(transparent)]
    Refused(#[from] RequestError),
    /// Somebody else may need the blobs.
    #[error(transparent)]
    BlobsKept(#[from] BlobsKept),
}

/// How a submission ended.
pub type Written = Result<Vec<Accepted>, WriteError>;

pub(crate) type SubmitReply = Reply<Written>;
pub(crate) type RequestReply = Reply<Result<Done, Unavailable>>;
pub(crate) type LinkReply = Reply<Result<LinkId, LinkRefused>>;
/// `None` if the owner has ended: then its [`Ending`] tells.
pub(crate) type CloseReply = Reply<Option<Result<(), StorageFault>>>;

/// How an owner ended, once it has ended in order.
pub(crate) type Ending = Arc<OnceLock<Result<(), StorageFault>>>;

/// Owes `call` how the node ended, also where the owner has ended before it is asked.
pub(crate) fn close_reply(
    call: impl FnOnce(Result<(), StorageFault>) + Send + 'static,
    ending: &Ending,
) -> CloseReply {
    let ending = Arc::clone(ending);
    let call = move |ended: Option<_>| {
        let ended = ended.or_else(|| ending.get().cloned());
        call(ended.unwrap_or_else(|| Err(owner_lost())));
    };
    Reply::new(call, || None)
}

/// The fault of an owner that ended without answering, as when its thread panicked.
pub(crate) fn owner_lost() -> StorageFault {
    StorageFault {
        action: StorageAction::Write,
        file: "journal".into(),
        offset: None,
        cause: StorageCause::Failed,
        detail: "expected an answer of the node's owner, but it ended without one".into(),
    }
}
