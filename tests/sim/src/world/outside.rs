//! A peer of the reference beside the nodes, in a share of the runs: it follows one node at a time. What
//! must hold towards it, though nothing can be compared with it but versions.

use super::{Judged, Violation, World};
use crate::model::Digest;
use crate::reference_peer::{Given, ReferencePeer, Refused};
use crate::rng::{Choose, Rng};
use std::collections::BTreeMap;
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{LinkRole, PairReason};
use strandline_core::record::{Key, State, Version};
use strandline_core::verdict::Verdict;
use strandline_core::wire::capability::Capabilities;
use strandline_core::wire::identity::PeerIdentity;

/// Its name.
pub(super) const NAME: &str = "r";

/// In one of so many runs there is one.
const ONE_IN: u64 = 4;

/// The peer, and its connection.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) peer: ReferencePeer,
    link: Option<Linked>,
    /// It holds what no node does any more, since a node that it followed lost records.
    astray: bool,
    /// Records that it took.
    pub(super) records: usize,
}

#[derive(Debug)]
struct Linked {
    node: usize,
    link: LinkId,
    declared: Capabilities,
    /// The connection is gone, and the node was not told.
    gone: bool,
}

/// The peer of a run, if it has one. Decided apart, so that the other runs stay what they are.
pub(super) fn of(seed: u64) -> Option<Outside> {
    Rng::new(seed ^ 0x7265_6665_7265_6E63).once_in(ONE_IN).then(Outside::default)
}

impl World {
    /// It connects with a node, or loses its connection.
    pub(super) fn meet_outside(&mut self, at: usize) -> Judged {
        let linked = self.outside.as_mut().and_then(|outside| outside.link.as_mut());
        match linked {
            Some(linked) => linked.gone |= self.rng.once_in(2),
            None => self.connect_outside(at)?,
        }
        Ok(())
    }

    /// It connects with a node that is not behind it: it follows, and a source that is behind it would be
    /// told of another history.
    fn connect_outside(&mut self, at: usize) -> Judged {
        let Some(outside) = &self.outside else { return Ok(()) };
        let Some(node) = self.nodes[at].replica().filter(|r| r.status().tail >= outside.peer.tail) else {
            return Ok(());
        };
        let name = PeerIdentity::parse(NAME).expect("a short name");
        let (_, peer) =
            super::links::handshake((name, ReferencePeer::capabilities()), super::links::side(node));
        let declared = node.capabilities();
        let Some(link) = self.link_up(at, &peer, LinkRole::Source)? else { return Ok(()) };
        self.tell(|| format!("connect {at} {link} with the peer of the reference"));
        if let Some(outside) = &mut self.outside {
            outside.peer.connected();
            outside.link = Some(Linked { node: at, link, declared, gone: false });
        }
        self.after(at)
    }

    /// Whether a link is the one with it.
    pub(super) fn is_outside(&self, at: usize, link: LinkId) -> bool {
        let linked = self.outside.as_ref().and_then(|outside| outside.link.as_ref());
        linked.is_some_and(|linked| (linked.node, linked.link) == (at, link))
    }

    /// A node is gone, and its connection with it.
    pub(super) fn outside_loses(&mut self, at: usize) {
        if let Some(outside) = &mut self.outside {
            outside.link.take_if(|linked| linked.node == at);
        }
    }

    /// Its connection breaks; the node learns it later.
    pub(super) fn break_outside(&mut self) {
        if let Some(linked) = self.outside.as_mut().and_then(|outside| outside.link.as_mut()) {
            linked.gone = true;
        }
    }

    /// The link over which it has something for this node.
    pub(super) fn outside_sends(&self, at: usize) -> Option<LinkId> {
        let outside = self.outside.as_ref()?;
        let linked = outside.link.as_ref().filter(|linked| linked.node == at && !linked.gone)?;
        (!outside.peer.out.is_empty() && !self.nodes[at].paused.contains(&linked.link)).then_some(linked.link)
    }

    /// A node gets some of what it sent.
    pub(super) fn deliver_from_outside(&mut self, at: usize, link: LinkId) -> Judged {
        let Some(outside) = &mut self.outside else { return Ok(()) };
        let all = outside.peer.out.len();
        let count = if self.rng.once_in(2) { all } else { 1 + self.rng.index(all) };
        let bytes: Vec<u8> = outside.peer.out.drain(..count).collect();
        self.tell(|| {
            format!("{at} receives {count} of {all} bytes on {link} from the peer of the reference")
        });
        self.hand_bytes(at, link, &bytes)
    }

    /// It does something, if it can.
    pub(super) fn outside_turn(&mut self) -> Result<bool, Violation> {
        let Some(outside) = &mut self.outside else { return Ok(false) };
        let Some(Linked { node, link, gone, .. }) = &outside.link else { return Ok(false) };
        let (at, link) = (*node, *link);
        if *gone {
            outside.link = None;
            self.tell(|| format!("{at} learns that the peer of the reference is gone"));
            self.link_down(at, link)?;
            return Ok(true);
        }
        let Some(out) = self.nodes[at].host.out.get_mut(&link).filter(|out| !out.bytes.is_empty()) else {
            return Ok(false);
        };
        let all = out.bytes.len();
        let count = if self.rng.once_in(2) { all } else { 1 + self.rng.index(all) };
        let bytes: Vec<u8> = out.bytes.drain(..count).collect();
        let woken = out.full && out.bytes.len() <= self.profile.window / 2;
        if woken {
            out.full = false;
            self.nodes[at].host.wake(link);
        }
        self.tell(|| format!("the peer of the reference receives {count} of {all} bytes from {at}"));
        self.outside_takes(at, &bytes)?;
        if woken { self.after(at).map(|()| true) } else { Ok(true) }
    }

    fn outside_takes(&mut self, at: usize, bytes: &[u8]) -> Judged {
        let Some(mut outside) = self.outside.take() else { return Ok(()) };
        outside.peer.received(bytes);
        let judged = self.outside_hears(at, &mut outside);
        self.outside = Some(outside);
        judged
    }

    fn outside_hears(&mut self, at: usize, outside: &mut Outside) -> Judged {
        let Some(declared) = outside.link.as_ref().map(|linked| linked.declared.clone()) else {
            return Ok(());
        };
        loop {
            match outside.peer.next(&declared) {
                Ok(Some(given)) => {
                    self.given(at, outside, &given)?;
                    outside.records += given.records().len();
                    outside.peer.take(&given);
                }
                Ok(None) => return Ok(()),
                Err(refused) => {
                    if let Some(linked) = &mut outside.link {
                        linked.gone = true;
                    }
                    return self.outside_refuses(at, &refused);
                }
            }
        }
    }

    fn outside_refuses(&mut self, at: usize, refused: &Refused) -> Judged {
        self.tell(|| format!("the peer of the reference refuses {at}: {refused:?}"));
        let text = match refused {
            // What rotted and nobody read since is sent as it is.
            Refused::Blob if !self.nodes[at].rotted.is_empty() => return Ok(()),
            Refused::Blob => "bytes that are not what their key says".into(),
            Refused::Gap(from) => format!("records from {from}, which is not where it ends"),
            Refused::Unknown(what) => format!("what its protocol does not have: {what}"),
        };
        Err(Violation::new("to the reference", format!("{at} sends {text}")))
    }

    /// Whether what it is given is the node's history: nothing invented, nothing early, nothing left out but
    /// what a later record supersedes, and the blobs ahead.
    fn given(&self, at: usize, outside: &mut Outside, given: &Given) -> Judged {
        let wrong = |text: String| Err(Violation::new("to the reference", format!("{at} gives {text}")));
        let lacks = given.records().iter().find_map(|record| match record.state {
            State::Present { blob } if !outside.peer.blobs.holds(&blob) => Some(record.version),
            State::Present { .. } | State::Deleted => None,
        });
        if let Some(version) = lacks {
            return wrong(format!("{version} ahead of its blob"));
        }
        if self.forked || outside.astray {
            return Ok(());
        }
        let path = self.tree.path(&Digest::default(), &self.nodes[at].claim.digest).expect("it is judged");
        let history: BTreeMap<Version, Digest> =
            path.iter().map(|digest| (self.tree.version(digest).expect("on a path"), *digest)).collect();
        let from = outside.peer.tail;
        if !from.is_zero() && !history.contains_key(&from) {
            if self.lossy.is_empty() {
                return wrong(format!("records after {from}, which it does not have"));
            }
            outside.astray = true;
            return Ok(());
        }
        let mut last: BTreeMap<&Key, Version> = BTreeMap::new();
        for (version, digest) in &history {
            last.insert(&self.tree.get(digest).expect("on a path").key, *version);
        }
        let mut expected = match given {
            Given::Batch(_) => self.between(&history, from, given.to()),
            Given::Snapshot(_) => {
                let Some(digest) = history.get(&given.to()) else {
                    return wrong(format!(
                        "a snapshot at {}, which is no version of its history",
                        given.to()
                    ));
                };
                let mut all = self.tree.mirror(digest).expect("known");
                // Tombstones up to the floor may be gone.
                let kept = |key: &Key| given.records().iter().any(|record| record.key == *key);
                all.retain(|key, (state, _)| *state != State::Deleted || kept(key));
                all.into_iter().map(|(key, (state, version))| (version, (key, state))).collect()
            }
        };
        for record in given.records() {
            let found = expected.remove(&record.version);
            if found != Some((record.key.clone(), record.state)) {
                return wrong(format!("{record:?}, its history has {found:?}"));
            }
            let durable = self.tree.get(&history[&record.version]).is_some_and(|record| record.durable);
            if !durable {
                return wrong(format!("{}, which its writer did not vouch for yet", record.version));
            }
        }
        match expected.iter().find(|(version, (key, _))| last.get(key).is_none_or(|last| last <= *version)) {
            Some((version, _)) => wrong(format!("what leaves out {version}, and nothing supersedes that")),
            None => Ok(()),
        }
    }

    /// The records of a history after one version, up to another.
    fn between(
        &self,
        history: &BTreeMap<Version, Digest>,
        from: Version,
        to: Version,
    ) -> BTreeMap<Version, (Key, State)> {
        let within = history.iter().filter(|(version, _)| **version > from && **version <= to);
        let record = |digest| {
            let record = self.tree.get(digest).expect("on a path");
            (record.key.clone(), record.state)
        };
        within.map(|(version, digest)| (*version, record(digest))).collect()
    }

    /// At the end it has what the node has that is ahead, or that node says why not.
    pub(super) fn outside_agrees(&mut self) -> Judged {
        for _ in 0..4 {
            self.break_outside();
            self.settle()?;
            let ahead = (0..self.nodes.len())
                .filter(|at| self.nodes[*at].replica().is_some() && !self.nodes[*at].twin)
                .max_by_key(|at| self.nodes[*at].claim.version);
            let Some(at) = ahead else { return Ok(()) };
            self.connect_outside(at)?;
            self.settle()?;
            if self.outside_has_all(at).is_ok() {
                break;
            }
            self.time_ns += 70_000_000_000;
            self.settle()?;
            if self.outside_has_all(at).is_ok() || self.forked {
                break;
            }
        }
        let linked = self.outside.as_ref().and_then(|outside| outside.link.as_ref());
        linked.map_or(Ok(()), |linked| self.outside_has_all(linked.node))
    }

    fn outside_has_all(&self, at: usize) -> Judged {
        let Some(outside) = &self.outside else { return Ok(()) };
        if self.forked || outside.astray || !self.lossy.is_empty() {
            return Ok(());
        }
        let status = self.status(at);
        let link = status.links.iter().find(|link| link.identity == NAME);
        let explained = link.and_then(|link| link.verdict.as_ref()).is_some_and(|verdict| match verdict {
            Verdict::Unknown { reason } => matches!(
                reason,
                PairReason::SnapshotTooLarge | PairReason::BlobTooLarge | PairReason::BlobMissing
            ),
            Verdict::Complete { .. } | Verdict::Gap { .. } | Verdict::Diverged(_) => false,
        });
        let present = |mirror: &crate::model::Mirror| {
            let present = mirror.iter().filter(|(_, (state, _))| *state != State::Deleted);
            present.map(|(key, entry)| (key.clone(), *entry)).collect::<BTreeMap<_, _>>()
        };
        let same = outside.peer.tail == status.tail
            && present(&outside.peer.mirror) == present(&self.nodes[at].mirror);
        if same || explained {
            return Ok(());
        }
        let text = format!(
            "the peer of the reference is at {}, {at} at {}, and no verdict says why: {link:?}",
            outside.peer.tail, status.tail
        );
        Err(Violation::new("no agreement", text))
    }
}
