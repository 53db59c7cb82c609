//! The side of the root that is about handles.

use super::StreamClient;
use super::command::HandleId;
use super::keeping::Keeping;
use crate::stream::error::CallerError;
use crate::stream::failover::{Doubt, Standing, Survival};
use crate::stream::handle::Handle;
use crate::stream::name::StreamName;
use crate::stream::retention::Wanted;
use crate::time::Now;

impl StreamClient {
    /// A handle; nothing is asked of the server.
    ///
    /// # Errors
    /// `InvalidOption` for a name that cannot live in the layout.
    pub fn handle_stream(
        &mut self,
        now: Now,
        stream: StreamName,
        wanted: Wanted,
    ) -> Result<HandleId, CallerError> {
        let handle = Handle::new(stream, wanted, self.layout)?;
        Ok(self.keep(now, Keeping::new(handle)))
    }

    /// Another handle, bound to what this one is bound to.
    pub fn handle_clone(&mut self, now: Now, of: HandleId) -> Option<HandleId> {
        let kept = self.handles.get(&of)?.clone();
        Some(self.keep(now, kept))
    }

    fn keep(&mut self, now: Now, keeping: Keeping) -> HandleId {
        self.now = self.now.latest(now);
        let id = HandleId(self.number());
        self.handles.insert(id, keeping);
        id
    }

    /// Forgets a handle. Calls that are under way end as they would.
    pub fn handle_forget(&mut self, now: Now, handle: HandleId) {
        self.now = self.now.latest(now);
        self.handles.remove(&handle);
    }

    /// A handle as it is.
    #[must_use]
    pub fn handle(&self, handle: HandleId) -> Option<&Handle> {
        self.handles.get(&handle).map(|keeping| &keeping.handle)
    }

    /// Whether what a handle was answered last is still so at a server that stands there; `None` where it
    /// does not say. It changes nothing.
    pub fn survival(&self, handle: HandleId, standing: Option<&Standing>) -> Survival {
        match self.handles.get(&handle) {
            Some(keeping) => keeping.survival(standing),
            None => Survival::Unknown { reason: Doubt::NothingNoted },
        }
    }
}
