//! One caller: an operation of ours, or the plain commands it stands for.

use super::server::RedisServer;
use futures::StreamExt as _;
use redis::aio::MultiplexedConnection;
use std::error::Error;
use std::time::Duration;
use strandline_core::stream::contract::GroupContract;
use strandline_core::stream::filter::Filter;
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::op::{Condition, Nonce};
use strandline_core::stream::reply::Told;
use strandline_core::stream::retention::Settings;
use strandline_core::stream::{
    ConsumerName, Event, EventId, GroupName, Handle, Ids, Layout, OnceKey, Outcome, Start, StreamName, Verb,
};
use strandline_embedded::Embedded;
use strandline_redis::{ANSWER_MS_DEFAULT, Address, Connect as _, Connection, Names, Server};
use strandline_streams::{Consumer, Item, Stream, StreamBuilder, Streams};

/// Bytes of a payload.
const PAYLOAD_BYTES: usize = 200;
/// Events of one read.
const BATCH: u32 = 10;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What is measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Work {
    Publish,
    Once,
    Consume,
}

/// Who does it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Side {
    /// Our operation, in a layout.
    Ours(Layout),
    /// The handle that a user of ours has, over it.
    Handle(Layout),
    /// The plain commands.
    Plain,
}

impl Side {
    /// What it sends.
    pub(super) const fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Ours(_) | Self::Handle(_) => &["evalsha", "eval"],
            Self::Plain => &["xadd", "xreadgroup", "xack"],
        }
    }
}

impl Work {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Once => "add_once",
            Self::Consume => "consume+ack of 10",
        }
    }

    pub(super) const fn plain_words(self) -> &'static str {
        match self {
            Self::Publish | Self::Once => "XADD MAXLEN = 1000",
            Self::Consume => "XREADGROUP and XACK",
        }
    }
}

enum Way {
    Ours(Box<Server<Connection>>),
    Handle(Stream),
    Consumer(Box<Consumer>),
    Plain(MultiplexedConnection),
    Embedded(Embedded),
}

/// Somebody who calls again and again.
pub(super) struct Caller {
    way: Way,
    work: Work,
    handle: Handle,
    group: GroupName,
    consumer: ConsumerName,
    number: usize,
    calls: u64,
}

fn handle(name: &str, settings: Settings, layout: Layout) -> Handle {
    let wanted = settings.wanted().expect("settings");
    Handle::new(StreamName::new(name).expect("a name"), wanted, layout).expect("a name")
}

/// The stream of a work. With keys the Pulse layout wants it to end some day.
fn handle_for(work: Work, layout: Layout) -> Handle {
    match (work, layout) {
        (Work::Consume, _) => handle("consumed", Settings::new(), layout),
        (Work::Once, Layout::Pulse) => handle("published-once", Settings::new().ttl(DAY), layout),
        (Work::Publish, _) | (Work::Once, Layout::Tagged) => handle("published", Settings::new(), layout),
    }
}

fn event() -> Event {
    Event::new("created", vec![b'x'; PAYLOAD_BYTES]).expect("small")
}

fn plain_add(key: &str, bound: bool) -> redis::Cmd {
    let mut command = redis::cmd("XADD");
    command.arg(key);
    if bound {
        command.arg("MAXLEN").arg("=").arg(1000);
    }
    command.arg("*").arg("n").arg("created").arg("p").arg(vec![b'x'; PAYLOAD_BYTES]);
    command
}

fn names(layout: Layout) -> Names {
    match layout {
        Layout::Tagged => Names::tagged_below("bench").expect("a name"),
        Layout::Pulse => Names::Pulse,
    }
}

async fn server_of(client: &redis::Client, layout: Layout) -> Box<Server<Connection>> {
    let server = Address::of_client(client).server(names(layout), ANSWER_MS_DEFAULT).await;
    Box::new(server.expect("the server answers"))
}

/// Fills the streams that are consumed: one of each layout, and a plain one.
pub(super) async fn fill(server: &RedisServer, events: u64) -> Result<(), Box<dyn Error>> {
    let client = server.client();
    let mut connection = client.get_multiplexed_async_connection().await?;
    let consumed = StreamName::new("consumed")?;
    let [tagged, ..] = names(Layout::Tagged).tagged(&consumed).generation(1);
    let pulse = PulseKeys { stream: &consumed, generation: 1 }.log();
    for layout in [Layout::Tagged, Layout::Pulse] {
        let mut ours = Caller {
            way: Way::Ours(server_of(&client, layout).await),
            work: Work::Consume,
            handle: handle("consumed", Settings::new().unbounded(), layout),
            group: GroupName::new("none")?,
            consumer: ConsumerName::new("none")?,
            number: 0,
            calls: 0,
        };
        ours.ask(Verb::Open).await;
    }
    for _ in 0..events / 1000 {
        let mut pipe = redis::pipe();
        for _ in 0..1000 {
            for log in [&tagged, &pulse, "plain-consumed"] {
                pipe.add_command(plain_add(log, false)).ignore();
            }
        }
        pipe.query_async::<()>(&mut connection).await?;
    }
    Ok(())
}

impl Caller {
    /// Callers on connections of their own, `each` on every one. `round` is never the same twice.
    pub(super) async fn on_redis(
        work: Work,
        side: Side,
        server: &RedisServer,
        connections: usize,
        each: usize,
        round: usize,
    ) -> Vec<Self> {
        let client = server.client();
        let layout = match side {
            Side::Ours(layout) | Side::Handle(layout) => layout,
            Side::Plain => Layout::Tagged,
        };
        let group = GroupName::new(format!("g{round}-{connections}-{each}")).expect("a name");
        let mut callers = Vec::new();
        for connection in 0..connections {
            let mut ways = Vec::new();
            match side {
                Side::Plain => {
                    let plain = client.get_multiplexed_async_connection().await.expect("the server answers");
                    ways.extend((0..each).map(|_| Way::Plain(plain.clone())));
                }
                Side::Ours(_) => {
                    let ours = server_of(&client, layout).await;
                    ways.extend((0..each).map(|_| Way::Ours(ours.clone())));
                }
                Side::Handle(_) => {
                    let streams = Streams::connect(&server.url(), names(layout)).await;
                    let streams = streams.expect("the server answers");
                    for _ in 0..each {
                        ways.push(by_a_handle(&streams, work, &group).await);
                    }
                }
            }
            for (caller, way) in ways.into_iter().enumerate() {
                let number = (round * connections + connection) * each + caller;
                let consumer = ConsumerName::new(format!("c{number}")).expect("a name");
                let (handle, group) = (handle_for(work, layout), group.clone());
                callers.push(Self { way, work, handle, group, consumer, number, calls: 0 });
            }
        }
        for (at, caller) in callers.iter_mut().enumerate() {
            caller.prepare(at == 0).await;
        }
        callers
    }

    pub(super) fn on_embedded(embedded: &Embedded, callers: usize) -> Vec<Self> {
        let caller = |number| Self {
            way: Way::Embedded(embedded.clone()),
            work: Work::Publish,
            handle: handle_for(Work::Publish, Layout::Tagged),
            group: GroupName::new("none").expect("a name"),
            consumer: ConsumerName::new("none").expect("a name"),
            number,
            calls: 0,
        };
        (0..callers).map(caller).collect()
    }

    /// Binds, and makes the group.
    async fn prepare(&mut self, first: bool) {
        if let Way::Plain(connection) = &mut self.way {
            if let (Work::Consume, true) = (self.work, first) {
                let mut create = redis::cmd("XGROUP");
                create.arg("CREATE").arg("plain-consumed").arg(self.group.as_str()).arg("0");
                create.query_async::<()>(connection).await.expect("the group is new");
            }
            return;
        }
        match &self.way {
            Way::Handle(stream) => return stream.open().await.expect("it is allowed"),
            Way::Consumer(_) => return,
            Way::Ours(_) | Way::Embedded(_) | Way::Plain(_) => {}
        }
        self.ask(Verb::Open).await;
        if let Work::Consume = self.work {
            let contract =
                GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 20_000 };
            self.ask(Verb::GroupOpen { group: self.group.clone(), contract, settled: None }).await;
        }
    }

    async fn ask(&mut self, verb: Verb) -> Told {
        self.calls += 1;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.calls.to_be_bytes());
        nonce[8..].copy_from_slice(&(self.number as u64).to_be_bytes());
        let op = self.handle.op(verb, Nonce(nonce));
        let outcome = match &mut self.way {
            Way::Ours(server) => server.apply(&op).await,
            Way::Embedded(embedded) => embedded.apply(op.clone()).await,
            Way::Handle(_) | Way::Consumer(_) | Way::Plain(_) => unreachable!("they have calls of their own"),
        };
        let Outcome::Answered { result, .. } = outcome else { panic!("the server answers") };
        self.handle.answered(&op.verb, &result);
        result.expect("it is allowed").told
    }

    /// One call; how many events it was about.
    pub(super) async fn call(&mut self) -> u64 {
        if let Way::Plain(connection) = &mut self.way {
            return match self.work {
                Work::Publish | Work::Once => {
                    let add = plain_add("plain-published", true);
                    add.query_async::<String>(connection).await.expect("the server answers");
                    1
                }
                Work::Consume => plain_consume(connection, &self.group, &self.consumer).await,
            };
        }
        if let Way::Handle(stream) = &self.way {
            stream.add(event()).await.expect("it is allowed");
            return 1;
        }
        if let Way::Consumer(consumer) = &mut self.way {
            return consume(consumer).await;
        }
        match self.work {
            Work::Publish => {
                self.ask(Verb::Add { event: event(), condition: Condition::Always }).await;
                1
            }
            Work::Once => {
                let key = OnceKey::new(format!("{}-{}", self.number, self.calls)).expect("short");
                self.ask(Verb::AddOnce { key, event: event() }).await;
                1
            }
            Work::Consume => {
                let (group, consumer) = (self.group.clone(), self.consumer.clone());
                let read = Verb::GroupRead { group: group.clone(), consumer, events_max: BATCH };
                let Told::Taken { entries, .. } = self.ask(read).await else { panic!("entries") };
                let ids: Vec<EventId> = entries.iter().map(|entry| entry.id).collect();
                let count = full(ids.len());
                self.ask(Verb::GroupAck { group, ids: Ids::new(ids).expect("few") }).await;
                count
            }
        }
    }
}

/// What an application has: a handle to publish by, or a consumer.
async fn by_a_handle(streams: &Streams, work: Work, group: &GroupName) -> Way {
    let handle = |builder: StreamBuilder| builder.handle().expect("a name");
    match work {
        Work::Publish => Way::Handle(handle(streams.stream("published"))),
        Work::Once => unreachable!("nothing is measured of it"),
        Work::Consume => {
            let stream = handle(streams.stream("consumed").unbounded());
            let group = stream.group(group.as_str()).start(Start::Oldest).max_polled(BATCH).read_ahead();
            Way::Consumer(Box::new(group.consumer("c").await.expect("it is allowed")))
        }
    }
}

/// One batch, settled at once.
async fn consume(consumer: &mut Consumer) -> u64 {
    let mut ids = Vec::new();
    let mut stream = None;
    while ids.len() < BATCH as usize {
        let item = consumer.next().await.expect("it goes on").expect("the server answers");
        let Item::Event(delivery) = item else { panic!("an event") };
        ids.push(delivery.id);
        stream = Some(delivery.stream);
    }
    let (count, stream) = (full(ids.len()), stream.expect("a full batch"));
    let acked = consumer.ack_all(&stream, Ids::new(ids).expect("few")).await.expect("it is allowed");
    assert_eq!(acked, count, "nobody else has them");
    count
}

async fn plain_consume(
    connection: &mut MultiplexedConnection,
    group: &GroupName,
    consumer: &ConsumerName,
) -> u64 {
    let mut read = redis::cmd("XREADGROUP");
    read.arg("GROUP").arg(group.as_str()).arg(consumer.as_str()).arg("COUNT").arg(BATCH);
    read.arg("STREAMS").arg("plain-consumed").arg(">");
    type Entries = Vec<(String, Vec<(String, Vec<Vec<u8>>)>)>;
    let found: Option<Entries> = read.query_async(connection).await.expect("the server answers");
    let ids: Vec<String> =
        found.into_iter().flatten().flat_map(|(_, entries)| entries).map(|(id, _)| id).collect();
    let count = full(ids.len());
    let mut ack = redis::cmd("XACK");
    ack.arg("plain-consumed").arg(group.as_str()).arg(ids);
    let acked: u64 = ack.query_async(connection).await.expect("the server answers");
    assert_eq!(acked, count, "nobody else has them");
    count
}

/// Both sides settle equal batches, or their rates could not be compared.
fn full(events: usize) -> u64 {
    assert_eq!(events, BATCH as usize, "the stream holds more events than a round takes");
    events as u64
}
