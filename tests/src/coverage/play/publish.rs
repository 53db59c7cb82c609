//! Steps that publish, and what arrives from elsewhere.

use super::surroundings::counter_reset;
use super::{Met, compare};
use crate::coverage::host::at_ms;
use crate::coverage::judge::numbers_of;
use crate::coverage::scenario::Step;
use crate::coverage::world::{World, name};
use serde_json::Value;
use strandline_core::coverage::{Mark, Outcome, Position, Publish, PublishError, Publishing, SubscriptionId};

pub(super) fn publish(world: &mut World, step: &Step, instance: &str, topic: &str) -> Result<Met, String> {
    let count = step.args.number("count").unwrap_or(1);
    let copies = step.args.number("copies").unwrap_or(1);
    let token = step.args.text("token").map(str::to_owned);
    let mut numbers = Vec::new();
    let mut error = None;
    let mut repeated = false;
    for one in 0..count {
        let token = token.clone().or_else(|| (copies > 1).then(|| format!("copy {one}")));
        for _ in 0..copies {
            match publish_one(world, instance, topic, token.as_deref()) {
                Ok((number, again)) => {
                    repeated |= again && copies == 1;
                    if !numbers.contains(&number) {
                        numbers.push(number);
                    }
                }
                Err(e) => error = Some(e),
            }
        }
    }
    compare(world, step, |expect| {
        if let Some(wanted) = expect.get("error").and_then(Value::as_str) {
            return if error == Some(wanted) {
                Ok(())
            } else {
                Err(format!("expected {wanted:?}, found {error:?}"))
            };
        }
        if expect.get("published").and_then(Value::as_bool) == Some(false) {
            return error.map(|_| ()).ok_or_else(|| "expected nothing published".to_owned());
        }
        if let Some(error) = error {
            return Err(format!("found the error {error:?}"));
        }
        let wanted = match (expect.get("id").and_then(Value::as_u64), expect.get("ids")) {
            // The reference answers a repeated token with zero; here it is the first publish's place.
            (Some(0), _) => return repeated.then_some(()).ok_or_else(|| "expected a repeat".to_owned()),
            (Some(id), _) => vec![id],
            (None, ids) => {
                let ends = numbers_of(ids);
                let (Some(first), Some(last)) = (ends.first(), ends.last()) else { return Ok(()) };
                (*first..=*last).collect()
            }
        };
        if wanted == numbers { Ok(()) } else { Err(format!("expected {wanted:?}, found {numbers:?}")) }
    })
}

fn publish_one(
    world: &mut World,
    instance: &str,
    topic: &str,
    token: Option<&str>,
) -> Result<(u64, bool), &'static str> {
    let now = at_ms(world.ms);
    let next = world.space().last + 1;
    let payload = next.to_string().into_bytes();
    let publish = Publish { token, ..Publish::new(&payload) };
    let positioned = !world.setup.shared && !world.contiguous;
    let hub = &mut world.host(instance).hub;
    let result = if positioned {
        let at = hub.handle_publish_at(now, &name(topic), Position::sequence(next), publish);
        at.map(|mark| (mark, false))
    } else {
        match hub.handle_publish(now, &name(topic), publish) {
            Ok(Publishing::Done(accepted)) => Ok((accepted.mark, accepted.repeated)),
            Ok(Publishing::Sent(id)) => {
                world.pump();
                match world.host(instance).outcomes.remove(&id) {
                    Some(Outcome::Accepted(accepted)) => Ok((accepted.mark, accepted.repeated)),
                    Some(Outcome::NoSequence) => return Err("no_id"),
                    Some(Outcome::Refused(_)) => return Err("refused"),
                    Some(Outcome::Uncertain(_)) => return Err("unconfirmed"),
                    None => return Err("no outcome"),
                }
            }
            Err(error) => Err(error),
        }
    };
    let (mark, repeated) = match result {
        Ok(done) => done,
        Err(PublishError::Closed) => return Err("closed"),
        Err(_) => return Err("refused"),
    };
    if !repeated {
        world.note(next, mark);
    }
    world.pump();
    world.number(mark).map(|number| (number, repeated)).ok_or("an unknown position")
}

pub(super) fn deliver(world: &mut World, step: &Step, instance: &str, topic: &str) -> Result<(), String> {
    let number = step.args.number("id").ok_or("expected \"id\"")?;
    let space = step.args.text("epoch").map(|epoch| space_of_epoch(world, epoch));
    let old = space.filter(|space| space + 1 < world.spaces.len()).and_then(|space| {
        let space = &world.spaces[space];
        let position = Position::sequence(*space.positions.get(&number)?);
        Some(Mark { incarnation: space.incarnation?, position })
    });
    let mark = match old {
        Some(mark) => mark,
        None => world.publish_elsewhere(topic, number)?,
    };
    let id = match step.args.text("gen") {
        Some(generation) => generation_of(world, instance, generation)?,
        None => world.host(instance).latest(topic).ok_or("nothing is subscribed")?,
    };
    world.deliver(instance, id, mark, number);
    Ok(())
}

/// Which ID space the reference's name of one stands for. A name that was not heard begins the space
/// of now, or if that has a name already, another one.
fn space_of_epoch(world: &mut World, epoch: &str) -> usize {
    if let Some(space) = world.epochs.get(epoch) {
        return *space;
    }
    let now = world.spaces.len() - 1;
    if world.epochs.values().any(|space| *space == now) {
        counter_reset(world, true);
    }
    let now = world.spaces.len() - 1;
    world.epochs.insert(epoch.into(), now);
    now
}

pub(super) fn generation_of(
    world: &World,
    instance: &str,
    generation: &str,
) -> Result<SubscriptionId, String> {
    let index =
        generation.strip_prefix('g').and_then(|n| n.parse::<usize>().ok()).and_then(|n| n.checked_sub(1));
    let list = world.generations.get(instance);
    let id = index.and_then(|index| list?.get(index).copied());
    id.ok_or_else(|| format!("generation {generation:?} did not begin"))
}
