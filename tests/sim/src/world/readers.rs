//! Subscribers of simulated nodes: what they are given is held against the tree of histories.

use super::{Judged, Violation, World};
use crate::model::Digest;
use crate::node::LOG;
use crate::rng::Choose;
use std::collections::BTreeMap;
use strandline_core::lifecycle::api::{Cursor, CursorReason, CursorVerdict, Page, SubscriptionId};
use strandline_core::record::{BlobKey, Key, Record, State, Version};
use strandline_core::verdict::Verdict;

/// Someone who follows a node, over its restarts.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Its subscription of this life of the node.
    id: Option<SubscriptionId>,
    /// The last version it was given.
    at: Version,
    /// The history that it was given.
    digest: Digest,
    /// The present keys that it holds.
    state: BTreeMap<Key, BlobKey>,
    /// What a reset has named so far, and the history at its cut.
    reset: Option<(Digest, BTreeMap<Key, BlobKey>)>,
    /// It lost its place and has not asked for a reset.
    lost: bool,
}

impl World {
    /// A node's reader does something: subscribes where it stands, asks for a page, or for a reset.
    pub(super) fn read(&mut self, at: usize) -> Judged {
        let now = self.nodes[at].now(self.time_ns);
        let reset = self.rng.once_in(8);
        let node = &mut self.nodes[at];
        let mut reader = std::mem::take(&mut node.reader);
        let Some(replica) = node.replica_mut() else {
            // A node that is down has no subscriptions; the cursor stays good.
            reader.id = None;
            if reader.reset.take().is_some() {
                reader = Reader::default();
            }
            self.nodes[at].reader = reader;
            return Ok(());
        };
        if let Some(id) = reader.id {
            if reset || reader.lost {
                reader.lost = false;
                replica.handle_reset(now, id);
            }
            replica.handle_page_wanted(now, id);
            node.reader = reader;
            self.step(20, at, id.0);
            return self.after(at);
        }
        let subscribed = replica.handle_subscribe(now, Cursor::new(LOG, reader.at));
        self.step(21, at, reader.at.sequence);
        if let Ok((id, verdict)) = subscribed {
            reader.id = Some(id);
            reader.lost = !verdict.is_complete();
            self.nodes[at].reader = reader;
            self.cursor_verdict(at, &verdict)?;
        } else {
            self.nodes[at].reader = reader;
        }
        self.after(at)
    }

    /// What a node says of its reader's cursor must be so.
    fn cursor_verdict(&mut self, at: usize, verdict: &CursorVerdict) -> Judged {
        let status = self.status(at);
        let cursor = self.nodes[at].reader.at;
        let holds = match verdict {
            Verdict::Complete { through, .. } => *through == status.tail && cursor >= status.floor,
            Verdict::Gap { from, to, reason } => {
                let below = *from == cursor && *to == status.floor && cursor < status.floor;
                below || *reason == CursorReason::ResetExpired
            }
            Verdict::Diverged(found) => match found.reason {
                CursorReason::AheadOfTail => cursor > status.tail,
                CursorReason::ForeignVersion => self.forked || !self.lossy.is_empty(),
                CursorReason::BelowFloor | CursorReason::OtherLog | CursorReason::ResetExpired => false,
            },
            Verdict::Unknown { .. } => false,
        };
        if holds {
            return Ok(());
        }
        let text = format!(
            "{at} says {verdict:?} of {cursor}; its floor is {}, its tail {}",
            status.floor, status.tail
        );
        Err(Violation::new("cursor", text))
    }

    /// A node's reader was given a page.
    pub(super) fn page(&mut self, at: usize, id: SubscriptionId, page: Page) -> Judged {
        if self.nodes[at].reader.id != Some(id) {
            return Ok(());
        }
        match page {
            Page::Changes { records, .. } => self.changes(at, &records),
            Page::Lost(verdict) => {
                self.nodes[at].reader.reset = None;
                self.nodes[at].reader.lost = true;
                self.cursor_verdict(at, &verdict)
            }
            Page::ResetBegin { cut } => {
                let digest = self.history_at(at, cut);
                let Some(digest) = digest else { return self.unknown_history(at, "the cut of a reset") };
                let reader = &mut self.nodes[at].reader;
                reader.reset = Some((digest, BTreeMap::new()));
                Ok(())
            }
            Page::State { records } => self.state(at, records),
            Page::ResetEnd { cut, keys } => {
                let reader = &mut self.nodes[at].reader;
                let Some((digest, state)) = reader.reset.take() else {
                    return Err(Violation::new("reset", format!("{at} ends a reset that it did not begin")));
                };
                (reader.at, reader.digest, reader.state) = (cut, digest, state);
                let count = reader.state.len() as u64;
                if keys != count {
                    return Err(Violation::new("reset", format!("{at} says {keys} keys, it named {count}")));
                }
                self.holds_what_is_there(at)
            }
            Page::Ended(_) => {
                let reader = &mut self.nodes[at].reader;
                reader.id = None;
                if reader.reset.take().is_some() {
                    *reader = Reader::default();
                }
                Ok(())
            }
        }
    }

    /// Each change once, none left out: exactly what follows in the node's history.
    fn changes(&mut self, at: usize, records: &[Record]) -> Judged {
        let (node, tree) = (&mut self.nodes[at], &self.tree);
        let Some(path) = tree.path(&node.reader.digest, &node.claim.digest) else {
            return self.unknown_history(at, "the place of a reader");
        };
        let mut next = path.iter();
        for record in records {
            let expected = next.next().and_then(|digest| Some((*digest, tree.get(digest)?)));
            let fits = expected.filter(|(_, expected)| {
                (&expected.key, expected.state, expected.version)
                    == (&record.key, record.state, record.version)
            });
            let Some((digest, _)) = fits else {
                let text = format!("{at} gives {record:?}, what follows is {expected:?}");
                return Err(Violation::new("given", text));
            };
            let reader = &mut node.reader;
            (reader.at, reader.digest) = (record.version, digest);
            match record.state {
                State::Present { blob } => drop(reader.state.insert(record.key.clone(), blob)),
                State::Deleted => drop(reader.state.remove(&record.key)),
            }
        }
        self.holds_what_is_there(at)
    }

    fn state(&mut self, at: usize, records: Vec<Record>) -> Judged {
        let Some((_, state)) = &mut self.nodes[at].reader.reset else {
            // The beginning of this reset was of a history that the model had let go of.
            return Ok(());
        };
        for record in records {
            let ordered = state.last_key_value().is_none_or(|(last, _)| *last < record.key);
            match record.state {
                State::Present { blob } if ordered => drop(state.insert(record.key, blob)),
                State::Present { .. } | State::Deleted => {
                    return Err(Violation::new("reset", format!("{at} names {record:?} out of order")));
                }
            }
        }
        Ok(())
    }

    /// A reader holds the key space of the history that it was given, and no other.
    fn holds_what_is_there(&self, at: usize) -> Judged {
        let reader = &self.nodes[at].reader;
        let Some(mirror) = self.tree.mirror(&reader.digest) else { return Ok(()) };
        let present: BTreeMap<Key, BlobKey> =
            mirror.into_iter().filter_map(|(key, (state, _))| Some((key, state.blob()?))).collect();
        if reader.state == present {
            return Ok(());
        }
        let text = format!(
            "the reader of {at} holds {} keys at {}, there are {}",
            reader.state.len(),
            reader.at,
            present.len()
        );
        Err(Violation::new("reader", text))
    }

    /// The history of a node at one of its versions.
    fn history_at(&self, at: usize, version: Version) -> Option<Digest> {
        let mut digest = self.nodes[at].claim.digest;
        while self.tree.version(&digest)? > version {
            digest = self.tree.get(&digest)?.parent;
        }
        (self.tree.version(&digest)? == version).then_some(digest)
    }

    /// Versions alone cannot tell two histories apart: whose reader came from the other one begins anew.
    fn unknown_history(&mut self, at: usize, what: &str) -> Judged {
        if !self.forked && self.lossy.is_empty() {
            let text = format!("{what} at {at} is none of its history {:?}", self.nodes[at].reader.at);
            return Err(Violation::new("reader", text));
        }
        self.nodes[at].reader = Reader::default();
        Ok(())
    }
}
