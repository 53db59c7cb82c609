//! From the files of a directory to an embedded keyspace.

use super::api::{EmbeddedError, EmbeddedLimits};
use super::parts::LAYOUT;
use super::{Embedded, Store, changes, entry, state};
use crate::id::Lsn;
use crate::journal::command::{StorageCommand, StorageCompletion};
use crate::journal::log::{LogKind, LogRecovery, Never, NotOpened, Opened, Rebuild};
use crate::machine::{FrameInfo, Machine, Pending};
use crate::seed::Seed;
use crate::stream::embedded::change::Before;
use crate::stream::keyspace::Keyspace;
use crate::stream::time::ServerTime;
use crate::time::Now;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Why [`StreamRecovery::finish`] gives no keyspace.
#[derive(Debug)]
pub enum NotRecovered {
    /// Commands are out or must be polled: drain, hand in completions, try again.
    Working(Box<StreamRecovery>),
    /// It failed for good; nothing was lost by trying.
    Failed(EmbeddedError),
}

/// Opens the keyspace that a directory holds, or makes one in an empty directory. A root: run it with
/// [`crate::machine::drain`] until [`StreamRecovery::finish`] gives the keyspace. On return everything
/// that is kept is durable.
#[derive(Debug)]
pub struct StreamRecovery {
    limits: EmbeddedLimits,
    log: Result<LogRecovery<Loading>, EmbeddedError>,
}

/// What was read so far.
#[derive(Debug)]
struct Loading {
    keyspace: Keyspace,
    clock: ServerTime,
    grown_bytes: u64,
    checkpoint_bytes: u64,
}

impl Rebuild for Loading {
    fn checkpoint(&mut self, bytes: &[u8]) -> Result<(), String> {
        (self.clock, self.keyspace) = state::decode(bytes)?;
        self.checkpoint_bytes = bytes.len() as u64;
        Ok(())
    }

    fn entry(&mut self, _: Lsn, kind: u8, payload: &[u8]) -> Result<(), String> {
        let (at, op) = entry::decode(kind, payload)?;
        if at < self.clock {
            let (last, found) = (self.clock.us(), at.us());
            return Err(format!("expected a clock of {last} us at least, found {found}"));
        }
        self.clock = at;
        self.grown_bytes += payload.len() as u64;
        let before = Before::of(&self.keyspace, &op);
        let result = self.keyspace.apply(at, &op);
        if result.as_ref().is_ok_and(|reply| changes(&self.keyspace, before, &op, &reply.told)) {
            return Ok(());
        }
        Err(format!("expected an operation that changes something, found {:?}: {result:?}", op.verb))
    }
}

impl StreamRecovery {
    /// Begins. `seed` must differ between starts.
    #[must_use]
    pub fn open(limits: EmbeddedLimits, seed: Seed) -> Self {
        let loading = Loading {
            keyspace: Keyspace::new(LAYOUT),
            clock: ServerTime::from_us(0),
            grown_bytes: 0,
            checkpoint_bytes: 0,
        };
        let log = limits
            .validate()
            .map(|()| LogRecovery::ensure(LogKind::Streams, limits.journal, seed, loading))
            .map_err(EmbeddedError::from);
        Self { limits, log }
    }

    /// The keyspace, and what opening found, once everything that is kept is durable.
    ///
    /// # Errors
    /// [`NotRecovered::Working`] hands the recovery back.
    pub fn finish(self) -> Result<(Embedded, Opened), NotRecovered> {
        let limits = self.limits;
        match self.log.map(LogRecovery::finish_with) {
            Err(error) => Err(NotRecovered::Failed(error)),
            Ok(Err(NotOpened::Failed(error))) => Err(NotRecovered::Failed(error.into())),
            Ok(Err(NotOpened::Working(log))) => {
                Err(NotRecovered::Working(Box::new(Self { limits, log: Ok(*log) })))
            }
            Ok(Ok((log, opened, loading))) => {
                let Loading { keyspace, clock, grown_bytes, checkpoint_bytes } = loading;
                let mut embedded = Embedded::new(limits, keyspace, clock, Store::Journal(Box::new(log)));
                (embedded.grown_bytes, embedded.checkpoint_bytes) = (grown_bytes, checkpoint_bytes);
                Ok((embedded, opened))
            }
        }
    }
}

impl Machine for StreamRecovery {
    type Command = StorageCommand;
    type Event = Never;
    type Completion = StorageCompletion;
    type Channel = Never;

    fn handle_completion(&mut self, now: Now, completion: StorageCompletion) {
        if let Ok(log) = &mut self.log {
            log.handle_completion(now, completion);
        }
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll_command(&mut self) -> Option<StorageCommand> {
        self.log.as_mut().ok().and_then(LogRecovery::poll_command)
    }

    fn poll_event(&mut self) -> Option<Never> {
        None
    }

    fn poll_channel(&mut self, channel: Never, _: &mut Vec<u8>) -> Option<FrameInfo> {
        match channel {}
    }

    fn pending(&self) -> Pending {
        self.log.as_ref().map(LogRecovery::pending).unwrap_or_default()
    }
}
