//! Keys of the Pulse layout, as scenarios name them, and what lies under one.

use std::collections::BTreeMap;
use strandline_core::stream::EventId;

/// What a key of the Pulse layout stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Part {
    /// The lifecycle record.
    Life,
    /// The log of a generation.
    Log(u64),
    /// The cursors.
    Recovery(u64),
    /// The idempotency records.
    Once(u64),
    /// The registry, which only the Pulse layout has.
    Registry(u64),
    /// A group's contract.
    Contract(u64, String),
    /// A group's lease.
    Lease(u64, String),
    /// The members of all groups.
    Members(u64),
    /// The keep-alives of a group.
    Alive(u64, String),
}

/// Takes a key apart into the stream's name and the part; `None` for a key of something else.
#[must_use]
pub fn parse(key: &str) -> Option<(String, Part)> {
    if let Some(rest) = key.strip_prefix("map:stream:") {
        let (name, rest) = rest.split_once(":generation:")?;
        let (generation, rest) = rest.split_once(':')?;
        let generation = generation.parse().ok()?;
        let part = if rest == "sinks:content" {
            Part::Members(generation)
        } else {
            let group = rest.strip_prefix("sink:")?.strip_suffix(":keepalive:content")?;
            Part::Alive(generation, group.to_string())
        };
        return Some((name.to_string(), part));
    }
    let rest = key.strip_prefix("pulse:stream:")?;
    if let Some(name) = rest.strip_suffix(":lifecycle") {
        return Some((name.to_string(), Part::Life));
    }
    if let Some((name, generation)) = rest.rsplit_once(":sink-recovery:") {
        let name = name.split(":generation:").next()?;
        return Some((name.to_string(), Part::Recovery(generation.parse().ok()?)));
    }
    let Some((name, rest)) = rest.split_once(":generation:") else {
        return Some((rest.to_string(), Part::Log(1)));
    };
    let (generation, part) = rest.split_once(':').unwrap_or((rest, ""));
    let generation = generation.parse().ok()?;
    let part = match part {
        "" => Part::Log(generation),
        "idempotency" => Part::Once(generation),
        "resources" => Part::Registry(generation),
        other => {
            let group = other.strip_prefix("sink:")?;
            match (group.strip_suffix(":config"), group.strip_suffix(":stalelease")) {
                (Some(group), _) => Part::Contract(generation, group.to_string()),
                (None, Some(group)) => Part::Lease(generation, group.to_string()),
                (None, None) => return None,
            }
        }
    };
    Some((name.to_string(), part))
}

/// What lies under a key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct View {
    /// The server's name of the type; empty when there is nothing.
    pub kind: &'static str,
    /// Fields of a hash.
    pub fields: BTreeMap<String, Vec<u8>>,
    /// Members of a set.
    pub members: Vec<String>,
    /// Positions of a stream's entries.
    pub ids: Vec<EventId>,
    /// Groups of a stream.
    pub groups: BTreeMap<String, GroupView>,
    /// When the key dies, in milliseconds of the server's clock.
    pub expires_at_ms: Option<u64>,
}

/// A group of a stream.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GroupView {
    /// How many entries are not settled.
    pub pending: u64,
    /// The last position that was given out.
    pub delivered: EventId,
    /// Consumers, and how many entries each has not settled.
    pub consumers: BTreeMap<String, u64>,
}

impl View {
    /// A hash, or nothing if it would have no field.
    #[must_use]
    pub fn hash(fields: BTreeMap<String, Vec<u8>>, expires_at_ms: Option<u64>) -> Self {
        if fields.is_empty() {
            return Self::default();
        }
        Self { kind: "hash", fields, expires_at_ms, ..Self::default() }
    }
}
