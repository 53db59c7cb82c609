//! Events and their positions.

use super::error::CallerError;
use super::limits::{EVENT_BYTES_MAX, IDS_PER_CALL_MAX, ONCE_KEY_BYTES_MAX};
use alloc::vec::Vec;
use core::fmt;

/// Position of an event in its log: the server's milliseconds, then a number within them.
///
/// Every event's ID is above those of all events published before it in the same generation.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EventId {
    /// Milliseconds since 1970 by the server's clock when the event was published.
    pub ms: u64,
    /// Number among the events of one millisecond.
    pub seq: u64,
}

impl EventId {
    /// Before every event.
    pub const ZERO: Self = Self { ms: 0, seq: 0 };

    /// The highest position there is.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Reads the canonical form only: two decimals without sign or leading zero, joined by `-`.
    ///
    /// ```
    /// use strandline_core::stream::EventId;
    /// assert_eq!(EventId::parse("7-1"), Some(EventId { ms: 7, seq: 1 }));
    /// assert_eq!(EventId::parse("07-1"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (ms, seq) = text.split_once('-')?;
        Some(Self { ms: decimal(ms)?, seq: decimal(seq)? })
    }

    /// When the event was published by the server's clock, as the time since the beginning of 1970 (UTC),
    /// to the millisecond. It never falls within one log; where the clock did, it stands still.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use strandline_core::stream::EventId;
    /// let id = EventId::parse("1700000000123-4").unwrap();
    /// assert_eq!(UNIX_EPOCH + id.since_epoch(), UNIX_EPOCH + Duration::from_millis(1_700_000_000_123));
    /// ```
    #[must_use]
    pub const fn since_epoch(self) -> core::time::Duration {
        core::time::Duration::from_millis(self.ms)
    }

    /// The position right before this one; zero before the first.
    #[must_use]
    pub const fn previous(self) -> Self {
        match (self.seq.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(seq), _) => Self { ms: self.ms, seq },
            (None, Some(ms)) => Self { ms, seq: u64::MAX },
            (None, None) => Self::ZERO,
        }
    }

    /// The position right after this one; `None` at the end of all positions.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Some(Self { ms: self.ms, seq }),
            (None, Some(ms)) => Some(Self { ms, seq: 0 }),
            (None, None) => None,
        }
    }
}

/// A decimal as it is printed: no sign, no leading zero, within 64 bits.
pub(super) fn decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    if canonical { text.parse().ok() } else { None }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// What is published: a name that is not empty, a topic (empty when there is none), a payload. All
/// three are exact bytes.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Event {
    name: Vec<u8>,
    topic: Vec<u8>,
    payload: Vec<u8>,
}

impl Event {
    /// An event without a topic.
    ///
    /// # Errors
    /// `EmptyEventName`, or `EventTooLarge` over 1 MiB in all.
    pub fn new(name: impl Into<Vec<u8>>, payload: impl Into<Vec<u8>>) -> Result<Self, CallerError> {
        Self { name: name.into(), topic: Vec::new(), payload: payload.into() }.checked()
    }

    /// The same event under a topic.
    ///
    /// # Errors
    /// `EventTooLarge` over 1 MiB in all.
    pub fn with_topic(mut self, topic: impl Into<Vec<u8>>) -> Result<Self, CallerError> {
        self.topic = topic.into();
        self.checked()
    }

    fn checked(self) -> Result<Self, CallerError> {
        let bytes = self.bytes();
        if self.name.is_empty() {
            return Err(CallerError::EmptyEventName);
        }
        if bytes > EVENT_BYTES_MAX {
            return Err(CallerError::EventTooLarge { bytes });
        }
        Ok(self)
    }

    /// Its name; readers may dispatch by it.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its topic; empty when there is none. Filters look at it.
    #[must_use]
    pub fn topic(&self) -> &[u8] {
        &self.topic
    }

    /// Its payload, opaque.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Bytes of name, topic and payload together.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.name.len() + self.topic.len() + self.payload.len()
    }

    /// The bytes that make two publications the same: each part behind its length (big endian).
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.bytes());
        for part in [&self.name, &self.topic, &self.payload] {
            out.extend_from_slice(&(part.len() as u64).to_be_bytes());
            out.extend_from_slice(part);
        }
        out
    }
}

/// The caller's key of a publication that happens once: 1 to 256 opaque bytes.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct OnceKey(Vec<u8>);

impl OnceKey {
    /// Takes a key.
    ///
    /// # Errors
    /// `InvalidOnceKey` for an empty or over-long one.
    pub fn new(key: impl Into<Vec<u8>>) -> Result<Self, CallerError> {
        let key = key.into();
        if key.is_empty() || key.len() > ONCE_KEY_BYTES_MAX {
            return Err(CallerError::InvalidOnceKey { bytes: key.len() });
        }
        Ok(Self(key))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Positions that one call names; so many as a script takes in one step.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ids(Vec<EventId>);

impl Ids {
    /// Takes a list of positions, repeated ones included.
    ///
    /// # Errors
    /// `TooManyIds` over 100,000.
    pub fn new(ids: impl Into<Vec<EventId>>) -> Result<Self, CallerError> {
        let ids = ids.into();
        if ids.len() > IDS_PER_CALL_MAX {
            return Err(CallerError::TooManyIds { ids: ids.len() });
        }
        Ok(Self(ids))
    }

    /// The positions.
    #[must_use]
    pub fn as_slice(&self) -> &[EventId] {
        &self.0
    }
}

/// What a log holds at a position: one of our events, or fields that something else wrote.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Stored {
    /// Exactly the fields of an event.
    Event(Event),
    /// Readable as an event (name and payload are there), with fields that do not belong.
    Loose(Event),
    /// No name, an empty one, or no payload.
    Malformed,
}

impl Stored {
    /// Reads the fields of an entry: `n`, `p`, and `t` when there is a topic, each once.
    #[must_use]
    pub fn from_fields(fields: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let (mut name, mut topic, mut payload, mut count) = (None, None, None, 0);
        for (field, value) in fields {
            count += 1;
            let place = match field.as_slice() {
                b"n" => &mut name,
                b"p" => &mut payload,
                b"t" => &mut topic,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        let (Some(name), Some(payload)) = (name, payload) else { return Self::Malformed };
        if name.is_empty() {
            return Self::Malformed;
        }
        let expected = 2 + usize::from(topic.is_some());
        let event = Event { name, payload, topic: topic.unwrap_or_default() };
        if count == expected { Self::Event(event) } else { Self::Loose(event) }
    }

    /// The event, as a reader takes it.
    #[must_use]
    pub const fn event(&self) -> Option<&Event> {
        match self {
            Self::Event(event) | Self::Loose(event) => Some(event),
            Self::Malformed => None,
        }
    }

    /// The event, if the entry holds nothing but it: what a replay asks for.
    #[must_use]
    pub const fn exact(&self) -> Option<&Event> {
        match self {
            Self::Event(event) => Some(event),
            Self::Loose(_) | Self::Malformed => None,
        }
    }
}

/// One position of a log and what it holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Where.
    pub id: EventId,
    /// What.
    pub stored: Stored,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn positions_are_canonical() {
        let bad = ["", "$", ">", "*", "1", "01-0", "1-00", "+1-0", "-1-0", "1-0-0", "1-0\n", "1-"];
        for text in bad {
            assert_eq!(EventId::parse(text), None, "{text:?}");
        }
        assert_eq!(EventId::parse("1-18446744073709551616"), None);
        assert_eq!(EventId::parse(&EventId::MAX.to_string()), Some(EventId::MAX));
    }

    #[test]
    fn a_position_tells_when_it_was_given_out() {
        let at = EventId::parse("1700000000123-4").unwrap().since_epoch();
        // The 14th of November 2023 is the 19,675th day of the epoch.
        assert_eq!((at.as_secs() / 86_400, at.subsec_millis()), (19_675, 123));
        assert_eq!(at.as_secs() % 86_400, 22 * 3600 + 13 * 60 + 20);
    }

    #[test]
    fn the_position_after_the_last_of_a_millisecond_is_the_next_one() {
        assert_eq!(EventId { ms: 1, seq: u64::MAX }.next(), Some(EventId { ms: 2, seq: 0 }));
        assert_eq!(EventId::MAX.next(), None);
        assert_eq!(EventId { ms: 2, seq: 0 }.previous(), EventId { ms: 1, seq: u64::MAX });
        assert_eq!(EventId::ZERO.previous(), EventId::ZERO);
    }

    #[test]
    fn identity_counts_field_boundaries() {
        let one = Event::new("a:1", "b").unwrap();
        let other = Event::new("a", "1:b").unwrap();
        assert_ne!(one.identity(), other.identity());
        assert_ne!(one.identity(), one.clone().with_topic("t").unwrap().identity());
    }

    #[test]
    fn events_are_bounded() {
        assert_eq!(Event::new("", "p"), Err(CallerError::EmptyEventName));
        let payload = alloc::vec![b'x'; EVENT_BYTES_MAX];
        let bytes = EVENT_BYTES_MAX + 1;
        assert_eq!(Event::new("a", payload), Err(CallerError::EventTooLarge { bytes }));
        assert!(Event::new("a", alloc::vec![b'x'; EVENT_BYTES_MAX - 1]).is_ok());
    }

    #[test]
    fn keys_of_once_have_1_to_256_bytes() {
        for bytes in [0, 257] {
            let refused = CallerError::InvalidOnceKey { bytes };
            assert_eq!(OnceKey::new(alloc::vec![0; bytes]), Err(refused));
        }
        assert!(OnceKey::new(alloc::vec![0; 256]).is_ok());
    }

    #[test]
    fn one_call_names_a_bounded_number_of_positions() {
        let ids = alloc::vec![EventId::ZERO; IDS_PER_CALL_MAX + 1];
        assert_eq!(Ids::new(ids), Err(CallerError::TooManyIds { ids: IDS_PER_CALL_MAX + 1 }));
        assert!(Ids::new(alloc::vec![]).is_ok());
    }

    #[test]
    fn entries_of_others_are_read_as_far_as_they_go() {
        let field = |n: &str, v: &str| (n.as_bytes().to_vec(), v.as_bytes().to_vec());
        let event = Event::new("e", "b").unwrap();
        assert_eq!(Stored::from_fields([field("n", "e"), field("p", "b")]), Stored::Event(event.clone()));
        for extra in [field("x", "y"), field("n", "dup"), field("p", "dup")] {
            let fields = [field("n", "e"), field("p", "b"), extra];
            assert_eq!(Stored::from_fields(fields), Stored::Loose(event.clone()));
        }
        for missing in [alloc::vec![field("n", "e")], alloc::vec![field("n", ""), field("p", "b")]] {
            assert_eq!(Stored::from_fields(missing), Stored::Malformed);
        }
    }
}
