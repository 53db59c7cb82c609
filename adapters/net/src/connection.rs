//! A connection as links use it: counted, bounded until it is authenticated, with or without TLS.

use crate::counters::Counters;
use futures::{AsyncRead, AsyncWrite};
use futures_rustls::TlsStream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

/// Either form of a connection.
pub(crate) enum Connection<C> {
    Plain(Metered<C>),
    Tls(Box<TlsStream<Metered<C>>>),
}

/// How many bytes a connection may still read. Shared, so that it can be lifted beneath TLS.
#[derive(Clone, Debug)]
pub(crate) struct Allowance(Arc<Left>);

#[derive(Debug)]
struct Left {
    bytes: AtomicU64,
    exceeded: AtomicBool,
}

impl Allowance {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Arc::new(Left { bytes: AtomicU64::new(bytes), exceeded: AtomicBool::new(false) }))
    }

    /// The connection is authenticated.
    pub(crate) fn lift(&self) {
        self.0.bytes.store(u64::MAX, Ordering::Relaxed);
    }

    /// Whether more was there to read than was allowed.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.0.exceeded.load(Ordering::Relaxed)
    }
}

/// Counts the bytes of a connection, and reads no more of it than it may.
pub(crate) struct Metered<C> {
    inner: C,
    allowance: Allowance,
    counters: Arc<Counters>,
}

impl<C> Metered<C> {
    pub(crate) const fn new(inner: C, allowance: Allowance, counters: Arc<Counters>) -> Self {
        Self { inner, allowance, counters }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Metered<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let left = self.allowance.0.bytes.load(Ordering::Relaxed);
        if left == 0 && !buf.is_empty() {
            self.allowance.0.exceeded.store(true, Ordering::Relaxed);
            return Poll::Ready(Err(io::Error::other("expected authentication before so many bytes")));
        }
        let room = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = ready!(Pin::new(&mut self.inner).poll_read(context, &mut buf[..room]))? as u64;
        self.counters.bytes_in.add(read);
        if left != u64::MAX {
            // Only this connection takes from it, and only its task lifts it, between two reads.
            self.allowance.0.bytes.store(left - read, Ordering::Relaxed);
        }
        Poll::Ready(Ok(read as usize))
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Metered<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, buf))?;
        self.counters.bytes_out.add(written as u64);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(context)
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> AsyncRead for Connection<C> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(plain) => Pin::new(plain).poll_read(context, buf),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_read(context, buf),
        }
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Connection<C> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(plain) => Pin::new(plain).poll_write(context, buf),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write(context, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(plain) => Pin::new(plain).poll_flush(context),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(context),
        }
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(plain) => Pin::new(plain).poll_close(context),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_close(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::io::Cursor;
    use futures::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn no_more_is_read_than_allowed_until_it_is_lifted() {
        let (allowance, counters) = (Allowance::new(5), Arc::<Counters>::default());
        let mut metered = Metered::new(Cursor::new(vec![1; 12]), allowance.clone(), Arc::clone(&counters));
        let mut buf = [0; 8];
        assert_eq!(block_on(metered.read(&mut buf)).expect("allowed"), 5);
        assert!(!allowance.is_exceeded());
        assert!(block_on(metered.read(&mut buf)).is_err() && allowance.is_exceeded());
        allowance.lift();
        assert_eq!(block_on(metered.read(&mut buf)).expect("lifted"), 7);
        assert_eq!(block_on(metered.read(&mut buf)).expect("the end"), 0);
    }

    #[test]
    fn bytes_are_counted_both_ways() {
        let counters = Arc::<Counters>::default();
        let mut inner = Cursor::new(vec![0; 8]);
        let mut metered = Metered::new(&mut inner, Allowance::new(u64::MAX), Arc::clone(&counters));
        block_on(async {
            metered.write_all(b"abc").await.expect("written");
            metered.read_to_end(&mut Vec::new()).await.expect("read");
        });
        let gate = crate::testing::gate(&crate::config::NetConfig::default());
        let status = counters.status(&gate);
        assert_eq!((status.bytes_in, status.bytes_out), (5, 3));
    }
}
