//! Steps that look at what is held and counted, and at names and messages of the reference.

use super::surroundings::lost_events;
use crate::coverage::judge::numbers_of;
use crate::coverage::scenario::Step;
use crate::coverage::world::World;
use serde_json::Value;
use std::collections::BTreeMap;
use strandline_core::compat::pad::{Names, read_event, read_notification};
use strandline_core::coverage::{EndReason, LostReason};

pub(super) fn held(world: &World, step: &Step, instance: &str, topic: &str) -> Result<(), String> {
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

pub(super) fn counters(world: &World, step: &Step, instance: &str) -> Result<(), String> {
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

pub(super) fn names(world: &World, step: &Step) -> Result<(), String> {
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

pub(super) fn receive_raw(world: &World, step: &Step) -> Result<(), String> {
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
