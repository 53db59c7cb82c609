//! Steps of subscribers, and what they were given.

use super::{Met, compare};
use crate::coverage::host::at_ms;
use crate::coverage::judge::{Answer, Received, numbers_of, resume_is};
use crate::coverage::resume::{PASSING, Wish, pass, resume, told_later};
use crate::coverage::scenario::Step;
use crate::coverage::world::{Sub, World, name};
use serde_json::Value;
use strandline_core::coverage::{From, HubTimes, Item, NotAdmitted, Subscribe, SubscribeError};

pub(super) fn subscribe(world: &mut World, step: &Step, instance: &str, topic: &str) -> Result<Met, String> {
    let sub = step.args.text("sub").ok_or("expected \"sub\"")?.to_owned();
    let limit = step.args.number("limit").filter(|limit| *limit > 0);
    let limit = limit.map(|limit| u32::try_from(limit).expect("a small limit"));
    let mut refused = None;
    for _ in 0..step.args.number("count").unwrap_or(1) {
        let now = at_ms(world.ms);
        let wish = Subscribe { client: None, from: From::Now, topic_subscribers_max: limit };
        let result = world.numbering(instance, |world| {
            let result = world.host(instance).hub.handle_subscribe(now, &name(topic), wish);
            world.pump();
            result
        });
        let id = match result {
            Ok(id) => Some(id),
            Err(error) => {
                refused = Some(error);
                None
            }
        };
        let new = Sub { instance: instance.into(), id, items: Vec::new(), closed: id.is_none() };
        world.subs.entry(sub.clone()).or_default().push(new);
    }
    let generation = world.host(instance).latest(topic);
    let number = generation.and_then(|id| world.generations.get(instance)?.iter().position(|g| *g == id));
    compare(world, step, |expect| {
        let wanted = expect.get("subscribed").and_then(Value::as_bool).unwrap_or(true);
        if wanted != refused.is_none() {
            return Err(format!("expected subscribed: {wanted}, found {refused:?}"));
        }
        let label = match refused {
            None => None,
            Some(SubscribeError::Closed) => Some(("channel", "closed")),
            Some(SubscribeError::TopicLimit { .. }) => Some(("refused", "topic_limit")),
            Some(SubscribeError::NotAdmitted(NotAdmitted::Total { .. })) => Some(("refused", "global")),
            Some(SubscribeError::NotAdmitted(NotAdmitted::Client { .. })) => Some(("refused", "per_user")),
            Some(SubscribeError::Topics { .. }) => Some(("refused", "topics")),
        };
        for field in ["channel", "refused"] {
            let found = label.filter(|(name, _)| *name == field).map(|(_, text)| text);
            let wanted = expect.get(field).and_then(Value::as_str);
            if wanted.is_some() && wanted != found {
                return Err(format!("expected {field} {wanted:?}, found {label:?}"));
            }
        }
        let wanted = expect.get("generation").and_then(Value::as_str);
        let found = number.map(|n| format!("g{}", n + 1));
        if wanted.is_some() && wanted != found.as_deref() {
            return Err(format!("expected the generation {wanted:?}, found {found:?}"));
        }
        Ok(())
    })
}

pub(super) fn unsubscribe(world: &mut World, sub: &str) {
    let now = at_ms(world.ms);
    let World { subs, hosts, .. } = world;
    for sub in subs.get_mut(sub).into_iter().flatten() {
        if let (Some(id), Some(host)) = (sub.id.take(), hosts.get_mut(&sub.instance)) {
            host.hub.handle_unsubscribe(now, id);
        }
        sub.items.clear();
        sub.closed = true;
    }
    world.pump();
}

pub(super) fn judge_resume(world: &mut World, step: &Step, wish: Wish<'_>) -> Result<Met, String> {
    let sub = wish.sub.unwrap_or(PASSING).to_owned();
    let resumed = resume(world, wish)?;
    let wanted = step.ideal.as_ref().unwrap_or(&step.expect).get("answer").and_then(Value::as_str);
    let answered = matches!(resumed.answer, Answer::Replay { .. });
    // Something was lost after the answer's word: then the word that follows counts.
    let told = (wanted == Some("sync_required") && answered).then(|| told_later(world, &sub));
    if let Answer::SyncRequired { at: None, .. } = resumed.answer {
        world.disturbed = true;
    }
    let met = compare(world, step, |expect| resume_is(world, &resumed, expect, told));
    pass(world);
    met
}

pub(super) fn received(world: &mut World, step: &Step) -> Result<Met, String> {
    let sub = step.args.text("sub").ok_or("expected \"sub\"")?.to_owned();
    world.collect(&sub);
    let signals = numbers_of(step.ideal.as_ref().and_then(|ideal| ideal.get("gap_signal_for")));
    let told = |world: &World| {
        let items = world.subs.get(&sub).map(|subs| subs[0].items.as_slice()).unwrap_or_default();
        let received = Received::of(world, items);
        signals.iter().all(|number| received.told_of(world, *number))
    };
    if !told(world) {
        // A loss that nothing shows is told within three heartbeats.
        let heartbeat_ms = HubTimes::default().heartbeat_ms;
        world.advance(3 * heartbeat_ms);
        world.collect(&sub);
    }
    let told = told(world);
    let found = world.subs.get_mut(&sub).and_then(|subs| subs.first_mut()).ok_or("no such subscriber")?;
    let (items, closed) = (std::mem::take(&mut found.items), found.closed);
    let received = Received::of(world, &items);
    let needless = !world.disturbed && received.notices.iter().any(|n| !matches!(n, Item::Gap { .. }));
    if needless {
        return Err(format!("nothing happened, and yet it was told {:?}", received.notices));
    }
    compare(world, step, |expect| {
        if expect.contains_key("gap_signal_for") {
            if !told {
                return Err(format!("expected to be told of {signals:?}, found {:?}", received.notices));
            }
            return received.is(&step.expect, closed);
        }
        received.is(expect, closed)
    })
}

pub(super) fn subscribers(world: &World, step: &Step, instance: &str, topic: &str) -> Result<(), String> {
    let hub = &world.hosts[instance].hub;
    let found =
        [("total", hub.subscribers()), ("topic", hub.topic(topic).map_or(0, |status| status.subscribers))];
    for (field, found) in found {
        let wanted = step.expect.get(field).and_then(Value::as_u64);
        if wanted.is_some_and(|wanted| wanted != found as u64) {
            return Err(format!("expected {field} {wanted:?}, found {found}"));
        }
    }
    Ok(())
}
