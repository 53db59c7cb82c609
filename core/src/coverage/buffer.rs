//! What is held of one topic for replay: bounded by count, bytes and age.

use super::cursor::CursorText;
use super::position::{Mark, Position};
use crate::time::{Instant, WallTime};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

/// One event. Shared by the buffer and every subscriber: its bytes exist once.
#[derive(Debug, Eq, PartialEq)]
pub struct Entry {
    /// Its position and ID space.
    pub mark: Mark,
    /// The cursor of a client that has it.
    pub cursor: CursorText,
    /// When it was published, as its publisher or the hub says.
    pub at: WallTime,
    /// A name for clients to dispatch on; may be empty.
    pub kind: Box<str>,
    /// The bytes.
    pub payload: Box<[u8]>,
    /// Something is missing right before it.
    pub(super) breaks: bool,
}

impl Entry {
    /// Its bytes as the bounds count them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.kind.len() + self.payload.len() + ENTRY_BYTES
    }

    /// Whether both are one publication.
    pub(super) fn repeats(&self, other: &Self) -> bool {
        self.mark == other.mark && self.kind == other.kind && self.payload == other.payload
    }
}

/// What an entry costs beside its payload.
const ENTRY_BYTES: usize = core::mem::size_of::<Entry>() + 2 * core::mem::size_of::<usize>();

/// The bounds of one buffer; what exceeds any of them is pushed out, oldest first.
#[derive(Clone, Copy, Debug)]
pub struct BufferLimits {
    /// Events held; zero holds none, and then only a client that missed nothing can resume.
    pub events_max: usize,
    /// Bytes held, the entries' own size included.
    pub bytes_max: usize,
    /// How long an event is held.
    pub age_ms_max: u64,
}

/// The buffer of one topic.
#[derive(Debug)]
pub(super) struct Buffer {
    entries: VecDeque<(Instant, Arc<Entry>)>,
    bytes: usize,
    evicted_through: Position,
}

impl Buffer {
    pub(super) const fn new() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, evicted_through: Position::ZERO }
    }

    /// Adds the newest entry and pushes out what is too much.
    pub(super) fn push(&mut self, now: Instant, entry: Arc<Entry>, limits: &BufferLimits) {
        self.bytes += entry.bytes();
        self.entries.push_back((now, entry));
        self.evict(now, limits);
    }

    /// Pushes out what exceeds a bound. Returns whether anything was.
    pub(super) fn evict(&mut self, now: Instant, limits: &BufferLimits) -> bool {
        let before = self.entries.len();
        while let Some((since, entry)) = self.entries.front() {
            let fits = self.entries.len() <= limits.events_max && self.bytes <= limits.bytes_max;
            if fits && since.after_ms(limits.age_ms_max) > now {
                break;
            }
            self.evicted_through = self.evicted_through.max(entry.mark.position);
            self.bytes -= entry.bytes();
            self.entries.pop_front();
        }
        self.entries.len() < before
    }

    /// Forgets everything: the coverage it stood for has ended.
    pub(super) fn drop_all(&mut self) {
        *self = Self::new();
    }

    /// The highest position pushed out; zero if none was.
    pub(super) const fn evicted_through(&self) -> Position {
        self.evicted_through
    }

    /// The first entry above `after`.
    pub(super) fn next_after(&self, after: Position) -> Option<&Arc<Entry>> {
        let index = self.entries.partition_point(|(_, entry)| entry.mark.position <= after);
        self.entries.get(index).map(|(_, entry)| entry)
    }

    /// The entry at exactly this position.
    pub(super) fn at(&self, position: Position) -> Option<&Arc<Entry>> {
        self.next_after(position.before()).filter(|entry| entry.mark.position == position)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::coverage::cursor::CursorCodec;
    use crate::id::Incarnation;
    use alloc::vec::Vec;

    pub(in crate::coverage) fn entry(position: u64, payload: &[u8]) -> Arc<Entry> {
        let incarnation = Incarnation { counter: 1, nonce: [1; 8] };
        let mark = Mark { incarnation, position: Position::sequence(position) };
        Arc::new(Entry {
            mark,
            cursor: CursorCodec::open("").write("t", mark),
            at: WallTime(0),
            kind: "".into(),
            payload: payload.into(),
            breaks: false,
        })
    }

    const WIDE: BufferLimits = BufferLimits { events_max: 100, bytes_max: 1 << 20, age_ms_max: 1_000 };

    fn filled(limits: &BufferLimits) -> Buffer {
        let mut buffer = Buffer::new();
        for position in 1..=5 {
            buffer.push(Instant(position * 1_000_000), entry(position, b"1234"), limits);
        }
        buffer
    }

    fn held(buffer: &Buffer) -> Vec<u128> {
        buffer.iter().map(|e| e.mark.position.get()).collect()
    }

    #[test]
    fn count_bounds_it() {
        let buffer = filled(&BufferLimits { events_max: 3, ..WIDE });
        assert_eq!(held(&buffer), [3, 4, 5]);
        assert_eq!(buffer.evicted_through(), Position::sequence(2));
    }

    #[test]
    fn exactly_full_has_evicted_nothing() {
        assert_eq!(filled(&BufferLimits { events_max: 5, ..WIDE }).evicted_through(), Position::ZERO);
    }

    #[test]
    fn bytes_bound_it() {
        let one = entry(1, b"1234").bytes();
        let buffer = filled(&BufferLimits { bytes_max: 2 * one, ..WIDE });
        assert_eq!((held(&buffer), buffer.bytes()), (Vec::from([4, 5]), 2 * one));
    }

    #[test]
    fn age_bounds_it() {
        let mut buffer = filled(&WIDE);
        assert!(buffer.evict(Instant(1_003_000_000), &WIDE));
        assert_eq!((held(&buffer), buffer.evicted_through()), (Vec::from([4, 5]), Position::sequence(3)));
    }

    #[test]
    fn no_room_at_all_holds_nothing_and_says_so() {
        let buffer = filled(&BufferLimits { events_max: 0, ..WIDE });
        assert_eq!((held(&buffer).len(), buffer.evicted_through()), (0, Position::sequence(5)));
    }

    #[test]
    fn entries_are_found_by_position() {
        let buffer = filled(&WIDE);
        assert_eq!(buffer.next_after(Position::sequence(3)).unwrap().mark.position, Position::sequence(4));
        assert!(buffer.next_after(Position::sequence(5)).is_none());
        assert!(buffer.at(Position::sequence(9)).is_none());
        assert!(buffer.at(Position::sequence(1)).is_some());
    }
}
