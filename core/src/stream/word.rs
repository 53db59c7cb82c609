//! The words that scripts refuse with, both ways. Those of the reference are kept.

use super::error::{CallerError, ForeignFault, Mismatch, ReplayCause, ServerFault, StreamError};
use super::event::EventId;
use super::unready::Unready;
use alloc::format;
use alloc::string::{String, ToString as _};

/// The word for a refusal; empty for one that never comes from a server.
#[must_use]
pub fn word(error: &StreamError) -> &str {
    match error {
        StreamError::Caller(error) => caller(error),
        StreamError::Foreign(error) => match error {
            ForeignFault::MalformedEvent { .. } => "REPLAYMALFORMED",
            ForeignFault::InvalidRetention { .. } => "STREAMRETENTIONINVALID",
            ForeignFault::Lifecycle { .. } => "SINKLIFECYCLEINVALID",
            ForeignFault::Membership => "SINKMEMBERSHIPINVALID",
            ForeignFault::KeepAlive => "SINKKEEPALIVEINVALID",
            ForeignFault::Books { .. } => "GROUPBOOKSINVALID",
            ForeignFault::Resource => "STREAMRESOURCEINVALID",
            ForeignFault::Idempotency => "IDEMPOTENCYINVALID",
        },
        StreamError::Server(error) => match error {
            ServerFault::NoGroup => "NOGROUP",
            ServerFault::NoPosition => "STREAMNOPOSITION",
            ServerFault::Refused { word, .. } | ServerFault::NotPermitted { word, .. } => word,
            ServerFault::Unready { why, .. } => why.word(),
            ServerFault::NotSent { .. } | ServerFault::Answer { .. } => "",
        },
    }
}

const fn caller(error: &CallerError) -> &'static str {
    match error {
        CallerError::StreamNotFound => "STREAMNOTFOUND",
        CallerError::StreamDestroyed { .. } => "STREAMDESTROYED",
        CallerError::StreamLost { .. } => "STREAMLOST",
        CallerError::DeadlineElapsed { .. } => "DEADLINEELAPSED",
        CallerError::ConfigMismatch { kind } => match kind {
            Mismatch::Contract => "STREAMCONFIGMISMATCH",
            Mismatch::Deadline => "STREAMDEADLINECONFLICT",
            Mismatch::ExpiryRequired => "STREAMDEADLINEREQUIRED",
            Mismatch::Missing => "STREAMCONFIGMISSING",
            Mismatch::OnceWindow => "",
        },
        CallerError::GroupConfigMismatch => "SINKCONFIGMISMATCH",
        CallerError::GroupFull => "SINKFULL",
        CallerError::DeadLettersFull => "DEADFULL",
        CallerError::SnapshotUnbounded => "SNAPSHOTUNBOUNDED",
        CallerError::SnapshotBoundExceeded { .. } => "SNAPSHOTBOUNDVIOLATION",
        CallerError::IdempotencyConflict => "IDEMPOTENCYCONFLICT",
        CallerError::IdempotencyFull { .. } => "IDEMPOTENCYFULL",
        CallerError::LeaseLost { .. } => "SINKLEASELOST",
        CallerError::ReplayPositionUnavailable { cause } => match cause {
            ReplayCause::NotRetained => "REPLAYPOSITIONUNAVAILABLE",
            ReplayCause::NotFound => "STREAMNOTFOUND",
            ReplayCause::Destroyed => "STREAMDESTROYED",
            ReplayCause::Lost => "STREAMLOST",
            ReplayCause::Elapsed => "DEADLINEELAPSED",
        },
        CallerError::ReplayEventTooLarge { .. } => "REPLAYEVENTTOOLARGE",
        CallerError::InvalidOption { .. }
        | CallerError::EmptyEventName
        | CallerError::EventTooLarge { .. }
        | CallerError::InvalidOnceKey { .. }
        | CallerError::TooManyIds { .. }
        | CallerError::InvalidReplayPosition
        | CallerError::TaggedOnly
        | CallerError::LastStream
        | CallerError::ReaderClosed
        | CallerError::ConsumerClosed
        | CallerError::NotAttached => "",
    }
}

/// The refusal that a script words like this: the word, then its details, separated by spaces.
#[must_use]
pub fn refusal(text: &str) -> StreamError {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut numbers = rest.split(' ').map(|part| part.parse::<u64>().ok());
    let mut number = || numbers.next().flatten();
    let caller = match word {
        "STREAMNOTFOUND" => CallerError::StreamNotFound,
        "STREAMDESTROYED" => CallerError::StreamDestroyed { current: number() },
        "STREAMLOST" => CallerError::StreamLost { current: number() },
        "DEADLINEELAPSED" => {
            let (deadline_ms, now_ms) = (number().unwrap_or_default(), number().unwrap_or_default());
            CallerError::DeadlineElapsed { deadline_ms, now_ms }
        }
        "STREAMCONFIGMISMATCH" => CallerError::ConfigMismatch { kind: Mismatch::Contract },
        "STREAMDEADLINECONFLICT" => CallerError::ConfigMismatch { kind: Mismatch::Deadline },
        "STREAMDEADLINEREQUIRED" => CallerError::ConfigMismatch { kind: Mismatch::ExpiryRequired },
        "STREAMCONFIGMISSING" => CallerError::ConfigMismatch { kind: Mismatch::Missing },
        "SINKCONFIGMISMATCH" => CallerError::GroupConfigMismatch,
        "SINKFULL" => CallerError::GroupFull,
        "DEADFULL" => CallerError::DeadLettersFull,
        "SNAPSHOTUNBOUNDED" => CallerError::SnapshotUnbounded,
        "SNAPSHOTBOUNDVIOLATION" => {
            CallerError::SnapshotBoundExceeded { max_len: number().unwrap_or_default() }
        }
        "IDEMPOTENCYCONFLICT" => CallerError::IdempotencyConflict,
        "IDEMPOTENCYFULL" => {
            CallerError::IdempotencyFull { oldest_expires_at_ms: number().unwrap_or_default() }
        }
        "SINKLEASELOST" => CallerError::LeaseLost { fence: number().unwrap_or_default() },
        "REPLAYPOSITIONUNAVAILABLE" => {
            CallerError::ReplayPositionUnavailable { cause: ReplayCause::NotRetained }
        }
        "REPLAYEVENTTOOLARGE" => {
            let (bytes, bytes_max) = (number().unwrap_or_default(), number().unwrap_or_default());
            CallerError::ReplayEventTooLarge { bytes, bytes_max }
        }
        _ => return others(word, rest),
    };
    caller.into()
}

fn others(word: &str, rest: &str) -> StreamError {
    match word {
        "REPLAYMALFORMED" => {
            ForeignFault::MalformedEvent { id: EventId::parse(rest).unwrap_or_default() }.into()
        }
        "STREAMRETENTIONINVALID" => ForeignFault::InvalidRetention { found: rest.to_string() }.into(),
        "SINKLIFECYCLEINVALID" => ForeignFault::Lifecycle { detail: rest.to_string() }.into(),
        "SINKMEMBERSHIPINVALID" => ForeignFault::Membership.into(),
        "SINKKEEPALIVEINVALID" => ForeignFault::KeepAlive.into(),
        "GROUPBOOKSINVALID" => ForeignFault::Books { field: rest.to_string() }.into(),
        "STREAMRESOURCEINVALID" => ForeignFault::Resource.into(),
        "IDEMPOTENCYINVALID" => ForeignFault::Idempotency.into(),
        "NOGROUP" => ServerFault::NoGroup.into(),
        "STREAMNOPOSITION" => ServerFault::NoPosition.into(),
        _ => of_the_server(word, rest).into(),
    }
}

/// What scripts say when a command inside of them is not permitted; Redis 7.0 puts `ERR` before it.
const INSIDE_A_SCRIPT: &str = "The user executing the script";

fn of_the_server(word: &str, rest: &str) -> ServerFault {
    let message = rest.to_string();
    if let Some(why) = Unready::of(word) {
        return ServerFault::Unready { why, message };
    }
    if INSIDE_A_SCRIPT.split_once(' ').is_some_and(|(first, more)| word == first && rest.starts_with(more)) {
        return ServerFault::NotPermitted { word: "NOPERM".to_string(), message: format!("{word} {rest}") };
    }
    let word = word.to_string();
    match word.as_str() {
        "NOPERM" | "NOAUTH" | "WRONGPASS" => ServerFault::NotPermitted { word, message },
        _ => ServerFault::Refused { word, message },
    }
}

/// The text that a script words a refusal with; the inverse of [`refusal`].
#[must_use]
pub fn text(error: &StreamError) -> String {
    let word = word(error);
    let (first, second) = match error {
        StreamError::Caller(
            CallerError::StreamDestroyed { current } | CallerError::StreamLost { current },
        ) => (*current, None),
        StreamError::Caller(CallerError::DeadlineElapsed { deadline_ms, now_ms }) => {
            (Some(*deadline_ms), Some(*now_ms))
        }
        StreamError::Caller(CallerError::SnapshotBoundExceeded { max_len }) => (Some(*max_len), None),
        StreamError::Caller(CallerError::IdempotencyFull { oldest_expires_at_ms }) => {
            (Some(*oldest_expires_at_ms), None)
        }
        StreamError::Caller(CallerError::LeaseLost { fence }) => (Some(*fence), None),
        StreamError::Caller(CallerError::ReplayEventTooLarge { bytes, bytes_max }) => {
            (Some(*bytes), Some(*bytes_max))
        }
        StreamError::Foreign(ForeignFault::MalformedEvent { id }) => return format!("{word} {id}"),
        StreamError::Foreign(ForeignFault::Books { field }) => return format!("{word} {field}"),
        StreamError::Caller(_) | StreamError::Foreign(_) | StreamError::Server(_) => (None, None),
    };
    match (first, second) {
        (Some(first), Some(second)) => format!("{word} {first} {second}"),
        (Some(first), None) => format!("{word} {first}"),
        (None, _) => word.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_back() {
        let all: [StreamError; 14] = [
            CallerError::DeadLettersFull.into(),
            CallerError::StreamNotFound.into(),
            CallerError::StreamDestroyed { current: Some(4) }.into(),
            CallerError::StreamLost { current: None }.into(),
            CallerError::DeadlineElapsed { deadline_ms: 5, now_ms: 6 }.into(),
            CallerError::ConfigMismatch { kind: Mismatch::ExpiryRequired }.into(),
            CallerError::SnapshotBoundExceeded { max_len: 9 }.into(),
            CallerError::IdempotencyFull { oldest_expires_at_ms: 7 }.into(),
            CallerError::LeaseLost { fence: 3 }.into(),
            CallerError::ReplayEventTooLarge { bytes: 8, bytes_max: 7 }.into(),
            ForeignFault::MalformedEvent { id: EventId { ms: 1, seq: 2 } }.into(),
            ForeignFault::Books { field: "missed".to_string() }.into(),
            ServerFault::NoGroup.into(),
            ServerFault::NoPosition.into(),
        ];
        for error in all {
            assert_eq!(refusal(&text(&error)), error);
        }
    }

    #[test]
    fn what_the_server_does_not_do_now_has_a_type() {
        let error = refusal("LOADING Redis is loading the dataset in memory");
        let message = "Redis is loading the dataset in memory".to_string();
        assert_eq!(error, ServerFault::Unready { why: Unready::Loading, message }.into());
        assert_eq!(word(&error), "LOADING");
    }

    #[test]
    fn what_the_user_may_not_do_has_a_type_inside_a_script_too() {
        for text in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "The user executing the script can't run this command or subcommand script: 0a, on @user_script:1.",
        ] {
            let error = refusal(text);
            assert!(matches!(error, StreamError::Server(ServerFault::NotPermitted { .. })), "{error:?}");
            assert_eq!(word(&error), "NOPERM");
        }
    }

    #[test]
    fn a_word_of_the_server_stays_its_own() {
        let error = refusal("WRONGTYPE Operation against a key");
        assert_eq!(word(&error), "WRONGTYPE");
    }
}
