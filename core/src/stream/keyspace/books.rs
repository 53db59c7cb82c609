//! What the Pulse layout writes down beside the data: a registry of keys, revisions of its maps, and
//! expiries of their own. Nothing decides by them here; other clients of that layout do.

use super::space::{Data, Life};
use crate::stream::name::GroupName;
use crate::stream::retention::Expiry;
use crate::stream::time::ServerTime;
use alloc::collections::{BTreeMap, BTreeSet};

/// A key that the registry names.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Registered {
    /// The cursors.
    Recovery,
    /// The idempotency records.
    Once,
    /// Contract, keep-alives and lease of a group.
    Group(GroupName),
}

/// Revision of a replicated map, and the kind of its last change.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MapBook {
    /// Rises by one with every change.
    pub revision: u64,
    /// Whether the last change removed a field.
    pub removed: bool,
}

impl MapBook {
    pub(super) fn change(&mut self, removed: bool) {
        self.revision += 1;
        self.removed = removed;
    }
}

/// The books of one generation.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Books {
    /// The instant written beside the cursors. Nothing reads it.
    pub deadline_ms: Option<u64>,
    /// When the cursors die.
    pub recovery_expires_at_ms: Option<u64>,
    /// The registry.
    pub registry: BTreeSet<Registered>,
    /// When the registry dies.
    pub registry_expires_at_ms: Option<u64>,
    /// The map of members.
    pub members: MapBook,
    /// The maps of keep-alives.
    pub alive: BTreeMap<GroupName, MapBook>,
}

impl Books {
    /// The cursors and the registry die only while they hold nothing of a group.
    pub(super) fn purge(&mut self, now: ServerTime) {
        if self.recovery_expires_at_ms.is_some_and(|at| now.is_past(at)) {
            (self.deadline_ms, self.recovery_expires_at_ms) = (None, None);
        }
        if self.registry_expires_at_ms.is_some_and(|at| now.is_past(at)) {
            self.registry.clear();
            self.registry_expires_at_ms = None;
        }
    }
}

impl Data {
    /// A plain publication: in deadline mode the cursors are kept with the generation.
    pub(super) fn book_add(&mut self, life: &Life) {
        if let Expiry::Deadline { at_ms } = life.contract.expiry {
            self.books.deadline_ms = Some(at_ms);
            self.books.registry.insert(Registered::Recovery);
            self.book_expiries(life, at_ms);
        }
    }

    /// A publication with a key, repeated or not: records follow the data.
    pub(super) fn book_once(&mut self, life: &Life, at_ms: u64, published: bool) {
        self.books.deadline_ms = Some(at_ms);
        if published {
            self.books.registry.insert(Registered::Recovery);
            self.books.registry.insert(Registered::Once);
        }
        self.book_expiries(life, at_ms);
    }

    /// Gives `at_ms` to whatever ends with the data. A group's state never ends with a TTL.
    pub(super) fn book_expiries(&mut self, life: &Life, at_ms: u64) {
        let of_groups = self.groups.values().any(|group| group.cursor.is_some());
        let names_groups = self.books.registry.iter().any(|key| matches!(key, Registered::Group(_)));
        let (cursors_end, registry_ends) = match life.contract.expiry {
            Expiry::Never => return,
            Expiry::Ttl { .. } => (!of_groups, !names_groups),
            Expiry::Deadline { .. } => (true, true),
        };
        let has_recovery = self.books.deadline_ms.is_some() || of_groups;
        self.books.recovery_expires_at_ms = (cursors_end && has_recovery).then_some(at_ms);
        self.books.registry_expires_at_ms =
            (registry_ends && !self.books.registry.is_empty()).then_some(at_ms);
        if !self.once.records.is_empty() {
            self.once.expires_at_ms = Some(at_ms);
        }
    }

    /// A generation adopts what was left under its number: all of it ends as the new contract says.
    pub(super) fn book_adoption(&mut self, life: &Life) {
        let deadline = life.contract.deadline_ms();
        if deadline.is_some() {
            if let Some(log) = self.log.as_mut() {
                log.expires_at_ms = deadline;
            }
            if !self.once.records.is_empty() {
                self.once.expires_at_ms = deadline;
            }
        }
        let has_recovery =
            self.books.deadline_ms.is_some() || self.groups.values().any(|group| group.cursor.is_some());
        self.books.recovery_expires_at_ms = deadline.filter(|_| has_recovery);
        self.books.registry_expires_at_ms = deadline.filter(|_| !self.books.registry.is_empty());
    }

    /// A group's contract or cursor was written: what holds it no longer ends with a TTL.
    pub(super) fn book_group(&mut self, life: &Life, group: &GroupName) {
        self.books.registry.insert(Registered::Group(group.clone()));
        self.book_kept(life);
    }

    /// Cursors and registry hold something of a group: they end with the deadline or not at all.
    pub(super) fn book_kept(&mut self, life: &Life) {
        let deadline = life.contract.deadline_ms();
        if self.groups.values().any(|group| group.cursor.is_some()) {
            self.books.recovery_expires_at_ms = deadline;
        }
        if self.books.registry.iter().any(|key| matches!(key, Registered::Group(_))) {
            self.books.registry_expires_at_ms = deadline;
        }
    }
}
