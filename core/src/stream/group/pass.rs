//! The steps of a pass over the streams of a consumer.

use crate::stream::op::Verb;

/// One step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pass {
    Read,
    Settle,
    Repair,
}

impl Pass {
    /// Which step asks this; `None` for what no pass asks.
    pub(super) const fn of(verb: &Verb) -> Option<Self> {
        if matches!(verb, Verb::GroupRead { .. }) {
            Some(Self::Read)
        } else if matches!(verb, Verb::GroupAck { .. }) {
            Some(Self::Settle)
        } else if matches!(verb, Verb::GroupOpen { .. }) {
            Some(Self::Repair)
        } else {
            None
        }
    }
}
