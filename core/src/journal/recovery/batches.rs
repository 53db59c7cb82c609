//! Batch after batch, and what lies behind the last one that verifies.

use super::super::batch::{self, BatchHeader, HEADER_BYTES as BATCH_HEADER_BYTES};
use super::super::index::Index;
use super::super::segment::{HEADER_BYTES, Position, SegmentHeader};
use super::end::{Decision, EndCase, RecoveryFault};
use super::probe::{Probe, Suspect, all_zero, evidence, probe};
use super::{Ask, JournalRecovery, Phase, Visit};
use alloc::format;
use core::ops::ControlFlow;

impl JournalRecovery {
    /// Starts on the batches of a segment, and of those after it as long as they are empty.
    pub(super) fn enter(&mut self, first: usize) -> Result<Ask, RecoveryFault> {
        let mut place = first;
        loop {
            let header = self.entered(place);
            let at = Position { segment: header.number, offset: 0 };
            if place == 0 {
                self.index = Index::new(header.first_lsn);
            }
            if header.first_lsn != self.index.next_lsn() {
                let (want, found) = (self.index.next_lsn(), header.first_lsn);
                let detail = format!("expected a segment from entry {want} on, found {found}");
                return Err(RecoveryFault::refused(EndCase::WrongSequence, at, detail));
            }
            self.index.enter(header.number, header.salt);
            self.at = Position { offset: HEADER_BYTES, ..at };
            self.unrecorded = false;
            if self.end(place) > HEADER_BYTES || place + 1 == self.found.len() {
                break;
            }
            place += 1;
        }
        self.phase = Phase::Batches(place);
        self.batches(place, &[], &mut |_, _, _| Ok(()))
    }

    /// Takes batch after batch from `bytes`, which start where the next one should. A batch that is
    /// not whole in them is read again from its start, so that nothing is ever moved in memory.
    pub(super) fn batches(
        &mut self,
        place: usize,
        mut bytes: &[u8],
        visit: Visit<'_>,
    ) -> Result<Ask, RecoveryFault> {
        let salt = self.entered(place).salt;
        let newest = place + 1 == self.found.len();
        let end = self.end(place);
        loop {
            let room = end - self.at.offset;
            if room == 0 && !newest {
                return self.enter(place + 1);
            }
            let probed = if room < BATCH_HEADER_BYTES as u64 {
                Probe::Bad(EndCase::StaleBytes)
            } else {
                probe(bytes, room, self.limits.batch_bytes_max, salt, self.at)
            };
            match probed {
                Probe::Short { bytes: least } => {
                    return Ok(Ask::Read { at: self.at, bytes: self.window(room).max(least) });
                }
                Probe::Batch { header, payload } => {
                    let at = self.at;
                    self.accept(&header, payload, &mut *visit)?;
                    let (batch, rest) =
                        bytes.split_at(usize::try_from(header.bytes()).expect("it is in memory"));
                    bytes = rest;
                    if newest {
                        self.last.at = at;
                        self.last.bytes.clear();
                        self.last.bytes.extend_from_slice(batch);
                    }
                }
                Probe::TooLong { header } => return Err(self.over_limit(&header).expect("it is too long")),
                Probe::Bad(_) if !newest => {
                    let next = self.entered(place + 1).number.0;
                    let detail = format!(
                        "expected batches up to offset {end}, which segment {next} says were durable, found \
                         bytes that do not verify"
                    );
                    return Err(RecoveryFault::refused(EndCase::DamageBeforeNextSegment, self.at, detail));
                }
                Probe::Bad(case) => {
                    let suspect = Suspect { at: self.at, salt, lsn: self.index.next_lsn() };
                    return self.read_behind(self.at.offset, suspect, case, true);
                }
            }
        }
    }

    /// Where the batches of a segment end at the latest: the next segment says it exactly.
    fn end(&self, place: usize) -> u64 {
        let next = self.found.get(place + 1).and_then(|f| f.header);
        next.map_or(self.found[place].bytes, |header| header.previous_end)
    }

    fn entered(&self, place: usize) -> SegmentHeader {
        self.found[place].header.expect("its header was read")
    }

    /// Checks a batch that verifies against what comes next and the limits, and visits its entries.
    fn accept(
        &mut self,
        header: &BatchHeader,
        payload: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), RecoveryFault> {
        let expected = self.index.next_lsn();
        if header.first_lsn != expected {
            let detail = format!("expected the batch of entry {expected}, found {}", header.first_lsn);
            return Err(RecoveryFault::refused(EndCase::WrongSequence, self.at, detail));
        }
        if let Some(fault) = self.over_limit(header) {
            return Err(fault);
        }
        let at = |within: usize| {
            let offset = self.at.offset + (BATCH_HEADER_BYTES + within) as u64;
            Position { offset, ..self.at }
        };
        let mut lsn = expected;
        let max = self.limits.entry_bytes_max as usize;
        let flow = batch::entries(payload, header.count, |within, kind, bytes| {
            let (case, detail) = if bytes.len() > max {
                let found = bytes.len();
                (EndCase::LimitExceeded, format!("expected an entry of {max} bytes at most, found {found}"))
            } else if let Err(why) = visit(lsn, kind, bytes) {
                (EndCase::EntryRefused, format!("expected an entry {lsn} that can be read, found: {why}"))
            } else {
                lsn = lsn.plus(1);
                return ControlFlow::Continue(());
            };
            ControlFlow::Break(RecoveryFault::refused(case, at(within), detail))
        });
        match flow {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(fault)) => return Err(fault),
            Err(bad) => {
                let count = header.count;
                let detail = format!("expected {count} entries, found other bytes under a right checksum");
                return Err(RecoveryFault::refused(EndCase::Malformed, at(bad.at), detail));
            }
        }
        self.index.push(self.at.offset, header);
        self.unrecorded = header.count > 0;
        self.at.offset += header.bytes();
        Ok(())
    }

    fn over_limit(&self, header: &BatchHeader) -> Option<RecoveryFault> {
        let (bytes, count) = (u64::from(header.payload_bytes), u64::from(header.count));
        let limits = &self.limits;
        let bounds = [
            ("bytes in a batch", bytes, u64::from(limits.batch_bytes_max)),
            ("bytes in the journal", self.index.bytes() + bytes, limits.journal_bytes_max),
            ("entries in the journal", self.index.entries() + count, limits.journal_entries_max),
        ];
        let (what, found, max) = bounds.into_iter().find(|(_, found, max)| found > max)?;
        let detail = format!("expected {max} {what} at most, found {found}");
        Some(RecoveryFault::refused(EndCase::LimitExceeded, self.at, detail))
    }

    /// Takes bytes behind a bad batch in the newest segment. Proof that it was durable is damage.
    pub(super) fn behind(
        &mut self,
        bytes: &[u8],
        suspect: Suspect,
        case: EndCase,
        zeros: bool,
    ) -> Result<Ask, RecoveryFault> {
        let from = self.reading.at.offset;
        let (proof, searched) = evidence(bytes, from, &suspect);
        if let Some(proof) = proof {
            let lsn = suspect.lsn;
            let detail = format!(
                "expected the batch of entry {lsn}, which the batch at offset {proof} says was durable, found \
                 bytes that do not verify"
            );
            return Err(RecoveryFault::refused(EndCase::DamageBeforeIntact, suspect.at, detail));
        }
        let read_to = from + bytes.len() as u64;
        let whole = read_to == self.file_bytes();
        let next = if whole { read_to } else { searched };
        self.read_behind(next, suspect, case, zeros && all_zero(bytes))
    }

    fn read_behind(
        &mut self,
        offset: u64,
        suspect: Suspect,
        case: EndCase,
        zeros: bool,
    ) -> Result<Ask, RecoveryFault> {
        let file_bytes = self.file_bytes();
        if offset < file_bytes {
            self.phase = Phase::Behind { suspect, case, zeros };
            let at = Position { offset, ..suspect.at };
            return Ok(Ask::Read { at, bytes: self.window(file_bytes - offset) });
        }
        let case = match (zeros, suspect.at.offset) {
            (true, HEADER_BYTES) => EndCase::EmptyNewest,
            (true, end) if end == file_bytes => EndCase::CleanEnd,
            (true, _) => EndCase::ZeroTail,
            (false, _) => case,
        };
        self.cases.push(case);
        match case.decision() {
            Decision::Cut => {
                self.phase = Phase::Cutting;
                Ok(Ask::Cut)
            }
            Decision::Keep => Ok(self.rewrite()),
            Decision::Prepare | Decision::Refuse { .. } => panic!("{case:?} is no end of batches"),
        }
    }

    /// Length of the newest entered segment.
    fn file_bytes(&self) -> u64 {
        self.found.last().expect("it was entered").bytes
    }
}
