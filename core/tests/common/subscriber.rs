//! A subscriber that keeps what it is given, and holds every page against what it may be.

use super::cluster::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::lifecycle::api::{
    Cursor, CursorVerdict, Event, Page, Served, SubscriptionEnd, SubscriptionId,
};
use strandline_core::record::{BlobKey, Key, Record, State, Version};

/// What one subscriber holds and was told.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) id: SubscriptionId,
    pub(crate) at: Version,
    /// Where what it was given begins: its cursor, or the cut of its last reset.
    pub(crate) from: Version,
    pub(crate) state: BTreeMap<Key, BlobKey>,
    pub(crate) given: Vec<Version>,
    pub(crate) served: Vec<Served>,
    pub(crate) behind: u64,
    pub(crate) lost: Option<CursorVerdict>,
    pub(crate) ended: Option<SubscriptionEnd>,
    pub(crate) resets: u32,
    /// The keys that a reset has named so far.
    reset: Option<BTreeMap<Key, BlobKey>>,
    seen: usize,
}

impl Subscriber {
    /// Subscribes at `cursor`, and says what was answered.
    pub(crate) fn open(cluster: &mut Cluster, at: usize, cursor: Cursor) -> (Self, CursorVerdict) {
        let now = cluster.now;
        let (id, verdict) = cluster.replica(at).handle_subscribe(now, cursor).expect("taken");
        let seen = cluster.nodes[at].host.events.len();
        let subscriber = Self {
            id,
            at: cursor.at,
            from: cursor.at,
            state: BTreeMap::new(),
            given: Vec::new(),
            served: Vec::new(),
            behind: 0,
            lost: None,
            ended: None,
            resets: 0,
            reset: None,
            seen,
        };
        (subscriber, verdict)
    }

    /// Whether it is given a state that is not whole yet.
    pub(crate) fn is_resetting(&self) -> bool {
        self.reset.is_some()
    }

    pub(crate) fn ask(&self, cluster: &mut Cluster, at: usize) {
        let now = cluster.now;
        cluster.replica(at).handle_page_wanted(now, self.id);
    }

    pub(crate) fn reset(&mut self, cluster: &mut Cluster, at: usize) {
        let now = cluster.now;
        self.lost = None;
        cluster.replica(at).handle_reset(now, self.id);
    }

    /// Takes the pages that came. How many there were.
    pub(crate) fn take(&mut self, cluster: &mut Cluster, at: usize) -> usize {
        cluster.drain(at);
        let events = &cluster.nodes[at].host.events;
        let pages: Vec<Page> = events[self.seen..]
            .iter()
            .filter_map(|event| {
                let Event::Page { subscription, page } = event else { return None };
                (*subscription == self.id).then(|| page.clone())
            })
            .collect();
        self.seen = events.len();
        let count = pages.len();
        pages.into_iter().for_each(|page| self.page(page));
        count
    }

    /// Asks and takes until nothing comes any more.
    pub(crate) fn catch_up(&mut self, cluster: &mut Cluster, at: usize) {
        loop {
            self.ask(cluster, at);
            cluster.settle();
            if self.take(cluster, at) == 0 {
                return;
            }
        }
    }

    fn page(&mut self, page: Page) {
        match page {
            Page::Changes { records, served, behind } => {
                assert!(!records.is_empty() && self.reset.is_none() && self.lost.is_none());
                self.behind = behind;
                self.served.push(served);
                records.into_iter().for_each(|record| self.change(record));
            }
            Page::Lost(verdict) => {
                assert!(!verdict.is_complete());
                self.reset = None;
                self.lost = Some(verdict);
            }
            Page::ResetBegin { cut } => {
                self.at = cut;
                self.reset = Some(BTreeMap::new());
            }
            Page::State { records } => {
                let reset = self.reset.as_mut().expect("a reset began");
                assert!(!records.is_empty());
                for record in records {
                    let State::Present { blob } = record.state else { panic!("a state holds present keys") };
                    assert!(record.version <= self.at, "{} above the cut {}", record.version, self.at);
                    assert!(
                        reset.last_key_value().is_none_or(|(last, _)| *last < record.key),
                        "in key order"
                    );
                    reset.insert(record.key, blob);
                }
            }
            Page::ResetEnd { cut, keys } => {
                self.state = self.reset.take().expect("a reset began");
                assert_eq!((cut, keys), (self.at, self.state.len() as u64));
                self.given.clear();
                self.from = cut;
                self.resets += 1;
            }
            Page::Ended(end) => self.ended = Some(end),
        }
    }

    fn change(&mut self, record: Record) {
        assert!(record.version > self.at, "{} after {}", record.version, self.at);
        self.at = record.version;
        self.given.push(record.version);
        match record.state {
            State::Present { blob } => drop(self.state.insert(record.key, blob)),
            State::Deleted => drop(self.state.remove(&record.key)),
        }
    }

    /// What it was given since its beginning or its last reset is each of `accepted`, once.
    pub(crate) fn assert_given(&self, accepted: &BTreeSet<Version>) {
        let expected: Vec<Version> =
            accepted.iter().copied().filter(|v| *v > self.from && *v <= self.at).collect();
        assert_eq!(self.given, expected);
    }
}
