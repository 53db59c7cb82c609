//! What a client tells its host.

use super::command::{CallId, HandleId, PartyId};
use crate::stream::error::StreamError;
use crate::stream::event::{Entry, Event, EventId, Stored};
use crate::stream::name::StreamName;
use crate::stream::reply::{Dropped, GapReason, Told, Uncertain};
use crate::stream::vouching::Failover;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Why a call gave no reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The call was refused; nothing was changed.
    Refused(StreamError),
    /// No answer came: the step may have been done. Its [`Uncertain::repeatable`] says whether the same
    /// call may be made again.
    Uncertain(Box<Uncertain>),
    /// The client was closed before anything of the call was asked: it was not done. A reader or consumer
    /// ended with its client; what it was doing may have been done.
    Closed,
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Uncertain(_) => f.write_str("no answer came: the step may have been done"),
            Self::Closed => f.write_str("expected an open client, found a closed one"),
        }
    }
}

impl core::error::Error for Failure {}

impl<E: Into<StreamError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// One event as it was handed out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Delivery {
    /// Of which stream.
    pub stream: StreamName,
    /// Its position.
    pub id: EventId,
    /// The event.
    pub event: Event,
    /// How often the group was given it, this time included; 1 for a reader.
    pub count: u64,
    /// The fence of the lease under which it was taken over from another consumer; `None` for an event
    /// that came straight from the log. Hand it on to whatever the event is written to.
    pub fence: Option<u64>,
}

impl Delivery {
    /// The delivery of an entry, unless it is not an event.
    pub(super) fn of(stream: &StreamName, entry: Entry, count: u64, fence: Option<u64>) -> Option<Self> {
        let event = match entry.stored {
            Stored::Event(event) | Stored::Loose(event) => event,
            Stored::Malformed => return None,
        };
        Some(Self { stream: stream.clone(), id: entry.id, event, count, fence })
    }
}

/// Events that were owed and cannot be handed out any more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gap {
    /// Of which stream.
    pub stream: StreamName,
    /// Why.
    pub reason: GapReason,
    /// They lay behind this position.
    pub after: EventId,
    /// And before this one; `None` where nothing is left behind them.
    pub before: Option<EventId>,
    /// How many; `None` where nobody can tell, not even whether there were any.
    pub events: Option<u64>,
}

impl Gap {
    pub(super) fn of(stream: &StreamName, reason: GapReason, dropped: Dropped) -> Self {
        let Dropped { after, before, events } = dropped;
        Self { stream: stream.clone(), reason, after, before, events }
    }
}

/// What a reader or consumer hands out, in the order of each stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Item {
    /// An event.
    Event(Delivery),
    /// A hole.
    Gap(Gap),
    /// The server's history is another one now, or nobody vouches for it any more.
    Failover(Failover),
}

/// Why a reader or consumer ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum End {
    /// It was closed.
    Closed,
    /// By this failure.
    Failed(Failure),
}

/// Something for the host to know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClientEvent {
    /// A call ended.
    Called {
        /// Which.
        call: CallId,
        /// How.
        result: Result<Told, Failure>,
    },
    /// A reader or consumer has attached to all its streams.
    Ready {
        /// Which.
        party: PartyId,
    },
    /// Something to hand out.
    Items {
        /// Whose.
        party: PartyId,
        /// It.
        items: Vec<Item>,
    },
    /// A consumer took or lost the lease of a group's recovery.
    Leased {
        /// Which.
        party: PartyId,
        /// On which stream.
        stream: StreamName,
        /// The number of the lease; `None` when it was lost.
        fence: Option<u64>,
    },
    /// A handle was answered by a server with another history, or by one that vouches for nothing. It
    /// comes before the answer.
    Failover {
        /// Which handle.
        handle: HandleId,
        /// What is known of what it was answered before.
        failover: Failover,
    },
    /// Something failed that is tried again.
    Trouble {
        /// Whose.
        party: PartyId,
        /// What.
        failure: Failure,
    },
    /// A reader or consumer ended. Nothing follows from it.
    Ended {
        /// Which.
        party: PartyId,
        /// Why.
        end: End,
    },
}
