//! Tickets: the right to complete one command, once.
//!
//! A root's ledger [`Tickets`] mints them and remembers what each was for. A ticket is not `Clone`,
//! has no public constructor and is used up by [`Ticket::complete`], so completing a command twice,
//! forging a completion, or completing it as another operation does not compile:
//!
//! ```compile_fail
//! # use strandline_core::{journal::command::op, ticket::Ticket};
//! fn twice(t: Ticket<op::Append>) {
//!     let _ = t.complete(Ok(()));
//!     let _ = t.complete(Ok(()));
//! }
//! ```
//! ```compile_fail
//! # use strandline_core::{journal::command::op, ticket::Ticket};
//! fn as_another_operation(t: Ticket<op::Append>) {
//!     let bytes: Vec<u8> = Vec::new();
//!     let _ = t.complete(Ok(bytes));
//! }
//! ```

use crate::error::StorageFault;
use crate::id::Run;
use alloc::collections::BTreeMap;
use core::marker::PhantomData;

/// A kind of command: what a success of it carries, and how the answer is named.
pub trait Operation {
    /// What a success carries.
    type Output;
    /// The enum a machine receives answers in.
    type Outcome;
    /// Names the answer.
    fn outcome(result: Result<Self::Output, StorageFault>) -> Self::Outcome;
}

/// The right to complete one command, once.
#[must_use = "a dropped ticket is never answered, and what waits for it waits for ever"]
pub struct Ticket<Op> {
    run: Run,
    seq: u64,
    _op: PhantomData<fn() -> Op>,
}

impl<Op> core::fmt::Debug for Ticket<Op> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Ticket({}/{})", self.run.0, self.seq)
    }
}

impl<Op: Operation> Ticket<Op> {
    /// Answers the command. `Ok` asserts everything the command's documentation promises.
    pub fn complete(self, result: Result<Op::Output, StorageFault>) -> Completion<Op::Outcome> {
        Completion { run: self.run, seq: self.seq, outcome: Op::outcome(result) }
    }
}

/// The answer to one command; made only by [`Ticket::complete`].
#[derive(Debug)]
pub struct Completion<Outcome> {
    run: Run,
    seq: u64,
    outcome: Outcome,
}

impl<Outcome> Completion<Outcome> {
    /// The same answer under another name, for roots whose commands have several sources.
    pub fn map<Other>(self, f: impl FnOnce(Outcome) -> Other) -> Completion<Other> {
        Completion { run: self.run, seq: self.seq, outcome: f(self.outcome) }
    }
}

/// A root's ledger of tickets that are out, and what each was for.
#[derive(Debug)]
pub struct Tickets<Purpose> {
    run: Run,
    next: u64,
    outstanding: BTreeMap<u64, Purpose>,
    stale: u64,
}

impl<Purpose> Tickets<Purpose> {
    /// An empty ledger. `run` must not have been used before on the same storage.
    #[must_use]
    pub fn new(run: Run) -> Self {
        Self { run, next: 1, outstanding: BTreeMap::new(), stale: 0 }
    }

    /// Mints the ticket of one command.
    pub fn mint<Op>(&mut self, purpose: Purpose) -> Ticket<Op> {
        let seq = self.next;
        self.next += 1;
        self.outstanding.insert(seq, purpose);
        Ticket { run: self.run, seq, _op: PhantomData }
    }

    /// Takes out what the answered command was for. An answer from another run is counted and
    /// gives `None`: whatever it says happened before this run recovered from storage.
    pub fn settle<Outcome>(&mut self, completion: Completion<Outcome>) -> Option<(Purpose, Outcome)> {
        if completion.run != self.run {
            self.stale += 1;
            return None;
        }
        let purpose = self.outstanding.remove(&completion.seq)?;
        Some((purpose, completion.outcome))
    }

    /// How many commands have not been answered.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// How many answers of other runs have come in.
    #[must_use]
    pub const fn stale(&self) -> u64 {
        self.stale
    }

    /// The run of this ledger.
    #[must_use]
    pub const fn run(&self) -> Run {
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::command::{StorageOutcome, op};

    #[test]
    fn an_answer_finds_its_purpose_once() {
        let mut tickets = Tickets::new(Run(1));
        let ticket = tickets.mint::<op::Append>("append");
        assert_eq!(tickets.outstanding(), 1);
        let settled = tickets.settle(ticket.complete(Ok(())));
        assert!(matches!(settled, Some(("append", StorageOutcome::Append(Ok(()))))));
        assert_eq!(tickets.outstanding(), 0);
    }

    #[test]
    fn an_answer_of_another_run_is_counted_and_ignored() {
        let ticket = Tickets::new(Run(1)).mint::<op::Append>(());
        let mut now = Tickets::new(Run(2));
        let _live = now.mint::<op::Append>(());
        assert!(now.settle(ticket.complete(Ok(()))).is_none());
        assert_eq!((now.stale(), now.outstanding()), (1, 1));
    }
}
