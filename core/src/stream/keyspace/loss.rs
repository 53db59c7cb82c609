//! What can befall a server from outside: losses, and the hands of others. For tests and simulations.

use super::Keyspace;
use super::log::LogGroup;
use crate::stream::event::{EventId, Stored};
use crate::stream::name::{ConsumerName, GroupName, StreamName};
use crate::stream::time::ServerTime;

/// One thing that happens to a stream without an operation. Each is about the data of one generation,
/// except the loss of the record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Befall {
    /// The lifecycle record is gone.
    LoseLife,
    /// The log is gone, with its groups.
    LoseLog,
    /// The idempotency records are gone.
    LoseOnce,
    /// A group is gone from the log.
    LoseGroup(GroupName),
    /// Somebody gives the log an expiry, in milliseconds from now, or takes it away.
    SetLogExpiry(Option<u64>),
    /// Somebody appends an entry at a position, or at the next one.
    Append {
        /// The position.
        id: Option<EventId>,
        /// The entry.
        stored: Stored,
    },
    /// Somebody deletes an entry.
    Delete(EventId),
    /// Somebody makes a group after a position.
    MakeGroup(GroupName, EventId),
    /// Somebody makes a consumer.
    MakeConsumer(GroupName, ConsumerName),
    /// Somebody reads as a consumer of the group.
    ReadAs(GroupName, ConsumerName),
    /// The lease of a group lapses.
    LapseLease(GroupName),
}

impl Keyspace {
    /// Everything is gone.
    pub fn lose_all(&mut self) {
        self.spaces.clear();
    }

    /// Lets something happen to the data of `generation`.
    pub fn befall(&mut self, now: ServerTime, name: &StreamName, generation: u64, what: Befall) {
        let mut space = self.spaces.remove(name).unwrap_or_default();
        space.purge(now);
        let data = space.data(generation);
        let groups = data.log.as_mut().map(|log| &mut log.groups);
        match what {
            Befall::LoseLife => space.life = None,
            Befall::LoseLog => data.log = None,
            Befall::LoseOnce => data.once = super::space::Once::default(),
            Befall::LoseGroup(group) => {
                groups.and_then(|groups| groups.remove(&group));
            }
            Befall::SetLogExpiry(expiry) => {
                if let Some(log) = data.log.as_mut() {
                    log.expires_at_ms = expiry.map(|ms| now.ms().saturating_add(ms));
                }
            }
            Befall::Append { id, stored } => {
                let log = data.log.get_or_insert_default();
                if let Some(id) = id.or_else(|| log.next_id(now)) {
                    log.append(id, stored);
                }
            }
            Befall::Delete(id) => {
                data.log.as_mut().and_then(|log| log.entries.remove(&id));
            }
            Befall::MakeGroup(group, delivered) => {
                let log = data.log.get_or_insert_default();
                log.groups.entry(group).or_insert(LogGroup { delivered, ..LogGroup::default() });
            }
            Befall::MakeConsumer(group, consumer) => {
                if let Some(group) = groups.and_then(|groups| groups.get_mut(&group)) {
                    group.consumers.insert(consumer);
                }
            }
            Befall::ReadAs(group, consumer) => {
                // A server makes the consumer only when there is something to give.
                let group_of = |log: &super::log::Log| log.groups.get(&group).map(|group| group.delivered);
                let log = data
                    .log
                    .as_mut()
                    .filter(|log| group_of(log).is_some_and(|id| !log.after(id, 1).is_empty()));
                log.and_then(|log| log.deliver(&group, &consumer, u32::MAX, now));
            }
            Befall::LapseLease(group) => {
                if let Some(lease) = data.groups.get_mut(&group).and_then(|group| group.lease.as_mut()) {
                    lease.until_ms = 0;
                }
            }
        }
        space.data.retain(|_, data| *data != super::space::Data::default());
        if space != super::space::Space::default() {
            self.spaces.insert(name.clone(), space);
        }
    }
}
