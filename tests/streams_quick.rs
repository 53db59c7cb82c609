//! The quick ways of publications under a key: which commands they are, and that they change what the others
//! would, whatever became of the keys.

use redis::cmd;
use std::collections::BTreeMap;
use std::time::Duration;
use strandline_core::stream::event::Event;
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::op::{Condition, Nonce};
use strandline_core::stream::reply::Told;
use strandline_core::stream::retention::Settings;
use strandline_core::stream::{
    ConsumerName, ForeignFault, GroupContract, GroupName, Handle, Ids, Layout, OnceKey, Outcome, Start,
    StreamError, StreamName, StreamReply, Verb, filter::Filter,
};
use strandline_redis::Names;
use strandline_tests::streams::backend::Backend as _;
use strandline_tests::streams::monitor;
use strandline_tests::streams::redis::Real;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The least time that puts what follows into another millisecond.
const MILLISECOND_US: u64 = 1000;
const ONCE: &str = "s:{orders}:orders:1:once";
const AT: &str = "s:{orders}:orders:1:once-at";

fn tagged() -> Real {
    Real::start_frozen(Names::tagged_below("s").expect("a name"))
}

fn name() -> StreamName {
    StreamName::new("orders").expect("a name")
}

fn handle(settings: Settings, layout: Layout) -> Handle {
    Handle::new(name(), settings.wanted().expect("settings"), layout).expect("a handle")
}

fn event() -> Event {
    Event::new("e", "payload").expect("an event")
}

fn once(key: &str) -> Verb {
    Verb::AddOnce { key: OnceKey::new(key).expect("a key"), event: event() }
}

fn apply(real: &mut Real, handle: &Handle, verb: Verb) -> Result<StreamReply, StreamError> {
    let Outcome::Answered { result, .. } = real.apply(&handle.op(verb, Nonce([1; 16]))) else {
        panic!("no answer")
    };
    result
}

fn ask(real: &mut Real, handle: &mut Handle, verb: Verb) -> Told {
    let result = apply(real, handle, verb.clone());
    handle.answered(&verb, &result);
    result.unwrap_or_else(|error| panic!("{verb:?}: {error}")).told
}

fn is_published(told: &Told) -> bool {
    matches!(told, Told::AddedOnce { published: true, .. })
}

/// Publishes, and tells the commands of it.
fn commands(real: &mut Real, handle: &mut Handle, key: &str) -> Vec<String> {
    let (commands, told) = monitor::inside(real.process().port(), || ask(real, handle, once(key)));
    assert!(is_published(&told), "{key}: {told:?}");
    commands
}

/// The first of a millisecond moves the expiries on, and the others find them moved.
#[test]
fn a_publication_under_a_key_is_these_commands() {
    let mut real = tagged();
    let mut handle = handle(Settings::new(), Layout::Tagged);
    ask(&mut real, &mut handle, once("makes the log"));
    real.advance_us(MILLISECOND_US);
    let written = ["TIME", "HMGET", "HGET", "HLEN", "ZRANGEBYSCORE", "XADD", "ZADD", "HSET"];
    for (key, expiries) in [("first", ["PEXPIREAT"; 2]), ("second", ["PEXPIRETIME"; 2])] {
        let seen = commands(&mut real, &mut handle, key);
        assert_eq!(seen, written.into_iter().chain(expiries).collect::<Vec<_>>(), "{key}");
    }
}

#[test]
fn a_publication_under_a_key_is_these_commands_in_the_pulse_layout() {
    let read = ["TIME", "HMGET", "HGET", "HLEN", "SCARD"];
    let written = ["XADD", "HSET", "SADD", "HSET"];
    let sliding: &[&str] = &["PEXPIREAT"; 4];
    for (settings, asks, expiries) in [
        (Settings::new().ttl(DAY).sliding(), &[][..], sliding),
        (Settings::new().ttl(DAY), &["PEXPIRETIME"][..], &sliding[1..]),
    ] {
        let mut real = Real::start_frozen(Names::Pulse);
        let mut handle = handle(settings, Layout::Pulse);
        ask(&mut real, &mut handle, once("makes the log"));
        real.advance_us(MILLISECOND_US);
        let seen = commands(&mut real, &mut handle, "first");
        let expected = read.iter().chain(asks).chain(&written).chain(expiries);
        assert_eq!(seen, expected.copied().collect::<Vec<_>>());
    }
}

/// What became of a key of the records before a publication.
#[derive(Clone, Copy, Debug)]
enum Became {
    Lost,
    Persistent,
    EndsSooner,
    EndsLater,
}

fn expiry(real: &mut Real, key: &str) -> u64 {
    real.send(cmd("PEXPIRETIME").arg(key)).expect("an instant")
}

#[test]
fn records_outlive_their_window_whatever_became_of_their_keys() {
    for key in [ONCE, AT] {
        for became in [Became::Lost, Became::Persistent, Became::EndsSooner, Became::EndsLater] {
            // The first publication of a millisecond, and another one.
            for first in [true, false] {
                let mut real = tagged();
                let mut handle = handle(Settings::new(), Layout::Tagged);
                assert!(is_published(&ask(&mut real, &mut handle, once("before"))));
                let before = [ONCE, AT].map(|key| expiry(&mut real, key));
                real.advance_us(MILLISECOND_US);
                if !first {
                    ask(&mut real, &mut handle, Verb::Add { event: event(), condition: Condition::Always });
                }
                let done: u64 = match became {
                    Became::Lost => real.send(cmd("DEL").arg(key)),
                    Became::Persistent => real.send(cmd("PERSIST").arg(key)),
                    Became::EndsSooner => real.send(cmd("PEXPIREAT").arg(key).arg(before[0] - 5000)),
                    Became::EndsLater => real.send(cmd("PEXPIREAT").arg(key).arg(before[0] + 5000)),
                }
                .expect("done");
                assert_eq!(done, 1);
                assert!(is_published(&ask(&mut real, &mut handle, once("after"))));
                for (at, before) in [ONCE, AT].into_iter().zip(before) {
                    let later = at == key && matches!(became, Became::EndsLater);
                    let instant = if later { before + 5000 } else { before + 1 };
                    assert_eq!(expiry(&mut real, at), instant, "{at} beside {key}: {became:?}, {first}");
                }
                let again = ask(&mut real, &mut handle, once("after"));
                assert!(matches!(again, Told::AddedOnce { published: false, .. }), "{again:?}");
            }
        }
    }
}

/// Everything in a server, as it would be carried to another one.
fn contents(real: &mut Real) -> BTreeMap<String, (Vec<u8>, i64)> {
    let keys: Vec<String> = real.send(cmd("KEYS").arg("*")).expect("keys");
    let content = |key: String| {
        let bytes = real.send(cmd("DUMP").arg(&key)).expect("a dump");
        let expires = real.send(cmd("PEXPIRETIME").arg(&key)).expect("an instant");
        (key, (bytes, expires))
    };
    keys.into_iter().map(content).collect()
}

/// By a handle that is bound, and by one that is not.
#[test]
fn nothing_is_published_where_a_key_of_the_records_is_of_another_type() {
    let stream = name();
    let pulse = PulseKeys { stream: &stream, generation: 1 };
    let of_pulse = [pulse.log(), pulse.once(), pulse.recovery(), pulse.registry()];
    for (names, keys) in [
        (Names::tagged_below("s").expect("a name"), &[ONCE, AT].map(String::from)[..]),
        (Names::Pulse, &of_pulse[..]),
    ] {
        for key in keys {
            let mut real = Real::start_frozen(names.clone());
            let settings = || Settings::new().ttl(DAY);
            let plain = || if names.layout() == Layout::Tagged { Settings::new() } else { settings() };
            let mut bound = handle(plain(), names.layout());
            ask(&mut real, &mut bound, once("before"));
            real.send::<()>(cmd("SET").arg(key).arg("another type")).expect("set");
            let before = contents(&mut real);
            for handle in [&bound, &handle(plain(), names.layout())] {
                let result = apply(&mut real, handle, once("after"));
                assert!(result.is_err(), "{key}: {result:?}");
                assert_eq!(contents(&mut real), before, "{key}");
            }
        }
    }
}

/// A server may evict the one key and keep the other.
#[test]
fn records_that_lost_their_instants_get_one_and_end() {
    const WINDOW_US: u64 = 400_000;
    let settings = Settings::new().once_window(Duration::from_micros(WINDOW_US));
    // Whether the next to come is another key, or one of those.
    for (next, published) in [("other", true), ("first", false)] {
        let mut real = tagged();
        let mut handle = handle(settings, Layout::Tagged);
        for key in ["first", "second"] {
            assert!(is_published(&ask(&mut real, &mut handle, once(key))));
        }
        assert_eq!(real.send::<u64>(cmd("DEL").arg(AT)).expect("deleted"), 1);
        assert_eq!(is_published(&ask(&mut real, &mut handle, once(next))), published);
        let [kept, instants] = [
            real.send::<u64>(cmd("HLEN").arg(ONCE)).expect("a number"),
            real.send::<u64>(cmd("ZCARD").arg(AT)).expect("a number"),
        ];
        assert_eq!((kept, instants), (2 + u64::from(published), kept));
        let last: Vec<(String, u64)> =
            real.send(cmd("ZRANGE").arg(AT).arg(&["-1", "-1", "WITHSCORES"])).expect("the last");
        assert!(expiry(&mut real, ONCE) >= last[0].1 && expiry(&mut real, AT) >= last[0].1);
        real.advance_us(2 * WINDOW_US);
        for key in ["first", "second"] {
            assert!(is_published(&ask(&mut real, &mut handle, once(key))), "its window is over");
        }
    }
}

/// What a step would find only behind its first effect is looked at before it.
#[test]
fn books_that_cannot_be_read_leave_what_was_given_as_it_is() {
    let mut real = tagged();
    let mut handle = handle(Settings::new(), Layout::Tagged);
    let (g, c) = (GroupName::new("g").expect("a name"), ConsumerName::new("c").expect("a name"));
    let contract = GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 10 };
    let add = Verb::Add { event: event(), condition: Condition::Always };
    for _ in 0..2 {
        ask(&mut real, &mut handle, add.clone());
    }
    ask(&mut real, &mut handle, Verb::GroupOpen { group: g.clone(), contract, settled: None });
    let read = Verb::GroupRead { group: g.clone(), consumer: c.clone(), events_max: 1 };
    let Told::Taken { entries, .. } = ask(&mut real, &mut handle, read.clone()) else { panic!("an entry") };
    let ids = Ids::new([entries[0].id]).expect("one");
    let (log, books) = ("s:{orders}:orders:1:log", "s:{orders}:orders:1:groups");
    let pending = |real: &mut Real| {
        let rows: Vec<(String, String, u64, u64)> =
            real.send(cmd("XPENDING").arg(log).arg(&["g", "-", "+", "9"])).expect("rows");
        rows.len()
    };
    let ack = Verb::GroupAck { group: g.clone(), ids: ids.clone() };
    let bury = Verb::GroupBury { group: g, consumer: c, ids };
    for (field, verbs) in [("read", &[&read, &ack, &bury][..]), ("cursor", &[&ack, &bury])] {
        let key = format!("{field}:g");
        let before: String = real.send(cmd("HGET").arg(books).arg(&key)).expect("a position");
        real.send::<()>(cmd("HSET").arg(books).arg(&key).arg("x")).expect("written");
        for verb in verbs {
            // Twice: the first time may have changed what the second looks at.
            for _ in 0..2 {
                let fault = StreamError::from(ForeignFault::Books { field: field.into() });
                assert_eq!(apply(&mut real, &handle, (*verb).clone()), Err(fault), "{verb:?}");
                assert_eq!(pending(&mut real), 1, "{verb:?}");
            }
        }
        real.send::<()>(cmd("HSET").arg(books).arg(&key).arg(&before)).expect("written");
    }
    let saved: Vec<u8> = real.send(cmd("DUMP").arg(books)).expect("its contents");
    real.send::<()>(cmd("SET").arg(books).arg("foreign")).expect("written");
    for verb in [&read, &ack, &bury] {
        for _ in 0..2 {
            assert!(apply(&mut real, &handle, verb.clone()).is_err(), "{verb:?}");
            assert_eq!(pending(&mut real), 1, "{verb:?}");
        }
    }
    real.send::<()>(cmd("RESTORE").arg(books).arg(0).arg(saved).arg("REPLACE")).expect("restored");
    assert!(matches!(ask(&mut real, &mut handle, ack), Told::Acked { count: 1, .. }));
}

#[test]
fn nothing_is_published_where_what_follows_it_is_of_another_type() {
    let keys = PulseKeys { stream: &name(), generation: 1 };
    let far_ms = (1 << 50) - 1;
    for settings in [Settings::new().ttl(DAY).sliding(), Settings::new().deadline_ms(far_ms)] {
        for foreign in [keys.recovery(), keys.registry()] {
            let mut real = Real::start(Names::Pulse);
            let mut handle = handle(settings, Layout::Pulse);
            let add = Verb::Add { event: event(), condition: Condition::Always };
            ask(&mut real, &mut handle, add.clone());
            real.send::<()>(cmd("SET").arg(&foreign).arg("foreign")).expect("written");
            for _ in 0..2 {
                let fault = StreamError::from(ForeignFault::Resource);
                assert_eq!(apply(&mut real, &handle, add.clone()), Err(fault), "{foreign}");
                assert_eq!(real.send::<u64>(cmd("XLEN").arg(keys.log())).expect("a length"), 1, "{foreign}");
            }
        }
    }
}
