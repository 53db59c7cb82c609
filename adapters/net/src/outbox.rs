//! Frames on their way from the replica to one peer: filled on the owner's thread, emptied by the
//! link's task.

use crate::counters::Counters;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use strandline_core::lifecycle::api::CloseReason;
use strandline_core::machine::Sent;
use strandline_file::node::LinkSink;

/// Makes both ends. The sink says `Enough` once `bytes_max` bytes wait.
pub(crate) fn outbox(bytes_max: usize, counters: Arc<Counters>) -> (OutboxSink, OutboxSource) {
    let shared = Arc::new(Mutex::new(State::default()));
    (OutboxSink { shared: Arc::clone(&shared), bytes_max, counters }, OutboxSource { shared })
}

/// What the source has for the peer.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Outgoing {
    /// Whole frames, one after the other.
    Frames {
        bytes: Vec<u8>,
        /// The sink had said `Enough`: it must be told that it is ready again.
        was_full: bool,
    },
    /// Nothing comes any more.
    Closed(CloseReason),
}

pub(crate) struct OutboxSink {
    shared: Arc<Mutex<State>>,
    bytes_max: usize,
    counters: Arc<Counters>,
}

pub(crate) struct OutboxSource {
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    full: bool,
    closed: Option<CloseReason>,
    waker: Option<Waker>,
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OutboxSink {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&self.shared);
        let result = change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }
}

impl LinkSink for OutboxSink {
    fn send(&mut self, frame: &[u8]) -> Sent {
        self.counters.frames_out.add(1);
        self.change(|state| {
            state.bytes.extend_from_slice(frame);
            state.full = state.bytes.len() >= self.bytes_max;
            if state.full { Sent::Enough } else { Sent::More }
        })
    }

    fn close(&mut self, reason: &CloseReason) {
        self.change(|state| {
            state.closed.get_or_insert_with(|| reason.clone());
        });
    }
}

impl Drop for OutboxSink {
    fn drop(&mut self) {
        self.close(&CloseReason::Closing);
    }
}

impl OutboxSource {
    /// Waits for frames, then for the end. Losing the future loses nothing.
    pub(crate) async fn next(&mut self) -> Outgoing {
        poll_fn(|context| {
            let mut state = lock(&self.shared);
            if !state.bytes.is_empty() {
                let was_full = std::mem::take(&mut state.full);
                return Poll::Ready(Outgoing::Frames { bytes: std::mem::take(&mut state.bytes), was_full });
            }
            if let Some(reason) = &state.closed {
                return Poll::Ready(Outgoing::Closed(reason.clone()));
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::executor::block_on;

    #[test]
    fn the_sink_says_enough_and_the_source_knows_it() {
        let (mut sink, mut source) = outbox(4, Arc::default());
        assert_eq!(sink.send(b"abc"), Sent::More);
        assert_eq!(sink.send(b"de"), Sent::Enough);
        let frames = Outgoing::Frames { bytes: b"abcde".to_vec(), was_full: true };
        assert_eq!(block_on(source.next()), frames);
        assert_eq!(sink.send(b"f"), Sent::More);
        let frames = Outgoing::Frames { bytes: b"f".to_vec(), was_full: false };
        assert_eq!(block_on(source.next()), frames);
    }

    #[test]
    fn the_end_comes_after_the_frames_and_keeps_its_first_reason() {
        let (mut sink, mut source) = outbox(4, Arc::default());
        let _ = sink.send(b"last");
        sink.close(&CloseReason::Duplicate);
        drop(sink);
        assert!(matches!(block_on(source.next()), Outgoing::Frames { .. }));
        assert_eq!(block_on(source.next()), Outgoing::Closed(CloseReason::Duplicate));
    }

    #[test]
    fn a_source_that_waits_is_woken() {
        let (mut sink, mut source) = outbox(4, Arc::default());
        assert_eq!(source.next().now_or_never(), None);
        let filler = std::thread::spawn(move || {
            let _ = sink.send(b"x");
            sink
        });
        let frames = Outgoing::Frames { bytes: b"x".to_vec(), was_full: false };
        assert_eq!(block_on(source.next()), frames);
        drop(filler.join().expect("the filler ends"));
        assert_eq!(block_on(source.next()), Outgoing::Closed(CloseReason::Closing));
    }
}
