//! The faults of a schedule.

use super::broker::ChannelKey;
use super::host::at_ms;
use super::model::{DELAY_MS, Model, TOPICS};
use strandline_core::coverage::Upstream;

impl Model {
    /// One fault, if there is something that it can hit.
    pub(super) fn inject(&mut self) {
        match self.rng.below(13) {
            0..=3 => self.harm_a_message(),
            4 => self.cut(),
            5 => self.half_open(),
            6 => self.resubscribe(),
            7 if !self.origin => {
                self.tally.count("counter-lost");
                self.broker.flush();
            }
            8 => self.restart(),
            11 if !self.origin => self.forget(),
            12 if !self.origin => self.fail_over(),
            9 => {
                self.broker.unreachable = !self.broker.unreachable;
                if self.broker.unreachable {
                    self.tally.count("unreachable");
                }
            }
            7 | 10..=12 => {
                let client = self.rng.index(self.clients.len());
                self.clients[client].slow ^= true;
                if self.clients[client].slow {
                    self.tally.count("slow-reader");
                }
            }
            _ => unreachable!("below 13"),
        }
    }

    /// Something happens to one message on its way, if there is any.
    pub(super) fn harm_a_message(&mut self) {
        match self.rng.below(4) {
            0 => self.spoil(),
            1 => self.twice(),
            2 => self.swap(),
            3 => self.lose(),
            _ => unreachable!("below 4"),
        }
    }

    fn some_due(&mut self) -> Option<usize> {
        (!self.due.is_empty()).then(|| self.rng.index(self.due.len()))
    }

    fn spoil(&mut self) {
        if let Some(i) = self.some_due() {
            self.tally.count("message-spoilt");
            self.due[i].2 = Upstream::Undecodable;
        }
    }

    fn twice(&mut self) {
        if let Some(i) = self.some_due() {
            self.tally.count("message-twice");
            let (at, key, input) = self.due[i].clone();
            self.due.push((at + self.rng.below(DELAY_MS / 2), key, input));
        }
    }

    fn swap(&mut self) {
        if let Some(i) = self.some_due() {
            self.tally.count("messages-swapped");
            self.due[i].0 += self.rng.below(DELAY_MS / 2);
        }
    }

    fn lose(&mut self) {
        if let Some(i) = self.some_due() {
            self.tally.count("message-lost");
            self.due.remove(i);
        }
    }

    fn some_channel(&mut self) -> Option<ChannelKey> {
        let keys: Vec<ChannelKey> = self.broker.channels.keys().copied().collect();
        (!keys.is_empty()).then(|| keys[self.rng.index(keys.len())])
    }

    fn cut(&mut self) {
        if let Some(key) = self.some_channel() {
            self.tally.count("connection-lost");
            self.cut_off(key);
        }
    }

    fn cut_off(&mut self, key: ChannelKey) {
        self.broker.channels.remove(&key);
        self.due.retain(|(_, k, _)| *k != key);
        self.nodes[key.0].hub.handle_upstream(at_ms(self.ms), key.1, Upstream::Lost);
    }

    /// The server ends, and a replica that lacks the last publishes takes its place.
    fn fail_over(&mut self) {
        self.tally.count("failover");
        let keys: Vec<ChannelKey> = self.broker.channels.keys().copied().collect();
        keys.into_iter().for_each(|key| self.cut_off(key));
        self.broker.fail_over(self.rng.index(5));
    }

    fn half_open(&mut self) {
        if let Some(key) = self.some_channel() {
            self.tally.count("half-open");
            if let Some(channel) = self.broker.channels.get_mut(&key) {
                channel.stalled = true;
            }
            self.due.retain(|(_, k, _)| *k != key);
        }
    }

    /// The client library loses the connection and subscribes again by itself.
    fn resubscribe(&mut self) {
        if let Some(key) = self.some_channel() {
            self.tally.count("resubscribed");
            self.due.retain(|(_, k, _)| *k != key);
            if let Some(channel) = self.broker.channels.get_mut(&key) {
                channel.stalled = false;
            }
            self.nodes[key.0].hub.handle_upstream(at_ms(self.ms), key.1, Upstream::Resubscribed);
        }
    }

    /// The shared history loses one event or all, and nobody is told.
    fn forget(&mut self) {
        self.tally.count("history-lost");
        let only = if self.rng.below(2) == 0 { Some(self.rng.index(16)) } else { None };
        self.broker.forget(TOPICS[0], only);
    }

    fn restart(&mut self) {
        self.tally.count("restart");
        let node = self.rng.index(self.nodes.len());
        self.broker.channels.retain(|(n, _), _| *n != node);
        self.due.retain(|(_, (n, _), _)| *n != node);
        let life = self.nodes[node].life + 1;
        self.nodes[node] = self.node(node as u64, life);
        for client in &mut self.clients {
            if client.connection.is_some_and(|(n, ..)| n == node) {
                client.disconnect();
            }
        }
    }
}
