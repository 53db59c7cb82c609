//! The invariants, judged whenever something a node shows may have changed.

use super::{Judged, Violation, World};
use crate::fault::Fault;
use crate::model::{Digest, Submitted};
use crate::node::{Damage, Life};
use std::collections::BTreeMap;
use strandline_core::error::StorageCause;
use strandline_core::id::{LinkId, hex};
use strandline_core::lifecycle::api::{CloseReason, Done, Event, PairReason, PairVerdict, Scan, Status};
use strandline_core::lifecycle::recovery::RecoveryError;
use strandline_core::record::{State, Version};
use strandline_core::verdict::Verdict;

/// How many entries are remembered to judge damage by.
const REMEMBERED: usize = 256;

/// A batch header is this long.
const BATCH_HEADER_BYTES: u64 = 48;

fn short(digest: &Digest) -> String {
    hex(&digest[..4])
}

impl World {
    /// Looks at what a node said.
    pub(super) fn events(&mut self, at: usize) -> Judged {
        while let Some(event) = self.nodes[at].host.events.pop_front() {
            if !matches!(event, Event::Frames { .. }) {
                self.tell(|| format!("{at} says {event:?}"));
            }
            match event {
                Event::Durable { upto } => self.durable(at, upto.get())?,
                Event::Installed { .. } => self.installed(at)?,
                Event::Halted { .. } => self.nodes[at].halted = true,
                Event::Frames { .. } | Event::Synced { .. } => {}
                Event::Page { subscription, page } => self.page(at, subscription, page)?,
                Event::Resume { link } => {
                    self.nodes[at].paused.remove(&link);
                }
                Event::Verdict { identity, verdict, .. } => self.verdict(at, &identity, &verdict)?,
                Event::EpochStarted { epoch, authority, .. } => {
                    self.epoch_started(at, epoch, authority.as_str())?;
                }
                Event::MemberLapsed { .. } => self.count(Fault::LapsedMember),
                Event::Compacted { compacted } => self.compacted(at, compacted.floor)?,
                Event::CloseLink { link, reason } => self.closing(at, link, &reason)?,
                Event::Done { request, done } => {
                    self.changed(at, request, &done)?;
                    self.done(at, &done)?;
                }
                Event::Closed => self.nodes[at].closed = true,
            }
        }
        Ok(())
    }

    fn durable(&mut self, at: usize, lsn: u64) -> Judged {
        self.observe(at)?;
        let node = &mut self.nodes[at];
        let digest = node.claim.digest;
        node.claim.durable.push_back((lsn, digest));
        if node.claim.durable.len() > REMEMBERED {
            node.claim.durable.pop_front();
        }
        if let Some((next, _)) = node.pending.front()
            && *next <= lsn
        {
            let text = format!("{at} says that LSN {lsn} is durable and does not show LSN {next}");
            return Err(Violation::new("durable, not visible", text));
        }
        Ok(())
    }

    fn verdict(&self, at: usize, name: &str, verdict: &PairVerdict) -> Judged {
        if let Verdict::Gap { reason: PairReason::OtherIncarnation, .. } = verdict
            && !self.lossy.contains(name)
        {
            return Err(Violation::new("false loss", format!("{at}: {name} lost nothing: {verdict:?}")));
        }
        if let Verdict::Diverged(divergence) = verdict
            && !self.forked
            && (name != super::outside::NAME || self.lossy.is_empty())
        {
            return Err(Violation::new("false divergence", format!("{at}: {divergence}, in one history")));
        }
        Ok(())
    }

    fn closing(&mut self, at: usize, link: LinkId, reason: &CloseReason) -> Judged {
        self.nodes[at].closing.insert(link);
        // What still comes is thrown away, so it need not be held back.
        self.nodes[at].paused.remove(&link);
        if self.is_outside(at, link) {
            return self.closes_outside(at, reason);
        }
        let Some((id, side)) = self.by_link.get(&(at, link)).copied() else { return Ok(()) };
        let conn = &self.conns[&id];
        let peer = conn.ends[1 - side].0;
        // Between two histories an acknowledgement of one is a fault in the eyes of the other.
        // What rotted unseen is sent as it is, and refused.
        let rotten = !self.nodes[peer].rotten.is_empty();
        let excused = rotten || conn.hostile || self.forked || !self.nodes[peer].damage.is_empty();
        if let CloseReason::Fault(fault) = reason
            && !excused
        {
            let text = format!("{at} blames {peer}, which did nothing wrong: {fault}");
            return Err(Violation::new("false fault", text));
        }
        Ok(())
    }

    fn closes_outside(&self, at: usize, reason: &CloseReason) -> Judged {
        if let CloseReason::Fault(fault) = reason
            && !self.forked
            && self.lossy.is_empty()
        {
            let text = format!("{at} blames the peer of the reference, which did nothing wrong: {fault}");
            return Err(Violation::new("false fault", text));
        }
        Ok(())
    }

    fn done(&mut self, at: usize, done: &Done) -> Judged {
        match done {
            Done::Members | Done::Fenced(_) | Done::Refused(_) => Ok(()),
            Done::Collected(_) => self.look(at),
            Done::Scrubbed(found) => {
                let bad: Vec<_> = found.blobs.iter().map(|bad| bad.blob).collect();
                self.scrubbed(at, &bad);
                self.look(at)
            }
            Done::Compacted(compacted) => {
                // Who was active when it began still needs what it had not acknowledged then.
                let needs = |(_, acked): &&(String, Version)| *acked < compacted.floor;
                if let Some((name, acked)) = self.nodes[at].counted.iter().find(needs) {
                    let text = format!("{at} raised its floor to {}, {name} had {acked}", compacted.floor);
                    return Err(Violation::new("compacted too far", text));
                }
                self.compacted(at, compacted.floor)
            }
        }
    }

    fn compacted(&mut self, at: usize, floor: Version) -> Judged {
        let status = self.status(at);
        if status.floor != floor {
            let text = format!("{at} compacted to {floor}, and its floor is {}", status.floor);
            return Err(Violation::new("floor", text));
        }
        self.floor(at, &status)
    }

    pub(super) fn status(&self, at: usize) -> Status {
        self.nodes[at].replica().expect("a node that says something serves").status()
    }

    /// A floor rose: nobody is thought to have more than it vouched for.
    fn floor(&mut self, at: usize, status: &Status) -> Judged {
        for member in &status.members {
            let highest = self.highest(&member.identity);
            if member.acked > highest {
                let (name, acked) = (&member.identity, member.acked);
                let text =
                    format!("{at} thinks that {name} has {acked}, it never vouched for more than {highest}");
                return Err(Violation::new("acknowledged too much", text));
            }
        }
        self.nodes[at].floor = status.floor;
        self.needs_snapshots(at, status);
        Ok(())
    }

    /// The most that any node of this name ever vouched for.
    fn highest(&self, identity: &str) -> Version {
        let named = self.nodes.iter().filter(|node| node.identity == identity);
        let outside = self.outside.iter().filter(|_| identity == super::outside::NAME);
        let highest = named.map(|node| node.claim.highest).chain(outside.map(|outside| outside.peer.tail));
        highest.max().unwrap_or(Version::ZERO)
    }

    /// A snapshot took the place of everything. Where histories have parted and nobody kept what
    /// would tell, it may be another one.
    fn installed(&mut self, at: usize) -> Judged {
        // Its old state is gone: whoever removed it may count it again.
        let name = self.nodes[at].identity.clone();
        for node in &mut self.nodes {
            node.removed.remove(&name);
        }
        let status = self.status(at);
        let known = self.tree.version(&status.tail_digest) == Some(status.tail);
        if self.forked && known && self.tree.path(&self.nodes[at].claim.digest, &status.tail_digest).is_none()
        {
            let mirror = self.tree.mirror(&status.tail_digest).expect("known");
            let node = &mut self.nodes[at];
            node.mirror = mirror;
            node.claim.digest = status.tail_digest;
            node.claim.version = status.tail;
            node.claim.highest = node.claim.highest.max(status.tail);
            node.epoch = status.epoch;
            return self.look(at);
        }
        self.observe(at)
    }

    /// The tail of a node may have moved.
    pub(super) fn observe(&mut self, at: usize) -> Judged {
        let status = self.status(at);
        self.bounds(at, &status)?;
        let (digest, claimed) = (status.tail_digest, self.nodes[at].claim.digest);
        if digest == claimed {
            return Ok(());
        }
        let Some(path) = self.tree.path(&claimed, &digest) else {
            let text = format!(
                "{at} went from {} {} to {} {}, which does not follow",
                self.nodes[at].claim.version,
                short(&claimed),
                status.tail,
                short(&digest)
            );
            return Err(Violation::new("invented or lost", text));
        };
        self.own_durable(at, digest);
        self.sent_early(at, &path)?;
        let node = &mut self.nodes[at];
        let mut touched = BTreeMap::new();
        for digest in &path {
            let record = self.tree.get(digest).expect("on a path");
            if record.version.epoch < node.epoch {
                let text = format!("{at} knows of epoch {} and took {}", node.epoch, record.version);
                return Err(Violation::new("fenced epoch", text));
            }
            node.mirror.insert(record.key.clone(), (record.state, record.version));
            touched.insert(record.key.clone(), ());
        }
        node.claim.digest = digest;
        node.claim.version = status.tail;
        node.claim.highest = node.claim.highest.max(status.tail);
        node.floor = node.floor.max(status.floor);
        for key in touched.keys() {
            self.shows(at, key, status.floor)?;
        }
        Ok(())
    }

    /// What its own writer shows, it vouches for.
    fn own_durable(&mut self, at: usize, digest: Digest) {
        let node = &mut self.nodes[at];
        if let Some(place) = node.pending.iter().position(|(_, pending)| *pending == digest) {
            node.pending.drain(..=place);
            self.tree.vouch(digest);
        }
    }

    fn sent_early(&self, at: usize, path: &[Digest]) -> Judged {
        for digest in path {
            let record = self.tree.get(digest).expect("on a path");
            if !record.durable {
                let text = format!("{at} holds {}, which its writer did not vouch for yet", record.version);
                return Err(Violation::new("sent too early", text));
            }
        }
        Ok(())
    }

    /// A key is what the model says.
    fn shows(&self, at: usize, key: &strandline_core::record::Key, floor: Version) -> Judged {
        let node = &self.nodes[at];
        let entry = node.replica().and_then(|replica| replica.get(key));
        let found = entry.map(|entry| (entry.state, entry.version));
        let expected = node.mirror.get(key).copied();
        let purged = matches!(expected, Some((State::Deleted, version)) if version <= floor);
        if found == expected || (purged && found.is_none()) {
            return self.has_blob(at, key, found);
        }
        let text = format!("{at} shows {key} as {found:?}, expected {expected:?}");
        Err(Violation::new("key space", text))
    }

    fn bounds(&self, at: usize, status: &Status) -> Judged {
        let node = &self.nodes[at];
        if status.tail > status.submitted || status.floor > status.tail {
            let text =
                format!("{at}: floor {}, tail {}, submitted {}", status.floor, status.tail, status.submitted);
            return Err(Violation::new("order of watermarks", text));
        }
        self.complete(at, status)?;
        let most = 24 + status.links.len() * (2 * node.config.blob_requests_max as usize + 16);
        if status.commands_outstanding > most {
            let found = status.commands_outstanding;
            let text = format!("{at} has {found} commands out, expected at most {most}");
            return Err(Violation::new("bound", text));
        }
        Ok(())
    }

    /// Everything a node shows, compared with the model.
    pub(super) fn look(&mut self, at: usize) -> Judged {
        let Some(replica) = self.nodes[at].replica() else { return Ok(()) };
        let scan =
            Scan { namespace: None, prefix: Vec::new(), after: None, entries_max: 1_000_000, deleted: true };
        let page = replica.scan(&scan);
        let status = replica.status();
        let found: BTreeMap<_, _> =
            page.entries.into_iter().map(|(key, entry)| (key, (entry.state, entry.version))).collect();
        let node = &self.nodes[at];
        let keys = found.keys().chain(node.mirror.keys());
        for key in keys {
            let (found, expected) = (found.get(key).copied(), node.mirror.get(key).copied());
            let purged = matches!(expected, Some((State::Deleted, version)) if version <= status.floor);
            if found != expected && !(purged && found.is_none()) {
                let text = format!("a scan of {at} gives {key} as {found:?}, expected {expected:?}");
                return Err(Violation::new("key space", text));
            }
            self.has_blob(at, key, found)?;
        }
        self.floor(at, &status)
    }

    /// What is said of peers must be what they vouched for.
    pub(super) fn look_at_links(&mut self, at: usize) -> Judged {
        if self.nodes[at].replica().is_none() {
            return Ok(());
        }
        let status = self.status(at);
        self.bounds(at, &status)?;
        self.counts_anew(at, &status)?;
        for link in &status.links {
            let highest = self.highest(&link.identity);
            if link.acked > highest {
                let (name, acked) = (&link.identity, link.acked);
                let text =
                    format!("{at} thinks that {name} has {acked}, it never vouched for more than {highest}");
                return Err(Violation::new("acknowledged too much", text));
            }
        }
        Ok(())
    }

    /// A node serves again: it must hold what it vouched for.
    pub(super) fn recovered(&mut self, at: usize) -> Judged {
        let status = self.status(at);
        let (digest, claimed) = (status.tail_digest, self.nodes[at].claim.digest);
        if self.tree.version(&digest) != Some(status.tail) {
            let text = format!("{at} recovered {} {}, which nobody wrote", status.tail, short(&digest));
            return Err(Violation::new("invented", text));
        }
        self.restored_whole(at, &status)?;
        // An old copy of a writer may take the place of a restored one, which was none.
        self.nodes[at].writes |= status.authority.is_some();
        if self.nodes[at].regressed {
            self.forked |= self.nodes[at].writes || self.parts_behind(&digest);
        } else if let Some(path) = self.tree.path(&claimed, &digest) {
            if self.nodes[at].writes {
                self.whole_group(at, &digest)?;
            } else {
                self.sent_early(at, &path)?;
            }
        } else if self.forked && status.floor > self.nodes[at].floor {
            // A snapshot of another history was committed before the end; see `installed`.
        } else if let Some(first) = self.excused(at, &digest) {
            self.forked |= self.nodes[at].writes;
            self.nodes[at].host.appended.truncate(first);
        } else {
            let text = format!(
                "{at} vouched for {} {} and recovered {} {}; damage: {:?}",
                self.nodes[at].claim.version,
                short(&claimed),
                status.tail,
                short(&digest),
                self.nodes[at].damage
            );
            return Err(Violation::new("lost", text));
        }
        if self.nodes[at].writes {
            self.tree.vouch(digest);
        }
        self.begins_bare(&status);
        let mirror = self.tree.mirror(&digest).expect("known");
        let node = &mut self.nodes[at];
        node.pending.clear();
        node.submitted = digest;
        node.latest.clone_from(&mirror);
        node.mirror = mirror;
        node.claim.digest = digest;
        node.claim.version = status.tail;
        node.claim.highest = node.claim.highest.max(status.tail);
        node.claim.durable.clear();
        node.floor = status.floor;
        node.epoch = status.epoch;
        (node.made, node.regressed, node.halted, node.closed) = (true, false, false, false);
        node.damage.clear();
        if let Some(cut) = node.cut.take() {
            node.host.appended.retain(|batch| (batch.segment, batch.offset) < cut);
        }
        self.look(at)
    }

    fn whole_group(&self, at: usize, digest: &Digest) -> Judged {
        // What another wrote came in batches of its own.
        let own = |epoch: u64| self.epochs.get(&epoch) == Some(&self.nodes[at].identity);
        let torn = |record: &Submitted| own(record.version.epoch) && !record.ends_group;
        if self.tree.get(digest).is_some_and(torn) {
            let text = format!("{at} recovered a part of a batch, up to {}", short(digest));
            return Err(Violation::new("torn group", text));
        }
        Ok(())
    }

    /// Whether damage explains that a node holds less than it vouched for: it hit the first batch
    /// that is gone, and the record of its durability in every batch behind it. Which batch that is.
    fn excused(&self, at: usize, digest: &Digest) -> Option<usize> {
        let node = &self.nodes[at];
        self.tree.path(digest, &node.claim.digest)?;
        let hits = |from: u64, to: u64, segment: u64| {
            node.damage.iter().any(|damage: &Damage| {
                damage
                    .segment
                    .as_ref()
                    .is_some_and(|(number, range)| *number == segment && range.start < to && from < range.end)
            })
        };
        let batches = &node.host.appended;
        let first = batches.iter().position(|b| hits(b.offset, b.offset + b.bytes, b.segment))?;
        let unproven = batches[first + 1..].iter().all(|b| {
            b.segment == batches[first].segment && hits(b.offset, b.offset + BATCH_HEADER_BYTES, b.segment)
        });
        let before = batches[first].first_lsn.checked_sub(1);
        let kept = node.claim.durable.iter().rfind(|(lsn, _)| Some(*lsn) <= before);
        let whole = kept.is_none_or(|(_, kept)| self.tree.path(kept, digest).is_some());
        (unproven && whole).then_some(first)
    }

    /// A directory was refused: something must explain it.
    pub(super) fn refused(&mut self, at: usize) -> Judged {
        let node = &mut self.nodes[at];
        let Life::Refused(error) = &node.life else { unreachable!("it was just refused") };
        let by_fault = match error {
            RecoveryError::Storage(fault) => match fault.cause {
                StorageCause::Failed | StorageCause::Full => true,
                StorageCause::Damaged | StorageCause::Missing | StorageCause::Newer => {
                    !node.damage.is_empty()
                }
                StorageCause::Denied => false,
            },
            RecoveryError::NoLog => !node.made,
            RecoveryError::Config(_) | RecoveryError::Exists { .. } | RecoveryError::Init { .. } => false,
        };
        if !by_fault {
            let text = format!("{at} does not open: {error}");
            return Err(Violation::new("refused", text));
        }
        if !node.damage.is_empty() {
            return Ok(());
        }
        // A passing fault of the disk: try again later.
        node.life = Life::Down;
        Ok(())
    }

    /// Counts a fault that the world injects itself.
    pub(super) fn count(&mut self, fault: Fault) {
        self.counts.add(fault);
    }
}
