//! A hub at its inputs: what the table cannot show.
#![cfg(feature = "coverage")]

use strandline_core::coverage::{
    Accepted, Claim, Command, From, History, Hub, HubConfig, Item, Mark, Message, Minted, Position, Publish,
    PublishError, Reason, Sequencing, Source, Standing, Subscribe, SubscriberId, SubscriptionId, TopicName,
    Upstream,
};
use strandline_core::id::{Incarnation, Run};
use strandline_core::machine::Machine;
use strandline_core::seed::Seed;
use strandline_core::time::{Instant, Now, WallTime};

const SPACE: Incarnation = Incarnation { counter: 1, nonce: [3; 8] };

fn now(ms: u64) -> Now {
    Now { mono: Instant::default().after_ms(ms), wall: WallTime(ms) }
}

fn mark(position: u64) -> Mark {
    Mark { incarnation: SPACE, position: Position::sequence(position) }
}

fn topic() -> TopicName {
    TopicName::parse("t").unwrap()
}

fn message(position: u64) -> Message {
    Message { mark: mark(position), at: WallTime(0), kind: "".into(), payload: b"x"[..].into() }
}

struct Bench {
    hub: Hub,
    channel: SubscriptionId,
    minted: u64,
    history: Vec<Message>,
}

impl Bench {
    /// A hub over a server, subscribed to the topic with nothing minted.
    fn new(history: Vec<Message>) -> Self {
        let config = HubConfig { history: !history.is_empty(), ..HubConfig::broker() };
        Self::with(config, history)
    }

    fn with(config: HubConfig, history: Vec<Message>) -> Self {
        let mut hub = Hub::new(config, Run(1), Seed::new([1; 32]), now(0));
        hub.handle_watch(now(0), &topic()).unwrap();
        let Some(Command::Subscribe { id, .. }) = hub.poll_command() else { panic!("a subscription") };
        let mut bench = Self { hub, channel: id, minted: 0, history };
        bench.input(Upstream::Confirmed);
        bench
    }

    fn input(&mut self, input: Upstream) {
        self.hub.handle_upstream(now(1), self.channel, input);
        self.answer();
    }

    fn deliver(&mut self, position: u64) {
        self.minted = self.minted.max(position);
        self.input(Upstream::Message(message(position)));
    }

    fn answer(&mut self) {
        while let Some(command) = self.hub.poll_command() {
            match command {
                Command::Position { ticket, .. } => {
                    let minted = Position::sequence(self.minted);
                    let standing = Standing::At { incarnation: SPACE, minted };
                    self.hub.handle_completion(now(1), ticket.complete(Ok(standing)));
                }
                Command::History { ticket, after, .. } => {
                    let held = self.history.iter().filter(|m| m.mark > after).cloned().collect();
                    self.hub.handle_completion(now(1), ticket.complete(Ok(History::Run(held))));
                }
                Command::Subscribe { .. }
                | Command::Unsubscribe { .. }
                | Command::Abandon { .. }
                | Command::Publish { .. } => {}
            }
        }
    }

    fn subscribe(&mut self, from: From) -> SubscriberId {
        let id = self.hub.handle_subscribe(now(1), &topic(), Subscribe::new(from)).unwrap();
        self.answer();
        id
    }

    /// Letters and positions of what a subscriber is given.
    fn told(&mut self, id: SubscriberId) -> Vec<(char, u64)> {
        let at = |mark: Mark| mark.position.as_sequence().unwrap();
        std::iter::from_fn(|| self.hub.poll_item(id))
            .map(|item| match item {
                Item::Opened(opened) => ('o', opened.through.map_or(0, at)),
                Item::Event { entry, .. } => ('e', at(entry.mark)),
                Item::Gap { through, .. } => ('g', through.as_sequence().unwrap()),
                Item::Stale { .. } => ('!', 0),
                Item::SyncRequired { at: position, .. } => ('s', at(position)),
                Item::Closed => ('c', 0),
            })
            .collect()
    }
}

#[test]
fn a_hole_at_the_end_of_what_is_held_is_told_to_who_asks_for_all() {
    let mut bench = Bench::new(Vec::new());
    bench.deliver(1);
    bench.deliver(2);
    bench.input(Upstream::Position { incarnation: SPACE, minted: Position::sequence(4) });
    let all = bench.subscribe(From::Earliest);
    assert_eq!(bench.told(all), [('o', 0), ('e', 1), ('e', 2), ('s', 4)]);
    bench.deliver(5);
    assert_eq!(bench.told(all), [('e', 5)]);
}

#[test]
fn a_hole_inside_what_is_held_is_told_in_its_place() {
    let mut bench = Bench::new(Vec::new());
    bench.deliver(1);
    bench.deliver(3);
    let all = bench.subscribe(From::Earliest);
    assert_eq!(bench.told(all), [('o', 0), ('e', 1), ('s', 2), ('e', 3)]);
}

#[test]
fn a_lost_connection_drops_what_is_held() {
    let mut bench = Bench::new(Vec::new());
    bench.deliver(1);
    assert_eq!(bench.hub.held("t").count(), 1);
    bench.input(Upstream::Lost);
    assert_eq!(bench.hub.held("t").count(), 0);
    assert!(!bench.hub.peek("t", Claim::Cursor(mark(1))).is_complete());
}

#[test]
fn a_shared_history_fills_what_the_buffer_lacks_or_the_resume_is_refused() {
    let mut bench = Bench::new((1..=3).map(message).collect());
    bench.minted = 3;
    bench.input(Upstream::Position { incarnation: SPACE, minted: Position::sequence(3) });
    bench.deliver(4);
    let resumed = bench.subscribe(From::After(Claim::Cursor(mark(1))));
    assert_eq!(bench.told(resumed), [('o', 4), ('e', 2), ('e', 3), ('e', 4)]);
    bench.history.remove(1);
    let refused = bench.subscribe(From::After(Claim::Cursor(mark(1))));
    assert_eq!(bench.told(refused), [('s', 4)]);
}

#[test]
fn two_events_at_one_position_end_the_space() {
    let mut bench = Bench::new(Vec::new());
    let live = bench.subscribe(From::Now);
    bench.deliver(1);
    assert_eq!(bench.told(live), [('o', 0), ('e', 1)]);
    let other = Message { payload: b"another"[..].into(), ..message(1) };
    bench.hub.handle_upstream(now(1), bench.channel, Upstream::Message(other));
    let seen = loop {
        match bench.hub.poll_command().expect("a run of the position script") {
            Command::Position { seen, .. } => break seen,
            Command::Subscribe { .. }
            | Command::Unsubscribe { .. }
            | Command::Abandon { .. }
            | Command::Publish { .. }
            | Command::History { .. } => {}
        }
    };
    assert_eq!(seen, Some(mark(u64::MAX)), "the space is spent whatever its state says");
    assert_eq!(bench.told(live), [('!', 0)]);
}

#[test]
fn a_silent_subscription_is_abandoned_with_its_connection() {
    let mut bench = Bench::new(Vec::new());
    let old = bench.channel;
    bench.hub.handle_timeout(now(1 + 3 * HubConfig::broker().times.heartbeat_ms));
    let told: Vec<Command> = std::iter::from_fn(|| bench.hub.poll_command())
        .filter(|command| !matches!(command, Command::Position { .. }))
        .collect();
    assert!(
        matches!(&told[..], [Command::Abandon { id, .. }, Command::Subscribe { id: new, .. }]
            if *id == old && *new != old),
        "{told:?}"
    );
}

#[test]
fn what_an_ended_subscription_carries_is_ignored() {
    let mut bench = Bench::new(Vec::new());
    let old = bench.channel;
    bench.input(Upstream::Lost);
    bench.hub.handle_timeout(now(1_000));
    let Some(Command::Subscribe { id, .. }) = bench.hub.poll_command() else { panic!("asked again") };
    bench.channel = id;
    bench.hub.handle_upstream(now(1_000), old, Upstream::Message(message(1)));
    bench.input(Upstream::Message(message(1)));
    assert_eq!(bench.hub.held("t").count(), 0, "not confirmed yet");
    bench.input(Upstream::Confirmed);
    bench.hub.handle_upstream(now(1_000), old, Upstream::Message(message(1)));
    assert_eq!((bench.hub.held("t").count(), bench.hub.counters().ignored), (0, 3));
}

#[test]
fn a_closed_hub_says_so() {
    let mut hub = Hub::new(HubConfig::minted(), Run(1), Seed::new([1; 32]), now(0));
    let live = hub.handle_subscribe(now(0), &topic(), Subscribe::new(From::Now)).unwrap();
    hub.handle_close(now(0));
    assert!(matches!(hub.poll_item(live), Some(Item::Opened(_))));
    assert_eq!(hub.poll_item(live), Some(Item::Closed));
    assert!(hub.handle_publish(now(0), &topic(), Publish::new(b"x")).is_err());
    assert!(hub.handle_subscribe(now(0), &topic(), Subscribe::new(From::Now)).is_err());
}

#[test]
fn an_unreachable_server_refuses_a_resume_and_the_stream_goes_on() {
    let mut bench = Bench::new(Vec::new());
    bench.deliver(1);
    let wish = Subscribe::new(From::After(Claim::Cursor(mark(1))));
    let id = bench.hub.handle_subscribe(now(1), &topic(), wish).unwrap();
    bench.hub.handle_timeout(now(10_000));
    let Some(Item::SyncRequired { reason, at }) = bench.hub.poll_item(id) else { panic!("refused") };
    assert_eq!((reason, at), (Reason::Unreachable, mark(1)));
}

#[test]
fn what_was_seen_is_told_after_a_lost_connection_too() {
    let mut bench = Bench::new(Vec::new());
    bench.deliver(1);
    bench.deliver(2);
    bench.hub.handle_upstream(now(1), bench.channel, Upstream::Lost);
    bench.hub.handle_timeout(now(1_000));
    let Some(Command::Subscribe { id, .. }) = bench.hub.poll_command() else { panic!("a subscription") };
    bench.hub.handle_upstream(now(1_000), id, Upstream::Confirmed);
    let Some(Command::Position { seen, .. }) = bench.hub.poll_command() else { panic!("a run") };
    assert_eq!(seen, Some(mark(2)));
    let published = bench.hub.handle_publish(now(1_000), &topic(), Publish::new(b"x"));
    assert!(published.is_ok(), "{published:?}");
    let Some(Command::Publish { seen, .. }) = bench.hub.poll_command() else { panic!("a publish") };
    assert_eq!(seen, Some(mark(2)));
}

#[test]
fn a_connection_that_subscribed_again_by_itself_ends_coverage_where_no_hole_can_be_seen() {
    let source = Source::Broker(Sequencing::Sparse);
    let mut bench = Bench::with(HubConfig { source, ..HubConfig::broker() }, Vec::new());
    bench.deliver(3);
    let open = bench.subscribe(From::After(Claim::Cursor(mark(3))));
    bench.deliver(7);
    assert_eq!(bench.told(open), [('o', 3), ('e', 7)]);
    // What was published while nobody listened came to nobody.
    bench.input(Upstream::Resubscribed);
    bench.deliver(12);
    assert_eq!(bench.told(open), [('s', 11), ('e', 12)]);
    let late = bench.subscribe(From::After(Claim::Cursor(mark(7))));
    assert_eq!(bench.told(late), [('s', 12)]);
}

#[test]
fn a_close_skips_nothing_that_waits() {
    let mut bench = Bench::new(Vec::new());
    (1..=3).for_each(|position| bench.deliver(position));
    let resumed = bench.subscribe(From::After(Claim::Cursor(mark(1))));
    bench.deliver(4);
    bench.hub.handle_close(now(1));
    assert_eq!(bench.told(resumed), [('o', 3), ('e', 2), ('e', 3), ('e', 4), ('c', 0)]);
}

#[test]
fn nothing_ages_after_a_close() {
    let mut config = HubConfig::broker();
    config.limits.buffer.age_ms_max = 100;
    let mut bench = Bench::with(config, Vec::new());
    (1..=3).for_each(|position| bench.deliver(position));
    let resumed = bench.subscribe(From::After(Claim::Cursor(mark(1))));
    // The deadline of this one was to come after the close.
    let wish = Subscribe::new(From::After(Claim::Cursor(mark(3))));
    bench.hub.handle_subscribe(now(1), &topic(), wish).unwrap();
    bench.hub.handle_close(now(1));
    bench.hub.handle_timeout(now(1_000));
    assert_eq!(bench.told(resumed), [('o', 3), ('e', 2), ('e', 3), ('c', 0)]);
    assert_eq!(bench.hub.pending().deadline, None);
}

/// Publishes `count` times, 10 ms apart; the answer of each comes before the message of the one before it.
/// Returns when it ends.
fn answers_ahead_of_messages(bench: &mut Bench, count: u64) -> u64 {
    let clock = |position: u64| now(position * 10);
    for position in 1..=count {
        bench.hub.handle_timeout(clock(position));
        let _ = bench.hub.handle_publish(clock(position), &topic(), Publish::new(b"x")).unwrap();
        let command = std::iter::from_fn(|| bench.hub.poll_command());
        let tickets = command.filter_map(|command| match command {
            Command::Publish { ticket, .. } => Some(ticket),
            Command::Subscribe { .. }
            | Command::Unsubscribe { .. }
            | Command::Abandon { .. }
            | Command::Position { .. }
            | Command::History { .. } => None,
        });
        let ticket = tickets.last().expect("a publish");
        bench.minted = position;
        let accepted = Minted::Accepted(Accepted { mark: mark(position), repeated: false });
        bench.hub.handle_completion(clock(position), ticket.complete(Ok(accepted)));
        if position > 1 {
            let last = Upstream::Message(message(position - 1));
            bench.hub.handle_upstream(clock(position), bench.channel, last);
        }
    }
    count * 10
}

#[test]
fn answers_ahead_of_messages_are_no_loss() {
    let mut bench = Bench::new(Vec::new());
    let live = bench.subscribe(From::Now);
    let end = answers_ahead_of_messages(&mut bench, 100);
    assert!(bench.hub.counters().lost.is_empty(), "{:?}", bench.hub.counters());
    let told = bench.told(live);
    assert_eq!(told.iter().filter(|(what, _)| *what == 'e').count(), 99, "every event but the last");
    assert!(told.iter().all(|(what, _)| "oeg".contains(*what)), "{told:?}");
    // The last one never comes.
    bench.hub.handle_timeout(now(end + 1_000));
    assert_eq!(bench.told(live), [('s', 100)]);
}

#[test]
fn a_resume_has_its_own_time_beside_publishes_that_are_owed() {
    let mut bench = Bench::new(Vec::new());
    // The time of what is owed ends soon after this.
    let end = answers_ahead_of_messages(&mut bench, 24);
    let wish = Subscribe::new(From::After(Claim::Cursor(mark(3))));
    let resumed = bench.hub.handle_subscribe(now(end), &topic(), wish).unwrap();
    let Some(Command::Position { ticket, .. }) = bench.hub.poll_command() else { panic!("a run") };
    bench.hub.handle_upstream(now(end + 5), bench.channel, Upstream::Message(message(24)));
    bench.hub.handle_timeout(now(end + 240));
    assert_eq!(bench.told(resumed), [], "the server may still answer");
    let standing = Standing::At { incarnation: SPACE, minted: Position::sequence(24) };
    bench.hub.handle_completion(now(end + 245), ticket.complete(Ok(standing)));
    let told = bench.told(resumed);
    assert_eq!((told.first(), told.len()), (Some(&('o', 24)), 22));
}

#[test]
fn a_topic_in_use_that_is_kept_for_no_time_stops_no_clock() {
    let mut config = HubConfig::minted();
    config.times.topic_idle_ms = 0;
    let mut hub = Hub::new(config, Run(1), Seed::new([1; 32]), now(0));
    let live = hub.handle_subscribe(now(0), &topic(), Subscribe::new(From::Now)).unwrap();
    hub.handle_timeout(now(5));
    assert_eq!(hub.pending().deadline, Some(now(6).mono), "it is looked at again later, not at once");
    hub.handle_unsubscribe(now(6), live);
    hub.handle_timeout(now(7));
    assert!(hub.topic("t").is_none());
}

#[test]
#[should_panic(expected = "expected a heartbeat_ms of at least 1, found 0")]
fn a_heartbeat_without_a_period_is_refused() {
    let mut config = HubConfig::broker();
    config.times.heartbeat_ms = 0;
    let _ = Hub::new(config, Run(1), Seed::new([1; 32]), now(0));
}

#[test]
fn the_longest_periods_overflow_nothing() {
    let mut config = HubConfig::broker();
    (config.times.heartbeat_ms, config.times.settle_ms) = (u64::MAX, u64::MAX);
    let mut bench = Bench::with(config, Vec::new());
    bench.deliver(1);
    assert_eq!(bench.hub.held("t").count(), 1);
}

#[test]
fn a_loss_that_lies_behind_what_came_is_told_in_its_place_too() {
    let source = Source::Broker(Sequencing::Sparse);
    let mut bench = Bench::with(HubConfig { source, ..HubConfig::broker() }, Vec::new());
    for position in [7, 9, 8] {
        bench.deliver(position);
    }
    let at_end = bench.subscribe(From::Earliest);
    assert_eq!(bench.told(at_end), [('o', 6), ('e', 7), ('e', 9), ('s', 9)]);
    bench.deliver(10);
    let inside = bench.subscribe(From::Earliest);
    assert_eq!(bench.told(inside), [('o', 6), ('e', 7), ('e', 9), ('s', 9), ('e', 10)]);
    let behind = bench.subscribe(From::Last);
    assert_eq!(bench.told(behind), [('o', 10), ('e', 10)]);
}

#[test]
fn a_kind_that_could_pose_as_a_notice_is_refused() {
    let mut hub = Hub::new(HubConfig::minted(), Run(1), Seed::new([1; 32]), now(0));
    let mut publish = |kind| hub.handle_publish(now(0), &topic(), Publish { kind, ..Publish::new(b"x") });
    for (kind, found) in
        [("opened", "opened"), ("gap", "gap"), ("sync_required", "sync_required"), ("x;base64", ";base64")]
    {
        assert_eq!(publish(kind), Err(PublishError::ReservedKind { found }));
    }
    assert!(publish("opened2").is_ok());
}
