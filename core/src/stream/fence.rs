//! What a bound handle may still touch: the fence table.

use super::layout::Layout;
use super::op::{Bound, Nonce};

/// The part of a lifecycle record that the fence looks at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Current {
    /// Whether the generation is active; else it is a tombstone.
    pub active: bool,
    /// The generation.
    pub generation: u64,
    /// Its nonce; `None` in the Pulse layout.
    pub nonce: Option<Nonce>,
}

/// What the fence says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Fence {
    /// The handle's generation is there: go on.
    Go,
    /// The handle's generation was ended.
    Destroyed {
        /// The generation there is now, if there is a record.
        current: Option<u64>,
    },
    /// The server lost the handle's generation.
    Lost {
        /// The generation there is now, if there is a record.
        current: Option<u64>,
    },
}

/// The fence table.
///
/// A new space whose generation has passed the handle's reads as destroyed: a lost generation 1 and a
/// later generation 2 look like a destruction, which is a limit of the table.
///
/// The Pulse layout has no nonce. What the reference calls destroyed is called so there, except the
/// loss of a first generation's record, which a handle can make again.
pub fn fence(layout: Layout, current: Option<Current>, bound: &Bound) -> Fence {
    let Some(current) = current else {
        return match (layout, bound.generation) {
            (Layout::Tagged, _) | (Layout::Pulse, 1) => Fence::Lost { current: None },
            (Layout::Pulse, _) => Fence::Destroyed { current: None },
        };
    };
    let there = Some(current.generation);
    let same_nonce = current.nonce == bound.nonce;
    match (current.generation.cmp(&bound.generation), same_nonce, current.active, layout) {
        (core::cmp::Ordering::Equal, true, true, _) => Fence::Go,
        (core::cmp::Ordering::Equal, true, false, _) => Fence::Destroyed { current: there },
        (core::cmp::Ordering::Equal, false, _, _) => Fence::Lost { current: there },
        (core::cmp::Ordering::Greater, _, _, _) => Fence::Destroyed { current: there },
        (core::cmp::Ordering::Less, _, _, Layout::Tagged) => Fence::Lost { current: there },
        (core::cmp::Ordering::Less, _, _, Layout::Pulse) => Fence::Destroyed { current: there },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Option<Nonce> = Some(Nonce([1; 16]));
    const NEW: Option<Nonce> = Some(Nonce([2; 16]));

    const fn bound(generation: u64, nonce: Option<Nonce>) -> Bound {
        Bound { generation, nonce, contract: None }
    }

    const fn current(active: bool, generation: u64, nonce: Option<Nonce>) -> Option<Current> {
        Some(Current { active, generation, nonce })
    }

    #[test]
    fn an_absent_record_is_a_loss() {
        assert_eq!(fence(Layout::Tagged, None, &bound(2, OLD)), Fence::Lost { current: None });
        assert_eq!(fence(Layout::Pulse, None, &bound(1, None)), Fence::Lost { current: None });
    }

    #[test]
    fn pulse_calls_the_absence_of_a_later_generation_destroyed() {
        assert_eq!(fence(Layout::Pulse, None, &bound(2, None)), Fence::Destroyed { current: None });
    }

    #[test]
    fn the_same_active_generation_goes_on() {
        assert_eq!(fence(Layout::Tagged, current(true, 2, OLD), &bound(2, OLD)), Fence::Go);
        assert_eq!(fence(Layout::Pulse, current(true, 2, None), &bound(2, None)), Fence::Go);
    }

    #[test]
    fn the_same_generation_ended_is_destroyed() {
        let destroyed = Fence::Destroyed { current: Some(2) };
        assert_eq!(fence(Layout::Tagged, current(false, 2, OLD), &bound(2, OLD)), destroyed);
    }

    #[test]
    fn a_later_generation_means_destroyed_whatever_its_nonce() {
        let destroyed = Fence::Destroyed { current: Some(3) };
        for nonce in [OLD, NEW] {
            assert_eq!(fence(Layout::Tagged, current(true, 3, nonce), &bound(2, OLD)), destroyed);
        }
    }

    #[test]
    fn another_nonce_of_the_same_number_is_a_loss() {
        let lost = Fence::Lost { current: Some(2) };
        for active in [true, false] {
            assert_eq!(fence(Layout::Tagged, current(active, 2, NEW), &bound(2, OLD)), lost);
        }
    }

    #[test]
    fn an_earlier_generation_is_a_loss_and_destroyed_in_pulse() {
        let lost = Fence::Lost { current: Some(1) };
        assert_eq!(fence(Layout::Tagged, current(true, 1, NEW), &bound(2, OLD)), lost);
        let destroyed = Fence::Destroyed { current: Some(1) };
        assert_eq!(fence(Layout::Pulse, current(true, 1, None), &bound(2, None)), destroyed);
    }
}
