//! What a hub counts, by reason.

use super::decide::Reason;
use alloc::collections::BTreeMap;

/// Why the coverage of a topic ended.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LostReason {
    /// The connection was lost.
    ConnectionLost,
    /// The client library subscribed again by itself.
    Resubscribed,
    /// Nothing was heard for three heartbeats.
    Silent,
    /// A hole between two positions, or a position above what came here.
    Missed,
    /// What the shared state gave out did not come within `settle_ms`.
    Behind,
    /// A message could not be decoded.
    Undecodable,
    /// The ID space is another one.
    NewIncarnation,
    /// The shared state went back behind what was seen.
    Rewound,
    /// A lower position came after a higher one.
    OutOfOrder,
    /// The log that positions come from was replaced by a snapshot, or reached no further.
    Reset,
    /// The last subscriber left, and the subscription ended.
    Stopped,
    /// The topic was idle and is forgotten.
    Idle,
    /// The hub was closed.
    Closed,
}

impl LostReason {
    /// Every reason, in the order of the type.
    pub const ALL: [Self; 13] = [
        Self::ConnectionLost,
        Self::Resubscribed,
        Self::Silent,
        Self::Missed,
        Self::Behind,
        Self::Undecodable,
        Self::NewIncarnation,
        Self::Rewound,
        Self::OutOfOrder,
        Self::Reset,
        Self::Stopped,
        Self::Idle,
        Self::Closed,
    ];

    /// The metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::ConnectionLost => "connection_lost",
            Self::Resubscribed => "resubscribed",
            Self::Silent => "silent",
            Self::Missed => "missed",
            Self::Behind => "behind",
            Self::Undecodable => "undecodable",
            Self::NewIncarnation => "new_incarnation",
            Self::Rewound => "rewound",
            Self::OutOfOrder => "out_of_order",
            Self::Reset => "reset",
            Self::Stopped => "stopped",
            Self::Idle => "idle",
            Self::Closed => "closed",
        }
    }

    /// What a subscriber is told.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::ConnectionLost | Self::Resubscribed | Self::Silent => Reason::Disconnected,
            Self::Missed => Reason::Missed,
            Self::Behind => Reason::Behind,
            Self::Undecodable => Reason::Undecodable,
            Self::NewIncarnation => Reason::OtherIncarnation,
            Self::Rewound => Reason::Rewound,
            Self::OutOfOrder => Reason::OutOfOrder,
            Self::Reset => Reason::Reset,
            Self::Stopped | Self::Idle => Reason::NoCoverage,
            Self::Closed => Reason::Closed,
        }
    }
}

/// Why a subscription at the server ended.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum EndReason {
    /// The last subscriber left.
    Stopped,
    /// The hub was closed.
    Closed,
    /// Its connection was lost or replaced.
    Lost,
}

impl EndReason {
    /// Every reason, in the order of the type.
    pub const ALL: [Self; 3] = [Self::Stopped, Self::Closed, Self::Lost];

    /// The metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Closed => "closed",
            Self::Lost => "lost",
        }
    }
}

/// Everything a hub counts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Events that entered a topic.
    pub published: u64,
    /// Resumes answered `Complete`.
    pub resumed: u64,
    /// Subscriptions without a cursor.
    pub fresh: u64,
    /// Resumes refused, by reason.
    pub refused: BTreeMap<Reason, u64>,
    /// Coverages that had vouched for at least one event and ended, by reason.
    pub lost: BTreeMap<LostReason, u64>,
    /// Subscriptions at the server that ended, by reason.
    pub ended: BTreeMap<EndReason, u64>,
    /// Holes seen between positions.
    pub holes: u64,
    /// Events known to have been missed, over all holes.
    pub missed: u64,
    /// Events that did not fit a subscriber's queue.
    pub dropped: u64,
    /// Messages that came twice.
    pub repeated: u64,
    /// Inputs of ended subscriptions, ignored.
    pub ignored: u64,
    /// Subscribers told to synchronise.
    pub sync_required: u64,
    /// Gaps of slow subscribers filled from the buffer.
    pub backfilled: u64,
    /// Resumes for which a shared history or a log was asked.
    pub history_reads: u64,
    /// Subscriptions asked of the server after one was lost.
    pub resubscriptions: u64,
    /// Position scripts run.
    pub position_runs: u64,
    /// Events put into subscribers' queues: the work of fan-out.
    pub queued: u64,
    /// Bytes of events copied by the hub: once at each publish, whatever the number of subscribers.
    pub copied_bytes: u64,
    /// Items handed out.
    pub polled: u64,
}

impl Counters {
    /// Adds another hub's.
    pub fn add(&mut self, other: &Self) {
        for (reason, count) in &other.refused {
            *self.refused.entry(*reason).or_default() += count;
        }
        for (reason, count) in &other.lost {
            *self.lost.entry(*reason).or_default() += count;
        }
        for (reason, count) in &other.ended {
            *self.ended.entry(*reason).or_default() += count;
        }
        for (sum, more) in [
            (&mut self.published, other.published),
            (&mut self.resumed, other.resumed),
            (&mut self.fresh, other.fresh),
            (&mut self.holes, other.holes),
            (&mut self.missed, other.missed),
            (&mut self.dropped, other.dropped),
            (&mut self.repeated, other.repeated),
            (&mut self.ignored, other.ignored),
            (&mut self.sync_required, other.sync_required),
            (&mut self.backfilled, other.backfilled),
            (&mut self.history_reads, other.history_reads),
            (&mut self.resubscriptions, other.resubscriptions),
            (&mut self.position_runs, other.position_runs),
            (&mut self.queued, other.queued),
            (&mut self.copied_bytes, other.copied_bytes),
            (&mut self.polled, other.polled),
        ] {
            *sum += more;
        }
    }
}

pub(super) fn count<K: Ord>(map: &mut BTreeMap<K, u64>, key: K) {
    *map.entry(key).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn labels_differ() {
        let lost: BTreeSet<&str> = LostReason::ALL.map(LostReason::label).into();
        let ended: BTreeSet<&str> = EndReason::ALL.map(EndReason::label).into();
        assert_eq!((lost.len(), ended.len()), (LostReason::ALL.len(), EndReason::ALL.len()));
    }
}
