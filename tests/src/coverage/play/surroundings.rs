//! Steps of what surrounds a hub: its connections, and the counter at the server.

use super::publish::generation_of;
use crate::coverage::host::at_ms;
use crate::coverage::scenario::Step;
use crate::coverage::world::World;
use serde_json::Value;
use strandline_core::coverage::{EndReason, HubTimes, LostReason, Upstream};

pub(super) fn connection_lost(world: &mut World, instance: &str, topic: &str) {
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

pub(super) fn lost_events(world: &World, instance: &str) -> u64 {
    let lost = &world.hosts[instance].hub.counters().lost;
    [LostReason::ConnectionLost, LostReason::Resubscribed, LostReason::Silent]
        .iter()
        .filter_map(|reason| lost.get(reason))
        .sum()
}

pub(super) fn lost_exits(world: &World, instance: &str) -> u64 {
    world.hosts[instance].hub.counters().ended.get(&EndReason::Lost).copied().unwrap_or(0)
}

pub(super) fn resubscribed(
    world: &mut World,
    step: &Step,
    instance: &str,
    topic: &str,
) -> Result<(), String> {
    let was_down = world.host(instance).down.contains(topic);
    let index = match step.args.text("gen") {
        Some(generation) => Some(generation_of(world, instance, generation)?),
        None => world.host(instance).latest(topic),
    };
    let before = lost_events(world, instance);
    let (ms, resubscribe_ms) = (world.ms, HubTimes::default().resubscribe_ms);
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

pub(super) fn counter(world: &mut World, step: &Step) -> Result<(), String> {
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

pub(super) fn counter_reset(world: &mut World, epoch_lost: bool) {
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
