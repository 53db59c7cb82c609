//! One authenticated connection: carries bytes between it and the replica until either ends.

use crate::config::{NetConfig, ms};
use crate::outbox::{Outgoing, OutboxSource, outbox};
use crate::runtime::{Runtime, within};
use futures::channel::oneshot;
use futures::future::{Either, select};
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{CloseReason, LinkRefused, LinkRole};
use strandline_core::wire::handshake::Authenticated;
use strandline_file::node::NodeHandle;

/// Longest piece read from a connection at once.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// How a session ended.
#[derive(Debug)]
pub(crate) enum SessionEnd {
    /// The replica did not take the link up.
    Refused(LinkRefused),
    /// The replica closed it.
    Closed(CloseReason),
    /// The peer ended it.
    Ended,
    /// The connection failed.
    Failed(io::Error),
    /// Nothing moved for `idle_ms`, or one write took more than `write_ms`.
    Stalled,
}

/// Carries a link to its end. `early` are bytes that came behind the handshake.
pub(crate) async fn run<R: Runtime>(
    runtime: &R,
    config: &NetConfig,
    node: &NodeHandle,
    connection: R::Connection,
    peer: Authenticated,
    role: LinkRole,
    early: Vec<u8>,
) -> SessionEnd {
    let (sink, source) = outbox(config.outbox_bytes_max);
    let (tx, rx) = oneshot::channel();
    node.link_up(peer, role, Box::new(sink), move |up| {
        // If the session's task is gone by now, its sink is too, and the replica is told below.
        drop(tx.send(up));
    });
    let link = match rx.await.unwrap_or(Err(LinkRefused::Closing)) {
        Ok(link) => LinkUp { node, link },
        Err(refused) => return SessionEnd::Refused(refused),
    };
    tracing::debug!(link = %link.link, "link is up");
    let (read, write) = connection.split();
    let moved = AtomicBool::new(false);
    let side = Side { runtime, config, link: &link, moved: &moved };
    let reading = pin!(side.read(read, early));
    let writing = pin!(side.write(write, source));
    match select(writing, reading).await {
        Either::Left((end, _)) | Either::Right((end, _)) => end,
    }
}

/// Tells the replica that the link is gone, however its task ends.
struct LinkUp<'a> {
    node: &'a NodeHandle,
    link: LinkId,
}

impl Drop for LinkUp<'_> {
    fn drop(&mut self) {
        self.node.link_down(self.link);
    }
}

/// What both directions share.
#[derive(Clone, Copy)]
struct Side<'a, R> {
    runtime: &'a R,
    config: &'a NetConfig,
    link: &'a LinkUp<'a>,
    /// The other direction made progress since the reader last looked.
    moved: &'a AtomicBool,
}

impl<R: Runtime> Side<'_, R> {
    async fn read(self, mut from: impl AsyncRead + Unpin, early: Vec<u8>) -> SessionEnd {
        let mut window = Window::new(self.config.chunks_outstanding_max);
        if !early.is_empty() {
            window.hand_in(self.link, early).await;
        }
        let mut chunk = vec![0; CHUNK_BYTES_MAX];
        loop {
            window.room().await;
            match within(self.runtime, ms(self.config.idle_ms), from.read(&mut chunk)).await {
                Some(Ok(0)) => return SessionEnd::Ended,
                Some(Ok(bytes)) => window.hand_in(self.link, chunk[..bytes].to_vec()).await,
                Some(Err(error)) => return SessionEnd::Failed(error),
                None if self.moved.swap(false, Ordering::Relaxed) => {}
                None => return SessionEnd::Stalled,
            }
        }
    }

    async fn write(self, mut to: impl AsyncWrite + Unpin, mut source: OutboxSource) -> SessionEnd {
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
    async fn write_all(self, to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Option<io::Result<()>> {
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

    async fn hand_in(&mut self, link: &LinkUp<'_>, bytes: Vec<u8>) {
        self.room().await;
        let (tx, rx) = oneshot::channel();
        link.node.received(link.link, bytes, move || drop(tx.send(())));
        self.outstanding.push_back(rx);
    }
}
