//! One authenticated connection: carries bytes between it and the replica until either ends.

use crate::config::{NetConfig, ms};
use crate::counters::Counters;
use crate::outbox::{OutboxSource, Outgoing, outbox};
use crate::runtime::{Runtime, within};
use futures::channel::oneshot;
use futures::future::{Either, select};
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{CloseReason, LinkRefused, LinkRole};
use strandline_core::lifecycle::standing::Revoked;
use strandline_core::wire::handshake::Authenticated;
use strandline_file::node::{LinkSink, NodeHandle};

/// Longest piece read from a connection at once.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// What a session asks of a node. A trait so that sessions can be tested with a node that is slow or
/// full when the test wants it.
pub(crate) trait LinkHost: Clone + Send + Sync + 'static {
    fn link_up(
        &self,
        peer: Authenticated,
        role: LinkRole,
        sink: Box<dyn LinkSink>,
        reply: impl FnOnce(Result<LinkId, LinkRefused>) + Send + 'static,
    );
    fn received(&self, link: LinkId, bytes: Vec<u8>, done: impl FnOnce() + Send + 'static);
    fn link_ready(&self, link: LinkId);
    fn link_down(&self, link: LinkId);
}

impl LinkHost for NodeHandle {
    fn link_up(
        &self,
        peer: Authenticated,
        role: LinkRole,
        sink: Box<dyn LinkSink>,
        reply: impl FnOnce(Result<LinkId, LinkRefused>) + Send + 'static,
    ) {
        self.link_up(peer, role, sink, reply);
    }
    fn received(&self, link: LinkId, bytes: Vec<u8>, done: impl FnOnce() + Send + 'static) {
        self.received(link, bytes, done);
    }
    fn link_ready(&self, link: LinkId) {
        self.link_ready(link);
    }
    fn link_down(&self, link: LinkId) {
        self.link_down(link);
    }
}

/// How a session ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionEnd {
    /// The replica did not take the link up.
    #[error("not taken up: {0}")]
    Refused(LinkRefused),
    /// The replica closed it.
    #[error("closed by us: {0:?}")]
    Closed(CloseReason),
    #[error("ended by the peer")]
    Ended,
    #[error("connection failed: {0}")]
    Failed(io::Error),
    /// Nothing moved for `idle_ms`, or one write took more than `write_ms`.
    #[error("stalled: nothing moved for too long")]
    Stalled,
    /// The list of peers changed.
    #[error("revoked: {0}")]
    Revoked(Revoked),
    /// The network has ended, and did not wait for it any longer.
    #[error("cut off: the network has ended")]
    Cut,
}

/// Where a session runs.
pub(crate) struct Host<'a, R, N> {
    pub(crate) runtime: &'a R,
    pub(crate) config: &'a NetConfig,
    pub(crate) node: &'a N,
    pub(crate) counters: &'a Arc<Counters>,
}

/// Carries a link to its end. `early` are bytes that came behind the handshake. `closed` tells from outside
/// that the replica has closed the link, and why: then the connection only lingers.
///
/// Dropped: the connection is closed, and the replica learns that the link is down.
pub(crate) async fn run<R: Runtime, N: LinkHost>(
    host: Host<'_, R, N>,
    connection: impl AsyncRead + AsyncWrite,
    peer: Authenticated,
    role: LinkRole,
    early: Vec<u8>,
    closed: &OnceLock<CloseReason>,
) -> SessionEnd {
    let Host { runtime, config, node, counters } = host;
    let (sink, source) = outbox(config.outbox_bytes_max, Arc::clone(counters));
    let (tx, rx) = oneshot::channel();
    let own = node.clone();
    node.link_up(peer, role, Box::new(sink), move |up| {
        // If the session's task is gone by now, the link is dropped unseen, and so taken down.
        drop(tx.send(up.map(|link| LinkUp { node: own, link })));
    });
    let link = match rx.await.unwrap_or(Err(LinkRefused::Closing)) {
        Ok(link) => link,
        Err(refused) => return SessionEnd::Refused(refused),
    };
    tracing::debug!(link = %link.link, "link is up");
    let (read, write) = connection.split();
    let side = Side { runtime, config, link: &link, moved: AtomicBool::new(false), closed };
    let reading = pin!(side.read(read, early));
    let writing = pin!(side.write(write, source));
    match select(writing, reading).await {
        Either::Left((SessionEnd::Closed(reason), reading)) => {
            let reason = closed.get_or_init(|| reason);
            // A peer that does not end its side in that time may lose our last words.
            let _ = within(runtime, ms(config.linger_ms), reading).await;
            SessionEnd::Closed(reason.clone())
        }
        Either::Left((end, _)) | Either::Right((end, _)) => end,
    }
}

/// Tells the replica that the link is gone, however its task ends, and whenever.
struct LinkUp<N: LinkHost> {
    node: N,
    link: LinkId,
}

impl<N: LinkHost> Drop for LinkUp<N> {
    fn drop(&mut self) {
        self.node.link_down(self.link);
    }
}

/// What both directions share.
struct Side<'a, R, N: LinkHost> {
    runtime: &'a R,
    config: &'a NetConfig,
    link: &'a LinkUp<N>,
    /// The other direction made progress since the reader last looked.
    moved: AtomicBool,
    /// Why the replica has closed the link: what is read from then on is for nobody.
    closed: &'a OnceLock<CloseReason>,
}

impl<R: Runtime, N: LinkHost> Side<'_, R, N> {
    async fn read(&self, mut from: impl AsyncRead + Unpin, early: Vec<u8>) -> SessionEnd {
        let mut window = Window::new(self.config.chunks_outstanding_max);
        if !early.is_empty() {
            window.hand_in(self.link, early).await;
        }
        let mut chunk = vec![0; CHUNK_BYTES_MAX];
        loop {
            window.room().await;
            match within(self.runtime, ms(self.config.idle_ms), from.read(&mut chunk)).await {
                Some(Ok(0)) => return SessionEnd::Ended,
                Some(Ok(_)) if self.closed.get().is_some() => {}
                Some(Ok(bytes)) => window.hand_in(self.link, chunk[..bytes].to_vec()).await,
                Some(Err(error)) => return SessionEnd::Failed(error),
                None if self.moved.swap(false, Ordering::Relaxed) => {}
                None => return SessionEnd::Stalled,
            }
        }
    }

    async fn write(&self, mut to: impl AsyncWrite + Unpin, mut source: OutboxSource) -> SessionEnd {
        loop {
            match source.next().await {
                Outgoing::Frames { bytes, was_full } => {
                    if was_full {
                        // The next frames are made while these are written.
                        self.link.node.link_ready(self.link.link);
                    }
                    match self.write_all(&mut to, &bytes).await {
                        Some(Ok(())) => {}
                        Some(Err(error)) => return SessionEnd::Failed(error),
                        None => return SessionEnd::Stalled,
                    }
                }
                Outgoing::Closed(reason) => {
                    // The peer may be gone already; the link has ended either way.
                    let _ = within(self.runtime, ms(self.config.write_ms), to.close()).await;
                    return SessionEnd::Closed(reason);
                }
            }
        }
    }

    /// Writes and flushes; `None` if some piece of it takes longer than `write_ms`.
    async fn write_all(&self, to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Option<io::Result<()>> {
        let limit = ms(self.config.write_ms);
        for piece in bytes.chunks(CHUNK_BYTES_MAX) {
            if let Err(error) = within(self.runtime, limit, to.write_all(piece)).await? {
                return Some(Err(error));
            }
            self.moved.store(true, Ordering::Relaxed);
        }
        within(self.runtime, limit, to.flush()).await
    }
}

/// Chunks handed in and not yet taken by the replica.
struct Window {
    outstanding: VecDeque<oneshot::Receiver<()>>,
    max: usize,
}

impl Window {
    fn new(max: usize) -> Self {
        Self { outstanding: VecDeque::new(), max: max.max(1) }
    }

    /// Waits until another chunk may be read.
    async fn room(&mut self) {
        while self.outstanding.len() >= self.max {
            if let Some(oldest) = self.outstanding.pop_front() {
                // A node that has ended takes nothing, and ends the link through its sink.
                let _ = oldest.await;
            }
        }
    }

    async fn hand_in(&mut self, link: &LinkUp<impl LinkHost>, bytes: Vec<u8>) {
        self.room().await;
        let (tx, rx) = oneshot::channel();
        link.node.received(link.link, bytes, move || {
            // A session that has ended waits for nothing.
            let _ = tx.send(());
        });
        self.outstanding.push_back(rx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeNode, Memory, PIPE_BYTES, authenticated, pipe};
    use strandline_core::machine::Sent;
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;
    use tokio_util::compat::Compat;

    static FRAME: [u8; 4 * PIPE_BYTES] = [7; 4 * PIPE_BYTES];

    /// A session of `node` under way, and the peer's end of it.
    async fn start(node: &FakeNode, config: NetConfig) -> (JoinHandle<SessionEnd>, Compat<DuplexStream>) {
        let (ours, theirs) = pipe();
        let own = node.clone();
        let peer = authenticated();
        let early = b"early ".to_vec();
        let task = tokio::spawn(async move {
            let (runtime, counters) = (&Memory::default(), &Arc::default());
            let host = Host { runtime, config: &config, node: &own, counters };
            run(host, ours, peer, LinkRole::Both, early, &OnceLock::new()).await
        });
        (task, theirs)
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_early_ones_come_first() {
        let node = FakeNode::default();
        let (task, mut peer) = start(&node, NetConfig::default()).await;
        peer.write_all(b"hello").await.expect("written");
        node.until(|told| told.received == b"early hello").await;
        assert_eq!(node.send(b"answer"), Sent::More);
        let mut answer = [0; 6];
        peer.read_exact(&mut answer).await.expect("read");
        assert_eq!(&answer, b"answer");
        drop(peer);
        assert!(matches!(task.await.expect("no panic"), SessionEnd::Ended));
        assert_eq!(node.told().downs, 1);
    }

    #[tokio::test]
    async fn a_node_that_is_slow_stops_the_peer_at_the_window() {
        let node = FakeNode::default();
        node.told().hold = true;
        let config = NetConfig { chunks_outstanding_max: 2, ..NetConfig::default() };
        let (_task, mut peer) = start(&node, config).await;
        let writing = tokio::spawn(async move {
            peer.write_all(&FRAME).await.expect("written");
            peer
        });
        node.until(|told| told.held.len() == 2).await;
        tokio::time::sleep(ms(20)).await;
        assert_eq!(node.told().held.len(), 2, "no chunk is read beyond the window");
        assert!(!writing.is_finished(), "the peer is held back");
        let held = {
            let mut told = node.told();
            told.hold = false;
            std::mem::take(&mut told.held)
        };
        held.into_iter().for_each(|done| done());
        node.until(|told| told.received.len() == FRAME.len() + b"early ".len()).await;
        drop(writing.await.expect("no panic"));
    }

    #[tokio::test]
    async fn a_peer_that_is_slow_leaves_the_link_unready() {
        let node = FakeNode::default();
        let config = NetConfig { outbox_bytes_max: 16, ..NetConfig::default() };
        let (_task, mut peer) = start(&node, config).await;
        node.until(|told| told.ups == 1).await;
        assert_eq!(node.send(&FRAME), Sent::Enough);
        node.until(|told| told.readies == 1).await;
        assert_eq!(node.send(&FRAME), Sent::Enough);
        tokio::time::sleep(ms(20)).await;
        assert_eq!(node.told().readies, 1, "one is being written, one waits");
        let mut read = vec![0; FRAME.len()];
        peer.read_exact(&mut read).await.expect("read");
        node.until(|told| told.readies == 2).await;
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let node = FakeNode::default();
        let config = NetConfig { write_ms: 20, ..NetConfig::default() };
        let (task, _peer) = start(&node, config).await;
        node.until(|told| told.ups == 1).await;
        let _ = node.send(&FRAME);
        assert!(matches!(task.await.expect("no panic"), SessionEnd::Stalled));
        assert_eq!(node.told().downs, 1);
    }

    #[tokio::test]
    async fn a_link_on_which_nothing_moves_is_given_up() {
        let node = FakeNode::default();
        let config = NetConfig { idle_ms: 20, ..NetConfig::default() };
        let (task, _peer) = start(&node, config).await;
        assert!(matches!(task.await.expect("no panic"), SessionEnd::Stalled));
        assert_eq!(node.told().downs, 1);
    }

    #[tokio::test]
    async fn last_words_go_out_before_the_end() {
        let node = FakeNode::default();
        let (task, mut peer) = start(&node, NetConfig::default()).await;
        node.until(|told| told.ups == 1).await;
        let _ = node.send(b"last words");
        node.close(&CloseReason::Duplicate);
        let mut words = Vec::new();
        peer.read_to_end(&mut words).await.expect("read");
        assert_eq!(words, b"last words");
        assert!(matches!(task.await.expect("no panic"), SessionEnd::Closed(CloseReason::Duplicate)));
    }

    #[tokio::test]
    async fn what_a_peer_still_sends_after_the_last_words_is_read_off_and_reaches_nobody() {
        let node = FakeNode::default();
        let (task, mut peer) = start(&node, NetConfig { linger_ms: 60_000, ..NetConfig::default() }).await;
        node.until(|told| told.received == b"early ").await;
        node.close(&CloseReason::Duplicate);
        let mut words = Vec::new();
        peer.read_to_end(&mut words).await.expect("read");
        peer.write_all(&FRAME).await.expect("taken");
        drop(peer);
        assert!(matches!(task.await.expect("no panic"), SessionEnd::Closed(CloseReason::Duplicate)));
        assert_eq!(node.told().received, b"early ");
    }

    #[tokio::test]
    async fn a_peer_that_stays_after_the_last_words_is_left() {
        let node = FakeNode::default();
        let (task, _peer) = start(&node, NetConfig { linger_ms: 20, ..NetConfig::default() }).await;
        node.until(|told| told.ups == 1).await;
        node.close(&CloseReason::Duplicate);
        // Without its bound the lingering would end with `idle_ms`.
        let end = tokio::time::timeout(ms(60_000), task).await.expect("left long before");
        assert!(matches!(end.expect("no panic"), SessionEnd::Closed(CloseReason::Duplicate)));
        assert_eq!(node.told().downs, 1);
    }

    #[tokio::test]
    async fn a_link_that_is_refused_is_not_taken_down() {
        let node = FakeNode::default();
        node.told().refuse = Some(LinkRefused::Closing);
        let (task, _peer) = start(&node, NetConfig::default()).await;
        assert!(matches!(task.await.expect("no panic"), SessionEnd::Refused(LinkRefused::Closing)));
        assert_eq!(node.told().downs, 0);
    }

    #[tokio::test]
    async fn a_session_that_is_dropped_takes_its_link_down() {
        let node = FakeNode::default();
        let (task, _peer) = start(&node, NetConfig::default()).await;
        node.until(|told| told.ups == 1).await;
        task.abort();
        node.until(|told| told.downs == 1).await;
    }

    #[tokio::test]
    async fn a_session_that_is_dropped_before_its_link_is_up_takes_it_down() {
        let node = FakeNode::default();
        node.told().hold_up = true;
        let (task, _peer) = start(&node, NetConfig::default()).await;
        node.until(|told| told.ups == 1).await;
        task.abort();
        assert!(task.await.expect_err("aborted").is_cancelled());
        let held = std::mem::take(&mut node.told().held);
        held.into_iter().for_each(|reply| reply());
        node.until(|told| told.downs == 1).await;
    }
}
