//! What a reader or a consumer is asked to do, checked without any I/O.

use super::contract::{GroupContract, Start};
use super::error::{CallerError, Setting};
use super::filter::Filter;
use super::limits::{
    BLOCK_MS_DEFAULT, BUFFER_EVENTS_DEFAULT, GRACE_MS_DEFAULT, READ_EVENTS_DEFAULT, READ_EVENTS_MAX,
};
use super::retention::whole_ms;
use alloc::string::String;
use core::time::Duration;

/// How events are taken: by a reader, or by a consumer of a group.
///
/// Defaults: from the newest, all topics, 1000 events per read, 1000 waiting, 5 s per blocking read,
/// 20 s of grace.
///
/// ```
/// use strandline_core::stream::{Start, settings::TakeSettings};
/// let taking = TakeSettings::new().start(Start::Oldest).topic("eu").taking().unwrap();
/// assert_eq!(taking.events_max, 1000);
/// assert!(TakeSettings::new().topic("eu").pattern("us").taking().is_err());
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TakeSettings {
    topic: Option<String>,
    pattern: Option<String>,
    start: Option<Start>,
    two_starts: bool,
    max_polled: Option<u32>,
    buffer: Option<u32>,
    block: Option<Duration>,
    no_ack: bool,
    grace: Option<Duration>,
}

/// Checked settings of a reader or consumer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Taking {
    /// Which events are shown.
    pub filter: Filter,
    /// Where it begins.
    pub start: Start,
    /// Events of one read.
    pub events_max: u32,
    /// Events that may wait for a slow subscriber.
    pub buffer_events: u32,
    /// How long one read waits.
    pub block_ms: u64,
    /// Whether a consumer acknowledges before it hands over.
    pub no_ack: bool,
    /// The grace of a silent consumer.
    pub grace_ms: u64,
}

impl TakeSettings {
    /// All defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows only events with this topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Shows only events whose topic this regular expression matches.
    #[must_use]
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.pattern = Some(pattern.into());
        self
    }

    /// Where to begin. Saying it twice is a mistake.
    #[must_use]
    pub const fn start(mut self, start: Start) -> Self {
        self.two_starts = self.start.is_some();
        self.start = Some(start);
        self
    }

    /// Events of one read.
    #[must_use]
    pub const fn max_polled(mut self, events: u32) -> Self {
        self.max_polled = Some(events);
        self
    }

    /// Events that may wait for a slow subscriber.
    #[must_use]
    pub const fn buffer(mut self, events: u32) -> Self {
        self.buffer = Some(events);
        self
    }

    /// How long one read waits for events. Parts of a millisecond are cut off.
    #[must_use]
    pub const fn block(mut self, block: Duration) -> Self {
        self.block = Some(block);
        self
    }

    /// Acknowledges before handing over: at most once.
    #[must_use]
    pub const fn no_ack(mut self) -> Self {
        self.no_ack = true;
        self
    }

    /// How long a silent consumer is waited for. Parts of a millisecond are cut off.
    #[must_use]
    pub const fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// `InvalidOption`, naming the first setting that cannot be.
    pub fn taking(self) -> Result<Taking, CallerError> {
        let invalid = |setting| CallerError::InvalidOption { setting };
        let ms = |duration: Option<Duration>, default, setting| match duration {
            None => Ok(default),
            Some(duration) => whole_ms(duration).map(core::num::NonZeroU64::get).ok_or(invalid(setting)),
        };
        let filter = match (self.topic, self.pattern) {
            (Some(_), Some(_)) => return Err(invalid(Setting::TopicWithPattern)),
            (Some(topic), None) => Filter::Topic(topic),
            (None, Some(pattern)) => Filter::pattern(&pattern)?,
            (None, None) => Filter::All,
        };
        if self.two_starts {
            return Err(invalid(Setting::TwoStarts));
        }
        let events_max = self.max_polled.unwrap_or(READ_EVENTS_DEFAULT);
        if events_max == 0 || events_max > READ_EVENTS_MAX {
            return Err(invalid(Setting::MaxPolled));
        }
        Ok(Taking {
            filter,
            start: self.start.unwrap_or_default(),
            events_max,
            buffer_events: self.buffer.unwrap_or(BUFFER_EVENTS_DEFAULT),
            block_ms: ms(self.block, BLOCK_MS_DEFAULT, Setting::Block)?,
            no_ack: self.no_ack,
            grace_ms: ms(self.grace, GRACE_MS_DEFAULT, Setting::Grace)?,
        })
    }
}

impl Taking {
    /// The contract of a group whose consumers take like this.
    #[must_use]
    pub fn contract(&self) -> GroupContract {
        GroupContract {
            filter: self.filter.clone(),
            start: self.start,
            no_ack: self.no_ack,
            grace_ms: self.grace_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(settings: TakeSettings) -> Setting {
        match settings.taking() {
            Err(CallerError::InvalidOption { setting }) => setting,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_reference() {
        let taking = TakeSettings::new().taking().unwrap();
        assert_eq!((taking.filter, taking.start, taking.no_ack), (Filter::All, Start::Newest, false));
        assert_eq!((taking.events_max, taking.buffer_events), (1000, 1000));
        assert_eq!((taking.block_ms, taking.grace_ms), (5_000, 20_000));
        let wanted = crate::stream::retention::Wanted::default();
        assert_eq!(wanted.contract.max_len.map(core::num::NonZeroU64::get), Some(1000));
    }

    #[test]
    fn each_setting_is_checked() {
        let s = TakeSettings::new;
        assert_eq!(refused(s().max_polled(0)), Setting::MaxPolled);
        assert_eq!(refused(s().max_polled(READ_EVENTS_MAX + 1)), Setting::MaxPolled);
        assert_eq!(refused(s().block(Duration::ZERO)), Setting::Block);
        assert_eq!(refused(s().block(Duration::from_micros(500))), Setting::Block);
        assert_eq!(refused(s().grace(Duration::ZERO)), Setting::Grace);
        assert_eq!(refused(s().topic("a").pattern("b")), Setting::TopicWithPattern);
        assert_eq!(refused(s().start(Start::Oldest).start(Start::Newest)), Setting::TwoStarts);
        assert_eq!(refused(s().pattern("(")), Setting::Pattern);
    }
}
