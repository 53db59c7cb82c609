//! Which generation a step is done on: bound handles by the fence, unbound ones by what is there.

use super::space::{Life, Space};
use crate::stream::error::{CallerError, Mismatch, StreamError};
use crate::stream::fence::{Current, Fence, fence};
use crate::stream::layout::Layout;
use crate::stream::op::{Bound, By, Creates, StreamOp, Verb};
use crate::stream::retention::Contract;
use crate::stream::time::ServerTime;

/// The generation of a step, and whether the step writes its record.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) life: Life,
    pub(super) write: Write,
}

/// What becomes of the record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Write {
    /// It stays as it is.
    Nothing,
    /// A generation is made: what an earlier incarnation left under its number goes, except the log
    /// that a first generation of the Pulse layout adopts.
    Make,
    /// A lost record is written again; data that is left is kept.
    Restore,
}

/// The checks that come before what the operation itself looks at. Nothing is written.
pub(super) fn plan(
    layout: Layout,
    life: Option<&Life>,
    now: ServerTime,
    op: &StreamOp,
) -> Result<Plan, StreamError> {
    let plan = match &op.by.bound {
        Some(bound) => follow(layout, life, bound, op)?,
        None => find(layout, life, now, op)?,
    };
    if op.verb.checks().clock {
        not_elapsed(&plan.life.contract, now)?;
    }
    Ok(plan)
}

/// A bound handle: the fence, then the contract.
fn follow(layout: Layout, life: Option<&Life>, bound: &Bound, op: &StreamOp) -> Result<Plan, StreamError> {
    let current =
        life.map(|life| Current { active: life.active, generation: life.generation, nonce: life.nonce });
    let verdict = fence(layout, current, bound);
    match (verdict, life) {
        // Without a nonce the handle's memory is all that tells the generation it saw end from another
        // one with that number.
        (Fence::Go, Some(_)) if layout == Layout::Pulse && op.by.ended => {
            Err(CallerError::StreamDestroyed { current: None }.into())
        }
        (Fence::Go, Some(life)) => {
            let fits = !op.verb.checks().contract || bound.contract.is_none_or(|c| c == life.contract);
            if fits { Ok(Plan { life: life.clone(), write: Write::Nothing }) } else { mismatch() }
        }
        // An ended generation may be told so again by the destroy that every handle may repeat.
        (Fence::Destroyed { .. }, Some(life))
            if op.verb == Verb::Destroy && life.generation == bound.generation =>
        {
            Ok(Plan { life: life.clone(), write: Write::Nothing })
        }
        (Fence::Destroyed { current }, _) => Err(CallerError::StreamDestroyed { current }.into()),
        (Fence::Lost { current }, _) => match layout {
            Layout::Tagged => Err(CallerError::StreamLost { current }.into()),
            Layout::Pulse => restore(bound, op),
        },
        (Fence::Go, None) => unreachable!("the fence lets nobody pass without a record"),
    }
}

/// The Pulse layout after a loss: who makes or attends writes the record again, the others find nothing.
fn restore(bound: &Bound, op: &StreamOp) -> Result<Plan, StreamError> {
    if op.by.ended {
        return Err(CallerError::StreamDestroyed { current: None }.into());
    }
    match bound.contract {
        Some(contract) if op.verb.restores() => {
            let life = Life { active: true, generation: bound.generation, nonce: None, contract };
            Ok(Plan { life, write: Write::Restore })
        }
        Some(_) | None => Err(CallerError::StreamNotFound.into()),
    }
}

/// An unbound handle: what is there, or a generation it makes.
fn find(layout: Layout, life: Option<&Life>, now: ServerTime, op: &StreamOp) -> Result<Plan, StreamError> {
    let creates = op.verb.creates();
    let by = &op.by;
    if creates == Creates::Yes && op.verb.checks().wanted_first {
        not_elapsed(&by.wanted.contract, now)?;
    }
    match (life, creates) {
        (Some(life), _) if life.active => {
            if by.wanted.explicit && by.wanted.contract != life.contract {
                return mismatch();
            }
            Ok(Plan { life: life.clone(), write: Write::Nothing })
        }
        (None, Creates::No) => Err(CallerError::StreamNotFound.into()),
        (Some(life), Creates::No) => {
            Err(CallerError::StreamDestroyed { current: Some(life.generation) }.into())
        }
        (None, Creates::Yes) => Ok(make(layout, by, 1)),
        (Some(tombstone), Creates::Yes) => Ok(make(layout, by, tombstone.generation + 1)),
    }
}

fn make(layout: Layout, by: &By, generation: u64) -> Plan {
    let nonce = match layout {
        Layout::Tagged => Some(by.nonce),
        Layout::Pulse => None,
    };
    let life = Life { active: true, generation, nonce, contract: by.wanted.contract };
    Plan { life, write: Write::Make }
}

fn mismatch() -> Result<Plan, StreamError> {
    Err(CallerError::ConfigMismatch { kind: Mismatch::Contract }.into())
}

/// A deadline has elapsed once the server's clock has reached it.
pub(super) fn not_elapsed(contract: &Contract, now: ServerTime) -> Result<(), StreamError> {
    match contract.deadline_ms() {
        Some(deadline_ms) if now.has_reached(deadline_ms) => {
            Err(CallerError::DeadlineElapsed { deadline_ms, now_ms: now.ms() }.into())
        }
        Some(_) | None => Ok(()),
    }
}

impl Plan {
    /// What the handle is bound to after the step.
    pub(super) const fn bound(&self) -> Bound {
        Bound { generation: self.life.generation, nonce: self.life.nonce, contract: Some(self.life.contract) }
    }

    /// Writes the record. Called once every check has passed, before the first effect.
    pub(super) fn commit(&self, layout: Layout, space: &mut Space) {
        match self.write {
            Write::Nothing => return,
            Write::Restore => {}
            Write::Make if layout == Layout::Pulse && self.life.generation == 1 => {
                // The contract's bound holds from the first moment, also over adopted entries.
                let log = space.data.get_mut(&1).and_then(|data| data.log.as_mut());
                if let (Some(log), Some(max_len)) = (log, self.life.contract.max_len) {
                    log.trim(max_len.get());
                }
            }
            Write::Make => {
                space.data.remove(&self.life.generation);
            }
        }
        space.life = Some(self.life.clone());
    }
}
