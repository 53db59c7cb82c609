//! What scenarios are played against.

use super::keys::View;
use strandline_core::stream::{Layout, Outcome, ServerTime, StreamOp};

/// What a raw command of a scenario came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Raw {
    /// Done; the text is an ID that it made, or empty.
    Done(String),
    /// It means nothing here: the scenario is one of the Pulse layout on a real server.
    PulseOnly,
}

/// A server, real or not.
pub trait Backend {
    /// What to call it in reports.
    fn name(&self) -> String;
    /// Whose rules hold.
    fn layout(&self) -> Layout;
    /// An empty server.
    fn clear(&mut self);
    /// The server's clock.
    fn now(&mut self) -> ServerTime;
    /// Lets time pass.
    fn wait(&mut self, ms: u64);
    /// Lets some microseconds pass, where the clock is moved by a test.
    fn advance_us(&mut self, us: u64) {
        self.wait(us.div_ceil(1000));
    }
    /// Does one operation.
    fn apply(&mut self, op: &StreamOp) -> Outcome;
    /// Does a raw command, given with the keys of the Pulse layout.
    fn raw(&mut self, command: &[String]) -> Raw;
    /// Forgets all scripts.
    fn script_flush(&mut self) {}
    /// What lies under a key of the Pulse layout, or what stands for it here. `None` when nothing here
    /// can stand for it.
    fn view(&mut self, key: &str) -> Option<View>;
}
