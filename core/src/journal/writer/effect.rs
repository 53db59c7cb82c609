//! What the journal wants done, before it has a ticket.

use super::JournalPurpose;
use crate::journal::command::{SegmentNumber, StorageCommand};
use crate::journal::segment::Position;
use crate::machine::Out;
use alloc::vec::Vec;

/// A command, before it has a ticket.
pub(super) enum Effect {
    Prepare { segment: SegmentNumber, bytes: u64 },
    Append { at: Position, bytes: Vec<u8> },
}

impl Effect {
    pub(super) fn push<P, C, E>(self, out: &mut Out<P, C, E>)
    where
        P: From<JournalPurpose>,
        C: From<StorageCommand>,
    {
        match self {
            Self::Prepare { segment, bytes } => out.command(JournalPurpose::Prepare(segment), |ticket| {
                StorageCommand::Prepare { ticket, segment, bytes }
            }),
            Self::Append { at: Position { segment, offset }, bytes } => {
                out.command(JournalPurpose::Append, |ticket| StorageCommand::Append {
                    ticket,
                    segment,
                    offset,
                    bytes,
                })
            }
        }
    }
}
