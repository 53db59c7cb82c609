//! Whether a server may throw away what streams are made of.
//!
//! A server that has come to its limit of memory (`maxmemory`) evicts keys by its policy. A stream is more
//! than its log: a lifecycle record that is evicted is a stream that was lost, and an idempotency record
//! that is evicted lets an event be published twice. Source: Redis documentation, key eviction; fields
//! `maxmemory` and `maxmemory_policy` of `INFO memory`, Redis 7.0.

/// What a server does with keys when it has no memory left.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Eviction {
    /// It refuses writes, or has no limit: nothing is evicted.
    Nothing,
    /// It evicts keys that have an expiry: logs and idempotency records of streams with a TTL or a deadline,
    /// and everything of a group with a deadline, before their time. Lifecycle records never have one.
    Expiring,
    /// It evicts any key: whole streams, without a word.
    Anything,
}

impl Eviction {
    /// Reads the answer to `INFO memory`. `None` when it does not say.
    ///
    /// ```
    /// use strandline_core::stream::eviction::Eviction;
    /// let info = "maxmemory:1048576\r\nmaxmemory_policy:allkeys-lru\r\n";
    /// assert_eq!(Eviction::parse(info), Some(Eviction::Anything));
    /// ```
    #[must_use]
    pub fn parse(info: &str) -> Option<Self> {
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let policy = field("maxmemory_policy")?;
        if field("maxmemory")? == "0" {
            return Some(Self::Nothing);
        }
        match policy.split_once('-').map_or(policy, |(keys, _)| keys) {
            "noeviction" => Some(Self::Nothing),
            "volatile" => Some(Self::Expiring),
            "allkeys" => Some(Self::Anything),
            _ => None,
        }
    }

    /// What a person must know; `None` where there is nothing to fear.
    #[must_use]
    pub const fn warning(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Expiring => Some(
                "under memory pressure this server evicts keys that expire: streams with a TTL or a deadline may \
                 lose events and idempotency records before their time",
            ),
            Self::Anything => Some(
                "under memory pressure this server evicts any key: whole streams may vanish; set \
                 maxmemory-policy to noeviction",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn parsed(maxmemory: u64, policy: &str) -> Option<Eviction> {
        Eviction::parse(&format!("# Memory\r\nmaxmemory:{maxmemory}\r\nmaxmemory_policy:{policy}\r\n"))
    }

    #[test]
    fn without_a_limit_nothing_is_evicted() {
        assert_eq!(parsed(0, "allkeys-lru"), Some(Eviction::Nothing));
        assert_eq!(Eviction::Nothing.warning(), None);
    }

    #[test]
    fn a_server_that_refuses_writes_evicts_nothing() {
        assert_eq!(parsed(1, "noeviction"), Some(Eviction::Nothing));
    }

    #[test]
    fn a_server_that_evicts_what_expires_may_end_it_early() {
        for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
            assert_eq!(parsed(1, policy), Some(Eviction::Expiring));
        }
        assert!(Eviction::Expiring.warning().is_some());
    }

    #[test]
    fn a_server_that_evicts_anything_may_lose_streams() {
        for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
            assert_eq!(parsed(1, policy), Some(Eviction::Anything));
        }
        assert!(Eviction::Anything.warning().is_some());
    }

    #[test]
    fn what_nobody_knows_is_not_guessed() {
        assert_eq!(parsed(1, "oldest-first"), None);
        assert_eq!(Eviction::parse("maxmemory:1\r\n"), None);
        assert_eq!(Eviction::parse(""), None);
    }
}
