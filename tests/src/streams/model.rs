//! The model as a server: a clock of its own, and its state shown as keys of the Pulse layout.

use super::backend::{Backend, Raw};
use super::keys::{GroupView, Part, View, parse};
use std::collections::BTreeMap;
use strandline_core::stream::event::Stored;
use strandline_core::stream::keyspace::books::{MapBook, Registered};
use strandline_core::stream::keyspace::log::Log;
use strandline_core::stream::keyspace::loss::Befall;
use strandline_core::stream::keyspace::space::{Data, Group, Identity, Life, Space};
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::{
    ConsumerName, EventId, GroupName, Keyspace, Layout, Outcome, ServerTime, StreamName, StreamOp,
};

/// The model with its clock.
#[derive(Debug)]
pub struct Model {
    keyspace: Keyspace,
    now_us: u64,
}

/// How long one operation takes here.
const STEP_US: u64 = 100;

impl Model {
    /// An empty model.
    #[must_use]
    pub const fn new(layout: Layout) -> Self {
        Self { keyspace: Keyspace::new(layout), now_us: 1_800_000_000_000_000 }
    }

    /// A model that tells the time of another server, and does not move it.
    #[must_use]
    pub const fn at(layout: Layout) -> Self {
        Self { keyspace: Keyspace::new(layout), now_us: 0 }
    }

    /// The state.
    pub const fn keyspace(&mut self) -> &mut Keyspace {
        &mut self.keyspace
    }

    /// Does one operation at a given time.
    pub fn apply_at(&mut self, at: ServerTime, op: &StreamOp) -> Outcome {
        self.now_us = at.us();
        Outcome::Answered { at: Some(at), result: self.keyspace.apply(at, op) }
    }

    /// Does a raw command at a given time.
    pub fn raw_at(&mut self, at: ServerTime, command: &[String]) {
        self.now_us = at.us();
        if let Some((stream, generation, what)) = befall(command)
            && let Ok(stream) = StreamName::new(stream)
        {
            self.keyspace.befall(at, &stream, generation, what);
        }
    }

    fn tick(&mut self) -> ServerTime {
        self.now_us += STEP_US;
        ServerTime::from_us(self.now_us)
    }
}

impl Backend for Model {
    fn name(&self) -> String {
        format!("model, {}", super::answers::layout_name(self.layout()))
    }

    fn layout(&self) -> Layout {
        self.keyspace.layout()
    }

    fn clear(&mut self) {
        self.keyspace.lose_all();
    }

    fn now(&mut self) -> ServerTime {
        ServerTime::from_us(self.now_us)
    }

    fn wait(&mut self, ms: u64) {
        self.now_us += ms * 1000;
    }

    fn apply(&mut self, op: &StreamOp) -> Outcome {
        let at = self.tick();
        Outcome::Answered { at: Some(at), result: self.keyspace.apply(at, op) }
    }

    fn raw(&mut self, command: &[String]) -> Raw {
        let Some((stream, generation, what)) = befall(command) else {
            return if command[0] == "KEYS" { Raw::Done(String::new()) } else { Raw::PulseOnly };
        };
        let Ok(stream) = StreamName::new(stream) else { return Raw::PulseOnly };
        let at = self.tick();
        let appends = matches!(what, Befall::Append { .. });
        self.keyspace.befall(at, &stream, generation, what);
        let space = self.keyspace.space(&stream, at).filter(|_| appends);
        let log = space.as_ref().and_then(|space| space.data.get(&generation)?.log.as_ref());
        Raw::Done(log.map(|log| log.last.to_string()).unwrap_or_default())
    }

    fn view(&mut self, key: &str) -> Option<View> {
        let (name, part) = parse(key)?;
        let (name, now) = (StreamName::new(name).ok()?, self.now());
        let space = self.keyspace.space(&name, now).unwrap_or_default();
        show(&space, &name, &part, self.layout())
    }
}

/// What a raw command does to a stream, where the model has a word for it.
#[must_use]
pub fn befall(command: &[String]) -> Option<(String, u64, Befall)> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    let group = |name: &str| GroupName::new(name).ok();
    let consumer = |name: &str| ConsumerName::new(name).ok();
    let key = match words[0] {
        "XGROUP" => words.get(2)?,
        "XREADGROUP" => words.get(5)?,
        _ => words.get(1)?,
    };
    let (stream, part) = parse(key)?;
    let (generation, what) = match (&words[..], part) {
        (["DEL", _], Part::Life) => (1, Befall::LoseLife),
        (["DEL", _], Part::Log(g)) => (g, Befall::LoseLog),
        (["DEL", _], Part::Once(g)) => (g, Befall::LoseOnce),
        (["PEXPIRE", _, ms], Part::Log(g)) => (g, Befall::SetLogExpiry(Some(ms.parse().ok()?))),
        (["PERSIST", _], Part::Log(g)) => (g, Befall::SetLogExpiry(None)),
        (["XADD", _, id, fields @ ..], Part::Log(g)) => {
            let fields: Vec<(Vec<u8>, Vec<u8>)> =
                fields.chunks(2).map(|pair| (pair[0].into(), pair[1].into())).collect();
            (g, Befall::Append { id: EventId::parse(id), stored: Stored::from_fields(fields) })
        }
        (["XDEL", _, id], Part::Log(g)) => (g, Befall::Delete(EventId::parse(id)?)),
        (["XGROUP", "DESTROY", _, name], Part::Log(g)) => (g, Befall::LoseGroup(group(name)?)),
        (["XGROUP", "CREATE", _, name, start], Part::Log(g)) => {
            let start = if *start == "0" { EventId::ZERO } else { EventId::parse(start)? };
            (g, Befall::MakeGroup(group(name)?, start))
        }
        (["XGROUP", "CREATECONSUMER", _, name, who], Part::Log(g)) => {
            (g, Befall::MakeConsumer(group(name)?, consumer(who)?))
        }
        (["XREADGROUP", "GROUP", name, who, "STREAMS", _, ">"], Part::Log(g)) => {
            (g, Befall::ReadAs(group(name)?, consumer(who)?))
        }
        (["HSET", _, "lease_until", "0"], Part::Lease(g, name)) => (g, Befall::LapseLease(group(&name)?)),
        _ => return None,
    };
    Some((stream, generation, what))
}

/// A part of a stream's state as the Pulse layout shows it. `None` where the layout has no such part.
#[must_use]
pub fn show(space: &Space, name: &StreamName, part: &Part, layout: Layout) -> Option<View> {
    let generation = match part {
        Part::Life => return Some(space.life.as_ref().map(|life| show_life(life, name)).unwrap_or_default()),
        Part::Log(g) | Part::Recovery(g) | Part::Once(g) | Part::Registry(g) | Part::Members(g) => *g,
        Part::Contract(g, _) | Part::Lease(g, _) | Part::Alive(g, _) => *g,
    };
    let nothing = Data::default();
    let data = space.data.get(&generation).unwrap_or(&nothing);
    let life = space.life.as_ref().filter(|life| life.generation == generation);
    let deadline = life.and_then(|life| life.contract.deadline_ms());
    let keys = PulseKeys { stream: name, generation };
    let group = |name: &str| GroupName::new(name).ok().and_then(|name| data.groups.get(&name));
    Some(match part {
        Part::Life => unreachable!("answered above"),
        Part::Log(_) => data.log.as_ref().map(show_log).unwrap_or_default(),
        Part::Recovery(_) => show_recovery(data, deadline, layout),
        Part::Once(_) => View::hash(show_records(data), data.once.expires_at_ms),
        Part::Registry(_) => match layout {
            Layout::Pulse => show_registry(data, &keys),
            Layout::Tagged => return None,
        },
        Part::Contract(_, name) => {
            let contract = group(name).and_then(|group| group.contract.as_ref());
            let fields =
                contract.map(|c| c.fields().into_iter().map(|(k, v)| (k.into(), v.into())).collect());
            View::hash(fields.unwrap_or_default(), deadline)
        }
        Part::Lease(_, name) => {
            let fields = group(name).and_then(|group| group.lease.as_ref()).map(|lease| {
                BTreeMap::from([
                    ("owner".to_string(), lease.owner.clone().into_bytes()),
                    ("fence".to_string(), lease.fence.to_string().into_bytes()),
                    ("lease_until".to_string(), lease.until_ms.to_string().into_bytes()),
                ])
            });
            View::hash(fields.unwrap_or_default(), deadline)
        }
        Part::Members(_) => View::hash(show_members(data, layout), deadline),
        Part::Alive(_, name) => {
            let book = GroupName::new(name.as_str()).ok().and_then(|g| data.books.alive.get(&g).copied());
            View::hash(show_alive(group(name), book), deadline)
        }
    })
}

fn show_life(life: &Life, name: &StreamName) -> View {
    let keys = PulseKeys { stream: name, generation: life.generation };
    let contract = life.contract.text(Layout::Pulse);
    let mut fields = BTreeMap::from([
        ("state".to_string(), Vec::from(if life.active { &b"active"[..] } else { b"destroyed" })),
        ("generation".to_string(), life.generation.to_string().into_bytes()),
        ("physical_key".to_string(), keys.log().into_bytes()),
        ("retention_config".to_string(), contract.clone().into_bytes()),
    ]);
    if let Some(deadline) = life.contract.deadline_ms() {
        fields.insert("deadline_ms".to_string(), deadline.to_string().into_bytes());
    }
    if contract.contains("|mode=ttl|") {
        fields.insert("ttl_owned".to_string(), b"1".to_vec());
    }
    View::hash(fields, None)
}

fn show_log(log: &Log) -> View {
    let groups = log.groups.iter().map(|(name, group)| {
        let consumers = group.consumers.iter().map(|c| (c.to_string(), group.pending_of(c) as u64)).collect();
        let view = GroupView { pending: group.pending.len() as u64, delivered: group.delivered, consumers };
        (name.to_string(), view)
    });
    View {
        kind: "stream",
        ids: log.entries.keys().copied().collect(),
        groups: groups.collect(),
        expires_at_ms: log.expires_at_ms,
        ..View::default()
    }
}

fn show_recovery(data: &Data, deadline: Option<u64>, layout: Layout) -> View {
    let cursors = data
        .groups
        .iter()
        .filter_map(|(name, group)| Some((name.to_string(), group.cursor?.to_string().into_bytes())));
    let mut fields: BTreeMap<String, Vec<u8>> = cursors.collect();
    if let Some(deadline) = data.books.deadline_ms {
        fields.insert("=deadline".to_string(), deadline.to_string().into_bytes());
    }
    let expires = match layout {
        Layout::Pulse => data.books.recovery_expires_at_ms,
        Layout::Tagged => deadline,
    };
    View::hash(fields, expires)
}

fn show_records(data: &Data) -> BTreeMap<String, Vec<u8>> {
    let records = data.once.records.iter().map(|(key, record)| {
        let mut value = record.id.to_string().into_bytes();
        value.push(0);
        match &record.identity {
            Identity::Exact(bytes) => value.extend_from_slice(bytes),
            Identity::Digest(digest) => value.extend_from_slice(digest),
        }
        (String::from_utf8_lossy(key).into_owned(), value)
    });
    records.collect()
}

fn show_registry(data: &Data, keys: &PulseKeys<'_>) -> View {
    let mut members = Vec::new();
    for key in &data.books.registry {
        match key {
            Registered::Recovery => members.push(keys.recovery()),
            Registered::Once => members.push(keys.once()),
            Registered::Group(group) => {
                members.extend([keys.group_contract(group), keys.alive(group), keys.group_lease(group)]);
            }
        }
    }
    members.sort();
    let kind = if members.is_empty() { "" } else { "set" };
    View { kind, members, expires_at_ms: data.books.registry_expires_at_ms, ..View::default() }
}

fn booked(fields: &mut BTreeMap<String, Vec<u8>>, book: MapBook) {
    if book.revision > 0 {
        fields.insert("=rev".to_string(), book.revision.to_string().into_bytes());
        let kind = if book.removed { &b"del"[..] } else { b"set" };
        fields.insert("=kind".to_string(), kind.to_vec());
    }
}

fn show_members(data: &Data, layout: Layout) -> BTreeMap<String, Vec<u8>> {
    let lists = data.groups.iter().filter(|(_, group)| !group.members.is_empty()).map(|(name, group)| {
        let names: Vec<String> = group.members.iter().map(|m| m.consumer.to_string()).collect();
        (name.to_string(), serde_json::to_vec(&names).expect("names are text"))
    });
    let mut fields: BTreeMap<String, Vec<u8>> = lists.collect();
    if layout == Layout::Pulse {
        booked(&mut fields, data.books.members);
    }
    fields
}

fn show_alive(group: Option<&Group>, book: Option<MapBook>) -> BTreeMap<String, Vec<u8>> {
    let members = group.map(|group| group.members.as_slice()).unwrap_or_default();
    let alive = members.iter().map(|m| (m.consumer.to_string(), format!("{}000", m.alive_us).into_bytes()));
    let mut fields: BTreeMap<String, Vec<u8>> = alive.collect();
    booked(&mut fields, book.unwrap_or_default());
    fields
}
