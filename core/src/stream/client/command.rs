//! What a client asks its host to do, and how that ended.

use crate::error::StorageFault;
use crate::stream::failover::Standing;
use crate::stream::op::StreamOp;
use crate::stream::reader::LogPosition;
use crate::stream::reply::Outcome;
use crate::ticket::{Completion, Operation, Ticket};
use alloc::vec::Vec;

/// One use of a stream by [`super::StreamClient::handle_call`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct CallId(pub(super) u64);

/// A handle of a stream that the client keeps.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct HandleId(pub(super) u64);

/// A reader, or a consumer of a group.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PartyId(pub(super) u64);

impl PartyId {
    /// Nobody: a party that never was.
    pub const NONE: Self = Self(0);
}

/// Whom a command is for. A host may let whoever made a call execute it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// A call.
    Call(CallId),
    /// A reader or consumer, by itself.
    Party(PartyId),
}

/// An effect for the host.
#[derive(Debug)]
pub enum Command {
    /// Ask the server.
    Execute {
        /// Answers how it ended.
        ticket: Ticket<op::Execute>,
        /// What is asked.
        op: StreamOp,
        /// For whom.
        origin: Origin,
        /// Whether it is to be noted where the server stands beside the answer, if servers can fail over
        /// there: then it ends as [`Execution::Beside`].
        noted: bool,
    },
    /// Wait for news behind any of these positions, on a connection that does nothing else.
    Wait {
        /// Answers how the wait ended.
        ticket: Ticket<op::Wait>,
        /// For whom.
        party: PartyId,
        /// Behind what.
        logs: Vec<LogPosition>,
        /// For at most so long.
        wait_ms: u64,
    },
}

/// How asking ended, as the host saw it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Execution {
    /// It ended.
    Ended(Outcome),
    /// It ended, and this is what the server says of its own history beside the answer.
    Beside {
        /// How.
        outcome: Outcome,
        /// Where the server stood; `None` where it did not say, or what it said before and after the
        /// answer does not agree.
        standing: Option<Standing>,
    },
    /// The host stopped waiting: whoever asked has gone. The step may have been done.
    GivenUp,
}

/// What an answer says of its server's history.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Said {
    /// Nothing was asked, or nothing was answered.
    NotAsked,
    /// It stands there, or does not say where.
    Stands(Option<Standing>),
}

impl Execution {
    /// The outcome, if it was waited for, and what it says of the server's history.
    pub(super) fn parts(self) -> (Option<Outcome>, Said) {
        match self {
            Self::GivenUp => (None, Said::NotAsked),
            Self::Ended(outcome) => (Some(outcome), Said::NotAsked),
            Self::Beside { outcome, standing } => {
                // Only an answer with a clock is one that the server gave.
                let said = match &outcome {
                    Outcome::Answered { at: Some(_), .. } => Said::Stands(standing),
                    Outcome::Answered { at: None, .. } | Outcome::Uncertain(_) => Said::NotAsked,
                };
                (Some(outcome), said)
            }
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waited {
    /// There is something to read, or there was.
    Rung,
    /// Time ran out. Look anyway: an end of the generation rings no bell.
    TimeOut,
    /// The connection ended or did not answer. It was given up.
    Broken,
}

/// How a command ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CommandOutcome {
    /// Of [`Command::Execute`].
    Execute(Execution),
    /// Of [`Command::Wait`].
    Wait(Waited),
}

/// The answer to a [`Command`], with its ticket used up.
pub type ClientCompletion = Completion<CommandOutcome>;

/// The kinds of commands, for their tickets.
pub mod op {
    /// Of [`super::Command::Execute`].
    #[derive(Debug)]
    pub enum Execute {}
    /// Of [`super::Command::Wait`].
    #[derive(Debug)]
    pub enum Wait {}
}

impl Operation for op::Execute {
    type Output = Execution;
    type Outcome = CommandOutcome;
    fn outcome(result: Result<Execution, StorageFault>) -> CommandOutcome {
        // A fault of the host's own says nothing about the server's step.
        CommandOutcome::Execute(result.unwrap_or(Execution::GivenUp))
    }
}

impl Operation for op::Wait {
    type Output = Waited;
    type Outcome = CommandOutcome;
    fn outcome(result: Result<Waited, StorageFault>) -> CommandOutcome {
        CommandOutcome::Wait(result.unwrap_or(Waited::Broken))
    }
}
