//! Answers that a root waits for.

use crate::fault::refused;
use crate::threads::Complete;
use std::fmt;
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::ticket::{Completion, Operation, Ticket};

/// The ticket of a command and where its answer goes. Dropped without an answer, as when the thread
/// that has it panics, it is answered with a fault: a root must not wait for ever.
pub(crate) struct Owed<Op: Operation> {
    ticket: Option<Ticket<Op>>,
    action: StorageAction,
    file: String,
    complete: Complete<Completion<Op::Outcome>>,
}

impl<Op: Operation> Owed<Op> {
    /// `action` and `file` say what was to be done.
    pub(crate) fn new(
        complete: &Complete<Completion<Op::Outcome>>,
        ticket: Ticket<Op>,
        action: StorageAction,
        file: impl fmt::Display,
    ) -> Self {
        Self { ticket: Some(ticket), action, file: file.to_string(), complete: complete.clone() }
    }

    /// Answers.
    pub(crate) fn give(mut self, result: Result<Op::Output, StorageFault>) {
        self.answer(|_| result);
    }

    fn answer(&mut self, result: impl FnOnce(&Self) -> Result<Op::Output, StorageFault>) {
        if let Some(ticket) = self.ticket.take() {
            self.complete.call(ticket.complete(result(self)));
        }
    }
}

impl<Op: Operation> Drop for Owed<Op> {
    fn drop(&mut self) {
        self.answer(|this| {
            let detail = "expected an answer of the thread that has the command, found that it panicked";
            Err(refused(this.action, &this.file, None, StorageCause::Failed, detail))
        });
    }
}

impl<Op: Operation> fmt::Debug for Owed<Op> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owed").field("action", &self.action).field("file", &self.file).finish_non_exhaustive()
    }
}
