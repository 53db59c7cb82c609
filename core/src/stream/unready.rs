//! Why a server that answers does not do its work now, and when to ask again.

use core::fmt;

/// When an operation that was not done may be asked again with hope.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Again {
    /// It passes by itself.
    Soon,
    /// Another server is the master now: it is to be found anew.
    Elsewhere,
    /// Somebody has to change something at the server first.
    Later,
    /// Not at all: the answer would be the same.
    Never,
}

macro_rules! unready {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $again:ident, $text:literal;)*) => {
        /// Why. Each is said by a word that comes before anything of the operation was done.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Unready { $($(#[$doc])* $name),* }

        impl Unready {
            /// Every reason.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word that the server says it by.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// When to ask again.
            #[must_use]
            pub const fn again(self) -> Again {
                match self { $(Self::$name => Again::$again),* }
            }
        }

        impl fmt::Display for Unready {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text),* })
            }
        }
    };
}

unready! {
    /// It reads its data after a start.
    Loading = "LOADING", Soon, "it is loading its data";
    /// It runs a script that takes too long.
    Busy = "BUSY", Soon, "it is busy with a script";
    /// Nobody serves this slot of the cluster.
    ClusterDown = "CLUSTERDOWN", Soon, "the cluster does not serve this slot";
    /// The slot is on its way to another master, and not all of it is there yet.
    SlotMoving = "TRYAGAIN", Soon, "the slot is moving to another master";
    /// It is a replica that lost its master.
    MasterDown = "MASTERDOWN", Elsewhere, "it is a replica without a master";
    /// It is a replica: perhaps it was the master before.
    ReadOnly = "READONLY", Elsewhere, "it is a replica and takes no writes";
    /// Its memory is full.
    OutOfMemory = "OOM", Later, "its memory is full";
    /// Too few replicas follow for it to take writes.
    TooFewReplicas = "NOREPLICAS", Later, "too few replicas follow it";
    /// It could not write its data to disk.
    CannotPersist = "MISCONF", Later, "it cannot write its data to disk";
}

impl Unready {
    /// The reason that a word of the server stands for.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|why| why.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_back_and_says_when() {
        for why in Unready::ALL {
            assert_eq!(Unready::of(why.word()), Some(*why));
            assert_ne!(why.again(), Again::Never, "{why}");
        }
        assert_eq!(Unready::of("WRONGTYPE"), None);
    }

    #[test]
    fn what_passes_what_moves_and_what_stays() {
        assert_eq!(Unready::Loading.again(), Again::Soon);
        assert_eq!(Unready::Busy.again(), Again::Soon);
        assert_eq!(Unready::ClusterDown.again(), Again::Soon);
        assert_eq!(Unready::SlotMoving.again(), Again::Soon);
        assert_eq!(Unready::MasterDown.again(), Again::Elsewhere);
        assert_eq!(Unready::ReadOnly.again(), Again::Elsewhere);
        assert_eq!(Unready::OutOfMemory.again(), Again::Later);
        assert_eq!(Unready::TooFewReplicas.again(), Again::Later);
        assert_eq!(Unready::CannotPersist.again(), Again::Later);
    }
}
