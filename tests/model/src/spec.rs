//! What must hold, kept apart from the replicas: what was written, and what each node vouched for.

use crate::blobs::blob_key;
use crate::bounds::{Side, Step};
use crate::host::Node;
use std::collections::BTreeMap;
use strandline_core::lifecycle::api::{Accepted, Change, Mutation};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::record::{Key, RecordLimits, State, Version};

/// A promise of the protocol.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Promise {
    /// What a node vouched for, by a tail or an acknowledgement, it has, also after a crash.
    NothingAcknowledgedIsLost,
    /// Nothing is acknowledged, or told as a position, before it is durable; nobody is said to have
    /// acknowledged more.
    NothingAcknowledgedBeforeDurable,
    /// A log holds what its writer made durable, in the order of its versions, and nothing else.
    NothingInvented,
    /// Every key is what the last record at or below the tail made of it: no delete is undone, and what
    /// a present key names is stored.
    NoDeleteUndone,
    /// A peer that keeps the protocol over a sound connection is never blamed.
    NobodyBlamed,
    /// Whatever does nothing more has converged, or says why not.
    QuietMeansDone,
    /// Nothing panics.
    NoPanic,
}

/// One writer's records, and what the nodes vouched for.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Spec {
    /// What each node wrote, lost or not.
    written: [BTreeMap<Version, (&'static str, Written)>; 2],
    /// What a node vouched for.
    pub(crate) promised: [Version; 2],
    /// The first promise that was broken, and how.
    pub(crate) broken: Option<(Promise, String)>,
}

/// What a record makes of its key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Written {
    Present,
    Deleted,
}

pub(crate) fn key(text: &str) -> Key {
    RecordLimits::default().key(b"files", text.as_bytes()).expect("a short key")
}

/// The mutation of a step; `None` for a step that is none.
pub(crate) fn mutation(step: Step) -> Option<Mutation> {
    let (text, change) = match step {
        Step::Put(text) => (text, Change::Put { blob: blob_key(text.as_bytes()) }),
        Step::Delete(text) => (text, Change::Delete),
        Step::Compact => return None,
    };
    Some(Mutation { key: key(text), change, if_version: None })
}

impl Spec {
    pub(crate) fn breaks(&mut self, promise: Promise, why: String) {
        if self.broken.is_none() {
            self.broken = Some((promise, why));
        }
    }

    /// A node submitted a step of its script.
    pub(crate) fn wrote(&mut self, side: Side, step: Step, accepted: Accepted) {
        let what = match step {
            Step::Put(text) => (text, Written::Present),
            Step::Delete(text) => (text, Written::Deleted),
            Step::Compact => return,
        };
        if self.written[side].insert(accepted.version, what).is_some() {
            self.breaks(
                Promise::NothingInvented,
                format!("version {} was given out twice", accepted.version),
            );
        }
    }

    /// A node told its peer that it has everything up to `version`, when its tail was `tail`.
    pub(crate) fn told(&mut self, side: Side, version: Version, tail: Version) {
        if version > tail {
            self.breaks(
                Promise::NothingAcknowledgedBeforeDurable,
                format!("{side} told {version}, its durable tail is {tail}"),
            );
        }
        self.promised[side] = self.promised[side].max(version);
    }

    /// Looks at what the nodes have, after each step; `crashed` has just been recovered.
    pub(crate) fn look(&mut self, nodes: &[Node; 2], writers: [bool; 2], crashed: Option<Side>) {
        for side in [0, 1] {
            let tail = nodes[side].replica.status().tail;
            if tail < self.promised[side] {
                let why = format!("{side} vouched for {}, its tail is {tail}", self.promised[side]);
                return self.breaks(Promise::NothingAcknowledgedIsLost, why);
            }
            if crashed == Some(side) {
                // What a crash lost before anyone was told of it never was.
                self.written[side].retain(|version, _| *version <= tail);
            }
            self.promised[side] = tail;
        }
        self.histories(nodes);
        for side in [0, 1] {
            self.look_at(side, nodes, writers);
        }
    }

    fn look_at(&mut self, side: Side, nodes: &[Node; 2], writers: [bool; 2]) {
        let replica = &nodes[side].replica;
        let status = replica.status();
        for link in &status.links {
            if link.acked > self.promised[1 - side] {
                let why = format!(
                    "{side} says that its peer has {}, which vouched for {}",
                    link.acked,
                    self.promised[1 - side]
                );
                return self.breaks(Promise::NothingAcknowledgedBeforeDurable, why);
            }
        }
        let writer = if writers[side] { side } else { 1 - side };
        if status.tail > self.promised[writer] {
            let why =
                format!("{side} has {}, the writer made {} durable", status.tail, self.promised[writer]);
            return self.breaks(Promise::NothingInvented, why);
        }
        self.contents(writer, replica, side, nodes);
    }

    /// One version has one history behind it, wherever it is held.
    fn histories(&mut self, nodes: &[Node; 2]) {
        let [a, b] = nodes.each_ref().map(|node| node.replica.status());
        let one_writer = a.authority.is_none() || b.authority.is_none();
        if one_writer && a.tail == b.tail && a.tail_digest != b.tail_digest {
            self.breaks(Promise::NothingInvented, format!("two histories end at {}", a.tail));
        }
    }

    fn contents(&mut self, writer: Side, replica: &Replica, side: Side, nodes: &[Node; 2]) {
        let (tail, floor) = (replica.status().tail, replica.status().floor);
        let mut keys: BTreeMap<&str, (Version, Written)> = BTreeMap::new();
        for (version, (text, what)) in self.written[writer].range(..=tail) {
            keys.insert(text, (*version, *what));
        }
        for step in [Step::Put("k"), Step::Put("l")] {
            let (Step::Put(text) | Step::Delete(text)) = step else { continue };
            let found = replica.get(&key(text));
            let stored = &nodes[side].outside.blobs.stored;
            let holds = match (keys.get(text), &found) {
                (None, None) => true,
                (Some((version, Written::Deleted)), None) => *version <= floor,
                (Some((version, what)), Some(entry)) => {
                    let same = match (what, entry.state) {
                        (Written::Deleted, State::Deleted) => true,
                        (Written::Present, State::Present { blob }) => stored.contains_key(&blob),
                        (Written::Deleted, State::Present { .. }) | (Written::Present, State::Deleted) => {
                            false
                        }
                    };
                    same && *version == entry.version
                }
                (None, Some(_)) | (Some((_, Written::Present)), None) => false,
            };
            if !holds {
                let why = format!("{side} at {tail}: {text} is {found:?}, expected {:?}", keys.get(text));
                return self.breaks(Promise::NoDeleteUndone, why);
            }
        }
    }
}
