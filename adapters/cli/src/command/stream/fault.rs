//! What a refusal of a stream means to whoever ran the program.

use super::target::Target;
use crate::exit::Failure;
use strandline_core::stream::error::CallerError;
use strandline_core::stream::reply::Uncertain;
use strandline_core::stream::{ServerFault, StreamError};

/// A mistake on the command line, or a state that does not allow it.
pub(super) fn caller(error: &CallerError) -> Failure {
    let text = error.to_string();
    match error {
        CallerError::InvalidOption { .. }
        | CallerError::EmptyEventName
        | CallerError::EventTooLarge { .. }
        | CallerError::InvalidOnceKey { .. }
        | CallerError::InvalidReplayPosition => Failure::usage(text),
        CallerError::StreamNotFound => Failure::refused(text).advise("`stream add` makes it"),
        CallerError::StreamDestroyed { .. } => {
            Failure::refused(text).advise("`stream add` makes a new generation")
        }
        CallerError::ConfigMismatch { .. } => Failure::refused(text)
            .advise("leave the contract out to take the stream's own; `stream explain` shows it"),
        CallerError::GroupConfigMismatch => {
            Failure::refused(text).advise("`stream groups` shows the group's contract")
        }
        CallerError::IdempotencyConflict => Failure::refused(text).advise("another event needs another key"),
        // The state refuses it, and says why itself.
        CallerError::TooManyIds { .. }
        | CallerError::GroupFull
        | CallerError::DeadLettersFull
        | CallerError::TaggedOnly
        | CallerError::StreamLost { .. }
        | CallerError::DeadlineElapsed { .. }
        | CallerError::SnapshotUnbounded
        | CallerError::SnapshotBoundExceeded { .. }
        | CallerError::IdempotencyFull { .. }
        | CallerError::LeaseLost { .. }
        | CallerError::ReplayPositionUnavailable { .. }
        | CallerError::ReplayEventTooLarge { .. }
        | CallerError::LastStream
        | CallerError::ReaderClosed
        | CallerError::ConsumerClosed
        | CallerError::NotAttached => Failure::refused(text),
    }
}

/// Whatever a server or a directory refused.
pub(super) fn refusal(target: &Target, error: &StreamError) -> Failure {
    match error {
        StreamError::Caller(error) => caller(error),
        StreamError::Foreign(fault) => Failure::peer(fault.to_string()),
        StreamError::Server(ServerFault::NoGroup) => {
            Failure::refused("the group is not there").advise("`stream consume` makes it")
        }
        StreamError::Server(fault) if target.is_remote() => Failure::peer(fault.to_string()),
        StreamError::Server(fault) => Failure::storage(fault.to_string()),
    }
}

/// No answer came.
pub(super) fn uncertain(uncertain: Uncertain) -> Failure {
    let failure = Failure::uncertain("no answer came: it may have been done, and it may not");
    if uncertain.repeatable().is_some() {
        failure.advise("run the same command again: it is done once")
    } else {
        failure.advise("look with `stream snapshot`; `stream add-once` can be repeated safely")
    }
}
