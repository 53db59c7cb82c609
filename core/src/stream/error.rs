//! What an operation on a stream is refused with, in three families that are never merged: what our
//! caller asked, what somebody else wrote into the server, what the server itself could not do.

use super::event::EventId;
use super::unready::{Again, Unready};
use crate::error::{Classified, Family};
use alloc::string::String;
use core::fmt;

/// A setting that was refused where it was given, before anything was asked of the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Setting {
    /// A name of a stream, group or consumer.
    Name,
    /// A length bound together with "unbounded".
    MaxLenWithUnbounded,
    /// A length bound of zero.
    MaxLenZero,
    /// A length bound beyond what a server counts: 2⁶³ − 1.
    MaxLenTooLarge,
    /// A TTL below one millisecond, or beyond what a script counts exactly.
    Ttl,
    /// A deadline at the beginning of time, or beyond what a script counts exactly.
    Deadline,
    /// A deadline together with a TTL.
    DeadlineWithTtl,
    /// A sliding TTL without a TTL.
    SlidingWithoutTtl,
    /// Events per read: zero, or too many.
    MaxPolled,
    /// Events that may wait for a subscriber.
    Buffer,
    /// The time a read waits.
    Block,
    /// The grace of a silent consumer.
    Grace,
    /// The time a lease lasts.
    Lease,
    /// A topic together with a pattern.
    TopicWithPattern,
    /// More than one start.
    TwoStarts,
    /// A pattern that is no regular expression, or too large a one.
    Pattern,
    /// A window of idempotency records where the Pulse layout has none.
    OnceWindow,
    /// The Pulse layout in a cluster, where its keys of one stream lie in different slots.
    PulseInCluster,
    /// The time an event is put off.
    Delay,
    /// How often an event is handed out.
    Deliveries,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "name",
            Self::MaxLenWithUnbounded => "max_len with unbounded",
            Self::MaxLenZero => "max_len must be positive",
            Self::MaxLenTooLarge => "max_len above 9223372036854775807",
            Self::Ttl => "ttl below 1 ms",
            Self::Deadline => "zero deadline",
            Self::DeadlineWithTtl => "deadline with ttl",
            Self::SlidingWithoutTtl => "sliding without ttl",
            Self::MaxPolled => "max_polled",
            Self::Buffer => "buffer",
            Self::Block => "block",
            Self::Grace => "grace",
            Self::Lease => "lease",
            Self::TopicWithPattern => "topic with pattern",
            Self::TwoStarts => "two start options",
            Self::Pattern => "bad regex",
            Self::OnceWindow => "once_window in the pulse layout",
            Self::PulseInCluster => "the pulse layout in a cluster",
            Self::Delay => "delay",
            Self::Deliveries => "deliveries_max",
        })
    }
}

/// How two contracts of one generation contradict each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mismatch {
    /// The handle names another contract than the generation has.
    Contract,
    /// The expiry asked for excludes the one that is stored.
    Deadline,
    /// `add_once` in the Pulse layout needs an expiry, or its records would pile up for ever.
    ExpiryRequired,
    /// The lifecycle record holds no contract.
    Missing,
    /// The window of idempotency records is shorter than the TTL of the data.
    OnceWindow,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Contract => "the generation was made with another one",
            Self::Deadline => "a deadline and a TTL exclude each other",
            Self::ExpiryRequired => "add_once needs a deadline or a TTL in the Pulse layout",
            Self::Missing => "the generation has none",
            Self::OnceWindow => "once_window_ms is shorter than the TTL",
        })
    }
}

/// Why a replay cannot start where it was asked to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReplayCause {
    /// The entry is no longer there, or never was.
    NotRetained,
    /// The stream was never made, or its record is lost.
    NotFound,
    /// The generation was destroyed.
    Destroyed,
    /// The generation was lost.
    Lost,
    /// The deadline of the generation has elapsed.
    Elapsed,
}

/// Our caller's mistake, or a refusal that the caller's own contract asks for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CallerError {
    /// A setting was refused before anything was asked of the server.
    #[error("invalid option: {setting}")]
    InvalidOption {
        /// Which.
        setting: Setting,
    },
    /// An event needs a name.
    #[error("expected an event name of at least one byte, found none")]
    EmptyEventName,
    /// An event is too large.
    #[error(
        "expected at most {} bytes of name, topic and payload, found {bytes}",
        super::limits::EVENT_BYTES_MAX
    )]
    EventTooLarge {
        /// Its size.
        bytes: usize,
    },
    /// An idempotency key is empty or too long.
    #[error("expected an idempotency key of 1 to {} bytes, found {bytes}", super::limits::ONCE_KEY_BYTES_MAX)]
    InvalidOnceKey {
        /// Its length.
        bytes: usize,
    },
    /// One call names too many IDs.
    #[error("expected at most {} IDs in one call, found {ids}", super::limits::IDS_PER_CALL_MAX)]
    TooManyIds {
        /// How many it named.
        ids: usize,
    },
    /// The handle's contract contradicts the generation's.
    #[error("the contract does not fit: {kind}")]
    ConfigMismatch {
        /// How.
        kind: Mismatch,
    },
    /// The group exists in this generation with another contract.
    #[error("the group exists with another filter, start, no_ack or grace")]
    GroupConfigMismatch,
    /// The group has as many members as it may.
    #[error("expected at most {} members in a group", super::limits::GROUP_MEMBERS_MAX)]
    GroupFull,
    /// The generation has as many dead letters as it may: nothing was buried.
    #[error("expected at most {} dead letters; remove some", super::limits::DEAD_LETTERS_MAX)]
    DeadLettersFull,
    /// The Pulse layout has no place for it.
    #[error("expected the Tagged layout: the Pulse layout has no dead letters, and puts nothing off")]
    TaggedOnly,
    /// Nobody has made this stream.
    #[error("the stream does not exist")]
    StreamNotFound,
    /// The generation was destroyed; the handle never follows to a later one.
    #[error("this generation was destroyed{}", Current(*.current))]
    StreamDestroyed {
        /// The generation there is now, if known.
        current: Option<u64>,
    },
    /// The server lost the generation: what the handle stood for cannot be vouched for any more.
    #[error("the server lost this generation{}", Current(*.current))]
    StreamLost {
        /// The generation there is now, if any.
        current: Option<u64>,
    },
    /// The deadline of the generation has elapsed.
    #[error("the deadline {deadline_ms} ms has elapsed: the server's clock says {now_ms} ms")]
    DeadlineElapsed {
        /// The deadline.
        deadline_ms: u64,
        /// The server's clock.
        now_ms: u64,
    },
    /// A stream without a length bound has no snapshot.
    #[error("expected a length bound: an unbounded stream has no snapshot")]
    SnapshotUnbounded,
    /// The stream holds more than its contract allows.
    #[error("expected at most {max_len} entries, found more")]
    SnapshotBoundExceeded {
        /// The contract's bound.
        max_len: u64,
    },
    /// The key was used for another event.
    #[error("the idempotency key stands for an event with other content")]
    IdempotencyConflict,
    /// No room for another record, and the oldest is still inside its window.
    #[error(
        "expected at most {} idempotency records; the oldest expires at {oldest_expires_at_ms} ms",
        super::limits::ONCE_RECORDS_MAX
    )]
    IdempotencyFull {
        /// When the oldest record may be dropped.
        oldest_expires_at_ms: u64,
    },
    /// Another owner has the lease, or it lapsed.
    #[error("the lease with fence {fence} is lost")]
    LeaseLost {
        /// The fence that was shown.
        fence: u64,
    },
    /// A replay position is not in canonical form.
    #[error("expected a position like 1700000000123-0")]
    InvalidReplayPosition,
    /// A replay cannot start at its anchor.
    #[error("nothing can be replayed after this position: {cause:?}")]
    ReplayPositionUnavailable {
        /// Why.
        cause: ReplayCause,
    },
    /// One event of a replay is larger than the whole batch may be.
    #[error("expected an event of at most {bytes_max} bytes, found {bytes}")]
    ReplayEventTooLarge {
        /// Cost of the event: ID, name, payload, topic.
        bytes: u64,
        /// What the batch may have.
        bytes_max: u64,
    },
    /// A reader or consumer needs at least one stream.
    #[error("the last stream cannot be removed")]
    LastStream,
    /// The reader was closed.
    #[error("the reader is closed")]
    ReaderClosed,
    /// The consumer was closed.
    #[error("the consumer is closed")]
    ConsumerClosed,
    /// The stream is not attached to this reader or consumer.
    #[error("the stream is not attached here")]
    NotAttached,
}

impl Classified for CallerError {
    const FAMILY: Family = Family::Caller;
}

struct Current(Option<u64>);

impl fmt::Display for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(current) => write!(f, "; the current one is {current}"),
            None => Ok(()),
        }
    }
}

/// Something that another client wrote and that does not mean anything here. Nothing was changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ForeignFault {
    /// An entry is not an event.
    #[error("the entry {id} is not an event")]
    MalformedEvent {
        /// Which entry.
        id: EventId,
    },
    /// A contract is of another version or not canonical.
    #[error("expected a contract of a known version, found {found:?}")]
    InvalidRetention {
        /// What the record holds.
        found: String,
    },
    /// The lifecycle record contradicts itself.
    #[error("the lifecycle record is damaged: {detail}")]
    Lifecycle {
        /// What is wrong with it.
        detail: String,
    },
    /// The list of a group's members is unreadable.
    #[error("the membership of the group is unreadable")]
    Membership,
    /// The keep-alives of a group are unreadable.
    #[error("the keep-alives of the group are unreadable")]
    KeepAlive,
    /// A field that the books of a group are kept in is unreadable.
    #[error("expected the books of a group, found something else as their {field}")]
    Books {
        /// The field, before the name of the group: `missed`, `later` or `contract`; or `name`, for a group
        /// whose name is none here.
        field: String,
    },
    /// A key of the generation has a foreign type.
    #[error("a key of the generation has a foreign type")]
    Resource,
    /// An idempotency record is unreadable.
    #[error("an idempotency record is unreadable")]
    Idempotency,
}

impl Classified for ForeignFault {
    const FAMILY: Family = Family::Peer;
}

/// What the server could not or would not do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ServerFault {
    /// The consumer group is not there: its log expired or was lost. The read path makes it again.
    #[error("the consumer group is not there")]
    NoGroup,
    /// The log gave out its last position.
    #[error("the log has no position left")]
    NoPosition,
    /// The server could not be asked: the operation was not sent.
    #[error("not sent: {detail}")]
    NotSent {
        /// What was expected and what was found.
        detail: String,
    },
    /// The server does not do it now.
    #[error("the server refused for now: {why} ({message})")]
    Unready {
        /// Why.
        why: Unready,
        /// In its own words.
        message: String,
    },
    /// The user that we are to the server may not do it.
    #[error("the server does not permit it: {word} {message}")]
    NotPermitted {
        /// The first word: `NOPERM`, `NOAUTH` or `WRONGPASS`.
        word: String,
        /// The rest.
        message: String,
    },
    /// The server refused: its first word and the whole message.
    #[error("the server refused: {word} {message}")]
    Refused {
        /// The first word, such as `WRONGTYPE`.
        word: String,
        /// The rest.
        message: String,
    },
    /// The server's answer is not one of this protocol.
    #[error("unexpected answer of the server: {detail}")]
    Answer {
        /// What was expected and what was found.
        detail: String,
    },
}

impl Classified for ServerFault {
    const FAMILY: Family = Family::Storage;
}

impl ServerFault {
    /// When the same operation may be asked again with hope. Nothing was changed by any of these.
    #[must_use]
    pub const fn again(&self) -> Again {
        match self {
            Self::NotSent { .. } => Again::Soon,
            Self::Unready { why, .. } => why.again(),
            Self::NoGroup | Self::NoPosition | Self::NotPermitted { .. } => Again::Never,
            Self::Refused { .. } | Self::Answer { .. } => Again::Never,
        }
    }
}

/// Why an operation on a stream was refused. Nothing was changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StreamError {
    /// The caller's family.
    #[error(transparent)]
    Caller(#[from] CallerError),
    /// The family of what others wrote.
    #[error(transparent)]
    Foreign(#[from] ForeignFault),
    /// The server's family.
    #[error(transparent)]
    Server(#[from] ServerFault),
}

impl StreamError {
    /// Whether a reader or consumer ends with it: the generation is gone for good.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Caller(
                CallerError::StreamDestroyed { .. }
                    | CallerError::StreamLost { .. }
                    | CallerError::DeadlineElapsed { .. }
            )
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn messages_name_what_was_expected_and_found() {
        let error = StreamError::from(CallerError::EventTooLarge { bytes: 1_048_577 });
        assert_eq!(
            error.to_string(),
            "expected at most 1048576 bytes of name, topic and payload, found 1048577"
        );
        let error = CallerError::StreamDestroyed { current: Some(3) };
        assert_eq!(error.to_string(), "this generation was destroyed; the current one is 3");
    }

    #[test]
    fn destroyed_lost_and_elapsed_are_final_and_nothing_else() {
        let finals = [
            CallerError::StreamDestroyed { current: None },
            CallerError::StreamLost { current: None },
            CallerError::DeadlineElapsed { deadline_ms: 1, now_ms: 2 },
        ];
        assert!(finals.into_iter().all(|e| StreamError::Caller(e).is_final()));
        assert!(!StreamError::Server(ServerFault::NoGroup).is_final());
        assert!(!StreamError::Caller(CallerError::StreamNotFound).is_final());
    }
}
