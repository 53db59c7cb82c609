//! What an asynchronous runtime supplies.

use futures::future::{BoxFuture, Either, select};
use futures::{AsyncRead, AsyncWrite, Stream};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

/// Tasks, time and sockets. Implemented by a small crate for each runtime.
pub trait Runtime: Clone + Send + Sync + 'static {
    /// A connection. Dropping it closes it.
    type Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static;
    /// Incoming connections with the address each came from. An error of one of them does not end
    /// the stream.
    type Incoming: Stream<Item = io::Result<(Self::Connection, SocketAddr)>> + Send + Unpin + 'static;

    /// Runs a task to its end, beside the caller.
    fn spawn(&self, task: BoxFuture<'static, ()>);
    /// Runs work that blocks, where it delays no task.
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>);
    /// Ends after `time`.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
    /// Connects to `address`, written `host:port`.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Self::Connection>>;
    /// Listens on `address`; tells which one it got, as port 0 asks for any free one.
    fn listen(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<(Self::Incoming, SocketAddr)>>;
}

/// What `work` gives, or `None` if it takes longer than `time`; then it is dropped.
pub(crate) async fn within<R: Runtime, F: Future>(runtime: &R, time: Duration, work: F) -> Option<F::Output> {
    match select(pin!(work), runtime.sleep(time)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(((), _)) => None,
    }
}
