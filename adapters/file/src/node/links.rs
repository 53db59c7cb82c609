//! The links of a node as its owner sees them: where their frames go, and which can take one.

use super::reply::Reply;
use std::collections::{BTreeMap, VecDeque};
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::CloseReason;
use strandline_core::machine::Sent;

/// Where the frames of one link go. Called on the owner's thread: it must never block.
pub trait LinkSink: Send {
    /// Takes one frame, whole. After [`Sent::Enough`] no frame comes before `link_ready` is called
    /// on the node's handle.
    fn send(&mut self, frame: &[u8]) -> Sent;
    /// No frame comes any more: close the connection once those taken are out.
    fn close(&mut self, reason: &CloseReason);
}

#[derive(Default)]
pub(crate) struct Links {
    by_id: BTreeMap<LinkId, Link>,
    ready: VecDeque<LinkId>,
}

struct Link {
    sink: Box<dyn LinkSink>,
    /// The sink said `Enough` and has not been ready since.
    full: bool,
    /// Stands in `ready`.
    queued: bool,
    /// Set once the replica has let go of the link.
    closing: Option<CloseReason>,
    /// Who handed in bytes and must wait before handing in more.
    paused: Vec<Reply<()>>,
}

impl Links {
    pub(crate) fn insert(&mut self, link: LinkId, sink: Box<dyn LinkSink>) {
        self.by_id.insert(link, Link { sink, full: false, queued: false, closing: None, paused: Vec::new() });
    }

    pub(crate) fn remove(&mut self, link: LinkId) {
        self.by_id.remove(&link);
    }

    /// The channel has frames; they wait if the sink is full.
    pub(crate) fn frames(&mut self, link: LinkId) {
        if let Some(state) = self.by_id.get_mut(&link)
            && !state.full
            && !state.queued
        {
            state.queued = true;
            self.ready.push_back(link);
        }
    }

    /// The sink can take a frame again. It is asked also if the channel had none: that is harmless.
    pub(crate) fn sink_ready(&mut self, link: LinkId) {
        if let Some(state) = self.by_id.get_mut(&link) {
            state.full = false;
            self.frames(link);
        }
    }

    /// Keeps back the answer to bytes handed in, until the link resumes or is gone.
    pub(crate) fn pause(&mut self, link: LinkId, done: Reply<()>) {
        match self.by_id.get_mut(&link) {
            Some(state) if state.closing.is_none() => state.paused.push(done),
            Some(_) | None => done.give(()),
        }
    }

    /// The link may hand in bytes again.
    pub(crate) fn resume(&mut self, link: LinkId) {
        if let Some(state) = self.by_id.get_mut(&link) {
            state.paused.drain(..).for_each(|done| done.give(()));
        }
    }

    /// Closes the sink once the channel has no more frames.
    pub(crate) fn close(&mut self, link: LinkId, reason: CloseReason) {
        if let Some(state) = self.by_id.get_mut(&link) {
            state.closing = Some(reason);
            self.resume(link);
            self.frames(link);
        }
    }

    /// The first link that can take a frame; those gone meanwhile are passed over.
    pub(crate) fn first(&mut self) -> Option<LinkId> {
        while let Some(link) = self.ready.front().copied() {
            if self.by_id.contains_key(&link) {
                return Some(link);
            }
            self.ready.pop_front();
        }
        None
    }

    pub(crate) fn send(&mut self, link: LinkId, frame: &[u8]) -> Sent {
        let Some(state) = self.by_id.get_mut(&link) else { return Sent::Enough };
        let sent = state.sink.send(frame);
        state.full = sent == Sent::Enough;
        sent
    }

    /// The first link is full or has nothing more to send. One that is closing and has nothing
    /// more is closed.
    pub(crate) fn done(&mut self, link: LinkId) {
        self.ready.pop_front();
        let Some(state) = self.by_id.get_mut(&link) else { return };
        state.queued = false;
        if state.full {
            return;
        }
        if let Some(reason) = state.closing.take() {
            state.sink.close(&reason);
            self.by_id.remove(&link);
        }
    }

    /// Closes every sink, whatever still waits.
    pub(crate) fn close_all(&mut self) {
        for (_, mut link) in std::mem::take(&mut self.by_id) {
            link.sink.close(&link.closing.take().unwrap_or(CloseReason::Closing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const A: LinkId = LinkId { slot: 0, uses: 1 };
    const B: LinkId = LinkId { slot: 1, uses: 1 };

    struct Sink(Sent, Sender<Option<CloseReason>>);

    impl LinkSink for Sink {
        fn send(&mut self, _frame: &[u8]) -> Sent {
            self.0
        }
        fn close(&mut self, reason: &CloseReason) {
            self.1.send(Some(reason.clone())).expect("listening");
        }
    }

    fn link(links: &mut Links, id: LinkId, sent: Sent) -> Receiver<Option<CloseReason>> {
        let (tx, rx) = channel();
        links.insert(id, Box::new(Sink(sent, tx)));
        rx
    }

    #[test]
    fn a_full_sink_waits_until_it_is_ready_and_others_go_on() {
        let mut links = Links::default();
        let _a = link(&mut links, A, Sent::Enough);
        let _b = link(&mut links, B, Sent::More);
        links.frames(A);
        links.frames(B);
        assert_eq!(links.first(), Some(A));
        assert_eq!(links.send(A, b"f"), Sent::Enough);
        links.done(A);
        links.frames(A);
        assert_eq!(links.first(), Some(B));
        links.done(B);
        assert_eq!(links.first(), None, "A is full");
        links.sink_ready(A);
        assert_eq!(links.first(), Some(A));
    }

    #[test]
    fn a_link_closes_only_after_its_last_frame() {
        let mut links = Links::default();
        let closed = link(&mut links, A, Sent::Enough);
        links.close(A, CloseReason::Idle);
        assert_eq!(links.first(), Some(A));
        assert_eq!(links.send(A, b"last words"), Sent::Enough);
        links.done(A);
        assert!(closed.try_recv().is_err(), "the sink is full: more frames may wait");
        links.sink_ready(A);
        links.done(A);
        assert_eq!(closed.try_recv(), Ok(Some(CloseReason::Idle)));
        assert_eq!(links.first(), None);
    }

    #[test]
    fn a_link_that_is_gone_is_passed_over() {
        let mut links = Links::default();
        let _a = link(&mut links, A, Sent::More);
        let _b = link(&mut links, B, Sent::More);
        links.frames(A);
        links.frames(B);
        links.remove(A);
        assert_eq!(links.first(), Some(B));
    }

    #[test]
    fn a_paused_link_answers_when_it_resumes_closes_or_goes() {
        let mut links = Links::default();
        let _a = link(&mut links, A, Sent::More);
        let (tx, taken) = channel();
        let pause = |links: &mut Links| {
            let tx = tx.clone();
            links.pause(A, Reply::new(move |()| tx.send(()).expect("listening"), || ()));
        };
        pause(&mut links);
        assert!(taken.try_recv().is_err(), "it waits");
        links.resume(A);
        assert_eq!(taken.try_recv(), Ok(()), "resumed");
        pause(&mut links);
        links.close(A, CloseReason::Idle);
        assert_eq!(taken.try_recv(), Ok(()), "closed");
        pause(&mut links);
        assert_eq!(taken.try_recv(), Ok(()), "it is closing");
        links.remove(A);
        pause(&mut links);
        assert_eq!(taken.try_recv(), Ok(()), "gone");
    }

    #[test]
    fn a_link_stands_in_the_queue_once() {
        let mut links = Links::default();
        let _a = link(&mut links, A, Sent::More);
        links.frames(A);
        links.frames(A);
        links.done(A);
        assert_eq!(links.first(), None);
    }
}
