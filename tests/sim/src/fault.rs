//! The names of the faults, and how often each was injected.

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// A fault of the model; `docs/FAULTS.md` says what each one is.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        #[allow(missing_docs, reason = "docs/FAULTS.md describes each name")]
        pub enum Fault { $($name),* }

        impl Fault {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name in `docs/FAULTS.md`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

faults! {
    UnsyncedLost = "unsynced-lost",
    UnsyncedReordered = "unsynced-reordered",
    TornWrite = "torn-write",
    ZeroTail = "zero-tail",
    LostRename = "lost-rename",
    LostEntry = "lost-entry",
    ShortWrite = "short-write",
    FailedWrite = "failed-write",
    FailedSync = "failed-sync",
    Evicted = "evicted",
    FullDisk = "full-disk",
    FailedRead = "failed-read",
    BitFlip = "bit-flip",
    MisdirectedWrite = "misdirected-write",
    StaleSector = "stale-sector",
    InstantCompletion = "instant-completion",
    SlowCompletion = "slow-completion",
    OutOfOrder = "out-of-order-completion",
    StaleCompletion = "stale-completion",
    BlobLost = "blob-lost",
    BlobFailed = "blob-failed",
    BlobRotten = "blob-rotten",
    LinkBreak = "link-break",
    Delay = "delay",
    Reorder = "reorder",
    Split = "split",
    OneWayCut = "one-way-cut",
    HalfOpen = "half-open",
    DuplicateLink = "duplicate-link",
    HostileBytes = "hostile-bytes",
    ClockJump = "clock-jump",
    ClockStall = "clock-stall",
    ClockBackwards = "clock-backwards",
    Kill = "kill",
    PowerCut = "power-cut",
    CrashInRecovery = "crash-in-recovery",
    RecoverInPlace = "recover-in-place",
    Close = "close",
    RestoredBackup = "restored-backup",
    Restore = "restore",
    Reseed = "reseed",
    WipedDisk = "wiped-disk",
    SecondOpener = "second-opener",
    WrongMembers = "wrong-members",
    TwoNames = "two-names",
    TwoWriters = "two-writers",
    LostAuthority = "lost-authority",
    MovedAuthority = "moved-authority",
    WrongEpoch = "wrong-epoch",
    RemovedMember = "removed-member",
    LapsedMember = "lapsed-member",
}

/// How often each fault was injected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Counts([u64; Fault::ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; Fault::ALL.len()])
    }
}

impl Counts {
    /// Counts one.
    pub const fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// How often this one was injected.
    #[must_use]
    pub const fn get(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.0.iter_mut().zip(other.0) {
            *ours += theirs;
        }
    }

    /// Those that were never injected.
    #[must_use]
    pub fn missing(&self) -> Vec<Fault> {
        Fault::ALL.iter().copied().filter(|fault| self.get(*fault) == 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_a_promise() {
        let text = include_str!("../../../docs/FAULTS.md");
        for fault in Fault::ALL {
            assert!(text.contains(&format!("| `{}` |", fault.name())), "{}", fault.name());
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut counts = Counts::default();
        counts.add(Fault::Kill);
        assert_eq!(counts.missing().len(), Fault::ALL.len() - 1);
        assert!(!counts.missing().contains(&Fault::Kill));
    }
}
