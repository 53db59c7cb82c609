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
use strandline_core::stream::{Handle, Layout, OnceKey, Outcome, StreamError, StreamName, StreamReply, Verb};
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
