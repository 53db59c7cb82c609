//! A handle under the root, and what is noted of its server.

use super::command::Said;
use crate::stream::error::StreamError;
use crate::stream::event::EventId;
use crate::stream::failover::{Standing, Survival, Vouched};
use crate::stream::handle::Handle;
use crate::stream::op::Verb;
use crate::stream::reply::{StreamReply, Told};
use crate::stream::vouching::{Failover, Judged, Vouching};

/// A part: a handle, and the last position that it was told.
#[derive(Clone, Debug)]
pub(super) struct Keeping {
    pub(super) handle: Handle,
    vouching: Vouching,
    told: EventId,
}

impl Keeping {
    pub(super) fn new(handle: Handle) -> Self {
        Self { handle, vouching: Vouching::default(), told: EventId::ZERO }
    }

    /// What is noted when something is asked. Calls of one handle may be under way together.
    pub(super) fn noted(&self) -> Option<Vouched> {
        self.vouching.noted()
    }

    /// Takes an answer, and what it says of the server's history; with what was noted when it was asked.
    pub(super) fn answered(
        &mut self,
        verb: &Verb,
        result: &Result<StreamReply, StreamError>,
        said: Said,
        asked: Option<Vouched>,
    ) -> Option<Failover> {
        self.handle.answered(verb, result);
        let Said::Stands(standing) = said else { return None };
        let (judged, handed_out) = (self.vouching.heard_since(asked, standing.as_ref()), self.told);
        if let Some(Judged { kept, .. }) = judged.filter(|judged| judged.survival.ends_history()) {
            self.told = kept.unwrap_or(EventId::ZERO);
        }
        if let (Ok(reply), Some(standing)) = (result, standing) {
            let told = position(&reply.told);
            // An answer that was overtaken vouches for its own position only.
            let late = self.vouching.noted().is_some_and(|noted| standing.offset < noted.offset);
            if !late {
                self.told = self.told.max(told.unwrap_or_default());
                self.vouching.note(self.told, &standing);
            } else if let Some(told) = told {
                self.vouching.note(told, &standing);
            }
        }
        let Judged { survival, kept } = judged?;
        Some(Failover { stream: self.handle.stream().clone(), survival, handed_out, kept })
    }

    pub(super) fn survival(&self, standing: Option<&Standing>) -> Survival {
        self.vouching.survival(standing)
    }
}

/// The position that a reply tells, if any.
fn position(told: &Told) -> Option<EventId> {
    match told {
        Told::Added { id } => *id,
        Told::AddedOnce { id, .. } => Some(*id),
        Told::Attended { last, .. } => Some(*last),
        Told::Entries(entries) | Told::Read { entries, .. } | Told::Replayed { entries, .. } => {
            entries.last().map(|entry| entry.id)
        }
        Told::Done | Told::Removed { .. } | Told::Destroyed { .. } | Told::Dead(_) => None,
        Told::Taken { .. } | Told::GroupOpened { .. } | Told::Acked { .. } | Told::Detached { .. } => None,
        Told::Leased { .. } | Told::Claimed { .. } | Told::Nacked { .. } | Told::Buried { .. } => None,
        Told::Swept { .. } | Told::Groups(_) => None,
    }
}
