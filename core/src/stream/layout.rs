//! The two ways a stream lies in a server, and the keys of each.

use super::error::{CallerError, Setting};
use super::name::{GroupName, StreamName, Tag, escape};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Whose keys, and with them whose rules where the two differ.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Layout {
    /// Ours: generations have a nonce, every key is declared, all keys of a stream share a slot.
    Tagged,
    /// goadesign/pulse's keys and values, so that both can share a server.
    Pulse,
}

impl Layout {
    /// Whether a stream of this name can live in the layout.
    ///
    /// # Errors
    /// `InvalidOption` for a name that would fall on another name's internal key. The Pulse layout does
    /// not escape names; the Tagged one does, and takes every name.
    pub fn admits(self, name: &StreamName) -> Result<(), CallerError> {
        match self {
            Self::Tagged => Ok(()),
            Self::Pulse if pulse_reserved(name.as_str()) => {
                Err(CallerError::InvalidOption { setting: Setting::Name })
            }
            Self::Pulse => Ok(()),
        }
    }
}

/// Names that end in, or pass through, a part that the Pulse layout puts behind a name.
fn pulse_reserved(name: &str) -> bool {
    let numbered = |part: &str| {
        name.match_indices(part).any(|(at, _)| {
            let rest = &name[at + part.len()..];
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            digits > 0 && (rest.len() == digits || rest.as_bytes()[digits] == b':')
        })
    };
    name.ends_with(":lifecycle") || numbered(":generation:") || numbered(":sink-recovery:")
}

/// The keys of one generation in the Pulse layout. Source: goadesign/pulse, pull request 82.
#[derive(Clone, Copy, Debug)]
pub struct PulseKeys<'a> {
    /// The stream.
    pub stream: &'a StreamName,
    /// The generation, from 1.
    pub generation: u64,
}

impl PulseKeys<'_> {
    /// The data key of generation 1, and the beginning of most other keys.
    #[must_use]
    pub fn flat(&self) -> String {
        format!("pulse:stream:{}", self.stream)
    }

    /// The lifecycle record; one for all generations.
    #[must_use]
    pub fn life(&self) -> String {
        format!("{}:lifecycle", self.flat())
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> String {
        if self.generation == 1 { self.flat() } else { self.owned() }
    }

    fn owned(&self) -> String {
        format!("{}:generation:{}", self.flat(), self.generation)
    }

    /// The cursors of the groups.
    #[must_use]
    pub fn recovery(&self) -> String {
        format!("{}:sink-recovery:{}", self.log(), self.generation)
    }

    /// The idempotency records.
    #[must_use]
    pub fn once(&self) -> String {
        format!("{}:idempotency", self.owned())
    }

    /// The list of keys to remove with the generation.
    #[must_use]
    pub fn registry(&self) -> String {
        format!("{}:resources", self.owned())
    }

    /// The contract of a group.
    #[must_use]
    pub fn group_contract(&self, group: &GroupName) -> String {
        format!("{}:sink:{group}:config", self.owned())
    }

    /// The lease of a group.
    #[must_use]
    pub fn group_lease(&self, group: &GroupName) -> String {
        format!("{}:sink:{group}:stalelease", self.owned())
    }

    /// The members of all groups.
    #[must_use]
    pub fn members(&self) -> String {
        format!("map:stream:{}:generation:{}:sinks:content", self.stream, self.generation)
    }

    /// The keep-alives of a group.
    #[must_use]
    pub fn alive(&self, group: &GroupName) -> String {
        format!("map:stream:{}:generation:{}:sink:{group}:keepalive:content", self.stream, self.generation)
    }
}

/// The keys of a stream in the Tagged layout: `prefix:{tag}:name:…`, all of one slot.
#[derive(Clone, Debug)]
pub struct TaggedKeys {
    stem: String,
}

impl TaggedKeys {
    /// Keys of `stream` below `prefix`; its slot is decided by `tag`.
    #[must_use]
    pub fn new(prefix: &StreamName, tag: &Tag, stream: &StreamName) -> Self {
        let stem = format!("{}:{{{}}}:{}", escape(prefix.as_str()), tag.escaped(), escape(stream.as_str()));
        Self { stem }
    }

    /// The lifecycle record; one for all generations.
    #[must_use]
    pub fn life(&self) -> String {
        format!("{}:life", self.stem)
    }

    /// The five keys of one generation: log, records, instants of the records, groups, dead letters.
    #[must_use]
    pub fn generation(&self, generation: u64) -> [String; 5] {
        ["log", "once", "once-at", "groups", "dead"].map(|part| format!("{}:{generation}:{part}", self.stem))
    }

    /// Everything a script may touch for a handle that is bound to `generation`: the record, and that
    /// generation.
    #[must_use]
    pub fn of_bound(&self, generation: u64) -> Vec<String> {
        let mut keys = Vec::with_capacity(11);
        keys.push(self.life());
        keys.extend(self.generation(generation));
        keys
    }

    /// What of it a script may touch that only adds an event: the record, the log, and the groups.
    #[must_use]
    pub fn of_bound_publisher(&self, generation: u64) -> Vec<String> {
        let [log, _, _, groups, _] = self.generation(generation);
        Vec::from([self.life(), log, groups])
    }

    /// Everything a script may touch that was told to look at `generation` by a handle that is bound to
    /// none: the record, that generation, and the one that follows it.
    #[must_use]
    pub fn of_unbound(&self, generation: u64) -> Vec<String> {
        let mut keys = self.of_bound(generation);
        keys.extend(self.generation(generation.saturating_add(1)));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> StreamName {
        StreamName::new(text).unwrap()
    }

    #[test]
    fn pulse_refuses_names_that_are_keys_of_others() {
        let refused = [
            "orders:lifecycle",
            "orders:generation:2",
            "orders:generation:2:resources",
            "orders:sink-recovery:1",
            "orders:generation:2:sink-recovery:2",
        ];
        for text in refused {
            assert!(Layout::Pulse.admits(&name(text)).is_err(), "{text}");
            assert!(Layout::Tagged.admits(&name(text)).is_ok(), "{text}");
        }
        for text in ["orders", "lifecycle", "a:lifecycle:b", "a:generation:x", "a:generation:2b"] {
            assert!(Layout::Pulse.admits(&name(text)).is_ok(), "{text}");
        }
    }

    #[test]
    fn pulse_keys_of_the_first_generation_are_flat() {
        let stream = name("orders");
        let keys = |generation| PulseKeys { stream: &stream, generation };
        assert_eq!(keys(1).log(), "pulse:stream:orders");
        assert_eq!(keys(2).log(), "pulse:stream:orders:generation:2");
        assert_eq!(keys(1).recovery(), "pulse:stream:orders:sink-recovery:1");
        assert_eq!(keys(2).recovery(), "pulse:stream:orders:generation:2:sink-recovery:2");
    }

    #[test]
    fn tagged_names_cannot_collide() {
        let (prefix, tag) = (name("p"), Tag::new(name("t")));
        let keys = |text| TaggedKeys::new(&prefix, &tag, &name(text));
        assert_eq!(keys("a").life(), "p:{t}:a:life");
        assert_eq!(keys("a:1").generation(2)[0], "p:{t}:a%3A1:2:log");
        assert_ne!(keys("a:1").life(), keys("a").generation(1)[0]);
        assert_eq!(keys("a").of_unbound(3).len(), 11);
        assert_eq!(keys("a").of_bound_publisher(3), ["p:{t}:a:life", "p:{t}:a:3:log", "p:{t}:a:3:groups"]);
    }
}
