//! What streams lie on.

use futures::future::BoxFuture;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::{Layout, Outcome, StreamOp};

/// A server, or what stands for one: it does single operations, and waits for news. Everything else is
/// decided above it.
pub trait Backend: Send + Sync + 'static {
    /// Whose rules hold.
    fn layout(&self) -> Layout;

    /// Does one operation, in one step. It ends within a bounded time; without an answer the outcome is
    /// [`Outcome::Uncertain`], never "not done". Dropped before its end, the step may have been done.
    fn apply(&self, op: StreamOp) -> BoxFuture<'static, Outcome>;

    /// Waits until there may be an entry behind one of these positions, for at most `wait_ms`. It must
    /// not hold up any operation. Ringing for nothing is allowed. Dropping it is safe.
    fn wait(&self, logs: Vec<LogPosition>, wait_ms: u64) -> BoxFuture<'static, Waited>;
}
