//! Random schedules of everything that goes wrong, one seed each, before an all-knowing observer.

use super::broker::{Asked, Broker, ChannelKey, HISTORY_EVENTS_MAX};
use super::host::at_ms;
use super::observer::{Client, Truth};
use super::rng::Rng;
use super::tally::Tally;
use std::collections::VecDeque;
use strandline_core::coverage::{
    BufferLimits, Claim, Command, Event, From, Hub, HubCompletion, HubConfig, HubLimits, HubTimes, Minted,
    Publish, Publishing, Subscribe, TopicName, Upstream,
};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::Run;
use strandline_core::machine::Machine;
use strandline_core::seed::Seed;

const HEARTBEAT_MS: u64 = 1_000;
/// The longest that anything is on its way.
pub(super) const DELAY_MS: u64 = 100;
pub(super) const TOPICS: [&str; 2] = ["a", "b"];

pub(super) struct Node {
    pub(super) hub: Hub,
    pub(super) life: u64,
    queue_events_max: usize,
    /// Commands on their way to the server, and answers on their way back, with when they arrive.
    commands: VecDeque<(u64, Command)>,
    answers: Vec<(u64, HubCompletion)>,
}

pub(super) struct Model {
    pub(super) rng: Rng,
    pub(super) ms: u64,
    pub(super) broker: Broker,
    /// When what is on a channel arrives.
    pub(super) due: Vec<(u64, ChannelKey, Upstream)>,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    truth: Truth,
    pub(super) origin: bool,
    /// Of a hundred faults so many happen.
    faults_percent: u64,
    calm: bool,
    published: u64,
    pub(super) tally: Tally,
}

/// Runs one seed.
///
/// # Errors
/// Saying which promise was broken, and when.
pub fn run(seed: u64) -> Result<Tally, String> {
    let mut model = Model::new(seed);
    model.play().map_err(|e| format!("seed {seed}, {} ms: {e}", model.ms))?;
    let mut tally = model.tally;
    tally.runs = 1;
    tally.published = model.truth.log.len() as u64;
    for client in &model.clients {
        tally.complete += client.complete;
        tally.synced += client.synced;
        tally.needless += client.needless;
    }
    Ok(tally)
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name).expect("a topic")
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let origin = rng.below(5) == 0;
        let nodes = if origin { 1 } else { 1 + rng.below(3) };
        let faults_percent = [10, 50, 100][rng.index(3)];
        let mut model = Self {
            rng,
            ms: 1_000,
            broker: Broker::default(),
            due: Vec::new(),
            nodes: Vec::new(),
            clients: Vec::new(),
            truth: Truth::default(),
            origin,
            faults_percent,
            calm: false,
            published: 0,
            tally: Tally::default(),
        };
        for node in 0..nodes {
            let started = model.node(node, 1);
            model.nodes.push(started);
        }
        for client in 0..3 + model.rng.below(4) {
            model.clients.push(Client::new(TOPICS[usize::from(client % 3 == 2)].into()));
        }
        model
    }

    pub(super) fn node(&mut self, number: u64, life: u64) -> Node {
        let base = if self.origin { HubConfig::minted() } else { HubConfig::broker() };
        let config = HubConfig {
            limits: HubLimits {
                buffer: BufferLimits {
                    events_max: [0, 3, 100, 1_000][self.rng.index(4)],
                    bytes_max: 1 << 20,
                    age_ms_max: [2_000, 1_000_000][self.rng.index(2)],
                },
                queue_events_max: [1, 4, 64][self.rng.index(3)],
                ..base.limits
            },
            times: HubTimes {
                heartbeat_ms: HEARTBEAT_MS,
                settle_ms: 250,
                linger_ms: [0, 5_000][self.rng.index(2)],
                topic_idle_ms: 4_000,
                resubscribe_ms: 300,
                token_ms: 60_000,
            },
            history: !self.origin && self.rng.below(2) == 0,
            ..base
        };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&(number * 1_000 + life).to_be_bytes());
        seed[8..16].copy_from_slice(&self.rng.number().to_be_bytes());
        let queue_events_max = config.limits.queue_events_max;
        let hub = Hub::new(config, Run(life), Seed::new(seed), at_ms(self.ms));
        Node { hub, life, queue_events_max, commands: VecDeque::new(), answers: Vec::new() }
    }

    fn play(&mut self) -> Result<(), String> {
        for _ in 0..60 + self.rng.below(160) {
            self.act()?;
            let pause = [0, 0, 3, 30, 200, 900][self.rng.index(6)];
            self.pass(pause)?;
        }
        self.quiesce()
    }

    fn act(&mut self) -> Result<(), String> {
        match self.rng.below(16) {
            0..=4 => self.publish(),
            5..=8 => self.connect(),
            9 | 10 => self.disconnect(),
            11..=15 if self.rng.below(100) < self.faults_percent => self.inject(),
            11..=15 => {}
            _ => unreachable!("below 16"),
        }
        self.settle()
    }

    fn publish(&mut self) {
        let name = TOPICS[self.rng.index(5) / 4];
        for _ in 0..1 + self.rng.below(6) {
            self.published += 1;
            self.tally.count("publish");
            let number = self.published;
            if self.origin || self.rng.below(2) == 0 {
                let node = self.rng.index(self.nodes.len());
                let payload = number.to_string().into_bytes();
                let done =
                    self.nodes[node].hub.handle_publish(at_ms(self.ms), &topic(name), Publish::new(&payload));
                if let Ok(Publishing::Done(accepted)) = done {
                    self.truth.published(self.ms, name, accepted.mark, number);
                }
            } else if !self.broker.unreachable {
                let nonce = self.rng.number().to_be_bytes();
                let asked = Asked { topic: name, seen: None, nonce };
                _ = self.script(asked, &format!("elsewhere {number}"), number);
            }
        }
    }

    /// Runs the publish script; what it sends goes on its way.
    fn script(&mut self, asked: Asked<'_>, token: &str, number: u64) -> Result<Minted, StorageFault> {
        let done = self.broker.publish(asked, token, number.to_string().as_bytes());
        if let Ok(Minted::Accepted(accepted)) = done
            && !accepted.repeated
        {
            self.truth.published(self.ms, asked.topic, accepted.mark, number);
        }
        self.sail();
        done
    }

    /// Takes what the server sent, and decides when it arrives: in order on each channel.
    fn sail(&mut self) {
        let keys: Vec<ChannelKey> = self.broker.channels.keys().copied().collect();
        for key in keys {
            while let Some(input) = self.broker.channels.get_mut(&key).and_then(|c| c.queue.pop_front()) {
                let last =
                    self.due.iter().filter(|(_, k, _)| *k == key).map(|(at, ..)| *at).max().unwrap_or(0);
                let at = last.max(self.ms + self.rng.below(DELAY_MS / 2));
                self.due.push((at, key, input));
            }
        }
        if !self.calm && self.rng.below(3_000) < self.faults_percent {
            self.harm_a_message();
        }
    }

    fn connect(&mut self) {
        let away = self.clients.iter().enumerate().filter(|(_, c)| c.connection.is_none());
        let away: Vec<usize> = away.map(|(index, _)| index).collect();
        if away.is_empty() {
            return;
        }
        let client = away[self.rng.index(away.len())];
        let node = self.rng.index(self.nodes.len());
        let fresh = self.rng.below(8) == 0;
        let from = match self.clients[client].cursor.filter(|_| !fresh) {
            Some(mark) => From::After(Claim::Cursor(mark)),
            None => [From::Now, From::Earliest, From::Last][self.rng.index(3)],
        };
        let name = self.clients[client].topic.clone();
        let Node { hub, life, .. } = &mut self.nodes[node];
        if let Ok(id) = hub.handle_subscribe(at_ms(self.ms), &topic(&name), Subscribe::new(from)) {
            self.clients[client].connection = Some((node, *life, id));
            self.tally.count(if matches!(from, From::After(_)) { "reconnect" } else { "subscribe" });
        }
    }

    fn disconnect(&mut self) {
        let client = self.rng.index(self.clients.len());
        let client = &mut self.clients[client];
        if let Some((node, life, id)) = client.connection
            && self.nodes[node].life == life
        {
            self.nodes[node].hub.handle_unsubscribe(at_ms(self.ms), id);
            self.tally.count("drop");
        }
        client.disconnect();
    }

    /// Lets time pass, stopping wherever something is due.
    fn pass(&mut self, ms: u64) -> Result<(), String> {
        let until = self.ms + ms;
        self.settle()?;
        loop {
            let deadlines = self.nodes.iter().filter_map(|n| n.hub.pending().deadline);
            let next = deadlines
                .map(|at| at.0.div_ceil(1_000_000))
                .chain(self.due.iter().map(|(at, ..)| *at))
                .chain(self.nodes.iter().flat_map(|n| n.commands.iter().map(|(at, _)| *at)))
                .chain(self.nodes.iter().flat_map(|n| n.answers.iter().map(|(at, _)| *at)))
                .min();
            let Some(next) = next.filter(|next| *next <= until) else { break };
            self.ms = self.ms.max(next);
            self.settle()?;
        }
        self.ms = until;
        self.settle()
    }

    /// Does everything that is due now, then lets the clients read.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            let mut any = false;
            for node in 0..self.nodes.len() {
                self.nodes[node].hub.handle_timeout(at_ms(self.ms));
                while let Some(command) = self.nodes[node].hub.poll_command() {
                    let at = self.ms + self.rng.below(DELAY_MS / 2);
                    self.nodes[node].commands.push_back((at, command));
                }
                while let Some(event) = self.nodes[node].hub.poll_event() {
                    debug_assert!(!matches!(event, Event::Published { .. }) || !self.origin);
                }
                any |= self.execute(node);
                any |= self.answer(node);
            }
            any |= self.arrive();
            if !any {
                break;
            }
        }
        self.bounded()?;
        self.read()
    }

    /// What waits for a sleeping subscriber is its queue, what a history gave it, and a few notices.
    fn bounded(&self) -> Result<(), String> {
        for node in &self.nodes {
            let max = node.queue_events_max + HISTORY_EVENTS_MAX + 8;
            if let Some(topic) = node.hub.topics().find(|topic| topic.waiting_items > max) {
                return Err(format!("expected at most {max} items to wait, found {}", topic.waiting_items));
            }
        }
        Ok(())
    }

    fn execute(&mut self, node: usize) -> bool {
        let due = |(at, _): &(u64, Command)| *at <= self.ms;
        let Some(index) = self.nodes[node].commands.iter().position(due) else { return false };
        let (_, command) = self.nodes[node].commands.remove(index).expect("just found");
        let back = self.ms + self.rng.below(DELAY_MS / 2);
        match command {
            Command::Subscribe { id, topic } => {
                if self.broker.unreachable {
                    self.nodes[node].hub.handle_upstream(at_ms(self.ms), id, Upstream::Lost);
                } else {
                    let channel =
                        super::broker::Channel { topic: topic.as_str().into(), ..Default::default() };
                    self.broker.channels.insert((node, id), channel);
                    self.due.push((back, (node, id), Upstream::Confirmed));
                }
            }
            Command::Unsubscribe { id, .. } | Command::Abandon { id, .. } => {
                self.broker.channels.remove(&(node, id));
            }
            Command::Position { ticket, topic, seen, nonce } => {
                let result = self.broker.position(Asked { topic: topic.as_str(), seen, nonce });
                self.sail();
                self.nodes[node].answers.push((back, ticket.complete(result)));
            }
            Command::Publish { ticket, topic, seen, nonce, token, payload, .. } => {
                let number =
                    std::str::from_utf8(&payload).ok().and_then(|t| t.parse().ok()).expect("a number");
                let asked = Asked { topic: topic.as_str(), seen, nonce };
                let mut result = self.script(asked, &token, number);
                if !self.calm && self.rng.below(8) == 0 {
                    self.tally.count("reply-lost");
                    result = Err(lost_reply());
                    // The client library tries once more.
                    if self.rng.below(2) == 0 {
                        result = self.script(asked, &token, number);
                    }
                }
                self.nodes[node].answers.push((back, ticket.complete(result)));
            }
            Command::History { ticket, topic, after, events_max } => {
                self.tally.count("history");
                let result = self.broker.history(topic.as_str(), after, events_max);
                self.nodes[node].answers.push((back, ticket.complete(result)));
            }
        }
        true
    }

    fn answer(&mut self, node: usize) -> bool {
        let due = |(at, _): &(u64, HubCompletion)| *at <= self.ms;
        let Some(index) = self.nodes[node].answers.iter().position(due) else { return false };
        let (_, completion) = self.nodes[node].answers.remove(index);
        self.nodes[node].hub.handle_completion(at_ms(self.ms), completion);
        true
    }

    fn arrive(&mut self) -> bool {
        let due = self.due.iter().enumerate().filter(|(_, (at, ..))| *at <= self.ms);
        let Some(index) = due.min_by_key(|(_, (at, ..))| *at).map(|(index, _)| index) else { return false };
        let (_, (node, id), input) = self.due.remove(index);
        self.nodes[node].hub.handle_upstream(at_ms(self.ms), id, input);
        true
    }

    fn read(&mut self) -> Result<(), String> {
        let told_before = self.ms.saturating_sub(3 * HEARTBEAT_MS + DELAY_MS);
        for client in &mut self.clients {
            let Some((node, _, id)) = client.connection.filter(|_| !client.slow) else { continue };
            while let Some(item) = self.nodes[node].hub.poll_item(id) {
                client.take(&self.truth, &item)?;
            }
            client.drained(&self.truth, told_before)?;
        }
        Ok(())
    }

    /// The faults stop: everyone is connected again, and gets what is published.
    fn quiesce(&mut self) -> Result<(), String> {
        self.calm = true;
        self.broker.unreachable = false;
        self.clients.iter_mut().for_each(|client| client.slow = false);
        self.pass(4 * HEARTBEAT_MS)?;
        for _ in 0..200 {
            if self.clients.iter().all(|client| client.connection.is_some()) {
                break;
            }
            self.connect();
        }
        self.pass(8 * HEARTBEAT_MS)?;
        let before = self.truth.log.len();
        for _ in 0..12 {
            self.publish();
            self.pass(HEARTBEAT_MS / 4)?;
        }
        self.pass(4 * HEARTBEAT_MS)?;
        let last = |topic: &str| self.truth.log.iter().skip(before).rev().find(|(_, t, _)| t == topic);
        for client in &self.clients {
            let last = last(&client.topic).map(|(.., mark)| *mark);
            if client.connection.is_some() && last.is_some() && client.cursor != last {
                return Err(format!("in calm it stands at {:?}, the last event at {last:?}", client.cursor));
            }
        }
        Ok(())
    }
}

fn lost_reply() -> StorageFault {
    StorageFault {
        action: StorageAction::Write,
        file: "server".into(),
        offset: None,
        cause: StorageCause::Failed,
        detail: "expected a reply, found the connection closed".into(),
    }
}
