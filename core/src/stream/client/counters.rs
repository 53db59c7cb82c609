//! What a client counts of its own history, for metrics.

use super::event::Item;
use crate::stream::error::{CallerError, ReplayCause, StreamError};
use crate::stream::failover::Survival;
use crate::stream::reply::{GapReason, Outcome, StreamReply, Told};
use alloc::collections::BTreeMap;

/// What a fence kept out. A closed set: it becomes a metric label.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Fenced {
    /// An operation on a generation that was destroyed.
    Destroyed,
    /// An operation on a generation that the server lost.
    Lost,
    /// A step under a lease that another owner has, or that lapsed.
    Lease,
}

impl Fenced {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Destroyed, Self::Lost, Self::Lease];

    /// The metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Destroyed => "destroyed",
            Self::Lost => "lost",
            Self::Lease => "lease",
        }
    }

    /// The fence that an operation was refused by, if it was one.
    #[must_use]
    pub const fn of(error: &StreamError) -> Option<Self> {
        let StreamError::Caller(error) = error else { return None };
        if let CallerError::StreamDestroyed { .. }
        | CallerError::ReplayPositionUnavailable { cause: ReplayCause::Destroyed } = error
        {
            Some(Self::Destroyed)
        } else if let CallerError::StreamLost { .. }
        | CallerError::ReplayPositionUnavailable { cause: ReplayCause::Lost } = error
        {
            Some(Self::Lost)
        } else if let CallerError::LeaseLost { .. } = error {
            Some(Self::Lease)
        } else {
            None
        }
    }
}

/// Gaps of one reason.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Missing {
    /// How many gaps were handed out.
    pub gaps: u64,
    /// How many events they told of, where that was known.
    pub events: u64,
}

/// Changes of a server's history, by what had become of what was handed out before.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Failovers {
    /// All of it is kept.
    pub kept: u64,
    /// The end of it is lost.
    pub lost: u64,
    /// Nobody can tell.
    pub unknown: u64,
}

/// What a client has seen since it was made, over all its handles, readers and consumers. Nothing is named,
/// and every number only grows.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StreamCounters {
    /// Events that were published, as far as that was answered; those that were found again are not.
    pub published: u64,
    /// Events that were handed out.
    pub handed_out: u64,
    /// Those of them that had been given to somebody of the group before.
    pub again: u64,
    /// Events that were settled, by whatever way.
    pub settled: u64,
    /// Events that became dead letters.
    pub buried: u64,
    /// Gaps that were handed out, by reason.
    pub missing: BTreeMap<GapReason, Missing>,
    /// Operations that a fence kept out.
    pub fenced: BTreeMap<Fenced, u64>,
    /// Leases that were taken.
    pub leases_taken: u64,
    /// Leases that were lost to somebody else, or lapsed.
    pub leases_lost: u64,
    /// Changes of a server's history.
    pub failovers: Failovers,
    /// Askings that had no answer.
    pub uncertain: u64,
}

impl StreamCounters {
    /// Counts how an asking ended; without an outcome whoever asked had gone.
    pub(super) fn ended(&mut self, outcome: Option<&Outcome>) {
        match outcome {
            Some(Outcome::Answered { result: Ok(reply), .. }) => self.replied(reply),
            Some(Outcome::Answered { result: Err(error), .. }) => {
                if let Some(fenced) = Fenced::of(error) {
                    *self.fenced.entry(fenced).or_default() += 1;
                }
            }
            Some(Outcome::Uncertain(_)) | None => self.uncertain += 1,
        }
    }

    fn replied(&mut self, reply: &StreamReply) {
        match &reply.told {
            Told::Added { id: Some(_) } | Told::AddedOnce { published: true, .. } => self.published += 1,
            Told::Acked { count, .. } => self.settled += count,
            Told::Buried { count, .. } => self.buried += count,
            Told::Added { id: None } | Told::AddedOnce { published: false, .. } | Told::Done => {}
            Told::Attended { .. } | Told::Removed { .. } | Told::Entries(_) | Told::Read { .. } => {}
            Told::Taken { .. } | Told::Replayed { .. } | Told::Destroyed { .. } => {}
            Told::GroupOpened { .. } | Told::Detached { .. } | Told::Leased { .. } => {}
            Told::Claimed { .. } | Told::Nacked { .. } | Told::Groups(_) | Told::Dead(_) => {}
            Told::Swept { .. } => {}
        }
    }

    /// Counts what is handed out.
    pub(super) fn items(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Event(delivery) => {
                    self.handed_out += 1;
                    self.again += u64::from(delivery.count > 1);
                }
                Item::Gap(gap) => {
                    let missing = self.missing.entry(gap.reason).or_default();
                    missing.gaps += 1;
                    missing.events += gap.events.unwrap_or(0);
                }
                Item::Failover(failover) => self.survived(failover.survival),
            }
        }
    }

    /// Counts a change of history.
    pub(super) const fn survived(&mut self, survival: Survival) {
        match survival {
            Survival::Kept => self.failovers.kept += 1,
            Survival::Lost => self.failovers.lost += 1,
            Survival::Unknown { .. } => self.failovers.unknown += 1,
        }
    }

    /// Counts a lease that was taken, or lost.
    pub(super) const fn leased(&mut self, taken: bool) {
        if taken {
            self.leases_taken += 1;
        } else {
            self.leases_lost += 1;
        }
    }
}
