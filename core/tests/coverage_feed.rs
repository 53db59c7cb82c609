//! A hub whose positions come from a log.
#![cfg(feature = "coverage")]

use strandline_core::coverage::{
    Claim, Command, CursorCodec, From, History, Hub, HubConfig, Item, LostReason, Mark, Message, Position,
    Publish, PublishError, Reason, Source, Subscribe, SubscriberId, TopicName, Width,
};
use strandline_core::id::{Incarnation, Run};
use strandline_core::machine::Machine;
use strandline_core::seed::Seed;
use strandline_core::time::{Now, WallTime};

const LOG: Incarnation = Incarnation { counter: 9, nonce: [9; 8] };
const OTHER: Incarnation = Incarnation { counter: 9, nonce: [8; 8] };

fn now() -> Now {
    Now::default()
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name).unwrap()
}

fn mark(sequence: u64) -> Mark {
    Mark { incarnation: LOG, position: Position::version(1, sequence) }
}

/// A hub that is given everything after 1.10.
fn hub() -> Hub {
    let config = HubConfig {
        source: Source::Positioned { incarnation: LOG, after: mark(10).position },
        codec: CursorCodec::open("").width(Width::Version),
        history: true,
        ..HubConfig::minted()
    };
    Hub::new(config, Run(1), Seed::new([1; 32]), now())
}

fn publish(hub: &mut Hub, name: &str, sequence: u64) {
    let given = hub.handle_publish_at(now(), &topic(name), mark(sequence).position, Publish::new(b"x"));
    assert_eq!(given.map(|mark| mark.position), Ok(mark(sequence).position));
}

fn subscribe(hub: &mut Hub, from: From) -> SubscriberId {
    hub.handle_subscribe(now(), &topic("t"), Subscribe::new(from)).unwrap()
}

fn after(sequence: u64) -> From {
    From::After(Claim::Cursor(mark(sequence)))
}

/// Letters and sequences of what a subscriber is given; a notice with its reason.
fn told(hub: &mut Hub, id: SubscriberId) -> Vec<String> {
    let at = |mark: Mark| mark.position.get() & u128::from(u64::MAX);
    std::iter::from_fn(|| hub.poll_item(id))
        .map(|item| match item {
            Item::Opened(opened) => format!("opened {}", opened.from.map_or(0, at)),
            Item::Event { entry, .. } => format!("event {}", at(entry.mark)),
            Item::Gap { .. } => "gap".to_owned(),
            Item::Stale { reason } => format!("stale {}", reason.label()),
            Item::SyncRequired { reason, at: mark } => format!("sync {} {}", reason.label(), at(mark)),
            Item::Closed => "closed".to_owned(),
        })
        .collect()
}

/// Answers the one question that must be out.
fn answer(hub: &mut Hub, expected_after: u64, history: History) {
    match hub.poll_command() {
        Some(Command::History { ticket, after, .. }) => {
            assert_eq!(after, mark(expected_after));
            hub.handle_completion(now(), ticket.complete(Ok(history)));
        }
        other => panic!("expected a question to the log, found {other:?}"),
    }
}

fn message(sequence: u64) -> Message {
    Message { mark: mark(sequence), at: WallTime(0), kind: "".into(), payload: b"x"[..].into() }
}

fn held(sequences: &[u64], through: u64) -> History {
    let events = sequences.iter().map(|sequence| message(*sequence)).collect();
    History::Through { events, through: mark(through).position }
}

#[test]
fn what_came_before_the_hub_is_asked_of_the_log_and_joined_without_a_seam() {
    let mut hub = hub();
    publish(&mut hub, "t", 12);
    let id = subscribe(&mut hub, after(4));
    assert_eq!(told(&mut hub, id), [] as [&str; 0]);
    answer(&mut hub, 4, held(&[5, 9, 12], 12));
    assert_eq!(told(&mut hub, id), ["opened 4", "event 5", "event 9", "event 12"]);
    publish(&mut hub, "t", 15);
    assert_eq!(told(&mut hub, id), ["event 15"]);
}

#[test]
fn a_log_that_vouches_for_less_than_the_hub_lacks_refuses() {
    let mut hub = hub();
    let id = subscribe(&mut hub, after(4));
    answer(&mut hub, 4, held(&[5], 9));
    assert_eq!(told(&mut hub, id), ["sync starts_after_cursor 10"]);
    let id = subscribe(&mut hub, after(4));
    answer(&mut hub, 4, History::Refused(Reason::BelowFloor));
    assert_eq!(told(&mut hub, id), ["sync below_floor 10"]);
}

#[test]
fn a_position_that_only_the_log_can_know_is_asked_of_it() {
    let mut hub = hub();
    publish(&mut hub, "t", 12);
    publish(&mut hub, "t", 16);
    // 14 is another topic's, or nobody's.
    let id = subscribe(&mut hub, after(14));
    answer(&mut hub, 14, held(&[16], 16));
    assert_eq!(told(&mut hub, id), ["opened 14", "event 16"]);
    let id = subscribe(&mut hub, after(14));
    answer(&mut hub, 14, History::Refused(Reason::ForeignPosition));
    assert_eq!(told(&mut hub, id), ["sync foreign_position 16"]);
    // Those that were given here need no question.
    for known in [10, 12, 16] {
        let id = subscribe(&mut hub, after(known));
        assert_eq!(told(&mut hub, id)[0], format!("opened {known}"));
        assert!(hub.poll_command().is_none());
    }
}

#[test]
fn a_silent_topic_stands_where_its_log_stands() {
    let mut hub = hub();
    let before = subscribe(&mut hub, From::Now);
    assert_eq!(told(&mut hub, before), ["opened 10"]);
    publish(&mut hub, "other", 20);
    hub.handle_fed(now(), mark(20).position);
    let id = subscribe(&mut hub, From::Now);
    assert_eq!(told(&mut hub, id), ["opened 20"]);
    let id = subscribe(&mut hub, after(20));
    assert_eq!(told(&mut hub, id), ["opened 20"]);
    let id = subscribe(&mut hub, after(21));
    assert_eq!(told(&mut hub, id), ["sync ahead_of_head 20"]);
    // A topic that begins now begins there too.
    let id = hub.handle_subscribe(now(), &topic("new"), Subscribe::new(From::Now)).unwrap();
    assert_eq!(told(&mut hub, id), ["opened 20"]);
    publish(&mut hub, "t", 22);
    assert_eq!(told(&mut hub, before), ["event 22"]);
}

#[test]
fn a_feed_that_lost_its_place_is_told_and_goes_on_at_the_cut() {
    let mut hub = hub();
    let id = subscribe(&mut hub, From::Now);
    publish(&mut hub, "t", 12);
    assert_eq!(told(&mut hub, id), ["opened 10", "event 12"]);
    hub.handle_feed_lost(now(), LostReason::Reset);
    assert_eq!(told(&mut hub, id), ["stale reset"]);
    let late = subscribe(&mut hub, after(12));
    assert_eq!(told(&mut hub, late), ["stale no_coverage"]);
    let at = Position::version(1, 13);
    let refused = hub.handle_publish_at(now(), &topic("t"), at, Publish::new(b"x"));
    assert_eq!(refused, Err(PublishError::Source));
    hub.handle_feed_began(now(), mark(30));
    assert_eq!(told(&mut hub, id), ["sync reset 30"]);
    assert_eq!(told(&mut hub, late), ["sync no_coverage 30"]);
    publish(&mut hub, "t", 31);
    assert_eq!(told(&mut hub, id), ["event 31"]);
    // What was held is gone with the place: the log is asked.
    let id = subscribe(&mut hub, after(12));
    answer(&mut hub, 12, History::Refused(Reason::BelowFloor));
    assert_eq!(told(&mut hub, id), ["sync below_floor 31"]);
}

#[test]
fn another_log_is_another_space() {
    let mut hub = hub();
    let id = subscribe(&mut hub, From::Now);
    publish(&mut hub, "t", 12);
    assert_eq!(told(&mut hub, id), ["opened 10", "event 12"]);
    hub.handle_feed_began(now(), Mark { incarnation: OTHER, ..mark(12) });
    assert_eq!(told(&mut hub, id), ["sync other_incarnation 12"]);
    let id = subscribe(&mut hub, after(12));
    assert_eq!(told(&mut hub, id), ["sync other_incarnation 12"]);
    assert!(hub.poll_command().is_none(), "the log of another space is not asked");
}

#[test]
fn an_answer_that_comes_after_the_place_was_lost_vouches_for_nothing() {
    let mut hub = hub();
    let id = subscribe(&mut hub, after(4));
    let Some(Command::History { ticket, .. }) = hub.poll_command() else { panic!("a question to the log") };
    hub.handle_feed_lost(now(), LostReason::Reset);
    hub.handle_completion(now(), ticket.complete(Ok(held(&[5], 10))));
    assert_eq!(told(&mut hub, id), ["stale starts_after_cursor"]);
    hub.handle_feed_began(now(), mark(30));
    assert_eq!(told(&mut hub, id), ["sync starts_after_cursor 30"]);
}

/// A feed that lost its place as if it would go on, with events up to 1.14 held.
fn lost_at_14() -> (Hub, SubscriberId) {
    let mut hub = hub();
    publish(&mut hub, "t", 12);
    let slow = subscribe(&mut hub, From::Earliest);
    publish(&mut hub, "t", 14);
    hub.handle_feed_lost(now(), LostReason::Missed);
    (hub, slow)
}

#[test]
fn what_was_held_stays_where_the_feed_goes_on() {
    let (mut hub, slow) = lost_at_14();
    hub.handle_feed_began(now(), mark(20));
    assert_eq!(told(&mut hub, slow), ["opened 11", "event 12", "event 14", "sync missed 20"]);
    let all = subscribe(&mut hub, From::Earliest);
    assert_eq!(told(&mut hub, all), ["opened 11", "event 12", "event 14", "sync missed 20"]);
}

#[test]
fn what_was_held_of_another_history_is_not_replayed() {
    for at in [mark(11), Mark { incarnation: OTHER, ..mark(30) }] {
        let (mut hub, slow) = lost_at_14();
        hub.handle_feed_began(now(), at);
        assert_eq!(hub.held("t").count(), 0, "{at:?}");
        let position = at.position.get() & u128::from(u64::MAX);
        // Its backlog is gone, and what lies behind it must not move its cursor over it.
        assert_eq!(told(&mut hub, slow), ["opened 11".to_owned(), format!("sync missed {position}")]);
        let resumed = subscribe(&mut hub, From::After(Claim::Cursor(at)));
        assert_eq!(told(&mut hub, resumed), [format!("opened {position}")]);
    }
}

#[test]
fn what_is_dropped_after_a_close_is_not_skipped() {
    let mut hub = hub();
    publish(&mut hub, "t", 12);
    let slow = subscribe(&mut hub, From::Earliest);
    publish(&mut hub, "t", 14);
    hub.handle_close(now());
    hub.handle_feed_began(now(), mark(30));
    // It comes back with the cursor it has, and loses nothing.
    assert_eq!(told(&mut hub, slow), ["opened 11", "closed"]);
}

#[test]
fn what_is_too_old_while_nothing_is_vouched_for_is_told() {
    let (mut hub, slow) = lost_at_14();
    let later = Now { mono: now().mono.after_ms(3_000_000), ..now() };
    hub.handle_subscribe(later, &topic("t"), Subscribe::new(From::Now)).unwrap();
    assert_eq!(hub.held("t").count(), 0);
    hub.handle_feed_began(later, mark(20));
    assert_eq!(told(&mut hub, slow), ["opened 11", "sync missed 20"]);
}
