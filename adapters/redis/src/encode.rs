//! Operations as commands: keys and arguments of their scripts.

use crate::names::Names;
use redis::Cmd;
use sha2::{Digest, Sha256};
use strandline_core::id::hex;
use strandline_core::stream::layout::TaggedKeys;
use strandline_core::stream::limits::{
    DEAD_LETTERS_MAX, GROUP_LATER_MAX, GROUP_MEMBERS_MAX, GROUPS_LISTED_MAX,
};
use strandline_core::stream::op::{Condition, Creates, Lease};
use strandline_core::stream::{Event, GroupName, Ids, Layout, StreamOp, Verb};

/// A command that is being written, straight into what is sent.
struct Args(Cmd);

impl Args {
    fn text(&mut self, text: impl AsRef<[u8]>) -> &mut Self {
        self.0.arg(text.as_ref());
        self
    }

    fn number(&mut self, number: impl ToString) -> &mut Self {
        self.text(number.to_string())
    }

    fn flag(&mut self, flag: bool) -> &mut Self {
        self.text(digit(flag))
    }

    fn ids(&mut self, ids: &Ids) -> &mut Self {
        for id in ids.as_slice() {
            self.number(id);
        }
        self
    }

    fn event(&mut self, event: &Event) -> &mut Self {
        self.text(event.name()).text(event.topic()).text(event.payload())
    }

    fn lease(&mut self, lease: &Lease) -> &mut Self {
        self.text(lease.owner.as_str()).number(lease.fence).number(lease.lease_ms)
    }
}

const fn digit(flag: bool) -> &'static str {
    if flag { "1" } else { "0" }
}

/// `EVALSHA` or `EVAL` of an operation. `supposed` is the generation that the keys are those of.
///
/// Each argument costs a server some hundred nanoseconds: none is sent that says nothing.
pub(crate) fn encode(name: &str, script: &str, op: &StreamOp, names: &Names, supposed: u64) -> Cmd {
    let by = &op.by;
    let layout = names.layout();
    let mut args = Args(redis::cmd(name));
    args.text(script);
    match layout {
        Layout::Pulse => {
            args.number(0);
            args.text(by.bound.map(|bound| bound.generation.to_string()).unwrap_or_default());
            args.text(op.stream.as_str());
        }
        Layout::Tagged => {
            let keys = keys(op, &names.tagged(&op.stream), supposed);
            args.number(keys.len());
            for key in &keys {
                args.text(key);
            }
            // Only who is bound to nothing makes a generation with a nonce.
            let nonce = by.bound.map_or(Some(by.nonce), |bound| bound.nonce);
            args.number(supposed).text(nonce.map(|nonce| hex(&nonce.0)).unwrap_or_default());
        }
    }
    let contract = by.bound.map_or(Some(by.wanted.contract), |bound| bound.contract);
    args.text(contract.map(|contract| contract.text(layout)).unwrap_or_default());
    args.text(flags(op));
    verb(&op.verb, layout, &mut args);
    args.0
}

/// The keys that the step may touch.
fn keys(op: &StreamOp, keys: &TaggedKeys, supposed: u64) -> Vec<String> {
    match (&op.by.bound, &op.verb) {
        (Some(_), Verb::Add { .. }) => keys.of_bound_publisher(supposed),
        (Some(_), _) => keys.of_bound(supposed),
        (None, _) => keys.of_unbound(supposed),
    }
}

/// What decides in the step, a digit each.
fn flags(op: &StreamOp) -> String {
    let (by, checks) = (&op.by, op.verb.checks());
    let flags = [
        by.bound.is_some(),
        by.ended,
        by.wanted.explicit,
        op.verb.creates() == Creates::Yes,
        op.verb.restores(),
        checks.contract,
        checks.clock,
        checks.wanted_first,
        op.verb == Verb::Destroy,
    ];
    flags.map(digit).concat()
}

fn verb(verb: &Verb, layout: Layout, args: &mut Args) {
    match verb {
        Verb::Open | Verb::Attend | Verb::Snapshot | Verb::Destroy => {}
        Verb::Add { event, condition } => {
            args.event(event);
            match condition {
                Condition::Always => {}
                Condition::IfExists => _ = args.text("exists"),
                Condition::After(id) => _ = args.number(id),
            }
        }
        Verb::AddOnce { key, event } => {
            args.text(key.as_bytes()).event(event);
            match layout {
                // Its records hold the event itself.
                Layout::Pulse => {}
                Layout::Tagged => _ = args.text(Sha256::digest(event.identity())),
            }
        }
        Verb::Remove { ids } | Verb::DeadRemove { ids } => {
            args.ids(ids);
        }
        Verb::Read { after, events_max } | Verb::DeadRead { after, events_max } => {
            args.number(after).number(events_max);
        }
        Verb::Groups { after, groups_max } => {
            args.text(after.as_ref().map(GroupName::as_str).unwrap_or_default());
            args.number(groups_max.min(&GROUPS_LISTED_MAX));
        }
        Verb::Replay { after, events_max, bytes_max } => {
            args.number(after).number(events_max).number(bytes_max);
        }
        Verb::GroupOpen { group, contract, settled } => {
            args.text(group.as_str()).text(settled.map(|id| id.to_string()).unwrap_or_default());
            for (_, value) in contract.fields() {
                args.text(value);
            }
        }
        Verb::GroupRead { group, consumer, events_max } => {
            args.text(group.as_str()).text(consumer.as_str()).number(events_max);
        }
        Verb::GroupAck { group, ids } => {
            args.text(group.as_str()).ids(ids);
        }
        Verb::GroupRegister { group, consumer } | Verb::GroupKeepAlive { group, consumer } => {
            args.text(group.as_str()).text(consumer.as_str()).number(GROUP_MEMBERS_MAX);
        }
        Verb::GroupDetach { group, consumer, release } => {
            args.text(group.as_str()).text(consumer.as_str()).flag(*release);
        }
        Verb::GroupNack { group, consumer, ids, delay_ms } => {
            args.text(group.as_str()).text(consumer.as_str()).number(delay_ms);
            args.number(GROUP_LATER_MAX).ids(ids);
        }
        Verb::GroupTold { group, through } => {
            args.text(group.as_str()).number(through);
        }
        Verb::GroupBury { group, consumer, ids } => {
            args.text(group.as_str()).text(consumer.as_str()).number(DEAD_LETTERS_MAX).ids(ids);
        }
        Verb::LeaseAcquire { group, owner, lease_ms } => {
            args.text(group.as_str()).text(owner.as_str()).number(lease_ms);
        }
        Verb::LeaseRenew { group, lease } => {
            args.text(group.as_str()).lease(lease);
        }
        Verb::GroupClaim { group, lease, consumer, idle_ms, from, events_max } => {
            args.text(group.as_str()).lease(lease).text(consumer.as_str());
            args.number(idle_ms).number(from).number(events_max);
        }
        Verb::GroupSweep { group, lease, grace_ms } => {
            args.text(group.as_str()).lease(lease).number(grace_ms);
        }
    }
}
