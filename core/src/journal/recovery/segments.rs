//! The list of segments, their headers, and the segment that was prepared ahead.

use super::super::command::{FileName, Listed, SegmentNumber};
use super::super::segment::{HEADER_BYTES, Position, SegmentHeader, SegmentHeaderError};
use super::super::writer::Spare;
use super::end::{Decision, EndCase, RecoveryFault};
use super::probe::all_zero;
use super::{Ask, Found, JournalRecovery, Last, Origin, Phase};
use alloc::format;

impl JournalRecovery {
    /// Sorts out what is there: no segment may be missing between the first and the last.
    pub(super) fn list(&mut self, listed: &[Listed]) -> Result<Ask, RecoveryFault> {
        for Listed { file, bytes } in listed {
            let FileName::Segment(number) = *file else { continue };
            if number < self.first_segment {
                self.remove.push(*file);
            } else {
                self.found.push(Found { number, bytes: *bytes, header: None });
            }
        }
        self.remove.sort_unstable();
        self.found.sort_unstable_by_key(|f| f.number);
        let mut expected = self.first_segment;
        for found in &self.found {
            if found.number != expected {
                let detail = format!("expected segment {}, found {} as the next", expected.0, found.number.0);
                return Err(RecoveryFault::refused(EndCase::MissingSegment, start(expected), detail));
            }
            expected = expected.next();
        }
        match (self.found.is_empty(), self.origin) {
            (false, Origin::New | Origin::Existing) => Ok(self.read_header(0)),
            (true, Origin::New) => Ok(Ask::Finish),
            (true, Origin::Existing) => {
                let detail = "expected the first segment, which current names, found none";
                Err(RecoveryFault::refused(EndCase::MissingSegment, start(self.first_segment), detail))
            }
        }
    }

    fn read_header(&mut self, place: usize) -> Ask {
        self.phase = Phase::Headers(place);
        let Found { number, bytes, .. } = self.found[place];
        Ask::Read { at: start(number), bytes: bytes.min(HEADER_BYTES) }
    }

    pub(super) fn header(&mut self, place: usize, bytes: &[u8]) -> Result<Ask, RecoveryFault> {
        match SegmentHeader::decode(bytes) {
            Ok(header) => {
                self.check_header(place, &header)?;
                self.found[place].header = Some(header);
                self.last = Last { at: start(header.number), bytes: bytes.to_vec() };
            }
            Err(newer @ SegmentHeaderError::Newer { .. }) => {
                let at = start(self.found[place].number);
                return Err(RecoveryFault::refused(EndCase::NewerFormat, at, format!("{newer}")));
            }
            Err(bad @ SegmentHeaderError::Blank) => return self.no_header(place, EndCase::Unentered, bad),
            Err(bad @ SegmentHeaderError::Damaged) => return self.no_header(place, EndCase::HeaderCut, bad),
        }
        if place + 1 < self.found.len() { Ok(self.read_header(place + 1)) } else { self.enter(0) }
    }

    fn check_header(&self, place: usize, header: &SegmentHeader) -> Result<(), RecoveryFault> {
        let found = &self.found[place];
        let refuse = |case, detail| Err(RecoveryFault::refused(case, start(found.number), detail));
        if header.log != self.log {
            return refuse(EndCase::OtherLog, format!("expected log {}, found {}", self.log, header.log));
        }
        if header.number != found.number {
            let (want, found) = (found.number.0, header.number.0);
            return refuse(EndCase::WrongSegment, format!("expected segment {want}, found {found}"));
        }
        if found.bytes < header.prepared_bytes.max(HEADER_BYTES) {
            let (want, found) = (header.prepared_bytes, found.bytes);
            return refuse(EndCase::ShortSegment, format!("expected {want} bytes or more, found {found}"));
        }
        if let Some(before) = place.checked_sub(1).map(|p| self.found[p].bytes)
            && !(HEADER_BYTES..=before).contains(&header.previous_end)
        {
            let end = header.previous_end;
            let detail =
                format!("expected the segment before to end at {HEADER_BYTES} to {before}, found {end}");
            return refuse(EndCase::WrongSequence, detail);
        }
        Ok(())
    }

    /// A segment without a header: harmless only where one was about to be entered.
    fn no_header(
        &mut self,
        place: usize,
        harmless: EndCase,
        bad: SegmentHeaderError,
    ) -> Result<Ask, RecoveryFault> {
        let newest = place + 1 == self.found.len();
        let case = match (newest, place, self.origin) {
            (false, _, Origin::New | Origin::Existing) => EndCase::BadHeaderNotNewest,
            (true, 0, Origin::Existing) => EndCase::FirstNotEntered,
            (true, _, Origin::New | Origin::Existing) => harmless,
        };
        match case.decision() {
            Decision::Refuse { .. } => {
                Err(RecoveryFault::refused(case, start(self.found[place].number), format!("{bad}")))
            }
            Decision::Keep | Decision::Cut | Decision::Prepare => self.read_blank(HEADER_BYTES, case),
        }
    }

    /// Takes bytes that must be zeros behind a header that is none.
    pub(super) fn blank(&mut self, bytes: &[u8], case: EndCase) -> Result<Ask, RecoveryFault> {
        let at = self.reading.at;
        if !all_zero(bytes) {
            let zeros = bytes.iter().take_while(|b| **b == 0).count() as u64;
            let at = Position { offset: at.offset + zeros, ..at };
            let detail = "expected zeros behind a header that was never written, found other bytes";
            return Err(RecoveryFault::refused(EndCase::BadHeaderThenBytes, at, detail));
        }
        self.read_blank(at.offset + bytes.len() as u64, case)
    }

    fn read_blank(&mut self, offset: u64, case: EndCase) -> Result<Ask, RecoveryFault> {
        let Found { number, bytes, .. } = *self.found.last().expect("it was found");
        if offset < bytes {
            self.phase = Phase::Blank(case);
            let at = Position { segment: number, offset };
            return Ok(Ask::Read { at, bytes: self.window(bytes - offset) });
        }
        self.cases.push(case);
        self.found.pop();
        if case == EndCase::Unentered && bytes == self.limits.segment_bytes {
            self.spare = Spare::Ready { bytes };
        }
        if self.found.is_empty() { Ok(self.sync()) } else { self.enter(0) }
    }
}

const fn start(segment: SegmentNumber) -> Position {
    Position { segment, offset: 0 }
}
