//! Ending a generation with everything it owns.

use super::Step;
use super::space::Space;
use crate::stream::reply::Told;

pub(super) fn destroy(step: &Step<'_>, space: &mut Space) -> Told {
    let Some(life) = space.life.as_mut().filter(|life| life.active) else {
        return Told::Destroyed { now: false };
    };
    life.active = false;
    space.data.remove(&step.life().generation);
    Told::Destroyed { now: true }
}
