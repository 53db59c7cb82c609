//! When something is asked again after an unknown outcome, and how long is waited before.

use crate::seed::Seed;
use crate::stream::limits::REST_MS_MAX;
use crate::stream::op::{Repeat, StreamOp, Verb};

/// How often a call is asked again before its caller is told.
pub(super) const CALL_REPEATS_MAX: u32 = 3;

/// The first wait, which doubles with every failure in a row.
const WAIT_MS_MIN: u64 = 50;

/// Whether a call is asked again. Its type says so; and an unbound handle must not ask twice to destroy,
/// or it would end a generation that others made after the one it meant.
pub(super) fn call(op: &StreamOp, unanswered: u32) -> bool {
    let means_one_generation = op.verb != Verb::Destroy || op.by.bound.is_some();
    op.verb.repeat() == Repeat::Safe && means_one_generation && unanswered < CALL_REPEATS_MAX
}

/// How long to wait after so many failures in a row. Spread out, so that those who failed together do
/// not come back together: between half and the whole of a time that doubles.
pub(super) fn wait_ms(seed: &Seed, who: u64, failures: u32) -> u64 {
    let doubled = WAIT_MS_MIN.saturating_mul(1 << failures.min(10)).min(REST_MS_MAX);
    let label = who.wrapping_mul(31).wrapping_add(u64::from(failures));
    doubled / 2 + seed.number("backoff", label) % (doubled / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::event::Event;
    use crate::stream::handle::Handle;
    use crate::stream::layout::Layout;
    use crate::stream::name::StreamName;
    use crate::stream::op::{Bound, Condition, Nonce};
    use crate::stream::reply::{StreamReply, Told};
    use crate::stream::retention::Wanted;

    fn handle() -> Handle {
        Handle::new(StreamName::new("s").unwrap(), Wanted::default(), Layout::Tagged).unwrap()
    }

    #[test]
    fn what_may_be_done_twice_is_asked_again_a_few_times() {
        let op = handle().op(Verb::Snapshot, Nonce([0; 16]));
        assert!(call(&op, 0));
        assert!(!call(&op, CALL_REPEATS_MAX));
    }

    #[test]
    fn a_publication_without_a_key_is_not_asked_again() {
        let event = Event::new("e", "").unwrap();
        let add = Verb::Add { event, condition: Condition::Always };
        assert!(!call(&handle().op(add, Nonce([0; 16])), 0));
    }

    #[test]
    fn only_a_bound_handle_asks_again_to_destroy() {
        let mut handle = handle();
        assert!(!call(&handle.op(Verb::Destroy, Nonce([0; 16])), 0));
        let bound = Bound { generation: 1, nonce: None, contract: None };
        handle.answered(&Verb::Open, &Ok(StreamReply { bound, told: Told::Done }));
        assert!(call(&handle.op(Verb::Destroy, Nonce([0; 16])), 0));
    }

    #[test]
    fn waits_grow_to_a_bound_and_are_spread() {
        let seed = Seed::new([1; 32]);
        let longest_ms = [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000, 5000];
        for (failures, longest_ms) in (1..).zip(longest_ms) {
            for who in 0..200 {
                let wait = wait_ms(&seed, who, failures);
                assert!((longest_ms / 2..=longest_ms).contains(&wait), "{failures}: {wait}");
            }
        }
        assert!((2500..=5000).contains(&wait_ms(&seed, 7, u32::MAX)));
        let all: alloc::collections::BTreeSet<u64> = (0..50).map(|who| wait_ms(&seed, who, 8)).collect();
        assert!(all.len() > 10);
    }
}
