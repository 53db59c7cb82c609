//! Reads of the journal for peers, shared between them: what one peer's plan brought serves every other
//! that needs the same batches, and what is being read is not read twice.

use crate::id::LinkId;
use crate::journal::read::ReadRequest;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Bytes of a segment, as they were asked for.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) request: ReadRequest,
    pub(super) bytes: Arc<Vec<u8>>,
}

/// What a plan does to get the bytes it needs next.
#[derive(Debug)]
pub(super) enum Ask {
    /// They are here.
    Here(Block),
    /// Read them, for everyone who asks meanwhile.
    Read,
    /// They are being read, or other reads must end first: go on when told.
    Wait,
}

/// Blocks that were read, reads that are out, and who waits for them. Segments are never written
/// anew, so what was read stays what is there.
#[derive(Debug)]
pub(super) struct Sharing {
    reads_max: u32,
    kept_bytes_max: u64,
    kept: VecDeque<Block>,
    kept_bytes: u64,
    reading: Vec<(ReadRequest, Vec<LinkId>)>,
    /// Those for whom there was no read left.
    queue: VecDeque<LinkId>,
    /// Reads that were begun.
    reads: u64,
}

/// Whether a block of `held` has the batch at which `wanted` starts.
fn covers(held: &ReadRequest, wanted: &ReadRequest) -> bool {
    let end = held.offset + u64::from(held.bytes);
    held.file == wanted.file && (held.offset..end).contains(&wanted.offset)
}

impl Sharing {
    /// At most `reads_max` reads out, and `kept_bytes_max` bytes kept beside the newest block.
    pub(super) fn new(reads_max: u32, kept_bytes_max: u64) -> Self {
        let (kept, queue) = (VecDeque::new(), VecDeque::new());
        Self { reads_max, kept_bytes_max, kept, kept_bytes: 0, reading: Vec::new(), queue, reads: 0 }
    }

    /// How many reads were begun.
    pub(super) const fn reads(&self) -> u64 {
        self.reads
    }

    /// `link` needs the bytes that start where `wanted` does.
    pub(super) fn ask(&mut self, link: LinkId, wanted: ReadRequest) -> Ask {
        if let Some(block) = self.kept.iter().find(|block| covers(&block.request, &wanted)) {
            return Ask::Here(block.clone());
        }
        if let Some((_, waiting)) = self.reading.iter_mut().find(|(held, _)| covers(held, &wanted)) {
            if !waiting.contains(&link) {
                waiting.push(link);
            }
            return Ask::Wait;
        }
        if self.reading.len() >= self.reads_max as usize {
            if !self.queue.contains(&link) {
                self.queue.push_back(link);
            }
            return Ask::Wait;
        }
        self.reading.push((wanted, alloc::vec![link]));
        self.reads += 1;
        Ask::Read
    }

    /// A read ended; its bytes are kept if it brought any. Who asks again: those who waited for it, then
    /// those who waited for a read of their own.
    pub(super) fn done(&mut self, request: ReadRequest, bytes: Option<Vec<u8>>) -> Vec<LinkId> {
        let at = self.reading.iter().position(|(held, _)| *held == request);
        let mut next = at.map_or_else(Vec::new, |at| self.reading.swap_remove(at).1);
        if let Some(bytes) = bytes {
            self.kept_bytes += bytes.len() as u64;
            self.kept.push_front(Block { request, bytes: Arc::new(bytes) });
        }
        while self.kept.len() > 1 && self.kept_bytes > self.kept_bytes_max {
            let gone = self.kept.pop_back().expect("more than one");
            self.kept_bytes -= gone.bytes.len() as u64;
        }
        next.extend(self.queue.drain(..));
        next
    }

    /// Everyone has everything: what was kept is of no more use.
    pub(super) fn forget_kept(&mut self) {
        self.kept.clear();
        self.kept_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Lsn;
    use crate::journal::batch::{self, Sealing};
    use crate::journal::command::SegmentNumber;
    use crate::journal::index::Index;
    use crate::journal::read::EntryReader;
    use crate::journal::segment::{Position, Salt};

    const LINK: [LinkId; 3] =
        [LinkId { slot: 0, uses: 1 }, LinkId { slot: 1, uses: 1 }, LinkId { slot: 2, uses: 1 }];

    /// Requests for consecutive batches of a segment, each of one batch.
    fn requests() -> Vec<ReadRequest> {
        let salt = Salt([5; 8]);
        let mut index = Index::new(Lsn::FIRST);
        index.enter(SegmentNumber(1), salt);
        let mut offset = 64;
        for _ in 0..6 {
            let mut bytes = alloc::vec![0; batch::HEADER_BYTES];
            batch::push_entry(&mut bytes, 1, &[7; 20]);
            let at = Position { segment: SegmentNumber(1), offset };
            let first_lsn = index.next_lsn();
            let sealing = Sealing { salt, at, first_lsn, count: 1, durable: None, durable_end: at };
            index.push(offset, &batch::seal(&mut bytes, &sealing));
            offset += bytes.len() as u64;
        }
        let lsn = |n| Lsn::new(n).expect("not zero");
        let request = |n| EntryReader::new(lsn(n), lsn(6)).request(&index, 64).expect("retained");
        (1..=6).map(|n| request(n).expect("not finished")).collect()
    }

    #[test]
    fn what_was_read_serves_every_link_that_needs_it() {
        let all = requests();
        let mut sharing = Sharing::new(4, 1000);
        assert!(matches!(sharing.ask(LINK[0], all[0]), Ask::Read));
        assert!(matches!(sharing.ask(LINK[1], all[0]), Ask::Wait), "it is being read");
        assert_eq!(sharing.done(all[0], Some(alloc::vec![1; 100])), [LINK[0], LINK[1]]);
        for link in LINK {
            let Ask::Here(block) = sharing.ask(link, all[0]) else { panic!("it was read") };
            assert_eq!((block.request, block.bytes.len()), (all[0], 100));
        }
    }

    #[test]
    fn reads_out_are_bounded_and_who_waits_goes_on() {
        let all = requests();
        let mut sharing = Sharing::new(1, 1000);
        assert!(matches!(sharing.ask(LINK[0], all[0]), Ask::Read));
        assert!(matches!(sharing.ask(LINK[1], all[2]), Ask::Wait));
        assert!(matches!(sharing.ask(LINK[1], all[2]), Ask::Wait), "waiting twice is the same");
        assert_eq!(sharing.done(all[0], None), [LINK[0], LINK[1]], "a failed read frees its place");
        assert!(matches!(sharing.ask(LINK[0], all[0]), Ask::Read), "nothing was kept");
        assert_eq!(sharing.reads(), 2);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_newest_stays() {
        let all = requests();
        let mut sharing = Sharing::new(4, 250);
        for request in &all[..4] {
            assert!(matches!(sharing.ask(LINK[0], *request), Ask::Read));
            let _ = sharing.done(*request, Some(alloc::vec![1; 100]));
        }
        assert_eq!((sharing.kept.len(), sharing.kept_bytes), (2, 200));
        assert!(matches!(sharing.ask(LINK[0], all[0]), Ask::Read));
        assert!(matches!(sharing.ask(LINK[0], all[3]), Ask::Here(_)));
        let _ = sharing.done(all[0], Some(alloc::vec![1; 900]));
        assert_eq!(sharing.kept.len(), 1, "a block above the bound is kept alone");
        sharing.forget_kept();
        assert_eq!((sharing.kept.len(), sharing.kept_bytes), (0, 0));
    }
}
