//! The handle of a node: calls from any thread, answered by callbacks, so that blocking and
//! asynchronous programs share it.

use super::api::{Ending, Request, RequestFailed, Unavailable, WaitPolicy, WriteError, Written, close_reply};
use super::links::LinkSink;
use super::owner::{Input, Read};
use super::reply::{Permit, Reply, Waiting};
use super::subscription::{Opened, PageCall};
use super::waiters::Submission;
use crate::BlobStore;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use strandline_core::error::StorageFault;
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{
    Collect, Collected, Compacted, Cursor, Done, Event, Fenced, LinkRefused, LinkRole, MembersChange,
    Mutation, MutationError, Scrub, Scrubbed,
};
use strandline_core::lifecycle::epoch_source::EpochSource;
use strandline_core::lifecycle::replica::Replica;
use strandline_core::record::Version;
use strandline_core::wire::handshake::Authenticated;

/// Reaches a node from any thread. Cheap to clone; no call blocks.
///
/// Every callback is called exactly once, on the node's own thread (or on the caller's, if the node
/// is closed or busy). It must be short, and must neither block nor panic: hand the answer on.
#[derive(Clone)]
pub struct NodeHandle {
    inputs: Sender<Input<Replica>>,
    waiting: Waiting,
    blobs: Arc<BlobStore>,
    directory: Arc<Path>,
    ending: Ending,
}

impl NodeHandle {
    pub(crate) fn new(
        inputs: Sender<Input<Replica>>,
        waiting: Waiting,
        blobs: Arc<BlobStore>,
        directory: Arc<Path>,
        ending: Ending,
    ) -> Self {
        Self { inputs, waiting, blobs, directory, ending }
    }

    /// Submits mutations as one unit, all or nothing. `reply` comes only when all of them are
    /// durable, or were refused, or when it is uncertain whether they happened.
    ///
    /// The caller promises that the blobs it names are durable in [`NodeHandle::blobs`]. Each
    /// mutation counts as one call under way until the reply.
    pub fn submit(
        &self,
        mutations: Vec<Mutation>,
        policy: WaitPolicy,
        reply: impl FnOnce(Written) + Send + 'static,
    ) {
        let reply = Reply::new(reply, || Err(Unavailable::Closed.into()));
        if mutations.len() > self.waiting.max() {
            return reply.give(Err(WriteError::Refused(self.too_large(mutations.len()))));
        }
        match self.waiting.take(mutations.len().max(1)) {
            Ok(permit) => {
                let submission = Submission { mutations, reply: reply.holding(permit) };
                self.send(Input::Submit { submission, policy });
            }
            Err(under_way) => reply.give(Err(self.busy(under_way).into())),
        }
    }

    /// Calls `read` with the replica, whose reads show its durable state.
    pub fn read(&self, read: impl FnOnce(Result<&Replica, Unavailable>) + Send + 'static) {
        match self.waiting.take(1) {
            Ok(permit) => self.send(Input::Read(Read { call: Some(Box::new(read)), _permit: permit })),
            Err(under_way) => read(Err(self.busy(under_way))),
        }
    }

    /// Compacts to the highest version allowed, or to exactly `upto`. `reply` comes when it has
    /// ended.
    pub fn compact(
        &self,
        upto: Option<Version>,
        reply: impl FnOnce(Result<Compacted, RequestFailed>) + Send + 'static,
    ) {
        self.request(Request::Compact { upto }, move |done| {
            reply(match done {
                Ok(Done::Compacted(compacted)) => Ok(compacted),
                Ok(Done::Refused(error)) => Err(error.into()),
                Ok(other @ (Done::Members | Done::Collected(_) | Done::Scrubbed(_) | Done::Fenced(_))) => {
                    panic!("a compaction was answered by {other:?}")
                }
                Err(unavailable) => Err(unavailable.into()),
            });
        });
    }

    /// Changes who counts for compaction. `reply` comes when the change is durable.
    pub fn members(
        &self,
        change: MembersChange,
        reply: impl FnOnce(Result<(), RequestFailed>) + Send + 'static,
    ) {
        self.request(Request::Members(change), move |done| {
            reply(match done {
                Ok(Done::Members) => Ok(()),
                Ok(Done::Refused(error)) => Err(error.into()),
                Ok(
                    other @ (Done::Compacted(_) | Done::Collected(_) | Done::Scrubbed(_) | Done::Fenced(_)),
                ) => {
                    panic!("a change of members was answered by {other:?}")
                }
                Err(unavailable) => Err(unavailable.into()),
            });
        });
    }

    /// Collects the blobs that nothing needs, or says which they are. Refused while a backup copies blobs,
    /// and of a store that other logs have used. `reply` comes when it has ended.
    pub fn collect(
        &self,
        collect: Collect,
        reply: impl FnOnce(Result<Collected, RequestFailed>) + Send + 'static,
    ) {
        if let Err(kept) = self.blobs.may_remove() {
            return reply(Err(kept.into()));
        }
        self.request(Request::Collect(collect), move |done| {
            reply(match done {
                Ok(Done::Collected(collected)) => Ok(collected),
                Ok(Done::Refused(error)) => Err(error.into()),
                Ok(other @ (Done::Members | Done::Compacted(_) | Done::Scrubbed(_) | Done::Fenced(_))) => {
                    panic!("a collection was answered by {other:?}")
                }
                Err(unavailable) => Err(unavailable.into()),
            });
        });
    }

    /// Looks for damage in the blobs that keys name; what is damaged or missing is fetched from a peer
    /// that has it. `reply` comes when all were looked at.
    pub fn scrub(&self, scrub: Scrub, reply: impl FnOnce(Result<Scrubbed, RequestFailed>) + Send + 'static) {
        self.request(Request::Scrub(scrub), move |done| {
            reply(match done {
                Ok(Done::Scrubbed(scrubbed)) => Ok(scrubbed),
                Ok(Done::Refused(error)) => Err(error.into()),
                Ok(other @ (Done::Members | Done::Compacted(_) | Done::Collected(_) | Done::Fenced(_))) => {
                    panic!("a scrub was answered by {other:?}")
                }
                Err(unavailable) => Err(unavailable.into()),
            });
        });
    }

    /// Takes the right to write the log, in an epoch above all that are known. `reply` comes when the
    /// epoch has begun, durably; until then writes are refused.
    pub fn fence(&self, epoch: u64, reply: impl FnOnce(Result<Fenced, RequestFailed>) + Send + 'static) {
        self.request(Request::Fence { epoch }, move |done| {
            reply(match done {
                Ok(Done::Fenced(fenced)) => Ok(fenced),
                Ok(Done::Refused(error)) => Err(error.into()),
                Ok(other @ (Done::Members | Done::Compacted(_) | Done::Collected(_) | Done::Scrubbed(_))) => {
                    panic!("a move of the authority was answered by {other:?}")
                }
                Err(unavailable) => Err(unavailable.into()),
            });
        });
    }

    /// As [`NodeHandle::fence`], with the epoch that `source` gives, such as a lease's fence token.
    /// Whether there was one: `reply` is not called without.
    ///
    /// # Errors
    /// The source cannot be asked; nothing was done.
    pub fn fence_from<S: EpochSource>(
        &self,
        source: &mut S,
        reply: impl FnOnce(Result<Fenced, RequestFailed>) + Send + 'static,
    ) -> Result<bool, S::Error> {
        let Some(epoch) = source.epoch()? else { return Ok(false) };
        self.fence(epoch, reply);
        Ok(true)
    }

    /// Takes up a link with an authenticated peer. Its frames go to `sink`.
    pub fn link_up(
        &self,
        peer: Authenticated,
        role: LinkRole,
        sink: Box<dyn LinkSink>,
        reply: impl FnOnce(Result<LinkId, LinkRefused>) + Send + 'static,
    ) {
        let reply = Reply::new(reply, || Err(LinkRefused::Closing));
        self.send(Input::LinkUp { peer: Box::new(peer), role, sink, reply });
    }

    /// Hands in bytes from a link, split anywhere. `done` comes once they are taken: the caller
    /// bounds what it has handed in and not seen done.
    pub fn received(&self, link: LinkId, bytes: Vec<u8>, done: impl FnOnce() + Send + 'static) {
        self.send(Input::Received { link, bytes, done: Reply::new(move |()| done(), || ()) });
    }

    /// Tells that the link's sink, which had said `Enough`, takes frames again.
    pub fn link_ready(&self, link: LinkId) {
        self.send(Input::LinkReady(link));
    }

    /// Tells that the link's connection is gone. Doing it twice is harmless.
    pub fn link_down(&self, link: LinkId) {
        self.send(Input::LinkDown(link));
    }

    /// Calls `call` with every event from now on, until it answers `Break` or the node ends. Counts
    /// as one call under way for as long.
    pub fn subscribe_events(
        &self,
        call: impl FnMut(&Event) -> ControlFlow<()> + Send + 'static,
    ) -> Result<(), Unavailable> {
        let permit = self.permit()?;
        self.send(Input::Subscribe { call: Box::new(call), permit });
        Ok(())
    }

    /// Closes the node: what was submitted becomes durable, later submissions are refused, the
    /// journal is sealed, the directory is released. `reply` comes after all that, with the fault
    /// if the journal had stopped. On a closed node it comes at once, as its first close was
    /// answered; if its thread was lost, it is a fault.
    pub fn close(&self, reply: impl FnOnce(Result<(), StorageFault>) + Send + 'static) {
        self.send(Input::Close(close_reply(reply, &self.ending)));
    }

    /// The log's directory, as it was named when it was opened.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The blob store.
    #[must_use]
    pub fn blobs(&self) -> &Arc<BlobStore> {
        &self.blobs
    }

    pub(super) fn permit(&self) -> Result<Permit, Unavailable> {
        self.waiting.take(1).map_err(|under_way| self.busy(under_way))
    }

    pub(super) fn open_subscription(
        &self,
        cursor: Cursor,
        call: PageCall,
        permit: Permit,
        reply: Reply<Opened>,
    ) {
        self.send(Input::OpenSubscription { cursor, call, permit, reply });
    }

    pub(super) fn inputs(&self) -> Sender<Input<Replica>> {
        self.inputs.clone()
    }

    fn request(&self, request: Request, reply: impl FnOnce(Result<Done, Unavailable>) + Send + 'static) {
        let reply = Reply::new(reply, || Err(Unavailable::Closed));
        match self.waiting.take(1) {
            Ok(permit) => self.send(Input::Request { request, reply: reply.holding(permit) }),
            Err(under_way) => reply.give(Err(self.busy(under_way))),
        }
    }

    const fn too_large(&self, mutations: usize) -> MutationError {
        MutationError::BatchTooLarge {
            found: mutations as u64,
            max: self.waiting.max() as u64,
            unit: "mutations",
        }
    }

    const fn busy(&self, under_way: usize) -> Unavailable {
        Unavailable::Busy { under_way, max: self.waiting.max() }
    }

    /// An input that the owner no longer takes answers itself when it is dropped.
    fn send(&self, input: Input<Replica>) {
        drop(self.inputs.send(input));
    }
}

impl std::fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeHandle").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::api::owner_lost;
    use std::sync::mpsc::channel;
    use strandline_core::lifecycle::api::Change;
    use strandline_core::record::Key;

    #[test]
    fn calls_under_way_are_bounded_and_end_with_the_node() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let (inputs, owner) = channel();
        let blobs = Arc::new(BlobStore::open(folder.path().join("blobs"))?);
        let handle = NodeHandle::new(inputs, Waiting::new(1), blobs, folder.path().into(), Ending::default());
        let (answer, answers) = channel();
        for _ in 0..2 {
            let tx = answer.clone();
            handle.submit(Vec::new(), WaitPolicy::Wait, move |written| drop(tx.send(written)));
        }
        assert_eq!(
            answers.try_recv()?,
            Err(WriteError::Unavailable(Unavailable::Busy { under_way: 1, max: 1 }))
        );
        assert!(answers.try_recv().is_err(), "the first is under way");
        let key = Key::from_parts(b"n", b"k").ok_or("long")?;
        let delete = Mutation { key, change: Change::Delete, if_version: None };
        let tx = answer.clone();
        handle.submit(vec![delete; 2], WaitPolicy::Wait, move |written| drop(tx.send(written)));
        let too_large = MutationError::BatchTooLarge { found: 2, max: 1, unit: "mutations" };
        assert_eq!(answers.try_recv()?, Err(WriteError::Refused(too_large)), "no waiting helps");
        drop(owner);
        assert_eq!(answers.try_recv()?, Err(WriteError::Unavailable(Unavailable::Closed)));
        let closed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&closed);
        handle.read(move |replica| seen.store(replica.is_err(), std::sync::atomic::Ordering::Relaxed));
        assert!(closed.load(std::sync::atomic::Ordering::Relaxed), "the read is told");
        Ok(())
    }

    #[test]
    fn a_close_after_the_end_says_how_it_was() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let blobs = Arc::new(BlobStore::open(folder.path().join("blobs"))?);
        let (inputs, owner) = channel();
        let ending = Ending::default();
        let handle =
            NodeHandle::new(inputs, Waiting::new(1), blobs, folder.path().into(), Arc::clone(&ending));
        let close = || {
            let (tx, answer) = channel();
            handle.close(move |ended| drop(tx.send(ended)));
            answer.try_recv()
        };
        assert!(close().is_err(), "the owner has not answered");
        drop(owner);
        assert_eq!(close()?, Err(owner_lost()), "a lost owner has sealed and released nothing");
        ending.set(Ok(())).map_err(|_| "set before")?;
        assert_eq!(close()?, Ok(()));
        Ok(())
    }
}
