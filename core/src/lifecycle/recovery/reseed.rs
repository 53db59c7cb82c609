//! A directory that begins anew: what its `current` says once its history was thrown away.

use crate::error::StorageFault;
use crate::id::{Incarnation, LogId, Run};
use crate::journal::command::SegmentNumber;
use crate::journal::current::Current;
use crate::lifecycle::opaque::{Opaque, floor_bytes};
use crate::record::Version;
use crate::seed::Seed;
use alloc::string::String;
use alloc::vec::Vec;

/// A replica whose history is to be thrown away, and what it is afterwards: a follower of the same log
/// under the same name that holds nothing, in another life.
///
/// The host moves every other file of the log out of the directory, durably, and then replaces
/// `current` with [`Reseeded::current`]: that is the commit point. A crash before it leaves a directory
/// that does not open, and doing it all again ends it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reseeded {
    /// The log.
    pub log: LogId,
    /// The replica's name.
    pub identity: String,
    /// The life that ends.
    pub before: Incarnation,
    /// The life that begins.
    pub after: Incarnation,
    /// The bytes of the new `current`.
    pub current: Vec<u8>,
}

impl Reseeded {
    /// Reads the `current` of a directory. `seed` must differ between calls.
    ///
    /// # Errors
    /// It is not what was written.
    pub fn of(current: &[u8], seed: &Seed) -> Result<Self, StorageFault> {
        let mut current = Current::decode(current)?;
        let before = current.incarnation;
        let after = Incarnation {
            counter: before.counter.wrapping_add(1),
            nonce: seed.bytes("incarnation of a reseeded replica", 0),
        };
        current.incarnation = after;
        current.run = Run(current.run.0 + 1);
        current.first_segment = SegmentNumber(1);
        current.next_checkpoint = 1;
        current.checkpoint = None;
        current.floor = floor_bytes(Version::ZERO);
        current.floor_digest = [0; 32];
        current.opaque =
            Opaque { chained: true, wanting: false, entered: false, checkpoint_records: 0, authority: None }
                .encode();
        let (log, identity) = (current.log, current.identity.clone());
        Ok(Self { log, identity, before, after, current: current.encode() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_life_of_the_same_name_that_writes_nothing_and_holds_nothing() {
        let authority = Some(crate::record::AuthorityId::from_text("a"));
        let current = Current {
            log: LogId([7; 16]),
            incarnation: Incarnation { counter: 3, nonce: [1; 8] },
            identity: "a".into(),
            namespaces: alloc::vec![b"files".to_vec()],
            run: Run(9),
            first_segment: SegmentNumber(4),
            next_checkpoint: 5,
            checkpoint: None,
            floor: floor_bytes(Version::new(1, 7)),
            floor_digest: [5; 32],
            opaque: Opaque { chained: true, wanting: false, entered: true, checkpoint_records: 0, authority }
                .encode(),
        };
        let reseeded = Reseeded::of(&current.encode(), &Seed::new([1; 32])).expect("readable");
        assert_eq!((reseeded.before.counter, reseeded.after.counter), (3, 4));
        assert_ne!(reseeded.before.nonce, reseeded.after.nonce);
        let after = Current::decode(&reseeded.current).expect("readable");
        let opaque = Opaque::decode(&after.opaque).expect("readable");
        assert_eq!((opaque.authority, opaque.entered), (None, false));
        assert_eq!((after.floor, after.run, after.first_segment), ([0; 16], Run(10), SegmentNumber(1)));
        assert_eq!(
            (after.log, after.identity, after.namespaces),
            (current.log, current.identity, current.namespaces)
        );
        assert!(Reseeded::of(b"not current", &Seed::new([1; 32])).is_err());
    }
}
