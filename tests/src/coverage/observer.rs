//! A client, and what an all-knowing observer demands of what it is told.

use std::collections::{BTreeMap, BTreeSet};
use strandline_core::coverage::{Item, Mark, Position, SubscriberId};
use strandline_core::id::Incarnation;

/// Everything that was really published.
#[derive(Debug, Default)]
pub struct Truth {
    spaces: BTreeMap<(String, Incarnation), BTreeMap<Position, u64>>,
    /// Every event in order: when, of which topic, where.
    pub log: Vec<(u64, String, Mark)>,
}

impl Truth {
    /// An event is in.
    ///
    /// # Panics
    /// If two events have one position.
    pub fn published(&mut self, ms: u64, topic: &str, mark: Mark, number: u64) {
        let space = self.spaces.entry((topic.into(), mark.incarnation)).or_default();
        let before = space.insert(mark.position, number);
        assert!(before.is_none(), "two events at {mark:?} of {topic}");
        self.log.push((ms, topic.into(), mark));
    }

    /// The event at a position.
    #[must_use]
    pub fn number(&self, topic: &str, mark: Mark) -> Option<u64> {
        self.spaces.get(&(topic.into(), mark.incarnation))?.get(&mark.position).copied()
    }

    /// The positions of a space above `after`, up to `through`.
    fn between(
        &self,
        topic: &str,
        incarnation: Incarnation,
        after: Position,
        through: Position,
    ) -> impl Iterator<Item = Position> {
        let space = self.spaces.get(&(topic.into(), incarnation));
        let all = space.into_iter().flat_map(|space| space.keys().copied());
        all.filter(move |p| *p > after && *p <= through)
    }
}

/// A client of one topic.
#[derive(Debug)]
pub struct Client {
    /// What it follows.
    pub topic: String,
    /// Its connection: the host, the host's life, and its number there.
    pub connection: Option<(usize, u64, SubscriberId)>,
    /// The last cursor that it was given.
    pub cursor: Option<Mark>,
    /// It does not read.
    pub slow: bool,
    /// Its stream is open and vouches for what comes.
    pub live: bool,
    /// When that began, or it synchronised last.
    since_log: usize,
    /// From where on it has everything.
    base: Option<Mark>,
    has: BTreeSet<Mark>,
    /// What the last resume vouched for.
    promised: Option<Mark>,
    /// Resumes that were answered complete.
    pub complete: u64,
    /// Times it was told to synchronise.
    pub synced: u64,
    /// Times it was told so and had everything.
    pub needless: u64,
}

impl Client {
    /// One that has nothing.
    #[must_use]
    pub const fn new(topic: String) -> Self {
        Self {
            topic,
            connection: None,
            cursor: None,
            slow: false,
            live: false,
            since_log: 0,
            base: None,
            has: BTreeSet::new(),
            promised: None,
            complete: 0,
            synced: 0,
            needless: 0,
        }
    }

    /// The connection is gone; what it has stays.
    pub const fn disconnect(&mut self) {
        self.connection = None;
        self.live = false;
        self.promised = None;
    }

    fn begin(&mut self, truth: &Truth, at: Mark) {
        self.base = Some(at);
        self.cursor = Some(at);
        self.has.clear();
        self.live = true;
        self.since_log = truth.log.len();
        self.promised = None;
    }

    /// Takes one item of its stream.
    ///
    /// # Errors
    /// If the item breaks what it was told before.
    pub fn take(&mut self, truth: &Truth, item: &Item) -> Result<(), String> {
        match item {
            Item::Opened(opened) if opened.resumed => {
                let (Some(from), Some(through)) = (opened.from, opened.through) else {
                    return Err("a resume without a position".into());
                };
                if self.cursor != Some(from) {
                    return Err(format!("resumed from {from:?}, came with {:?}", self.cursor));
                }
                self.complete += 1;
                self.live = true;
                self.since_log = truth.log.len();
                self.promised = Some(through);
            }
            Item::Opened(opened) => {
                let from = opened.from.ok_or("a stream that opened without a position")?;
                self.begin(truth, from);
                self.promised = opened.through;
            }
            Item::Event { entry, .. } => {
                let number = truth.number(&self.topic, entry.mark);
                if number.map(|n| n.to_string().into_bytes()).as_deref() != Some(&*entry.payload) {
                    return Err(format!("{:?} is not what was published there", entry.mark));
                }
                if !self.live {
                    return Err(format!(
                        "an event at {:?} after word that nothing is vouched for",
                        entry.mark
                    ));
                }
                if !self.has.insert(entry.mark) {
                    return Err(format!("{:?} came twice", entry.mark));
                }
                if self.cursor.is_some_and(|c| {
                    c.incarnation == entry.mark.incarnation && c.position >= entry.mark.position
                }) {
                    return Err(format!("{:?} came after {:?}", entry.mark, self.cursor));
                }
                self.cursor = Some(entry.mark);
                self.complete_through(truth, entry.mark)?;
            }
            Item::Gap { .. } | Item::Closed => {}
            Item::Stale { .. } => {
                self.live = false;
                self.promised = None;
            }
            Item::SyncRequired { at, .. } => {
                self.synced += 1;
                let had = self.base.is_some_and(|base| {
                    base.incarnation == at.incarnation && self.missing(truth, *at).is_none()
                });
                self.needless += u64::from(had);
                self.begin(truth, *at);
            }
        }
        Ok(())
    }

    /// The first event that it misses of what lies up to `through`.
    fn missing(&self, truth: &Truth, through: Mark) -> Option<Mark> {
        let base = self.base?;
        if base.incarnation != through.incarnation {
            return Some(through);
        }
        truth
            .between(&self.topic, base.incarnation, base.position, through.position)
            .map(|position| Mark { position, ..through })
            .find(|mark| !self.has.contains(mark))
    }

    fn complete_through(&self, truth: &Truth, through: Mark) -> Result<(), String> {
        match self.missing(truth, through) {
            None => Ok(()),
            Some(missing) => Err(format!(
                "it was led to believe that it has everything up to {through:?}, and misses {missing:?} \
                 (base {:?})",
                self.base
            )),
        }
    }

    /// Nothing more waits for it: what was promised must be there, and every loss older than
    /// `told_before_ms` must have been told.
    ///
    /// # Errors
    /// If something is missing.
    pub fn drained(&mut self, truth: &Truth, told_before_ms: u64) -> Result<(), String> {
        if let Some(through) = self.promised.take() {
            self.complete_through(truth, through)?;
        }
        if !self.live {
            return Ok(());
        }
        let Some(base) = self.base else { return Ok(()) };
        while let Some((ms, topic, mark)) = truth.log.get(self.since_log) {
            if *ms > told_before_ms {
                break;
            }
            let covered = mark.incarnation == base.incarnation && mark.position <= base.position;
            if *topic == self.topic && !covered && !self.has.contains(mark) {
                return Err(format!("{mark:?}, published at {ms} ms, is missing and was never told"));
            }
            self.since_log += 1;
        }
        Ok(())
    }
}
