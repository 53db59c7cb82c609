//! What a bare journal is for: its mark on disk, and who takes what recovery finds.

use crate::id::Lsn;
use alloc::format;
use alloc::string::String;

/// What is kept in a journal, so that no program opens the journal of another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LogKind {
    /// Opaque payloads of a program's own.
    Bare,
    /// The operations of a keyspace of streams.
    Streams,
}

impl LogKind {
    /// What `current` says.
    pub(super) const fn mark(self) -> [u8; 4] {
        match self {
            Self::Bare => *b"SLBJ",
            Self::Streams => *b"SLST",
        }
    }

    /// In words, for errors.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Bare => "a bare journal",
            Self::Streams => "a keyspace of streams",
        }
    }
}

/// Takes what recovery keeps, in order: the checkpoint, if there is one, then every entry after it.
/// Drop what it built if recovery fails.
pub trait Rebuild {
    /// Takes the checkpoint.
    ///
    /// # Errors
    /// What was expected and what was found: the checkpoint is damaged.
    fn checkpoint(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// Takes an entry.
    ///
    /// # Errors
    /// What was expected and what was found: the entry is damaged.
    fn entry(&mut self, lsn: Lsn, kind: u8, payload: &[u8]) -> Result<(), String>;
}

/// A journal without checkpoints.
impl<V: FnMut(Lsn, u8, &[u8]) -> Result<(), String>> Rebuild for V {
    fn checkpoint(&mut self, bytes: &[u8]) -> Result<(), String> {
        Err(format!("expected a journal without a checkpoint, found one of {} bytes", bytes.len()))
    }

    fn entry(&mut self, lsn: Lsn, kind: u8, payload: &[u8]) -> Result<(), String> {
        self(lsn, kind, payload)
    }
}
