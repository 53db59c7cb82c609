//! The contract of a group: fixed per name and generation.

use super::event::EventId;
use super::filter::Filter;
use alloc::string::{String, ToString as _};
use core::fmt;

/// Where a reader or group begins. Compared by its text: `0` and `0-0` are two contracts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Start {
    /// After the newest event there is when the reader or group is made.
    #[default]
    Newest,
    /// At the oldest event that is kept.
    Oldest,
    /// After this position.
    After(EventId),
}

impl Start {
    /// Reads `$`, `0`, or a position; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "$" => Some(Self::Newest),
            "0" => Some(Self::Oldest),
            _ => EventId::parse(text).map(Self::After),
        }
    }

    /// After the first position of a millisecond: an event with exactly that position is skipped.
    #[must_use]
    pub const fn at_ms(ms: u64) -> Self {
        Self::After(EventId { ms, seq: 0 })
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => f.write_str("$"),
            Self::Oldest => f.write_str("0"),
            Self::After(id) => id.fmt(f),
        }
    }
}

/// What all consumers of a group must agree on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupContract {
    /// Which events the group is shown.
    pub filter: Filter,
    /// Where it began.
    pub start: Start,
    /// Whether events are acknowledged before they are handed over: at most once.
    pub no_ack: bool,
    /// How long a silent consumer is waited for; stale after twice this.
    pub grace_ms: u64,
}

impl GroupContract {
    /// The five fields of the contract, as both layouts compare and store them.
    #[must_use]
    pub fn fields(&self) -> [(&'static str, String); 5] {
        let (kind, value) = self.filter.parts();
        [
            ("filter_kind", kind.to_string()),
            ("filter_value", value),
            ("start_id", self.start.to_string()),
            ("no_ack", String::from(if self.no_ack { "1" } else { "0" })),
            ("ack_grace_ms", self.grace_ms.to_string()),
        ]
    }

    /// Reads the values of [`GroupContract::fields`]; `None` for anything else.
    #[must_use]
    pub fn parse(values: &[String]) -> Option<Self> {
        let [kind, value, start, no_ack, grace_ms] = values else { return None };
        let filter = Filter::of_parts(kind, value)?;
        let no_ack = match no_ack.as_str() {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        Some(Self { filter, start: Start::parse(start)?, no_ack, grace_ms: grace_ms.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_contract_is_read_from_its_fields() {
        let filters = [Filter::All, Filter::Topic("eu".into()), Filter::pattern("^eu").unwrap()];
        for filter in filters {
            let contract = GroupContract { filter, start: Start::Oldest, no_ack: true, grace_ms: 7 };
            let values: Vec<String> = contract.fields().map(|(_, value)| value).into();
            assert_eq!(GroupContract::parse(&values), Some(contract));
            assert_eq!(GroupContract::parse(&values[..4]), None);
        }
        let odd = ["some", "", "0", "0", "7"].map(String::from);
        assert_eq!(GroupContract::parse(&odd), None);
    }

    #[test]
    fn starts_are_compared_by_their_text() {
        assert_ne!(Start::parse("0"), Start::parse("0-0"));
        for text in ["$", "0", "0-0", "17-3"] {
            assert_eq!(Start::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Start::parse(">"), None);
        assert_eq!(Start::at_ms(5).to_string(), "5-0");
    }
}
