//! Strandline's bare journal.
use crate::journal::{Digest, Journal, Res};
use std::path::Path;
use strandline_core::journal::log::LogError;
use strandline_file::{BareJournal, JournalOpenError, JournalOptions};

pub struct Strandline(BareJournal);

impl Journal for Strandline {
    const NAME: &'static str = "strandline";
    fn open(dir: &Path) -> Res<Self> {
        match BareJournal::open(dir, JournalOptions::default()) {
            Ok((journal, _)) => Ok(Strandline(journal)),
            Err(JournalOpenError::Log(LogError::NoJournal)) => {
                Ok(Strandline(BareJournal::create(dir, JournalOptions::default())?.0))
            }
            Err(e) => Err(e.into()),
        }
    }
    fn append(&self, _: usize, records: &[&[u8]]) -> Res<()> {
        self.0.append_batch(records)?;
        Ok(())
    }
    /// Recovery shows every record while it checks and syncs, so nothing is read twice.
    fn recover(dir: &Path, seen: &mut Digest) -> Res<()> {
        let (journal, _) = BareJournal::open_with(dir, JournalOptions::default(), |_, record| seen.add(record))?;
        // The time to recover is measured, not the time to close.
        std::mem::forget(journal);
        Ok(())
    }
    fn close(self) -> Res<()> {
        Ok(self.0.close()?)
    }
}

/// The same, read back by `replay` after an open that shows nothing: two reads of everything.
pub struct StrandlineReplay(Strandline);

impl Journal for StrandlineReplay {
    const NAME: &'static str = "strandline, open then replay";
    fn open(dir: &Path) -> Res<Self> {
        Ok(StrandlineReplay(Strandline::open(dir)?))
    }
    fn append(&self, writer: usize, records: &[&[u8]]) -> Res<()> {
        self.0.append(writer, records)
    }
    fn recover(dir: &Path, seen: &mut Digest) -> Res<()> {
        let (journal, _) = BareJournal::open(dir, JournalOptions::default())?;
        journal.replay(journal.first(), |_, record| {
            seen.add(record);
            std::ops::ControlFlow::Continue(())
        })?;
        std::mem::forget(journal);
        Ok(())
    }
    fn close(self) -> Res<()> {
        self.0.close()
    }
}
