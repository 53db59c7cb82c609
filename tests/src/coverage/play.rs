//! Plays scenarios, and says what was met.

mod budget;
mod listen;
mod looks;
mod publish;
mod surroundings;

use super::broker::{ModelServer, Server};
use super::host::at_ms;
use super::judge::resume_is;
use super::resume::{Wish, after_close, from_header, from_of};
use super::scenario::{Scenario, Step};
use super::world::{INSTANCE, STREAM, World};
use budget::Budget;
use listen::{judge_resume, received, subscribe, subscribers, unsubscribe};
use looks::{counters, held, names, receive_raw};
use publish::{deliver, publish};
use serde_json::{Map, Value};
use surroundings::{connection_lost, counter, counter_reset, lost_exits, resubscribed};

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
