//! What only a real server shows: lost answers, waiting, declared keys, sizes.

use redis::cmd;
use std::time::Duration;
use strandline_core::seed::Seed;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::error::{CallerError, Mismatch};
use strandline_core::stream::event::Event;
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::op::{Condition, Lease, Nonce};
use strandline_core::stream::reply::{Told, Uncertain};
use strandline_core::stream::retention::Settings;
use strandline_core::stream::{
    ConsumerName, EventId, ForeignFault, GroupContract, GroupName, Handle, Ids, Layout, OnceKey, Outcome,
    ServerFault, Start, StreamError, StreamName, StreamReply, Verb, Wanted, filter::Filter,
};
use strandline_redis::{Address, Bell, Bounds, Names, Remote};
use strandline_tests::streams::backend::Backend as _;
use strandline_tests::streams::every::every_operation;
use strandline_tests::streams::monitor::{self, Watch, declared};
use strandline_tests::streams::redis::{ANSWER_MS_MAX, Real};
use strandline_tests::streams::server::RedisServer;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn both() -> [Names; 2] {
    [Names::Pulse, Names::tagged_below("s").expect("a name")]
}

fn handle(layout: Layout) -> Handle {
    Handle::new(StreamName::new("orders").expect("a name"), Wanted::default(), layout).expect("a handle")
}

fn address(process: &RedisServer) -> Address {
    Address::one(&process.url()).expect("an address")
}

fn event() -> Event {
    Event::new("e", "payload").expect("an event")
}

fn add() -> Verb {
    Verb::Add { event: event(), condition: Condition::Always }
}

/// Asks, and lets the handle know.
fn ask(real: &mut Real, handle: &mut Handle, verb: Verb) -> StreamReply {
    let op = handle.op(verb, Nonce([1; 16]));
    let Outcome::Answered { result, .. } = real.apply(&op) else { panic!("no answer to {op:?}") };
    handle.answered(&op.verb, &result);
    result.unwrap_or_else(|error| panic!("{op:?}: {error}"))
}

/// A server that takes its time: the answer is given up, the step is done all the same.
#[test]
fn an_answer_that_comes_too_late_is_uncertain_and_not_a_no() {
    for names in both() {
        let process = RedisServer::start(None);
        let client = redis::Client::open(process.url()).expect("an address");
        runtime().block_on(async {
            let config = redis::AsyncConnectionConfig::new()
                .set_response_timeout(Some(Duration::from_millis(ANSWER_MS_MAX)));
            let patient = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut patient = patient.expect("connected");
            let mut server = address(&process).server(names.clone(), 300).await.expect("connected");
            let handle = handle(names.layout());
            let op = handle.op(add(), Nonce([1; 16]));
            // The server knows the script from now on: the step needs no second message.
            assert!(matches!(server.apply(&op).await, Outcome::Answered { result: Ok(_), .. }));
            cmd("CLIENT").arg("PAUSE").arg(900).arg("WRITE").exec_async(&mut patient).await.expect("paused");
            assert_eq!(server.apply(&op).await, Outcome::Uncertain(Uncertain::new(op.clone())));
            assert_eq!(Uncertain::new(op).repeatable(), None, "a second copy may follow");
            cmd("CLIENT").arg("UNPAUSE").exec_async(&mut patient).await.expect("goes on");
            let once = Verb::AddOnce { key: OnceKey::new("k").expect("a key"), event: event() };
            let once = Uncertain::new(handle.op(once, Nonce([1; 16])));
            assert!(once.repeatable().is_some(), "its record answers the second time");
            tokio::time::sleep(Duration::from_millis(50)).await;
            let snapshot = server.apply(&handle.op(Verb::Snapshot, Nonce([1; 16]))).await;
            let Outcome::Answered { result: Ok(StreamReply { told: Told::Entries(entries), .. }), .. } =
                snapshot
            else {
                panic!("{snapshot:?}");
            };
            assert_eq!(entries.len(), 2, "the second step was done, too");
        });
    }
}

#[test]
fn a_server_that_is_gone_leaves_the_outcome_uncertain() {
    let process = RedisServer::start(None);
    let address = address(&process);
    runtime().block_on(async {
        let mut server = address.server(Names::Pulse, 2_000).await.expect("connected");
        drop(process);
        let op = handle(Layout::Pulse).op(add(), Nonce([1; 16]));
        assert_eq!(server.apply(&op).await, Outcome::Uncertain(Uncertain::new(op)));
        assert!(address.server(Names::Pulse, 2_000).await.is_err());
    });
}

/// A wait holds up no operation, and rings when there is news.
#[test]
fn waiting_has_a_connection_of_its_own() {
    for names in both() {
        let process = RedisServer::start(None);
        let address = address(&process);
        runtime().block_on(async {
            let mut server = address.server(names.clone(), 5_000).await.expect("connected");
            let stream = StreamName::new("orders").expect("a name");
            let logs = [LogPosition { stream, generation: 1, after: EventId::ZERO }];
            let mut quick = Bell::new(address.clone(), names.clone(), 20).expect("a bell");
            assert_eq!(quick.wait(&logs).await, Waited::TimeOut);
            let mut bell = Bell::new(address.clone(), names.clone(), 60_000).expect("a bell");
            let op = handle(names.layout()).op(add(), Nonce([1; 16]));
            let publish = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                server.apply(&op).await
            };
            let (waited, outcome) = futures_join(bell.wait(&logs), publish).await;
            assert_eq!(waited, Waited::Rung);
            assert!(matches!(outcome, Outcome::Answered { result: Ok(_), .. }), "{outcome:?}");
            assert!(Bell::new(address, names.clone(), 0).is_err(), "zero is for ever");
        });
    }
}

async fn futures_join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    tokio::join!(a, b)
}

/// An undeclared key on the same node would work, and fail in a cluster: so the server is asked what the
/// scripts touch.
#[test]
fn every_key_a_tagged_script_touches_was_declared() {
    let mut real = Real::start(Names::tagged_below("s").expect("a name"));
    let port = real.process().port();
    let watch = Watch::begin(port);
    every_operation("orders", Layout::Tagged, &mut |op| real.apply(op));
    let client = redis::Client::open(real.process().url()).expect("an address");
    let seen = declared(&watch.end(&mut client.get_connection().expect("connected")));
    assert!(seen.scripts.len() >= 24 && seen.touches > 60, "{seen:?}");
}

/// A script that ends half-way keeps what it did: the record of a publication must not be among it.
#[test]
fn a_publication_that_fails_leaves_no_record() {
    let mut real = Real::start(Names::tagged_below("s").expect("a name"));
    let mut handle = handle(Layout::Tagged);
    ask(&mut real, &mut handle, Verb::Open);
    real.send::<()>(cmd("SET").arg("s:{orders}:orders:1:log").arg("no log")).expect("set");
    let once = || Verb::AddOnce { key: OnceKey::new("k").expect("a key"), event: event() };
    let Outcome::Answered { result, .. } = real.apply(&handle.op(once(), Nonce([1; 16]))) else {
        panic!("no answer")
    };
    assert!(result.is_err(), "{result:?}");
    real.send::<()>(cmd("DEL").arg("s:{orders}:orders:1:log")).expect("deleted");
    let told = ask(&mut real, &mut handle, once()).told;
    assert!(matches!(told, Told::AddedOnce { published: true, .. }), "{told:?}");
    let Told::Entries(entries) = ask(&mut real, &mut handle, Verb::Snapshot).told else { panic!("entries") };
    assert_eq!(entries.len(), 1);
}

/// As after a restore on a server whose clock is behind: what comes lies behind the cursor.
#[test]
fn a_cursor_ahead_of_the_clock_hides_no_event() {
    for names in both() {
        let (key, field, log) = match names.layout() {
            Layout::Pulse => ("pulse:stream:orders:sink-recovery:1", "mail", "pulse:stream:orders"),
            Layout::Tagged => ("s:{orders}:orders:1:groups", "cursor:mail", "s:{orders}:orders:1:log"),
        };
        let mut handle = handle(names.layout());
        let mut real = Real::start(names);
        let group = GroupName::new("mail").expect("a name");
        let consumer = strandline_core::stream::ConsumerName::new("C1").expect("a name");
        let contract =
            GroupContract { filter: Filter::All, start: Start::Newest, no_ack: false, grace_ms: 1000 };
        let open = || Verb::GroupOpen { group: group.clone(), contract: contract.clone(), settled: None };
        ask(&mut real, &mut handle, open());
        real.send::<()>(cmd("HSET").arg(key).arg(field).arg("9999999999999-0")).expect("set");
        real.send::<()>(cmd("DEL").arg(log)).expect("deleted");
        let Told::Added { id: Some(id) } = ask(&mut real, &mut handle, add()).told else { panic!("added") };
        ask(&mut real, &mut handle, open());
        let read = Verb::GroupRead { group, consumer, events_max: 10 };
        let Told::Taken { entries, .. } = ask(&mut real, &mut handle, read).told else { panic!("entries") };
        assert_eq!(entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), [id]);
    }
}

/// The registry of the Pulse layout can be lost alone, or have expired under a client that lets it.
#[test]
fn a_destroy_finds_what_a_lost_registry_named() {
    let mut real = Real::start(Names::Pulse);
    let mut handle = handle(Layout::Pulse);
    let group = GroupName::new("mail").expect("a name");
    let consumer = strandline_core::stream::ConsumerName::new("C1").expect("a name");
    let contract = GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 1000 };
    ask(&mut real, &mut handle, Verb::GroupOpen { group: group.clone(), contract, settled: None });
    let owner = "C1/orders".to_string();
    ask(&mut real, &mut handle, Verb::LeaseAcquire { group: group.clone(), owner, lease_ms: 1000 });
    ask(&mut real, &mut handle, Verb::GroupRegister { group, consumer });
    let lost: u64 = real.send(cmd("DEL").arg("pulse:stream:orders:generation:1:resources")).expect("deleted");
    assert_eq!(lost, 1);
    assert_eq!(ask(&mut real, &mut handle, Verb::Destroy).told, Told::Destroyed { now: true });
    let left: Vec<String> = real.send(cmd("KEYS").arg("*")).expect("keys");
    assert_eq!(left, ["pulse:stream:orders:lifecycle"]);
}

/// What most calls are costs a server these commands and no others: no walk, nothing twice.
#[test]
fn the_quick_ways_are_these_commands() {
    let mut real = Real::start(Names::tagged_below("s").expect("a name"));
    let mut handle = handle(Layout::Tagged);
    let group = GroupName::new("mail").expect("a name");
    let consumer = strandline_core::stream::ConsumerName::new("C1").expect("a name");
    let contract = GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 1000 };
    let read = || Verb::GroupRead { group: group.clone(), consumer: consumer.clone(), events_max: 1 };
    for verb in [add(), add(), add(), add()] {
        ask(&mut real, &mut handle, verb);
    }
    ask(&mut real, &mut handle, Verb::GroupOpen { group: group.clone(), contract, settled: None });
    let Told::Taken { entries, .. } = ask(&mut real, &mut handle, read()).told else { panic!("entries") };
    let ids: Vec<EventId> = entries.iter().map(|entry| entry.id).collect();
    let ack = Verb::GroupAck { group: group.clone(), ids: Ids::new(ids).expect("few") };
    let expected: [(Verb, &[&str]); 3] = [
        (add(), &["TIME", "HMGET", "XADD"]),
        (read(), &["TIME", "HMGET", "HMGET", "XREADGROUP", "XRANGE", "HSET"]),
        (ack, &["TIME", "HMGET", "HMGET", "XACK", "XPENDING", "XRANGE", "XREVRANGE", "HSET"]),
    ];
    for (verb, commands) in expected {
        let (seen, _) = inside(&mut real, &mut handle, verb.clone());
        assert_eq!(seen, commands, "{verb:?}");
    }
}

/// Asks, and tells the commands inside the script.
fn inside(real: &mut Real, handle: &mut Handle, verb: Verb) -> (Vec<String>, Told) {
    monitor::inside(real.process().port(), || ask(real, handle, verb).told)
}

/// Asked for what lies before the oldest entry, a server walks the whole log backwards: so nobody may ask.
#[test]
fn nothing_is_looked_for_before_the_oldest_entry() {
    for names in both() {
        let mut real = Real::start(names.clone());
        let mut handle = handle(names.layout());
        let group = GroupName::new("mail").expect("a name");
        let consumer = strandline_core::stream::ConsumerName::new("C1").expect("a name");
        let contract =
            GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 1000 };
        for _ in 0..3 {
            ask(&mut real, &mut handle, add());
        }
        let open = Verb::GroupOpen { group: group.clone(), contract, settled: None };
        let read = Verb::GroupRead { group: group.clone(), consumer: consumer.clone(), events_max: 2 };
        let mut told = Vec::new();
        for verb in [open, read, Verb::Read { after: EventId::ZERO, events_max: 2 }] {
            let (commands, answer) = inside(&mut real, &mut handle, verb.clone());
            assert!(!commands.iter().any(|command| command == "XREVRANGE"), "{verb:?}: {commands:?}");
            told.push(answer);
        }
        let Told::Taken { entries, .. } = &told[1] else { panic!("entries") };
        // The first stays pending, and is the oldest kept.
        let ack = Verb::GroupAck { group, ids: Ids::new([entries[1].id]).expect("one") };
        let (commands, _) = inside(&mut real, &mut handle, ack);
        assert!(!commands.iter().any(|command| command == "XREVRANGE"), "{commands:?}");
    }
}

/// More IDs than fit on Lua's stack at once.
#[test]
fn more_than_20000_ids_in_one_call() {
    for names in both() {
        let layout = names.layout();
        let mut real = Real::start(names);
        let mut handle = Handle::new(
            StreamName::new("orders").expect("a name"),
            Settings::new().unbounded().wanted().expect("settings"),
            layout,
        )
        .expect("a handle");
        let group = GroupName::new("mail").expect("a name");
        let consumer = strandline_core::stream::ConsumerName::new("C1").expect("a name");
        ask(&mut real, &mut handle, add());
        let bound = handle.bound().expect("bound").generation;
        let log = match layout {
            Layout::Pulse => "pulse:stream:orders".to_string(),
            Layout::Tagged => format!("s:{{orders}}:orders:{bound}:log"),
        };
        let fill = "for i=1,20500 do redis.call('XADD',KEYS[1],'*','n','e','p','x') end return 1";
        real.send::<i64>(cmd("EVAL").arg(fill).arg(1).arg(&log)).expect("filled");
        let contract =
            GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 1000 };
        ask(&mut real, &mut handle, Verb::GroupOpen { group: group.clone(), contract, settled: None });
        let mut ids = Vec::new();
        loop {
            let read =
                Verb::GroupRead { group: group.clone(), consumer: consumer.clone(), events_max: 10_000 };
            let Told::Taken { entries, .. } = ask(&mut real, &mut handle, read).told else {
                panic!("entries")
            };
            if entries.is_empty() {
                break;
            }
            ids.extend(entries.iter().map(|entry| entry.id));
        }
        assert!(ids.len() > 20_000);
        let ids = Ids::new(ids).expect("within the bound");
        let count = ids.as_slice().len() as u64;
        let acked = ask(&mut real, &mut handle, Verb::GroupAck { group, ids: ids.clone() }).told;
        assert_eq!(acked, Told::Acked { count, cursor: ids.as_slice().last().copied() });
        assert_eq!(ask(&mut real, &mut handle, Verb::Remove { ids }).told, Told::Removed { count });
    }
}

/// A generation with 20,000 groups ends at once, and nothing of it is left.
#[test]
fn a_generation_with_20000_groups_is_destroyed_whole() {
    for names in both() {
        let layout = names.layout();
        let mut real = Real::start(names);
        let mut handle = handle(layout);
        ask(&mut real, &mut handle, add());
        let fill = match layout {
            Layout::Pulse => {
                "for i=1,20000 do
                   local g, k = 'g'..i, 'pulse:stream:orders:generation:1:sink:g'..i
                   redis.call('HSET', k..':config', 'filter_kind', 'all')
                   redis.call('HSET', k..':stalelease', 'owner', 'o')
                   redis.call('HSET', 'map:stream:orders:generation:1:sink:'..g..':keepalive:content', 'C', '1')
                   redis.call('HSET', 'pulse:stream:orders:sink-recovery:1', g, '0-0')
                   redis.call('SADD', 'pulse:stream:orders:generation:1:resources', k..':config')
                 end
                 return 1"
            }
            Layout::Tagged => {
                "for i=1,20000 do
                   redis.call('HSET', 's:{orders}:orders:1:groups', 'cursor:g'..i, '0-0', 'contract:g'..i, 'x')
                 end
                 return 1"
            }
        };
        real.send::<i64>(cmd("EVAL").arg(fill).arg(0)).expect("filled");
        assert_eq!(ask(&mut real, &mut handle, Verb::Destroy).told, Told::Destroyed { now: true });
        let left: Vec<String> = real.send(cmd("KEYS").arg("*")).expect("keys");
        assert_eq!(left.len(), 1, "only the tombstone is left: {left:?}");
    }
}

/// What somebody else wrote into the books of a group is refused by its name, before anything is changed.
#[test]
fn an_unreadable_list_in_the_books_of_a_group_is_named_and_nothing_is_changed() {
    let mut real = Real::start(Names::tagged_below("s").expect("a name"));
    let client = redis::Client::open(real.process().url()).expect("an address");
    let (mut plain, mut handle) = (client.get_connection().expect("connected"), handle(Layout::Tagged));
    let (g, c) = (GroupName::new("mail").expect("a name"), ConsumerName::new("c").expect("a name"));
    let contract = GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 10 };
    ask(&mut real, &mut handle, add());
    ask(&mut real, &mut handle, Verb::GroupOpen { group: g.clone(), contract, settled: None });
    let books = "s:{orders}:orders:1:groups";
    let read = || Verb::GroupRead { group: g.clone(), consumer: c.clone(), events_max: 5 };
    let nack = || {
        let ids = Ids::new([EventId { ms: 1, seq: 0 }]).expect("one");
        Verb::GroupNack { group: g.clone(), consumer: c.clone(), ids, delay_ms: 5 }
    };
    let told = || Verb::GroupTold { group: g.clone(), through: 1 };
    let list = || Verb::Groups { after: None, groups_max: 5 };
    let unreadable = ["{", "7", "[7]", "[[\"1\"]]"];
    for (field, texts, verbs) in [
        ("missed", &unreadable[..], vec![read(), told(), list()]),
        ("later", &unreadable[..], vec![nack(), list()]),
        ("contract", &unreadable[..], vec![list()]),
    ] {
        let key = format!("{field}:mail");
        let before: Option<String> = cmd("HGET").arg(books).arg(&key).query(&mut plain).expect("asked");
        for text in texts {
            cmd("HSET").arg(books).arg(&key).arg(text).exec(&mut plain).expect("written");
            for verb in &verbs {
                let op = handle.op(verb.clone(), Nonce([1; 16]));
                let fault = StreamError::from(ForeignFault::Books { field: field.into() });
                let outcome = real.apply(&op);
                assert!(
                    matches!(&outcome, Outcome::Answered { result: Err(error), .. } if *error == fault),
                    "{key} = {text}, {verb:?}: {outcome:?}"
                );
            }
        }
        match before {
            Some(text) => cmd("HSET").arg(books).arg(&key).arg(text).exec(&mut plain).expect("written"),
            None => cmd("HDEL").arg(books).arg(&key).exec(&mut plain).expect("deleted"),
        }
    }
    let Told::Taken { entries, .. } = ask(&mut real, &mut handle, read()).told else { panic!("entries") };
    assert_eq!(entries.len(), 1, "no refused read took it");
}

/// Others write to a key space of the Pulse layout: a name of theirs that is none here costs nobody else
/// the connection.
#[test]
fn a_name_of_somebody_else_is_refused_and_disturbs_nothing() {
    let process = RedisServer::start(None);
    let client = redis::Client::open(process.url()).expect("an address");
    let mut watching = client.get_connection().expect("connected");
    let remote = Remote::new(address(&process), Names::Pulse, Bounds::default(), Seed::new([1; 32]));
    let remote = remote.expect("admitted");
    let mut handle = handle(Layout::Pulse);
    let runtime = runtime();
    let mut apply = |verb: Verb| {
        let op = handle.op(verb, Nonce([1; 16]));
        let Outcome::Answered { result, .. } = runtime.block_on(remote.apply(&op)) else {
            panic!("no answer to {op:?}")
        };
        handle.answered(&op.verb, &result);
        result.map(|reply| reply.told)
    };
    let (g, c) = (GroupName::new("mail").expect("a name"), ConsumerName::new("c").expect("a name"));
    let contract = GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 10 };
    apply(add()).expect("published");
    apply(Verb::GroupOpen { group: g.clone(), contract, settled: None }).expect("made");
    let mut connections = || -> u64 {
        let stats: String = cmd("INFO").arg("stats").query(&mut watching).expect("asked");
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.expect("told").parse().expect("a number")
    };
    let before = connections();
    let list = || Verb::Groups { after: None, groups_max: 5 };
    // The one who sweeps takes them out, whatever they are called.
    let log = "pulse:stream:orders";
    let mut plain = client.get_connection().expect("connected");
    for name in [&b"two words"[..], b"\xff"] {
        cmd("XGROUP").arg(&["CREATECONSUMER", log, "mail"]).arg(name).exec(&mut plain).expect("written");
    }
    let acquire = Verb::LeaseAcquire { group: g.clone(), owner: "o".into(), lease_ms: 60_000 };
    let Ok(Told::Leased { fence, .. }) = apply(acquire) else { panic!("a lease") };
    let lease = Lease { owner: "o".into(), fence, lease_ms: 60_000 };
    apply(Verb::GroupRegister { group: g.clone(), consumer: c }).expect("registered");
    let swept = apply(Verb::GroupSweep { group: g, lease, grace_ms: 60_000 });
    assert_eq!(swept, Ok(Told::Swept { removed: vec![], malformed: vec![] }));
    let cursors = PulseKeys { stream: &StreamName::new("orders").expect("a name"), generation: 1 }.recovery();
    for name in [&b"two words"[..], b"\xff"] {
        cmd("HSET").arg(&cursors).arg(name).arg("0-0").exec(&mut plain).expect("written");
        let refused = ForeignFault::Books { field: "name".into() };
        assert_eq!(apply(list()), Err(refused.into()));
        cmd("HDEL").arg(&cursors).arg(name).exec(&mut plain).expect("deleted");
    }
    let Ok(Told::Groups(groups)) = apply(list()) else { panic!("groups") };
    assert_eq!(groups.groups.len(), 1);
    assert_eq!(connections(), before + 1, "only the one that wrote them");
}

/// A record that others wrote, without what an event needs: told by its kind, and nothing is published.
#[test]
fn a_generation_without_a_contract_is_told_so_and_takes_no_event() {
    let mut real = Real::start(Names::Pulse);
    let client = redis::Client::open(real.process().url()).expect("an address");
    let (mut plain, mut bound) = (client.get_connection().expect("connected"), handle(Layout::Pulse));
    let (life, log) = ("pulse:stream:orders:lifecycle", "pulse:stream:orders");
    let record = ["state", "active", "generation", "1", "physical_key", log];
    cmd("HSET").arg(life).arg(&record).exec(&mut plain).expect("written");
    cmd("XADD").arg(log).arg(&["1-0", "n", "e", "p", ""]).exec(&mut plain).expect("written");
    let missing = CallerError::ConfigMismatch { kind: Mismatch::Missing };
    let fails = |real: &mut Real, handle: &Handle, verb: Verb| {
        let outcome = real.apply(&handle.op(verb, Nonce([1; 16])));
        let Outcome::Answered { result: Err(error), .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(error, missing.clone().into());
    };
    fails(&mut real, &bound, Verb::Add { event: event(), condition: Condition::IfExists });
    // Who reads makes nothing, and is bound to what is there.
    ask(&mut real, &mut bound, Verb::Attend);
    let key = OnceKey::new("k").expect("a key");
    for verb in [add(), Verb::AddOnce { key, event: event() }] {
        fails(&mut real, &bound, verb);
    }
    let kept: u64 = cmd("XLEN").arg(log).query(&mut plain).expect("asked");
    assert_eq!(kept, 1);
}

/// A record that others wrote, of no generation: refused by its kind, over the same connection.
#[test]
fn a_record_of_no_generation_is_refused_and_costs_no_connection() {
    for names in both() {
        let (layout, mut real) = (names.layout(), Real::start(names));
        let client = redis::Client::open(real.process().url()).expect("an address");
        let mut plain = client.get_connection().expect("connected");
        let life = match layout {
            Layout::Tagged => "s:{orders}:orders:life",
            Layout::Pulse => "pulse:stream:orders:lifecycle",
        };
        let mut orders = handle(layout);
        ask(&mut real, &mut orders, add());
        for state in ["active", "destroyed"] {
            for generation in ["x", "", "0", "-1", "1.5", "18446744073709551616", "18446744073709551615"] {
                let record = ["state", state, "generation", generation];
                cmd("HSET").arg(life).arg(&record).exec(&mut plain).expect("written");
                let found = generation.to_string();
                let detail = format!("expected a generation, found {found}");
                let fault = StreamError::from(ForeignFault::Lifecycle { detail });
                for asks in [&handle(layout), &orders] {
                    let outcome = real.apply(&asks.op(add(), Nonce([1; 16])));
                    assert!(
                        matches!(&outcome, Outcome::Answered { result: Err(error), .. } if *error == fault),
                        "{layout:?} {state} {generation:?}: {outcome:?}"
                    );
                }
            }
        }
    }
}

/// The model's row, by a server whose clock nobody moves.
#[test]
fn no_position_is_left_in_a_millisecond_that_is_counted_out() {
    for names in both() {
        let (layout, mut real) = (names.layout(), Real::start(names));
        let client = redis::Client::open(real.process().url()).expect("an address");
        let mut plain = client.get_connection().expect("connected");
        let log = match layout {
            Layout::Tagged => "s:{orders}:orders:1:log",
            Layout::Pulse => "pulse:stream:orders",
        };
        let mut orders = handle(layout);
        ask(&mut real, &mut orders, add());
        cmd("XSETID").arg(log).arg("9999999999999-18446744073709551615").exec(&mut plain).expect("written");
        for asks in [&handle(layout), &orders] {
            let outcome = real.apply(&asks.op(add(), Nonce([1; 16])));
            let Outcome::Answered { result: Err(error), .. } = outcome else { panic!("{outcome:?}") };
            assert_eq!(error, ServerFault::NoPosition.into(), "{layout:?}");
        }
    }
}
