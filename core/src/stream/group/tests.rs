//! Consumers against the model, with something begun while an answer is still out.

use super::*;
use crate::stream::error::CallerError;
use crate::stream::event::Event;
use crate::stream::keyspace::Keyspace;
use crate::stream::layout::Layout;
use crate::stream::op::Condition;
use crate::stream::retention::Wanted;
use crate::stream::settings::TakeSettings;
use crate::stream::time::ServerTime;

const NONCE: Nonce = Nonce([7; 16]);

struct World {
    server: Keyspace,
    consumer: Consumer,
}

impl World {
    /// A consumer of two streams, each with one event.
    fn of_two(layout: Layout) -> Self {
        Self::taking(layout, TakeSettings::new())
    }

    fn taking(layout: Layout, taking: TakeSettings) -> Self {
        let taking = taking.start(Start::Oldest).taking().unwrap();
        let (group, name) = (GroupName::new("g").unwrap(), ConsumerName::new("c").unwrap());
        let consumer = Consumer::new(group, name, taking, 1000);
        let mut world = Self { server: Keyspace::new(layout), consumer };
        for stream in ["s", "t"] {
            let mut handle = Handle::new(name_of(stream), Wanted::default(), layout).unwrap();
            let event = Event::new("e", stream).unwrap();
            let op = handle.op(Verb::Add { event, condition: Condition::Always }, NONCE);
            let result = world.apply(&op);
            handle.answered(&op.verb, &result);
            world.consumer.join(&handle, None).unwrap();
            world.drive();
        }
        assert_eq!(world.consumer.attached(), 2);
        world
    }

    fn apply(&mut self, op: &StreamOp) -> Result<StreamReply, StreamError> {
        self.server.apply(ServerTime::from_ms(1000), op)
    }

    /// Until nothing is asked; what was handed out.
    fn drive(&mut self) -> Vec<StreamName> {
        let mut handed_out = Vec::new();
        while let Some(op) = self.consumer.op(NONCE) {
            let result = self.apply(&op);
            if let Taken::Entries(stream, entries, _) = self.consumer.answered(&op, result).unwrap() {
                handed_out.extend(entries.iter().map(|_| stream.clone()));
            }
        }
        handed_out
    }

    /// The entries that wait for somebody, and the cursor of the group.
    fn held(&self, stream: &str) -> (usize, Option<EventId>) {
        let space = self.server.space(&name_of(stream), ServerTime::from_ms(1000)).unwrap();
        let (data, group) = (&space.data[&1], self.consumer.group());
        (data.log.as_ref().unwrap().groups[group].pending.len(), data.groups[group].cursor)
    }
}

fn name_of(stream: &str) -> StreamName {
    StreamName::new(stream).unwrap()
}

#[test]
fn a_batch_on_its_way_when_its_stream_is_left_stays_pending_for_others() {
    for layout in [Layout::Pulse, Layout::Tagged] {
        let mut world = World::of_two(layout);
        world.consumer.pass().unwrap();
        let read = world.consumer.op(NONCE).unwrap();
        let batch = world.apply(&read);
        world.consumer.leave(&name_of("s")).unwrap();
        assert_eq!(world.consumer.answered(&read, batch).unwrap(), Taken::More, "nothing is handed out");
        assert!(world.drive().is_empty());
        assert_eq!(world.consumer.attached(), 1, "it has left");
        assert_eq!(world.held("s"), (1, Some(EventId::ZERO)), "pending, and not settled");
        world.consumer.pass().unwrap();
        assert_eq!(world.drive(), [name_of("t")], "the other stream is read on");
    }
}

#[test]
fn a_batch_on_its_way_when_its_consumer_closes_stays_pending_for_others() {
    for layout in [Layout::Pulse, Layout::Tagged] {
        let mut world = World::of_two(layout);
        world.consumer.pass().unwrap();
        let read = world.consumer.op(NONCE).unwrap();
        let batch = world.apply(&read);
        world.consumer.close();
        assert_eq!(world.consumer.answered(&read, batch).unwrap(), Taken::More);
        world.drive();
        assert!(world.consumer.is_closed());
        assert_eq!(world.held("s"), (1, Some(EventId::ZERO)));
    }
}

/// What joined before stays attached, the stream that failed is not, and another try may follow.
#[test]
fn a_registration_that_fails_leaves_the_stream_unattached() {
    for layout in [Layout::Pulse, Layout::Tagged] {
        let mut world = World::of_two(layout);
        let third = Handle::new(name_of("u"), Wanted::default(), layout).unwrap();
        world.consumer.join(&third, None).unwrap();
        let refused = loop {
            let op = world.consumer.op(NONCE).expect("it joins");
            if matches!(op.verb, Verb::GroupRegister { .. }) {
                break world.consumer.answered(&op, Err(CallerError::GroupFull.into()));
            }
            let result = world.apply(&op);
            world.consumer.answered(&op, result).unwrap();
        };
        assert_eq!(refused, Err(CallerError::GroupFull.into()));
        assert_eq!((world.consumer.attached(), world.consumer.is_closed()), (2, false));
        let space = world.server.space(&name_of("u"), ServerTime::from_ms(1000)).unwrap();
        let group = &space.data[&1].groups[world.consumer.group()];
        assert!(group.cursor.is_some() && group.members.is_empty(), "a group, and nobody in it: {group:?}");
        world.consumer.join(&third, None).unwrap();
        world.drive();
        assert_eq!(world.consumer.attached(), 3);
    }
}

/// What could not be left is asked again in the same words by the next try; the others are left.
#[test]
fn a_close_that_was_refused_somewhere_is_tried_again_there() {
    for layout in [Layout::Pulse, Layout::Tagged] {
        let mut world = World::of_two(layout);
        let refused = || ServerFault::NotSent { detail: "cut".into() };
        world.consumer.close();
        let first = world.consumer.op(NONCE).unwrap();
        assert_eq!(world.consumer.answered(&first, Err(refused().into())), Ok(Taken::More));
        let second = world.consumer.op(NONCE).unwrap();
        assert_ne!(second.stream, first.stream);
        let result = world.apply(&second);
        assert_eq!(world.consumer.answered(&second, result), Err(refused().into()));
        assert_eq!((world.consumer.attached(), world.consumer.is_closed()), (1, false));
        world.consumer.close();
        assert_eq!(world.consumer.op(NONCE), Some(first), "the same consumer, the same generation");
        world.drive();
        assert!(world.consumer.is_closed());
    }
}

/// Whoever comes first, what was destroyed stays so, and who leaves has left.
#[test]
fn a_removal_beside_a_destroy_brings_nothing_back() {
    for layout in [Layout::Pulse, Layout::Tagged] {
        for destroyed_first in [true, false] {
            let mut world = World::of_two(layout);
            let destroy = world.consumer.handle(&name_of("s")).unwrap().op(Verb::Destroy, NONCE);
            world.consumer.leave(&name_of("s")).unwrap();
            let leave = world.consumer.op(NONCE).unwrap();
            if destroyed_first {
                world.apply(&destroy).unwrap();
            }
            let left = world.apply(&leave);
            world.consumer.answered(&leave, left).unwrap();
            if !destroyed_first {
                world.apply(&destroy).unwrap();
            }
            assert_eq!((world.consumer.attached(), world.consumer.is_closed()), (1, false));
            let space = world.server.space(&name_of("s"), ServerTime::from_ms(1000)).unwrap();
            assert!(space.data.is_empty() && space.life.is_some_and(|life| !life.active), "{layout:?}");
        }
    }
}

#[test]
fn settling_what_is_not_shown_without_an_answer_holds_up_no_other_stream() {
    let mut world = World::taking(Layout::Tagged, TakeSettings::new().topic("none"));
    world.consumer.pass().unwrap();
    let read = world.consumer.op(NONCE).unwrap();
    let batch = world.apply(&read);
    assert_eq!(
        world.consumer.answered(&read, batch).unwrap(),
        Taken::Entries(name_of("s"), Vec::new(), Vec::new())
    );
    let ack = world.consumer.op(NONCE).unwrap();
    assert!(matches!(ack.verb, Verb::GroupAck { .. }));
    assert_eq!(world.consumer.rest(&ack), Some(1));
    let next = world.consumer.op(NONCE).unwrap();
    assert_eq!((next.stream, matches!(next.verb, Verb::GroupRead { .. })), (name_of("t"), true));
}

#[test]
fn what_is_handed_out_only_once_it_is_settled_is_settled_first_whatever_it_holds_up() {
    let mut world = World::taking(Layout::Tagged, TakeSettings::new().no_ack());
    world.consumer.pass().unwrap();
    let read = world.consumer.op(NONCE).unwrap();
    let batch = world.apply(&read);
    let taken = world.consumer.answered(&read, batch).unwrap();
    assert!(matches!(taken, Taken::Entries(_, entries, _) if entries.len() == 1));
    let ack = world.consumer.op(NONCE).unwrap();
    assert_eq!(world.consumer.rest(&ack), None);
    assert!(world.consumer.op(NONCE).unwrap().is_like(&ack), "it is asked again");
}

/// A consumer of two streams, the first of which has lost its group.
fn without_a_group() -> (World, StreamOp) {
    let mut world = World::of_two(Layout::Tagged);
    world.consumer.pass().unwrap();
    let read = world.consumer.op(NONCE).unwrap();
    assert_eq!(read.stream, name_of("s"));
    world.consumer.answered(&read, Err(ServerFault::NoGroup.into())).unwrap();
    let repair = world.consumer.op(NONCE).unwrap();
    assert_eq!(repair.stream, name_of("s"));
    (world, repair)
}

fn full() -> StreamError {
    let why = crate::stream::unready::Unready::OutOfMemory;
    ServerFault::Unready { why, message: "full".into() }.into()
}

#[test]
fn a_repair_that_was_refused_holds_up_no_other_stream() {
    let (mut world, repair) = without_a_group();
    assert_eq!(world.consumer.answered(&repair, Err(full())), Err(full()));
    assert_eq!(world.consumer.rest(&repair), Some(1));
    let next = world.consumer.op(NONCE).expect("it goes on");
    assert_eq!(next.stream, name_of("t"));
    world.drive();
    world.consumer.pass().unwrap();
    assert_eq!(world.drive(), [name_of("t")], "and the other is read");
}

#[test]
fn settling_what_is_not_shown_that_was_refused_holds_up_no_other_stream() {
    let mut world = World::taking(Layout::Tagged, TakeSettings::new().topic("none"));
    world.consumer.pass().unwrap();
    let read = world.consumer.op(NONCE).unwrap();
    let batch = world.apply(&read);
    world.consumer.answered(&read, batch).unwrap();
    let ack = world.consumer.op(NONCE).unwrap();
    assert_eq!(world.consumer.answered(&ack, Err(full())), Err(full()));
    assert_eq!(world.consumer.rest(&ack), Some(1));
    let next = world.consumer.op(NONCE).expect("it goes on");
    assert_eq!((next.stream, matches!(next.verb, Verb::GroupRead { .. })), (name_of("t"), true));
}

#[test]
fn what_is_handed_out_only_once_it_is_settled_is_asked_again_after_a_refusal() {
    let mut world = World::taking(Layout::Tagged, TakeSettings::new().no_ack());
    world.consumer.pass().unwrap();
    let read = world.consumer.op(NONCE).unwrap();
    let batch = world.apply(&read);
    world.consumer.answered(&read, batch).unwrap();
    let ack = world.consumer.op(NONCE).unwrap();
    assert_eq!(world.consumer.answered(&ack, Err(full())), Err(full()));
    assert_eq!(world.consumer.rest(&ack), None);
    assert!(world.consumer.op(NONCE).unwrap().is_like(&ack));
}

#[test]
fn a_group_that_cannot_be_made_again_for_now_holds_up_no_other_repair() {
    let mut world = World::of_two(Layout::Tagged);
    world.consumer.pass().unwrap();
    let read = world.consumer.op(NONCE).unwrap();
    assert_eq!(world.consumer.rest(&read), Some(1), "the server of the first is gone");
    let read = world.consumer.op(NONCE).unwrap();
    assert_eq!(read.stream, name_of("t"));
    world.consumer.answered(&read, Err(ServerFault::NoGroup.into())).unwrap();
    let repair = world.consumer.op(NONCE).unwrap();
    assert_eq!(repair.stream, name_of("t"), "and is left out here too");
    world.consumer.rouse();
    assert_eq!(world.consumer.rest(&repair), Some(1));
    assert_eq!(world.consumer.op(NONCE), None, "there is nothing behind it: another pass begins");
}

#[test]
fn a_read_asks_for_no_more_than_is_wanted_from_then_on() {
    let mut world = World::of_two(Layout::Tagged);
    for (wanted, asked) in [(3, 3), (0, 1), (u32::MAX, READ_EVENTS_MAX)] {
        world.consumer.read_at_most(wanted);
        world.consumer.pass().unwrap();
        let verb = world.consumer.op(NONCE).unwrap().verb;
        assert!(matches!(verb, Verb::GroupRead { events_max, .. } if events_max == asked), "{verb:?}");
    }
}
