//! Runs one hub of the core against the model of the server.

use super::broker::{Asked, Broker, Channel};
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::coverage::{
    Command, Event, History, Hub, HubConfig, Outcome, PublishId, SubscriptionId, Upstream,
};
use strandline_core::id::Run;
use strandline_core::machine::Machine;
use strandline_core::seed::Seed;
use strandline_core::time::{Instant, Now, WallTime};

/// A hub and what its host knows.
pub struct Host {
    /// Its number, for the server's channels.
    pub number: usize,
    /// The hub.
    pub hub: Hub,
    /// Topics whose connection is down: a subscription is not confirmed.
    pub down: BTreeSet<String>,
    /// Subscriptions that wait for their connection.
    pub held: Vec<(SubscriptionId, String)>,
    /// Every subscription asked for, in order, with its topic.
    pub opened: Vec<(SubscriptionId, String)>,
    /// How publishes ended.
    pub outcomes: BTreeMap<PublishId, Outcome>,
}

/// A moment of the virtual clock.
#[must_use]
pub fn at_ms(ms: u64) -> Now {
    Now { mono: Instant::default().after_ms(ms), wall: WallTime(ms) }
}

impl Host {
    /// A hub in its `life`-th life.
    #[must_use]
    pub fn new(number: usize, life: u64, config: HubConfig, ms: u64) -> Self {
        let mut seed = [0; 32];
        seed[0] = u8::try_from(number).expect("few hubs");
        seed[1..9].copy_from_slice(&life.to_be_bytes());
        Self {
            number,
            hub: Hub::new(config, Run(life), Seed::new(seed), at_ms(ms)),
            down: BTreeSet::new(),
            held: Vec::new(),
            opened: Vec::new(),
            outcomes: BTreeMap::new(),
        }
    }

    /// Executes what the hub wants. Returns whether there was anything.
    pub fn execute(&mut self, broker: &mut Broker, ms: u64) -> bool {
        let mut any = false;
        while let Some(command) = self.hub.poll_command() {
            any = true;
            self.command(broker, ms, command);
        }
        while let Some(event) = self.hub.poll_event() {
            if let Event::Published { id, outcome } = event {
                self.outcomes.insert(id, outcome);
            }
        }
        any
    }

    fn command(&mut self, broker: &mut Broker, ms: u64, command: Command) {
        match command {
            Command::Subscribe { id, topic } => {
                let topic = topic.as_str().to_owned();
                self.opened.push((id, topic.clone()));
                if self.down.contains(&topic) {
                    self.held.push((id, topic));
                } else {
                    self.confirm(broker, ms, id, topic);
                }
            }
            Command::Unsubscribe { id, .. } | Command::Abandon { id, .. } => {
                broker.channels.remove(&(self.number, id));
                self.held.retain(|(held, _)| *held != id);
            }
            Command::Position { ticket, topic, seen, nonce } => {
                let result = broker.position(Asked { topic: topic.as_str(), seen, nonce });
                self.hub.handle_completion(at_ms(ms), ticket.complete(result));
            }
            Command::Publish { ticket, topic, seen, nonce, token, payload, .. } => {
                let result = broker.publish(Asked { topic: topic.as_str(), seen, nonce }, &token, &payload);
                self.hub.handle_completion(at_ms(ms), ticket.complete(result));
            }
            Command::History { ticket, .. } => {
                self.hub.handle_completion(at_ms(ms), ticket.complete(Ok(History::Run(Vec::new()))));
            }
        }
    }

    /// The server confirms a subscription.
    pub fn confirm(&mut self, broker: &mut Broker, ms: u64, id: SubscriptionId, topic: String) {
        broker.channels.insert((self.number, id), Channel { topic, ..Channel::default() });
        self.hub.handle_upstream(at_ms(ms), id, Upstream::Confirmed);
    }

    /// The connection of a topic is there again.
    pub fn restore(&mut self, broker: &mut Broker, ms: u64, topic: &str) {
        self.down.remove(topic);
        let (ready, held) = self.held.drain(..).partition(|(_, held)| held == topic);
        self.held = held;
        for (id, topic) in ready {
            self.confirm(broker, ms, id, topic);
        }
    }

    /// Hands the hub everything that is on its channels, in order.
    pub fn receive(&mut self, broker: &mut Broker, ms: u64) -> bool {
        let mut any = false;
        let ours =
            broker.channels.iter().filter(|((host, _), c)| *host == self.number && c.in_flight.is_empty());
        let keys: Vec<_> = ours.map(|(key, _)| *key).collect();
        for key in keys {
            while let Some(input) = broker.channels.get_mut(&key).and_then(|c| c.queue.pop_front()) {
                any = true;
                self.hub.handle_upstream(at_ms(ms), key.1, input);
            }
        }
        any
    }

    /// The latest subscription of a topic.
    #[must_use]
    pub fn latest(&self, topic: &str) -> Option<SubscriptionId> {
        self.opened.iter().rev().find(|(_, t)| t == topic).map(|(id, _)| *id)
    }
}
