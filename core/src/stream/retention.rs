//! The contract of a generation, its grammar in both layouts, and what a handle asks for.

use super::error::{CallerError, ForeignFault, Mismatch, Setting, StreamError};
use super::event::decimal;
use super::layout::Layout;
use super::limits::{ONCE_WINDOW_MS_DEFAULT, STREAM_LEN_MAX, STREAM_LEN_MAX_DEFAULT, TIME_MS_MAX};
use alloc::format;
use alloc::string::{String, ToString as _};
use core::num::NonZeroU64;
use core::time::Duration;

/// When the data of a generation ends by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expiry {
    /// Never.
    Never,
    /// Some time after the first write, or, sliding, after the last one.
    Ttl {
        /// That time in milliseconds.
        ms: NonZeroU64,
        /// Whether every write moves it.
        sliding: bool,
    },
    /// At one instant, with everything else of the generation.
    Deadline {
        /// The instant, in milliseconds of the server's clock.
        at_ms: u64,
    },
}

/// What one generation promises; fixed when the generation is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Contract {
    /// Exact bound of the log's length; `None` for none.
    pub max_len: Option<NonZeroU64>,
    /// When the data ends.
    pub expiry: Expiry,
    /// How long an idempotency record is kept. The Pulse layout has no such window: there the records
    /// end with the data.
    pub once_window_ms: u64,
}

impl Contract {
    /// A contract with the default window of idempotency records: one day, or the TTL if that is longer.
    #[must_use]
    pub const fn new(max_len: Option<NonZeroU64>, expiry: Expiry) -> Self {
        let once_window_ms = match expiry {
            Expiry::Ttl { ms, .. } if ms.get() > ONCE_WINDOW_MS_DEFAULT => ms.get(),
            Expiry::Never | Expiry::Ttl { .. } | Expiry::Deadline { .. } => ONCE_WINDOW_MS_DEFAULT,
        };
        Self { max_len, expiry, once_window_ms }
    }

    /// The deadline, if the contract has one.
    #[must_use]
    pub const fn deadline_ms(&self) -> Option<u64> {
        match self.expiry {
            Expiry::Deadline { at_ms } => Some(at_ms),
            Expiry::Never | Expiry::Ttl { .. } => None,
        }
    }

    /// The contract as the layout stores it. Canonical: equal contracts have equal text.
    #[must_use]
    pub fn text(&self, layout: Layout) -> String {
        let max = self.max_len.map_or(0, NonZeroU64::get);
        let (mode, value, sliding) = match self.expiry {
            Expiry::Never => ("none", 0, false),
            Expiry::Ttl { ms, sliding } => ("ttl", ms.get(), sliding),
            Expiry::Deadline { at_ms } => ("deadline", at_ms, false),
        };
        let text = format!("max={max}|mode={mode}|value={value}|sliding={sliding}");
        match layout {
            Layout::Pulse => format!("v=2|{text}"),
            Layout::Tagged => format!("v=1|{text}|once={}", self.once_window_ms),
        }
    }

    /// Reads what [`Contract::text`] writes, and nothing else.
    ///
    /// # Errors
    /// `InvalidRetention` for another version or a text that is not canonical.
    pub fn parse(text: &str, layout: Layout) -> Result<Self, StreamError> {
        parse(text, layout)
            .filter(|contract| contract.text(layout) == text)
            .ok_or_else(|| ForeignFault::InvalidRetention { found: text.to_string() }.into())
    }
}

fn parse(text: &str, layout: Layout) -> Option<Contract> {
    let mut fields = text.split('|');
    let mut field = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
    let version = match layout {
        Layout::Pulse => "2",
        Layout::Tagged => "1",
    };
    if field("v")? != version {
        return None;
    }
    let max_len = NonZeroU64::new(decimal(field("max")?)?);
    let mode = field("mode")?;
    let value = decimal(field("value")?)?;
    let sliding = field("sliding")? == "true";
    let expiry = match mode {
        "none" => Expiry::Never,
        "ttl" => Expiry::Ttl { ms: NonZeroU64::new(value)?, sliding },
        "deadline" => Expiry::Deadline { at_ms: value },
        _ => return None,
    };
    let mut contract = Contract::new(max_len, expiry);
    match layout {
        Layout::Pulse => {}
        Layout::Tagged => contract.once_window_ms = decimal(field("once")?)?,
    }
    fields.next().is_none().then_some(contract)
}

/// What a handle asks for: a contract it insists on, or whatever the generation has (and the default
/// when it makes a generation).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wanted {
    /// The contract of a generation that this handle makes.
    pub contract: Contract,
    /// Whether an existing generation must have exactly this contract.
    pub explicit: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        let max_len = NonZeroU64::new(STREAM_LEN_MAX_DEFAULT);
        Self { contract: Contract::new(max_len, Expiry::Never), explicit: false }
    }
}

/// Collects what a handle asks for, and checks it without any I/O.
///
/// ```
/// use core::time::Duration;
/// use strandline_core::stream::Layout;
/// use strandline_core::stream::retention::Settings;
///
/// let wanted = Settings::new().max_len(50).ttl(Duration::from_secs(60)).wanted().unwrap();
/// assert_eq!(wanted.contract.text(Layout::Pulse), "v=2|max=50|mode=ttl|value=60000|sliding=false");
/// assert!(Settings::new().max_len(0).wanted().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settings {
    max_len: Option<u64>,
    unbounded: bool,
    ttl: Option<Duration>,
    sliding: bool,
    deadline_ms: Option<u64>,
    once_window: Option<Duration>,
}

impl Settings {
    /// Nothing asked for: the handle adopts.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bounds the log to exactly `max_len` events.
    #[must_use]
    pub const fn max_len(mut self, max_len: u64) -> Self {
        self.max_len = Some(max_len);
        self
    }

    /// Leaves the log without a bound.
    #[must_use]
    pub const fn unbounded(mut self) -> Self {
        self.unbounded = true;
        self
    }

    /// Lets the data end `ttl` after the first write. Parts of a millisecond are cut off.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Lets every write move the end of the data.
    #[must_use]
    pub const fn sliding(mut self) -> Self {
        self.sliding = true;
        self
    }

    /// Lets the whole generation end at this instant of the server's clock.
    #[must_use]
    pub const fn deadline_ms(mut self, at_ms: u64) -> Self {
        self.deadline_ms = Some(at_ms);
        self
    }

    /// Keeps idempotency records for `window`.
    #[must_use]
    pub const fn once_window(mut self, window: Duration) -> Self {
        self.once_window = Some(window);
        self
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `InvalidOption` for a setting that cannot be; `ConfigMismatch` for a window of idempotency
    /// records below the TTL.
    pub fn wanted(self) -> Result<Wanted, CallerError> {
        let invalid = |setting| Err(CallerError::InvalidOption { setting });
        let mut contract = Wanted::default().contract;
        match (self.max_len.map(NonZeroU64::new), self.unbounded) {
            (Some(_), true) => return invalid(Setting::MaxLenWithUnbounded),
            (Some(None), false) => return invalid(Setting::MaxLenZero),
            (Some(Some(bound)), false) if bound.get() > STREAM_LEN_MAX => {
                return invalid(Setting::MaxLenTooLarge);
            }
            (Some(bound), false) => contract.max_len = bound,
            (None, true) => contract.max_len = None,
            (None, false) => {}
        }
        let expiry = match (self.ttl, self.deadline_ms, self.sliding) {
            (Some(_), Some(_), _) => return invalid(Setting::DeadlineWithTtl),
            (None, _, true) => return invalid(Setting::SlidingWithoutTtl),
            (Some(ttl), None, sliding) => match whole_ms(ttl) {
                Some(ms) => Expiry::Ttl { ms, sliding },
                None => return invalid(Setting::Ttl),
            },
            (None, Some(0), false) => return invalid(Setting::Deadline),
            (None, Some(at_ms), false) if at_ms > TIME_MS_MAX => return invalid(Setting::Deadline),
            (None, Some(at_ms), false) => Expiry::Deadline { at_ms },
            (None, None, false) => Expiry::Never,
        };
        contract = Contract::new(contract.max_len, expiry);
        if let Some(window) = self.once_window {
            let window =
                whole_ms(window).ok_or(CallerError::InvalidOption { setting: Setting::OnceWindow })?;
            let ttl = match expiry {
                Expiry::Ttl { ms, .. } => ms.get(),
                Expiry::Never | Expiry::Deadline { .. } => 0,
            };
            if window.get() < ttl {
                return Err(CallerError::ConfigMismatch { kind: Mismatch::OnceWindow });
            }
            contract.once_window_ms = window.get();
        }
        Ok(Wanted { contract, explicit: self != Self::new() })
    }

    /// Whether a window of idempotency records was asked for.
    #[must_use]
    pub const fn has_once_window(&self) -> bool {
        self.once_window.is_some()
    }
}

/// Whole milliseconds of a duration, if there is at least one and a script counts them exactly.
pub(super) fn whole_ms(duration: Duration) -> Option<NonZeroU64> {
    let ms = u64::try_from(duration.as_millis()).ok().filter(|ms| *ms <= TIME_MS_MAX)?;
    NonZeroU64::new(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(settings: Settings) -> Setting {
        match settings.wanted() {
            Err(CallerError::InvalidOption { setting }) => setting,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn contradictory_or_empty_settings_are_refused() {
        let (s, ms) = (Settings::new(), Duration::from_millis);
        assert_eq!(setting(s.max_len(1).unbounded()), Setting::MaxLenWithUnbounded);
        assert_eq!(setting(s.max_len(0)), Setting::MaxLenZero);
        assert_eq!(setting(s.max_len(STREAM_LEN_MAX + 1)), Setting::MaxLenTooLarge);
        assert!(s.max_len(STREAM_LEN_MAX).wanted().is_ok());
        assert_eq!(setting(s.ttl(Duration::ZERO)), Setting::Ttl);
        assert_eq!(setting(s.ttl(Duration::from_micros(500))), Setting::Ttl);
        assert_eq!(setting(s.deadline_ms(0)), Setting::Deadline);
        assert_eq!(setting(s.deadline_ms(TIME_MS_MAX + 1)), Setting::Deadline);
        assert_eq!(setting(s.deadline_ms(1).ttl(ms(1))), Setting::DeadlineWithTtl);
        assert_eq!(setting(s.sliding()), Setting::SlidingWithoutTtl);
        let short = s.ttl(ms(2)).once_window(ms(1)).wanted();
        assert_eq!(short, Err(CallerError::ConfigMismatch { kind: Mismatch::OnceWindow }));
    }

    #[test]
    fn a_handle_that_names_nothing_adopts() {
        assert!(!Settings::new().wanted().unwrap().explicit);
        assert!(Settings::new().max_len(STREAM_LEN_MAX_DEFAULT).wanted().unwrap().explicit);
    }

    #[test]
    fn contracts_come_back_in_both_layouts() {
        let s = Settings::new();
        let all = [
            s,
            s.unbounded(),
            s.max_len(7).ttl(Duration::from_millis(5)),
            s.ttl(Duration::from_secs(9)).sliding(),
            s.deadline_ms(77),
        ];
        for layout in [Layout::Pulse, Layout::Tagged] {
            for settings in all {
                let contract = settings.wanted().unwrap().contract;
                assert_eq!(Contract::parse(&contract.text(layout), layout), Ok(contract));
            }
        }
    }

    #[test]
    fn what_is_not_canonical_is_refused() {
        let refused = [
            "v=9|max=10|mode=none|value=0|sliding=false",
            "v=2|max=1|mode=none|value=1|sliding=false",
            "v=2|max=01|mode=none|value=0|sliding=false",
            "v=2|max=1|mode=ttl|value=0|sliding=false",
            "v=2|max=1|mode=deadline|value=5|sliding=true",
            "v=2|max=1|mode=none|value=0|sliding=no",
            "v=2|max=1|mode=none|value=0|sliding=false|x=1",
            "",
        ];
        for text in refused {
            assert!(Contract::parse(text, Layout::Pulse).is_err(), "{text}");
        }
    }
}
