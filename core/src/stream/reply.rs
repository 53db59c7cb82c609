//! Replies of operations, and the outcome that is no reply.

use super::error::{CallerError, ReplayCause, StreamError};
use super::event::{Entry, EventId, Stored};
use super::listing::Groups;
use super::name::{ConsumerName, GroupName};
use super::op::{Bound, Repeat, StreamOp};
use super::time::ServerTime;
use alloc::vec::Vec;

/// What an operation that was done tells. `bound` is what the handle is bound to from now on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamReply {
    /// The generation that the step was done on.
    pub bound: Bound,
    /// What it told.
    pub told: Told,
}

/// The part of a reply that depends on the operation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Told {
    /// Nothing but that it was done.
    Done,
    /// The last position the log gave out.
    Attended {
        /// It; zero in a log without data.
        last: EventId,
        /// How many entries were ever published to the log.
        added: u64,
    },
    /// The event's position, or that the condition did not hold.
    Added {
        /// The position; `None` when nothing was published.
        id: Option<EventId>,
    },
    /// The event's position, and whether this step published it.
    AddedOnce {
        /// The position that the first publication got.
        id: EventId,
        /// Whether this was the first publication.
        published: bool,
    },
    /// How many entries were there to be removed.
    Removed {
        /// So many.
        count: u64,
    },
    /// Entries in order.
    Entries(Vec<Entry>),
    /// Entries for a reader, and what it needs to tell whether some are missing.
    Read {
        /// They.
        entries: Vec<Entry>,
        /// How many entries were ever published to the log.
        added: u64,
        /// How many of them are kept.
        kept: u64,
        /// Whether something is kept that is not behind the reader's position. Told only with entries.
        anchored: bool,
    },
    /// Entries for a consumer of a group.
    Taken {
        /// They.
        entries: Vec<Entry>,
        /// Up to here everything was given to somebody of the group.
        reached: EventId,
        /// What nobody can be given any more, until it is said that somebody was told. Never told in the
        /// Pulse layout.
        missed: Vec<Missed>,
    },
    /// Entries of a replay.
    Replayed {
        /// The entry that the replay started after; `None` at the beginning.
        anchor: Option<Entry>,
        /// What follows it.
        entries: Vec<Entry>,
    },
    /// Whether this step ended the generation, or an earlier one had.
    Destroyed {
        /// Whether it was this one.
        now: bool,
    },
    /// The group is there.
    GroupOpened {
        /// The log had been absent: what it held is gone.
        log_was_absent: bool,
        /// What is settled for the group.
        cursor: EventId,
    },
    /// Entries were settled.
    Acked {
        /// So many that were pending.
        count: u64,
        /// What is settled now; `None` when nothing was pending and the cursor was not looked at.
        cursor: Option<EventId>,
    },
    /// The consumer was taken out.
    Detached {
        /// Whether it was deleted: nothing was pending for it.
        deleted: bool,
    },
    /// Whether the lease was taken, and its number.
    Leased {
        /// Whether the asker has it.
        acquired: bool,
        /// The number of whoever has it.
        fence: u64,
    },
    /// Entries taken over.
    Claimed {
        /// Where to go on; zero when all was looked at.
        next: EventId,
        /// What was taken over.
        entries: Vec<Entry>,
        /// What was pending and is no longer kept: lost to the group.
        vanished: Vec<EventId>,
        /// How often each of the entries was given out, this time included.
        counts: Vec<u64>,
        /// What nobody can be given any more, as with `Taken`.
        missed: Vec<Missed>,
    },
    /// Entries were given back.
    Nacked {
        /// So many; the others were another's, or could not be put off.
        count: u64,
    },
    /// Entries were moved to the dead letters.
    Buried {
        /// So many; the others were another's, or are no longer kept.
        count: u64,
        /// What is settled now; `None` when nothing was buried.
        cursor: Option<EventId>,
    },
    /// How groups stand, in the order of their names.
    Groups(Groups),
    /// Dead letters in order.
    Dead(Vec<DeadLetter>),
    /// Members taken out.
    Swept {
        /// Who.
        removed: Vec<ConsumerName>,
        /// Whose keep-alive is unreadable; they are left alone.
        malformed: Vec<ConsumerName>,
    },
}

/// Events that left the log before anybody of a group was given them, or before a reader read them:
/// trimmed by the length bound, or removed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Dropped {
    /// They lay behind this position.
    pub after: EventId,
    /// And before this one; `None` where nothing is left behind them.
    pub before: Option<EventId>,
    /// How many; `None` where nobody can tell, not even whether there were any.
    pub events: Option<u64>,
}

/// Why events are missing.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum GapReason {
    /// The length bound dropped them, or somebody removed them, before they were handed out.
    Trimmed,
    /// They had been given to a consumer that did not settle them, and are no longer kept.
    TrimmedPending,
    /// The whole log was lost, or expired.
    LogLost,
}

impl GapReason {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Trimmed, Self::TrimmedPending, Self::LogLost];

    /// The word for it, as the server keeps it, and as a metric label.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Trimmed => "trimmed",
            Self::TrimmedPending => "pending",
            Self::LogLost => "lost",
        }
    }

    /// The reason that a word stands for.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }
}

/// A hole of a group that nobody said was told: the answer that first told of it may have been lost.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Missed {
    /// Its number, in the order of the group.
    pub number: u64,
    /// Why.
    pub reason: GapReason,
    /// What.
    pub dropped: Dropped,
}

impl Dropped {
    /// Both holes as one.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            after: self.after.min(other.after),
            before: self.before.zip(other.before).map(|(one, two)| one.max(two)),
            events: self.events.zip(other.events).map(|(one, two)| one.saturating_add(two)),
        }
    }
}

/// An event that was given out too often, or was given up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeadLetter {
    /// Its position among the dead letters.
    pub at: EventId,
    /// The group that gave it up.
    pub group: GroupName,
    /// Its position in the log.
    pub id: EventId,
    /// How often it had been given out.
    pub count: u64,
    /// What it held.
    pub stored: Stored,
}

/// How asking ended.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub enum Outcome {
    /// The server answered.
    Answered {
        /// Its clock, which the step was done by; `None` where the server refused in its own words.
        at: Option<ServerTime>,
        /// What it answered.
        result: Result<StreamReply, StreamError>,
    },
    /// No answer came: the step may have been done, may still be done, or never. It is not a "no".
    Uncertain(Uncertain),
}

/// An operation whose answer never came.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Uncertain {
    op: StreamOp,
}

impl Uncertain {
    /// Marks an operation as asked without an answer.
    #[must_use]
    pub const fn new(op: StreamOp) -> Self {
        Self { op }
    }

    /// The operation, to be asked again. `None` for one that must not be: what it did is to be found
    /// out by other means.
    #[must_use]
    pub fn repeatable(self) -> Option<StreamOp> {
        match self.op.verb.repeat() {
            Repeat::Safe => Some(self.op),
            Repeat::Unsafe => None,
        }
    }

    /// The operation, to be looked at.
    #[must_use]
    pub const fn op(&self) -> &StreamOp {
        &self.op
    }
}

/// A replay that has a position or a generation to lose says that the position is not to be had, with
/// the reason. `bound` says whether the handle was bound before it asked.
///
/// # Errors
/// The refusal, as a replay words it.
pub fn replay_result(
    result: Result<StreamReply, StreamError>,
    after: EventId,
    bound: bool,
) -> Result<StreamReply, StreamError> {
    let cause = match &result {
        Err(StreamError::Caller(CallerError::StreamDestroyed { .. })) => ReplayCause::Destroyed,
        Err(StreamError::Caller(CallerError::StreamLost { .. })) => ReplayCause::Lost,
        Err(StreamError::Caller(CallerError::DeadlineElapsed { .. })) => ReplayCause::Elapsed,
        Err(StreamError::Caller(CallerError::StreamNotFound)) if bound || after != EventId::ZERO => {
            ReplayCause::NotFound
        }
        Ok(_) | Err(_) => return result,
    };
    Err(CallerError::ReplayPositionUnavailable { cause }.into())
}
