//! What the server holds for one logical stream name.

use super::books::Books;
use super::log::Log;
use crate::stream::contract::{GroupContract, Start};
use crate::stream::event::EventId;
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::op::Nonce;
use crate::stream::reply::{DeadLetter, Missed};
use crate::stream::retention::Contract;
use crate::stream::time::ServerTime;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// The lifecycle record. It outlives destruction, as a tombstone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Life {
    /// Whether the generation is active.
    pub active: bool,
    /// The generation, from 1.
    pub generation: u64,
    /// Its nonce; `None` in the Pulse layout.
    pub nonce: Option<Nonce>,
    /// Its contract.
    pub contract: Contract,
}

/// A logical name: its record, and the data of its generations. Only after a loss of the record can
/// there be data of more than one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Space {
    /// The record; absent before the first creation and after a loss.
    pub life: Option<Life>,
    /// Data by generation. What is empty is not there.
    pub data: BTreeMap<u64, Data>,
}

/// Everything one generation owns.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Data {
    /// The log; absent before the first write, and after its expiry or loss.
    pub log: Option<Log>,
    /// Idempotency records.
    pub once: Once,
    /// What is known of the groups outside the log.
    pub groups: BTreeMap<GroupName, Group>,
    /// Events that were given up.
    pub dead: Dead,
    /// What only the Pulse layout writes down.
    pub books: Books,
}

/// Idempotency records, by key and by instant.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Once {
    /// Records by the caller's key.
    pub records: BTreeMap<Vec<u8>, Record>,
    /// The same records by the instant each ends at.
    pub by_instant: BTreeSet<(u64, Vec<u8>)>,
    /// When all of them die, in milliseconds of the server's clock.
    pub expires_at_ms: Option<u64>,
}

/// What a publication with a key leaves behind.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// The position the event got.
    pub id: EventId,
    /// What the event was.
    pub identity: Identity,
    /// When the record ends; the end of time in the Pulse layout, where all records end together.
    pub expires_at_ms: u64,
}

/// What an event was, as far as a retry must be compared with it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Identity {
    /// SHA-256 over the length-delimited bytes.
    Digest([u8; 32]),
    /// The length-delimited bytes themselves, as the Pulse layout keeps them.
    Exact(Vec<u8>),
}

/// The dead letters of a generation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Dead {
    /// By position.
    pub letters: BTreeMap<EventId, DeadLetter>,
    /// The last position given out.
    pub last: EventId,
}

/// A group's books beside the log: they outlive it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Group {
    /// The contract; absent where only a cursor is left.
    pub contract: Option<GroupContract>,
    /// Up to where everything is settled.
    pub cursor: Option<EventId>,
    /// Who may recover the group.
    pub lease: Option<LeaseState>,
    /// The members, in the order they came.
    pub members: Vec<Member>,
    /// What is put off, and until when, in milliseconds of the server's clock.
    pub later: BTreeMap<EventId, u64>,
    /// Holes that nobody said was told.
    pub missed: Vec<Missed>,
    /// The number of the last hole.
    pub missed_last: u64,
    /// Up to where anything was ever given out; not kept in the Pulse layout. It outlives the log.
    pub reached: EventId,
}

/// One member of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Who.
    pub consumer: ConsumerName,
    /// When it last said that it lives, in microseconds of the server's clock.
    pub alive_us: u64,
}

/// The lease as the server holds it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeaseState {
    /// Who has it, or had it last.
    pub owner: String,
    /// Its number.
    pub fence: u64,
    /// Until when.
    pub until_ms: u64,
}

impl Space {
    /// Drops what has died by `now`.
    pub(super) fn purge(&mut self, now: ServerTime) {
        let past = |at: Option<u64>| at.is_some_and(|at| now.is_past(at));
        for data in self.data.values_mut() {
            if data.log.as_ref().is_some_and(|log| past(log.expires_at_ms)) {
                data.log = None;
            }
            if past(data.once.expires_at_ms) {
                data.once = Once::default();
            }
            data.books.purge(now);
        }
        if let Some(life) = &self.life
            && past(life.contract.deadline_ms())
        {
            self.data.remove(&life.generation);
        }
        self.data.retain(|_, data| *data != Data::default());
    }

    /// The data of a generation, made when it is first written to.
    pub(super) fn data(&mut self, generation: u64) -> &mut Data {
        self.data.entry(generation).or_default()
    }
}

impl Data {
    /// The log, made if absent.
    pub(super) fn log(&mut self) -> &mut Log {
        if self.log.is_none() {
            self.log = Some(self.new_log());
        }
        self.log.get_or_insert_default()
    }

    /// The log as it would be made: its first position lies after all that any group has settled or was given,
    /// so that a clock set back can neither hide events from a group, nor give them positions by which
    /// others are still being acknowledged.
    pub(super) fn new_log(&self) -> Log {
        let floor = self.groups.values().map(Group::given).max().unwrap_or_default();
        Log { last: floor, ..Log::default() }
    }
}

impl Group {
    /// Up to where anything was given out or settled.
    fn given(&self) -> EventId {
        let known = [Some(self.reached), self.cursor].into_iter().flatten();
        known.filter(|id| !self.only_wishes(*id)).max().unwrap_or_default()
    }

    /// Whether a position of the group is nothing but the start that was asked for: nobody has come past it,
    /// and it may lie anywhere.
    fn only_wishes(&self, id: EventId) -> bool {
        self.contract.as_ref().is_some_and(|contract| contract.start == Start::After(id))
    }
}

impl Once {
    pub(super) fn insert(&mut self, key: Vec<u8>, record: Record) {
        self.remove(&key);
        self.by_instant.insert((record.expires_at_ms, key.clone()));
        self.records.insert(key, record);
    }

    pub(super) fn remove(&mut self, key: &[u8]) {
        if let Some(old) = self.records.remove(key) {
            self.by_instant.remove(&(old.expires_at_ms, key.to_vec()));
        }
    }
}
