//! What streams lie on.

use futures::future::{BoxFuture, FutureExt as _};
use strandline_core::stream::client::{Execution, LogPosition, Waited};
use strandline_core::stream::failover::Standing;
use strandline_core::stream::{Layout, Outcome, StreamName, StreamOp};

/// A server, or what stands for one: it does single operations, and waits for news. Everything else is
/// decided above it.
pub trait Backend: Send + Sync + 'static {
    /// Whose rules hold.
    fn layout(&self) -> Layout;

    /// Does one operation, in one step. It ends within a bounded time; without an answer the outcome is
    /// [`Outcome::Uncertain`], never "not done". Dropped before its end, the step may have been done.
    fn apply(&self, op: StreamOp) -> BoxFuture<'static, Outcome>;

    /// Whether servers can take over from each other there, so that an answer may turn out never to have
    /// been: then [`Backend::apply_beside`] and [`Backend::standing`] say where the server stands.
    fn fails_over(&self) -> bool {
        false
    }

    /// Does one operation as [`Backend::apply`] does, and tells where its server stood beside the answer:
    /// not before the answer was given. `None` where that cannot be told.
    fn apply_beside(&self, op: StreamOp) -> BoxFuture<'static, (Outcome, Option<Standing>)> {
        let applied = self.apply(op);
        async move { (applied.await, None) }.boxed()
    }

    /// Where the server of a stream stands now; `None` where it does not say.
    fn standing(&self, _stream: StreamName) -> BoxFuture<'static, Option<Standing>> {
        async { None }.boxed()
    }

    /// Waits until there may be an entry behind one of these positions, for at most `wait_ms`. It must
    /// not hold up any operation. Ringing for nothing is allowed. Dropping it is safe.
    fn wait(&self, logs: Vec<LogPosition>, wait_ms: u64) -> BoxFuture<'static, Waited>;
}

/// Does an operation as the machine asked for it: `noted` with where the server stood, if that can change
/// hands there.
pub(crate) fn executed(backend: &dyn Backend, op: StreamOp, noted: bool) -> BoxFuture<'static, Execution> {
    if noted && backend.fails_over() {
        let applied = backend.apply_beside(op);
        return async move {
            let (outcome, standing) = applied.await;
            Execution::Beside { outcome, standing }
        }
        .boxed();
    }
    let applied = backend.apply(op);
    async move { Execution::Ended(applied.await) }.boxed()
}
