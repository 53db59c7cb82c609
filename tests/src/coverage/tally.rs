//! What happened over many schedules.

/// What happened over many seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Seeds.
    pub runs: u64,
    /// Events published.
    pub published: u64,
    /// Resumes answered complete.
    pub complete: u64,
    /// Clients told to synchronise.
    pub synced: u64,
    /// Those of them that had everything.
    pub needless: u64,
    /// How often each came, by the order of [`HAPPENINGS`].
    pub happened: [u64; HAPPENINGS.len()],
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.published += other.published;
        self.complete += other.complete;
        self.synced += other.synced;
        self.needless += other.needless;
        for (sum, more) in self.happened.iter_mut().zip(other.happened) {
            *sum += more;
        }
    }

    /// One of [`HAPPENINGS`] came.
    ///
    /// # Panics
    /// If there is no such name.
    pub fn count(&mut self, name: &str) {
        let index = HAPPENINGS.iter().position(|known| *known == name).expect("a name of the list");
        self.happened[index] += 1;
    }
}

/// What a schedule is made of: what clients and publishers do, then the faults.
pub const HAPPENINGS: [&str; 19] = [
    "publish",
    "subscribe",
    "drop",
    "reconnect",
    "history",
    "message-lost",
    "message-twice",
    "messages-swapped",
    "message-spoilt",
    "connection-lost",
    "half-open",
    "resubscribed",
    "counter-lost",
    "failover",
    "history-lost",
    "restart",
    "unreachable",
    "slow-reader",
    "reply-lost",
];
