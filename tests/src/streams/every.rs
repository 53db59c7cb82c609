//! Every operation once, on a generation after another one.

use strandline_core::stream::contract::GroupContract;
use strandline_core::stream::filter::Filter;
use strandline_core::stream::op::{Condition, Lease, Nonce};
use strandline_core::stream::reply::Told;
use strandline_core::stream::retention::Settings;
use strandline_core::stream::{
    ConsumerName, Event, EventId, GroupName, Handle, Ids, Layout, OnceKey, Outcome, Start, StreamName,
    StreamOp, Verb,
};

/// Does every operation once on this stream, in an order in which each has something to do.
///
/// # Panics
/// If one is refused or not answered.
pub fn every_operation(stream: &str, layout: Layout, apply: &mut dyn FnMut(&StreamOp) -> Outcome) {
    let mut first = handle(stream, layout);
    ask(apply, &mut first, add());
    ask(apply, &mut first, Verb::Destroy);
    let mut handle = handle(stream, layout);
    let group = GroupName::new("mail").expect("a name");
    let consumer = ConsumerName::new("C1").expect("a name");
    let contract = GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 1000 };
    let (key, g, c) = (OnceKey::new("k").expect("a key"), || group.clone(), || consumer.clone());
    let mut ask = |verb| ask(apply, &mut handle, verb);
    ask(Verb::Open);
    ask(Verb::AddOnce { key: key.clone(), event: event() });
    ask(Verb::AddOnce { key, event: event() });
    ask(add());
    ask(Verb::Attend);
    ask(Verb::Read { after: EventId::ZERO, events_max: 5 });
    ask(Verb::Replay { after: EventId::ZERO, events_max: 5, bytes_max: 1000 });
    ask(Verb::Snapshot);
    ask(Verb::GroupOpen { group: g(), contract, settled: None });
    ask(Verb::GroupRegister { group: g(), consumer: c() });
    ask(Verb::GroupKeepAlive { group: g(), consumer: c() });
    let read = || Verb::GroupRead { group: g(), consumer: c(), events_max: 5 };
    let Told::Taken { entries, .. } = ask(read()) else { panic!("entries") };
    let ids = || Ids::new([entries[0].id]).expect("one");
    ask(Verb::GroupAck { group: g(), ids: ids() });
    let acquire = Verb::LeaseAcquire { group: g(), owner: "o".into(), lease_ms: 60_000 };
    let Told::Leased { fence, .. } = ask(acquire) else { panic!("a lease") };
    let lease = || Lease { owner: "o".into(), fence, lease_ms: 60_000 };
    ask(Verb::LeaseRenew { group: g(), lease: lease() });
    ask(Verb::GroupClaim {
        group: g(),
        lease: lease(),
        consumer: c(),
        idle_ms: 0,
        from: EventId::ZERO,
        events_max: 5,
    });
    ask(Verb::Groups { after: None, groups_max: 5 });
    ask(Verb::GroupSweep { group: g(), lease: lease(), grace_ms: 1000 });
    if layout == Layout::Tagged {
        let one = |at: usize| Ids::new([entries[at].id]).expect("one");
        for (at, delay_ms) in [(0, 0), (1, 60_000)] {
            ask(Verb::GroupNack { group: g(), consumer: c(), ids: one(at), delay_ms });
        }
        ask(add());
        let Told::Taken { entries: more, .. } = ask(read()) else { panic!("entries") };
        let last = || Ids::new([more[0].id]).expect("one");
        ask(Verb::GroupBury { group: g(), consumer: c(), ids: last() });
        ask(Verb::GroupTold { group: g(), through: 1 });
        ask(Verb::DeadRead { after: EventId::ZERO, events_max: 5 });
        ask(Verb::DeadRemove { ids: last() });
    }
    ask(Verb::GroupDetach { group: g(), consumer: c(), release: layout == Layout::Tagged });
    ask(Verb::Remove { ids: ids() });
    ask(Verb::Destroy);
}

fn handle(stream: &str, layout: Layout) -> Handle {
    // With a TTL: without one the Pulse layout has no `add_once`.
    let settings = Settings::new().max_len(100).ttl(core::time::Duration::from_secs(600));
    let stream = StreamName::new(stream).expect("a name");
    Handle::new(stream, settings.wanted().expect("settings"), layout).expect("a handle")
}

fn event() -> Event {
    Event::new("e", "payload").expect("an event")
}

fn add() -> Verb {
    Verb::Add { event: event(), condition: Condition::Always }
}

fn ask(apply: &mut dyn FnMut(&StreamOp) -> Outcome, handle: &mut Handle, verb: Verb) -> Told {
    let op = handle.op(verb, Nonce([1; 16]));
    let Outcome::Answered { result, .. } = apply(&op) else { panic!("no answer to {op:?}") };
    handle.answered(&op.verb, &result);
    result.unwrap_or_else(|error| panic!("{op:?}: {error}")).told
}
