//! Everything around the hubs of one scenario: time, the server, and which number of the scenario is
//! which position.
//!
//! A scenario's numbers name events. Where a topic has its own contiguous sequence, an event's position
//! is its place among those published in its ID space; on the single stream, whose numbers are
//! consecutive, a number that is skipped was published too. Where several topics share a counter the
//! number is the position.

use super::broker::{Broker, Server, State, event};
use super::host::{Host, at_ms};
use super::scenario::Scenario;
use std::collections::BTreeMap;
use strandline_core::coverage::{
    BufferLimits, Claim, CursorCodec, HubConfig, HubLimits, HubTimes, Item, Mark, Position, Sequencing,
    Source, SubscriberId, SubscriptionId, TopicName, Upstream,
};
use strandline_core::id::Incarnation;
use strandline_core::machine::Machine;

/// The topic of the single stream.
pub const STREAM: &str = "stream";
/// The instance of a step that names none.
pub const INSTANCE: &str = "A";
const FILL_MAX: u64 = 10_000;

/// One ID space: which numbers were published in it, and at which positions.
#[derive(Debug, Default)]
pub struct Space {
    /// Its identity; none before anything knows it.
    pub incarnation: Option<Incarnation>,
    /// Position by number.
    pub positions: BTreeMap<u64, u64>,
    /// The last number.
    pub last: u64,
}

/// A subscriber of the scenario.
#[derive(Debug)]
pub struct Sub {
    /// Its instance.
    pub instance: String,
    /// Its number in the hub; none if it was refused.
    pub id: Option<SubscriberId>,
    /// What was taken from the hub and not compared yet.
    pub items: Vec<Item>,
    /// It has ended.
    pub closed: bool,
}

/// See the module.
pub struct World {
    /// The scenario's setup.
    pub setup: Scenario,
    /// Positions are contiguous per topic.
    pub contiguous: bool,
    /// The virtual time.
    pub ms: u64,
    /// The server.
    pub broker: Broker,
    /// The hubs, by the name of their instance.
    pub hosts: BTreeMap<String, Host>,
    /// The ID spaces, s1 first.
    pub spaces: Vec<Space>,
    /// Which space the reference's name of one stands for.
    pub epochs: BTreeMap<String, usize>,
    /// The subscribers, by their names.
    pub subs: BTreeMap<String, Vec<Sub>>,
    /// The subscriptions g1, g2, … of each instance.
    pub generations: BTreeMap<String, Vec<SubscriptionId>>,
    /// Something happened that may have cost an event.
    pub disturbed: bool,
    /// Subscriptions that ended because their client went away.
    pub client_exits: u64,
    /// Subscriptions that a resume without a subscriber opened and ended.
    pub passing_exits: u64,
    /// Coverages lost with a connection, as counted when that was asked last.
    pub losses_seen: BTreeMap<String, u64>,
    lives: u64,
}

impl World {
    /// The start of a scenario: instance A runs.
    #[must_use]
    pub fn new(setup: &Scenario, server: Box<dyn Server>) -> Self {
        let contiguous = !setup.names_several_topics();
        let mut world = Self {
            setup: setup.clone(),
            contiguous,
            ms: 1_000,
            broker: Broker::over(server),
            hosts: BTreeMap::new(),
            spaces: vec![Space::default()],
            epochs: BTreeMap::new(),
            subs: BTreeMap::new(),
            generations: BTreeMap::new(),
            disturbed: false,
            client_exits: 0,
            passing_exits: 0,
            losses_seen: BTreeMap::new(),
            lives: 0,
        };
        world.name_space();
        world.start(INSTANCE);
        world
    }

    /// Spaces of shared positions are named from outside.
    fn name_space(&mut self) {
        if self.contiguous {
            return;
        }
        let counter = u32::try_from(self.spaces.len()).expect("few spaces");
        let incarnation = Incarnation { counter, nonce: [9; 8] };
        self.spaces.last_mut().expect("there is always a space").incarnation = Some(incarnation);
        self.broker.counter = self.setup.shared.then_some((incarnation, 0));
    }

    /// The configuration of every hub in this scenario.
    fn config(&self) -> HubConfig {
        let source = match (self.setup.shared, self.contiguous) {
            (true, true) => Source::Broker(Sequencing::Contiguous),
            (true, false) => Source::Broker(Sequencing::Sparse),
            (false, true) => Source::Minted,
            (false, false) => Source::Positioned {
                incarnation: self.space().incarnation.expect("named at its start"),
                after: Position::ZERO,
            },
        };
        HubConfig {
            source,
            codec: CursorCodec::keyed("scenario", [5; 32]).legacy_integers(true),
            limits: HubLimits {
                buffer: BufferLimits { events_max: self.setup.buffer_size, ..HubLimits::default().buffer },
                queue_events_max: self.setup.queue,
                ..HubLimits::default()
            },
            // The reference stops a subscription with its last subscriber.
            times: HubTimes { settle_ms: self.setup.settle_ms, linger_ms: 0, ..HubTimes::default() },
            history: false,
        }
    }

    /// Starts an instance, unless it runs.
    pub fn start(&mut self, instance: &str) {
        if self.hosts.contains_key(instance) {
            return;
        }
        self.lives += 1;
        let host = Host::new(self.hosts.len() + 1, self.lives, self.config(), self.ms);
        self.hosts.insert(instance.into(), host);
        if self.setup.single_stream {
            let now = at_ms(self.ms);
            let watched = self.host(instance).hub.handle_watch(now, &name(STREAM));
            watched.expect("an open hub with room");
        }
        self.numbering(instance, Self::pump);
    }

    /// Ends an instance of a system that shares nothing, and starts it anew: another ID space.
    pub fn restart(&mut self) {
        for sub in self.subs.values_mut().flatten() {
            (sub.id, sub.closed) = (None, true);
        }
        let names: Vec<String> = self.hosts.keys().cloned().collect();
        self.hosts.clear();
        self.broker.channels.clear();
        self.generations.clear();
        if !self.setup.shared {
            self.next_space();
        }
        for name in names {
            self.start(&name);
        }
    }

    /// Another ID space begins.
    pub fn next_space(&mut self) {
        self.spaces.push(Space::default());
        self.name_space();
    }

    /// The host of an instance.
    ///
    /// # Panics
    /// If it was not started.
    pub fn host(&mut self, instance: &str) -> &mut Host {
        self.hosts.get_mut(instance).unwrap_or_else(|| panic!("instance {instance} was not started"))
    }

    /// The ID space of now.
    #[must_use]
    pub fn space(&self) -> &Space {
        self.spaces.last().expect("there is always a space")
    }

    /// Lets everything happen that needs no time.
    pub fn pump(&mut self) {
        loop {
            let mut any = false;
            for host in self.hosts.values_mut() {
                any |= host.execute(&mut self.broker, self.ms);
                any |= host.receive(&mut self.broker, self.ms);
            }
            self.learn_space();
            if !any {
                return;
            }
        }
    }

    /// The scripts make an ID space when they need one; here its identity is learned.
    fn learn_space(&mut self) {
        if !self.setup.shared || !self.contiguous {
            return;
        }
        let topic = self.only_topic();
        let State::At { incarnation, .. } = self.broker.state(&topic) else { return };
        let known = self.spaces.iter().any(|space| space.incarnation == Some(incarnation));
        if known {
            return;
        }
        if self.space().incarnation.is_some() {
            self.spaces.push(Space::default());
        }
        self.spaces.last_mut().expect("just seen").incarnation = Some(incarnation);
    }

    /// The one topic of a scenario with contiguous positions.
    #[must_use]
    pub fn only_topic(&self) -> String {
        if self.setup.single_stream {
            return STREAM.into();
        }
        let named = self.setup.steps.iter().find_map(|step| step.args.text("topic"));
        named.unwrap_or("t").to_owned()
    }

    /// Lets time pass.
    pub fn advance(&mut self, ms: u64) {
        let until = self.ms + ms;
        loop {
            self.pump();
            let deadlines = self.hosts.values().filter_map(|host| host.hub.pending().deadline);
            let next = deadlines.map(|at| at.0.div_ceil(1_000_000)).min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.ms = self.ms.max(next);
            let now = at_ms(self.ms);
            self.hosts.values_mut().for_each(|host| host.hub.handle_timeout(now));
        }
        self.ms = until;
        self.pump();
    }

    /// Does something in which an instance may open subscriptions that the scenario counts.
    pub fn numbering<R>(&mut self, instance: &str, act: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.hosts.get(instance).map_or(0, |host| host.opened.len());
        let result = act(self);
        let opened = self.hosts.get(instance).into_iter().flat_map(|host| host.opened.iter().skip(before));
        let opened: Vec<SubscriptionId> = opened.map(|(id, _)| *id).collect();
        self.generations.entry(instance.into()).or_default().extend(opened);
        result
    }

    /// The position of a number in the space of now, published at the server by somebody else if it
    /// was not yet.
    ///
    /// # Errors
    /// If the server's state lets nothing be published.
    pub fn publish_elsewhere(&mut self, topic: &str, number: u64) -> Result<Mark, String> {
        if !self.contiguous {
            let space = self.spaces.last_mut().expect("there is always a space");
            space.positions.insert(number, number);
            space.last = space.last.max(number);
            if let Some((_, last)) = &mut self.broker.counter {
                *last = (*last).max(number);
            }
            let incarnation = space.incarnation.expect("named at its start");
            return Ok(Mark { incarnation, position: Position::sequence(number) });
        }
        if let (Some(position), Some(incarnation)) =
            (self.space().positions.get(&number), self.space().incarnation)
        {
            return Ok(Mark { incarnation, position: Position::sequence(*position) });
        }
        let last = self.space().last;
        let skips = self.setup.single_stream && last > 0 && number > last + 1 && number - last <= FILL_MAX;
        let first = if skips { last + 1 } else { number };
        let mut mark = None;
        for number in first..=number {
            let nonce = [u8::try_from(self.spaces.len()).expect("few spaces"); 8];
            let minted = self
                .broker
                .mint(topic, nonce, number.to_string().as_bytes())
                .ok_or("the state lets nothing be minted")?;
            self.learn_space();
            self.note(number, minted);
            mark = Some(minted);
        }
        mark.ok_or_else(|| "nothing was minted".to_owned())
    }

    /// Remembers what a number stands for.
    pub fn note(&mut self, number: u64, mark: Mark) {
        let position = mark.position.as_sequence().expect("positions of scenarios are sequences");
        let space = match self.spaces.iter_mut().find(|s| s.incarnation == Some(mark.incarnation)) {
            Some(space) => space,
            None => {
                let space = self.spaces.last_mut().expect("there is always a space");
                space.incarnation = Some(mark.incarnation);
                space
            }
        };
        space.positions.insert(number, position);
        space.last = space.last.max(number);
    }

    /// The number of an event.
    #[must_use]
    pub fn number(&self, mark: Mark) -> Option<u64> {
        let space = self.spaces.iter().find(|space| space.incarnation == Some(mark.incarnation))?;
        let position = mark.position.as_sequence()?;
        space.positions.iter().find(|(_, p)| **p == position).map(|(number, _)| *number)
    }

    /// What a client with this number as its cursor claims.
    #[must_use]
    pub fn claim(&self, number: u64, space: &Space) -> Claim {
        let incarnation = space.incarnation.unwrap_or(Incarnation { counter: 0, nonce: [0xEE; 8] });
        Claim::Cursor(Mark { incarnation, position: Position::sequence(self.position(number, space)) })
    }

    /// Where a number lies: at the last event that is not above it; beyond the last by as much.
    #[must_use]
    pub fn position(&self, number: u64, space: &Space) -> u64 {
        if !self.contiguous {
            return number;
        }
        let (last, beyond) = match space.positions.last_key_value() {
            Some((last, position)) if number > *last => (*position, number - last),
            Some(_) | None if space.positions.is_empty() => (0, number),
            Some(_) | None => (space.positions.range(..=number).next_back().map_or(0, |(_, p)| *p), 0),
        };
        last + beyond
    }

    /// Sends an event over a subscription of an instance.
    pub fn deliver(&mut self, instance: &str, id: SubscriptionId, mark: Mark, number: u64) {
        let now = at_ms(self.ms);
        let message = Upstream::Message(event(mark, number.to_string().as_bytes()));
        self.host(instance).hub.handle_upstream(now, id, message);
        for channel in self.broker.channels.values_mut() {
            channel.in_flight.remove(&number);
        }
        self.pump();
    }

    /// Takes what waits for a subscriber.
    pub fn collect(&mut self, sub: &str) {
        let Some(subs) = self.subs.get_mut(sub) else { return };
        for sub in subs {
            let Some(host) = self.hosts.get_mut(&sub.instance) else { continue };
            while let Some(item) = sub.id.and_then(|id| host.hub.poll_item(id)) {
                sub.closed |= item == Item::Closed;
                sub.items.push(item);
            }
        }
    }
}

/// A topic of a scenario.
///
/// # Panics
/// If no topic can have this name.
#[must_use]
pub fn name(topic: &str) -> TopicName {
    TopicName::parse(topic).expect("a scenario names topics that can exist")
}
