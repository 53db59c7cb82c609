//! Plays scenarios, and says what was met.

use super::host::at_ms;
use super::judge::{Answer, Received, numbers_of, resume_is};
use super::resume::{PASSING, Wish, after_close, from_header, from_of, pass, resume, told_later};
use super::scenario::{Scenario, Step};
use super::world::{INSTANCE, STREAM, Sub, World, name};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use strandline_core::compat::pad::{Names, read_event, read_notification};
use strandline_core::coverage::{
    Admission, EndReason, From, LostReason, NotAdmitted, Outcome, Position, Publish, PublishError,
    Publishing, Subscribe, SubscribeError, SubscriptionId, Upstream,
};

use super::broker::{ModelServer, Server};

/// What a step was compared with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Met {
    /// There is one right answer, and it was given.
    Expected,
    /// The right answer, where the reference's differs.
    Ideal,
    /// A needless resynchronisation, as the reference has it.
    Spurious,
}

/// What was played.
#[derive(Debug, Default)]
pub struct Report {
    /// Scenarios whose every step was right.
    pub right: Vec<String>,
    /// What was not.
    pub failures: Vec<String>,
    /// Scenarios that must be tests by hand.
    pub prose: Vec<String>,
    /// Steps that had to be right where the reference is not, and were.
    pub ideals: u32,
    /// Needless resynchronisations of the reference that are none here.
    pub spurious_met: Vec<String>,
    /// Those that are.
    pub spurious_unmet: Vec<String>,
}

/// Plays a list of scenarios before the model of a server.
#[must_use]
pub fn play(scenarios: &[Scenario]) -> Report {
    play_over(scenarios, || Box::<ModelServer>::default())
}

/// Plays a list of scenarios, each before a server of its own.
#[must_use]
pub fn play_over(scenarios: &[Scenario], server: impl Fn() -> Box<dyn Server>) -> Report {
    let mut report = Report::default();
    for scenario in scenarios {
        if scenario.check == "prose" {
            report.prose.push(scenario.id.clone());
            continue;
        }
        match one(scenario, server(), &mut report) {
            Ok(()) => report.right.push(scenario.id.clone()),
            Err(failure) => report.failures.push(format!("{} {}: {failure}", scenario.id, scenario.title)),
        }
    }
    report
}

fn one(scenario: &Scenario, server: Box<dyn Server>, report: &mut Report) -> Result<(), String> {
    let mut world = World::new(scenario, server);
    let mut admission = Budget::new(scenario);
    for (number, step) in scenario.steps.iter().enumerate() {
        let met = match step.op.as_str() {
            "admit" => admission.admit(step).map(|()| Met::Expected),
            "release" => admission.release(step).map(|()| Met::Expected),
            _ => self::step(&mut world, step),
        };
        let place = format!("{} step {number}", scenario.id);
        match met.map_err(|e| format!("step {number} {}: {e}", step.op))? {
            Met::Expected => {}
            Met::Ideal if scenario.ideal_binds() => report.ideals += 1,
            Met::Ideal => report.spurious_met.push(place),
            Met::Spurious => report.spurious_unmet.push(place),
        }
    }
    Ok(())
}

/// Compares what was observed with the step's expectation, or the right answer where it differs.
fn compare(
    world: &World,
    step: &Step,
    is: impl Fn(&Map<String, Value>) -> Result<(), String>,
) -> Result<Met, String> {
    let Some(ideal) = &step.ideal else { return is(&step.expect).map(|()| Met::Expected) };
    match is(ideal) {
        Ok(()) => Ok(Met::Ideal),
        Err(e) if world.setup.ideal_binds() => Err(format!("the right answer: {e}")),
        Err(_) => is(&step.expect).map(|()| Met::Spurious),
    }
}

/// Plays one step.
///
/// # Errors
/// Saying what differs, or that the step has an unknown form.
pub fn step(world: &mut World, step: &Step) -> Result<Met, String> {
    let done = |()| Met::Expected;
    let args = &step.args;
    let instance = args.text("instance").unwrap_or(INSTANCE).to_owned();
    let topic = args.text("topic").unwrap_or(STREAM).to_owned();
    match step.op.as_str() {
        "publish" => {
            args.only(&["topic", "count", "instance", "copies", "token"])?;
            publish(world, step, &instance, &topic)
        }
        "deliver" => {
            args.only(&["topic", "id", "gen", "epoch", "published_before", "after_ms", "instance"])?;
            deliver(world, step, &instance, &topic).map(done)
        }
        "missed" => {
            args.only(&["topic", "ids"])?;
            world.disturbed = true;
            for number in args.numbers("ids") {
                world.publish_elsewhere(&topic, number)?;
            }
            Ok(Met::Expected)
        }
        "subscribe" => {
            args.only(&["topic", "sub", "limit", "count", "instance"])?;
            subscribe(world, step, &instance, &topic)
        }
        "unsubscribe" => {
            args.only(&["sub"])?;
            unsubscribe(world, args.text("sub").ok_or("expected \"sub\"")?);
            Ok(Met::Expected)
        }
        "resume" | "resume_local" => {
            args.only(&["topic", "cursor", "space", "instance", "sub", "during"])?;
            let cursor = args.number("cursor").ok_or("expected \"cursor\"")?;
            let (from, foreign) = from_of(world, &topic, cursor, args.text("space"))?;
            let (sub, during) = (args.text("sub"), args.steps("during")?);
            let wish = Wish { instance: &instance, topic: &topic, cursor, from, foreign, sub, during };
            if step.op == "resume_local" && world.host(&instance).hub.is_closed() {
                let resumed = after_close(world, &wish);
                return compare(world, step, |expect| resume_is(world, &resumed, expect, None));
            }
            judge_resume(world, step, wish)
        }
        "http_resume" => {
            args.only(&["topic", "last_event_id"])?;
            let wish = from_header(world, &topic, args.text("last_event_id"));
            let Some((from, cursor)) = wish else {
                let fresh = step.expect.get("answer").and_then(Value::as_str) == Some("fresh");
                return fresh.then_some(Met::Expected).ok_or_else(|| "found a fresh client".into());
            };
            let wish = Wish {
                instance: &instance,
                topic: &topic,
                cursor,
                from,
                foreign: false,
                sub: None,
                during: Vec::new(),
            };
            judge_resume(world, step, wish)
        }
        "received" => {
            args.only(&["sub", "summary"])?;
            received(world, step)
        }
        "subscribers" => {
            args.only(&["topic", "instance"])?;
            subscribers(world, step, &instance, &topic).map(done)
        }
        "connection_lost" => {
            args.only(&["topic", "gen", "instance"])?;
            world.disturbed = true;
            connection_lost(world, &instance, &topic);
            Ok(Met::Expected)
        }
        "connection_stalled" => {
            args.only(&["topic", "gen", "instance"])?;
            world.disturbed = true;
            let number = world.host(&instance).number;
            let channels = world.broker.channels.iter_mut();
            channels
                .filter(|((n, _), c)| *n == number && c.topic == topic)
                .for_each(|(_, c)| c.stalled = true);
            Ok(Met::Expected)
        }
        "resubscribed" => {
            args.only(&["topic", "gen", "instance"])?;
            world.disturbed = true;
            resubscribed(world, step, &instance, &topic).map(done)
        }
        "counter" => {
            args.only(&["state", "value", "after_ms"])?;
            counter(world, step).map(done)
        }
        "counter_reset" => {
            args.only(&["epoch_lost"])?;
            counter_reset(world, args.flag("epoch_lost").unwrap_or(true));
            Ok(Met::Expected)
        }
        "restart" => {
            args.only(&["instance"])?;
            world.restart();
            Ok(Met::Expected)
        }
        "start" => {
            args.only(&["instance"])?;
            world.start(&instance);
            Ok(Met::Expected)
        }
        "close" => {
            args.only(&["instance"])?;
            let now = at_ms(world.ms);
            world.host(&instance).hub.handle_close(now);
            world.pump();
            Ok(Met::Expected)
        }
        "client_closed" => {
            args.only(&["instance"])?;
            world.disturbed = true;
            let before = lost_exits(world, &instance);
            let topics: Vec<String> = world.broker.channels.values().map(|c| c.topic.clone()).collect();
            for topic in topics {
                connection_lost(world, &instance, &topic);
            }
            world.client_exits += lost_exits(world, &instance) - before;
            world.broker.unreachable = true;
            Ok(Met::Expected)
        }
        "evict" | "held" => {
            args.only(&["topic", "ids", "instance"])?;
            held(world, step, &instance, &topic).map(done)
        }
        "counters" => {
            args.only(&["instance"])?;
            counters(world, step, &instance).map(done)
        }
        "names" => {
            args.only(&["namespace"])?;
            names(world, step).map(done)
        }
        "receive_raw" => {
            args.only(&["payload"])?;
            receive_raw(world, step).map(done)
        }
        other => Err(format!("op {other:?} is unknown")),
    }
}

fn publish(world: &mut World, step: &Step, instance: &str, topic: &str) -> Result<Met, String> {
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

fn deliver(world: &mut World, step: &Step, instance: &str, topic: &str) -> Result<(), String> {
    let number = step.args.number("id").ok_or("expected \"id\"")?;
    let space = step.args.text("epoch").map(|epoch| space_of_epoch(world, epoch));
    let old = space.filter(|space| space + 1 < world.spaces.len()).and_then(|space| {
        let space = &world.spaces[space];
        let position = Position::sequence(*space.positions.get(&number)?);
        Some(strandline_core::coverage::Mark { incarnation: space.incarnation?, position })
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

fn generation_of(world: &World, instance: &str, generation: &str) -> Result<SubscriptionId, String> {
    let index =
        generation.strip_prefix('g').and_then(|n| n.parse::<usize>().ok()).and_then(|n| n.checked_sub(1));
    let list = world.generations.get(instance);
    let id = index.and_then(|index| list?.get(index).copied());
    id.ok_or_else(|| format!("generation {generation:?} did not begin"))
}

fn subscribe(world: &mut World, step: &Step, instance: &str, topic: &str) -> Result<Met, String> {
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

fn unsubscribe(world: &mut World, sub: &str) {
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

fn judge_resume(world: &mut World, step: &Step, wish: Wish<'_>) -> Result<Met, String> {
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

fn received(world: &mut World, step: &Step) -> Result<Met, String> {
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
        let heartbeat_ms = strandline_core::coverage::HubTimes::default().heartbeat_ms;
        world.advance(3 * heartbeat_ms);
        world.collect(&sub);
    }
    let told = told(world);
    let found = world.subs.get_mut(&sub).and_then(|subs| subs.first_mut()).ok_or("no such subscriber")?;
    let (items, closed) = (std::mem::take(&mut found.items), found.closed);
    let received = Received::of(world, &items);
    let needless = !world.disturbed
        && received.notices.iter().any(|n| !matches!(n, strandline_core::coverage::Item::Gap { .. }));
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

fn subscribers(world: &World, step: &Step, instance: &str, topic: &str) -> Result<(), String> {
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

fn connection_lost(world: &mut World, instance: &str, topic: &str) {
    let now = at_ms(world.ms);
    let host = world.host(instance);
    host.down.insert(topic.into());
    let number = host.number;
    let keys: Vec<_> =
        world.broker.channels.iter().filter(|((n, _), c)| *n == number && c.topic == topic).collect();
    let keys: Vec<_> = keys.into_iter().map(|(key, _)| *key).collect();
    for key in keys {
        world.broker.channels.remove(&key);
        world.host(instance).hub.handle_upstream(now, key.1, Upstream::Lost);
    }
    world.pump();
}

fn lost_events(world: &World, instance: &str) -> u64 {
    let lost = &world.hosts[instance].hub.counters().lost;
    [LostReason::ConnectionLost, LostReason::Resubscribed, LostReason::Silent]
        .iter()
        .filter_map(|reason| lost.get(reason))
        .sum()
}

fn lost_exits(world: &World, instance: &str) -> u64 {
    world.hosts[instance].hub.counters().ended.get(&EndReason::Lost).copied().unwrap_or(0)
}

fn resubscribed(world: &mut World, step: &Step, instance: &str, topic: &str) -> Result<(), String> {
    let was_down = world.host(instance).down.contains(topic);
    let index = match step.args.text("gen") {
        Some(generation) => Some(generation_of(world, instance, generation)?),
        None => world.host(instance).latest(topic),
    };
    let before = lost_events(world, instance);
    let (ms, resubscribe_ms) = (world.ms, strandline_core::coverage::HubTimes::default().resubscribe_ms);
    if was_down {
        let World { hosts, broker, .. } = world;
        hosts.get_mut(instance).ok_or("no such instance")?.restore(broker, ms, topic);
        world.advance(resubscribe_ms);
        let now = world.host(instance).latest(topic).ok_or("nothing was subscribed")?;
        for generation in world.generations.entry(instance.into()).or_default() {
            if Some(*generation) == index {
                *generation = now;
            }
        }
    } else if let Some(id) = index {
        let now = at_ms(world.ms);
        world.host(instance).hub.handle_upstream(now, id, Upstream::Resubscribed);
        world.pump();
    }
    let dropped =
        if was_down { world.dropped_since_loss(instance) } else { lost_events(world, instance) > before };
    let wanted = step.expect.get("coverage_dropped").and_then(Value::as_bool);
    match wanted {
        // The reference keeps the single stream's buffer over a reconnect; here a lost connection ends
        // coverage on every bus. What is answered after it is compared all the same.
        Some(false) if dropped && world.setup.single_stream => Ok(()),
        Some(wanted) if wanted != dropped => {
            Err(format!("expected coverage dropped: {wanted}, found {dropped}"))
        }
        Some(_) | None => Ok(()),
    }
}

impl World {
    /// Whether coverage ended for a lost connection since this was asked last.
    fn dropped_since_loss(&mut self, instance: &str) -> bool {
        let lost = lost_events(self, instance);
        let seen = self.losses_seen.insert(instance.into(), lost).unwrap_or(0);
        lost > seen
    }
}

fn counter(world: &mut World, step: &Step) -> Result<(), String> {
    world.disturbed = true;
    let topic = world.only_topic();
    if let Some(value) = step.args.number("value") {
        // What the counter says was given out was published; a lower value is an older reading.
        if value > world.space().last {
            world.publish_elsewhere(&topic, value)?;
            let channels = world.broker.channels.values_mut().filter(|c| c.topic == topic);
            channels.for_each(|channel| _ = channel.in_flight.insert(value));
        }
        return Ok(());
    }
    match step.args.text("state").ok_or("expected \"state\" or \"value\"")? {
        "unreadable" => world.broker.spoil(&topic, true),
        "absent" => world.broker.spoil(&topic, false),
        "unreachable" => world.broker.unreachable = true,
        other => return Err(format!("state {other:?} is unknown")),
    }
    Ok(())
}

fn counter_reset(world: &mut World, epoch_lost: bool) {
    world.disturbed = true;
    world.broker.flush();
    world.next_space();
    if !epoch_lost {
        // The reference's name goes on; what it stands for is another space all the same.
        let now = world.spaces.len() - 1;
        let latest = world.epochs.iter().max_by_key(|(_, space)| **space).map(|(epoch, _)| epoch.clone());
        if let Some(epoch) = latest {
            world.epochs.insert(epoch, now);
        }
    }
}

fn held(world: &World, step: &Step, instance: &str, topic: &str) -> Result<(), String> {
    let found: Vec<u64> =
        world.hosts[instance].hub.held(topic).filter_map(|entry| world.number(entry.mark)).collect();
    // Events of an ended ID space are not kept: their numbers mean nothing any more.
    let now = &world.space().positions;
    let gone = step.args.numbers("ids");
    if let Some(list) = step.expect.get("ids").or(step.expect.get("held")) {
        let mut wanted = numbers_of(Some(list));
        wanted.retain(|number| now.contains_key(number));
        if wanted != found {
            return Err(format!("expected {wanted:?} held, found {found:?}"));
        }
    }
    match gone.iter().find(|number| found.contains(number)) {
        Some(number) => Err(format!("expected {number} gone")),
        None => Ok(()),
    }
}

fn counters(world: &World, step: &Step, instance: &str) -> Result<(), String> {
    let counters = world.hosts[instance].hub.counters();
    let ended = |reason: EndReason| counters.ended.get(&reason).copied().unwrap_or(0);
    let per_topic_exits = ended(EndReason::Stopped) + ended(EndReason::Closed) - world.passing_exits;
    let exits = if world.setup.single_stream { 0 } else { per_topic_exits } + world.client_exits;
    let found = [
        ("resume_gaps", counters.refused.values().sum::<u64>()),
        ("sequence_gaps", counters.holes),
        ("missed", counters.missed),
        ("dropped", counters.dropped),
        ("loop_exits", exits),
    ];
    for (field, wanted) in &step.expect {
        if field == "resets" {
            resets(world, wanted, instance)?;
            continue;
        }
        let (_, found) = found
            .iter()
            .find(|(name, _)| name == field)
            .ok_or_else(|| format!("counter {field:?} is unknown"))?;
        if wanted.as_u64() != Some(*found) {
            return Err(format!("expected {field} {wanted}, found {found}"));
        }
    }
    Ok(())
}

/// A counter that went back under the same name is here a new space too: identity and sequence vanish
/// together.
fn resets(world: &World, wanted: &Value, instance: &str) -> Result<(), String> {
    let lost = &world.hosts[instance].hub.counters().lost;
    let sum = |reasons: &[LostReason]| reasons.iter().filter_map(|r| lost.get(r)).sum::<u64>();
    let spaces = sum(&[LostReason::NewIncarnation, LostReason::Rewound]);
    let mut found = BTreeMap::from([("resumed", lost_events(world, instance)), ("spaces", spaces)]);
    found.retain(|_, count| *count > 0);
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for (label, count) in wanted.as_object().into_iter().flatten() {
        let ours = match label.as_str() {
            "subscription_resumed" => "resumed",
            "epoch_change" | "counter_backwards" => "spaces",
            other => return Err(format!("reset {other:?} is unknown")),
        };
        *expected.entry(ours).or_default() += count.as_u64().unwrap_or(0);
    }
    if expected == found { Ok(()) } else { Err(format!("expected resets {expected:?}, found {found:?}")) }
}

fn names(world: &World, step: &Step) -> Result<(), String> {
    let namespace = step.args.text("namespace").unwrap_or("");
    let names = match Names::new(namespace) {
        Ok(names) => names,
        Err(error) => {
            let wanted = step.expect.get("error").and_then(Value::as_str);
            return if wanted == Some("bad_namespace") { Ok(()) } else { Err(error.to_string()) };
        }
    };
    let single = world.setup.single_stream;
    let found = [
        ("counter", if single { names.watch_counter() } else { names.event_counter() }),
        ("channel", if single { names.watch_channel() } else { names.event_channel("T") }),
        ("epoch", names.watch_epoch()),
    ];
    for (field, wanted) in &step.expect {
        let found = found.iter().find(|(name, _)| name == field).map(|(_, text)| text.as_str());
        if wanted.as_str() != found {
            return Err(format!("expected {field} {wanted}, found {found:?}"));
        }
    }
    Ok(())
}

fn receive_raw(world: &World, step: &Step) -> Result<(), String> {
    let payload = step.args.text("payload").unwrap_or("");
    let read = if world.setup.single_stream {
        read_notification(payload).map(|n| (Some(n.epoch), n.id, n.body))
    } else {
        read_event(payload).map(|e| (None, e.id, e.body))
    };
    let rejected = step.expect.get("rejected").and_then(Value::as_bool).unwrap_or(false);
    match read {
        Err(_) if rejected => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(found) if rejected => Err(format!("expected it rejected, found {found:?}")),
        Ok((epoch, id, body)) => {
            let wanted = &step.expect;
            let same = wanted.get("id").is_none_or(|v| v.as_u64() == Some(id))
                && wanted.get("epoch").is_none_or(|v| v.as_str() == epoch)
                && wanted.get("body").is_none_or(|v| v.as_object() == Some(&body));
            if same { Ok(()) } else { Err(format!("expected {wanted:?}, found {epoch:?} {id} {body:?}")) }
        }
    }
}

/// The budget of streams of a scenario.
struct Budget {
    admission: Admission,
    held: BTreeMap<String, Vec<u64>>,
    released: BTreeMap<String, u64>,
    next: u64,
}

impl Budget {
    fn new(scenario: &Scenario) -> Self {
        let bound = |max: u32| (max > 0).then_some(max);
        Self {
            admission: Admission::new(bound(scenario.total_max), bound(scenario.per_user_max)),
            held: BTreeMap::new(),
            released: BTreeMap::new(),
            next: 0,
        }
    }

    fn admit(&mut self, step: &Step) -> Result<(), String> {
        step.args.only(&["principal"])?;
        let principal = step.args.text("principal").unwrap_or("");
        self.next += 1;
        let refused = match self.admission.admit(self.next, Some(principal)) {
            Ok(()) => {
                self.held.entry(principal.into()).or_default().push(self.next);
                None
            }
            Err(NotAdmitted::Total { .. }) => Some("global"),
            Err(NotAdmitted::Client { .. }) => Some("per_user"),
        };
        let wanted = step.expect.get("refused").and_then(Value::as_str);
        if wanted == refused {
            Ok(())
        } else {
            Err(format!("expected refused {wanted:?}, found {refused:?}"))
        }
    }

    fn release(&mut self, step: &Step) -> Result<(), String> {
        step.args.only(&["principal", "again"])?;
        let principal = step.args.text("principal").unwrap_or("");
        let again = step.args.flag("again").unwrap_or(false);
        let id = if again {
            self.released.get(principal).copied()
        } else {
            self.held.get_mut(principal).and_then(Vec::pop)
        };
        let id = id.ok_or("expected something to release")?;
        self.admission.release(id);
        self.released.insert(principal.into(), id);
        let wanted = step.expect.get("held").and_then(Value::as_u64);
        let found = self.admission.held() as u64;
        if wanted.is_none_or(|wanted| wanted == found) {
            Ok(())
        } else {
            Err(format!("expected {wanted:?} held, found {found}"))
        }
    }
}
