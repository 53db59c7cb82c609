//! What operations do: work, starts, and faults of disk, clock and process.

use super::{Judged, Violation, World};
use crate::blobs::{SMALL, contents};
use crate::fault::Fault;
use crate::fs::{Fs, Name, PAGE};
use crate::node::{Backup, Damage, LOG, Life, NAMESPACE, Node};
use crate::plan::{Kind, Op};
use crate::rng::{Choose, Rng};
use strandline_core::id::hex;
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::api::{Change, MembersChange, Mutation, MutationError};
use strandline_core::lifecycle::recovery::Recovery;
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::Machine;
use strandline_core::record::{AuthorityId, Key, RecordLimits, State, Version};
use strandline_core::seed::Seed;

impl World {
    /// Does what an operation says, as far as the world allows it.
    pub(super) fn apply(&mut self, op: &Op) -> Judged {
        let at = match op.kind {
            Kind::Put | Kind::PutLarge | Kind::Delete | Kind::Batch | Kind::Conditional => self.writer(),
            Kind::Compact
            | Kind::Collect
            | Kind::Scrub
            | Kind::Members
            | Kind::Connect
            | Kind::Start
            | Kind::Backup
            | Kind::Look
            | Kind::Heal
            | Kind::Inject(_) => op.node % self.nodes.len(),
        };
        match op.kind {
            Kind::Put | Kind::PutLarge => {
                let mutation = self.put(op.kind == Kind::PutLarge, at);
                self.mutate(at, &[mutation])
            }
            Kind::Delete => {
                let mutation = self.delete();
                self.mutate(at, &[mutation])
            }
            Kind::Batch => {
                let mutations: Vec<Mutation> = (0..2 + self.rng.below(6))
                    .map(|_| if self.rng.once_in(3) { self.delete() } else { self.put(false, at) })
                    .collect();
                self.mutate(at, &mutations)
            }
            Kind::Conditional => {
                let mut mutation = if self.rng.once_in(2) { self.delete() } else { self.put(false, at) };
                let latest = self.nodes[at].latest.get(&mutation.key).map_or(Version::ZERO, |(_, v)| *v);
                let wrong = Version::new(1, latest.sequence + 1);
                mutation.if_version = Some(if self.rng.once_in(3) { wrong } else { latest });
                self.mutate(at, &[mutation])
            }
            Kind::Compact => self.compact(at),
            Kind::Collect => self.collect(at),
            Kind::Scrub => self.scrub(at),
            Kind::Members => {
                let names = ["b", "c", "d", super::outside::NAME];
                let known = if self.outside.is_some() { 4 } else { 3 };
                let name = names[self.rng.index(known)].to_string();
                let change = match self.rng.below(6) {
                    0 => MembersChange::Clear,
                    1 | 2 => MembersChange::Remove(name),
                    _ => MembersChange::Add(name),
                };
                self.members(at, change)
            }
            Kind::Connect if self.outside.is_some() && self.rng.once_in(2) => self.meet_outside(at),
            Kind::Connect => {
                let peer = self.other(at);
                if self.connected(at, peer) { Ok(()) } else { self.connect(at, peer) }
            }
            Kind::Start => self.start_all(),
            Kind::Backup => {
                let node = &mut self.nodes[at];
                if node.made && node.damage.is_empty() && !matches!(node.life, Life::Recovering(_)) {
                    let (fs, blobs) = (node.host.fs.copied(), node.host.blobs.clone());
                    let appended = node.host.appended.clone();
                    let plan = node.replica().map(Replica::backup_plan);
                    node.backup = Some(Backup { fs, blobs, appended, plan });
                }
                Ok(())
            }
            Kind::Look => {
                self.look(at)?;
                self.read(at)
            }
            Kind::Heal => {
                self.nodes[at].host.armed = crate::effect::Armed::default();
                Ok(())
            }
            Kind::Inject(fault) => self.inject(at, fault),
        }
    }

    /// One of the nodes that write: there may be one too many.
    fn writer(&mut self) -> usize {
        let writers: Vec<usize> = (0..self.nodes.len()).filter(|at| self.nodes[*at].writes).collect();
        // A restored writer refuses until it is fenced.
        if writers.is_empty() { 0 } else { writers[self.rng.index(writers.len())] }
    }

    fn key(&mut self) -> Key {
        let number = self.rng.below(self.profile.keys);
        // Some keys are long, so that batches fill.
        let pad = if number.is_multiple_of(5) { "-a-longer-key-than-the-others" } else { "" };
        let text = format!("k{number:03}{pad}");
        RecordLimits::default().key(NAMESPACE, text.as_bytes()).expect("a short key")
    }

    fn put(&mut self, large: bool, at: usize) -> Mutation {
        let all = contents();
        let pick = if large { SMALL + self.rng.index(all.len() - SMALL) } else { self.rng.index(SMALL) };
        self.nodes[at].host.blobs.store(&all[pick]);
        Mutation { key: self.key(), change: Change::Put { blob: all[pick].key }, if_version: None }
    }

    fn delete(&mut self) -> Mutation {
        Mutation { key: self.key(), change: Change::Delete, if_version: None }
    }

    /// Hands mutations to a node, and tells the model what became of them.
    pub(super) fn mutate(&mut self, at: usize, mutations: &[Mutation]) -> Judged {
        let now = self.nodes[at].now(self.time_ns);
        if self.nodes[at].replica().is_none() {
            return Ok(());
        }
        self.step(6, at, mutations.len() as u64);
        let writes = self.nodes[at].writes;
        let node = &mut self.nodes[at];
        let result = node.replica_mut().expect("it serves").handle_mutations(now, mutations);
        match result {
            Ok(accepted) => {
                if !writes {
                    return Err(Violation::new("write", format!("{at} follows and took a mutation")));
                }
                // Somebody who has not heard of a later epoch writes on in an older one.
                self.forked |= accepted[0].version.epoch < self.epoch.max(self.epoch_asked);
                if accepted[0].version.epoch < self.nodes[at].epoch {
                    let text =
                        format!("{at} knows of epoch {} and gave {:?}", self.nodes[at].epoch, accepted[0]);
                    return Err(Violation::new("fenced epoch", text));
                }
                let last = accepted.len() - 1;
                for (place, (accepted, mutation)) in accepted.iter().zip(mutations).enumerate() {
                    self.submitted(at, mutation, *accepted, place == last)?;
                }
                self.tell(|| format!("{at} takes {mutations:?} as {accepted:?}"));
            }
            Err(error) => {
                self.tell(|| format!("{at} refuses mutations: {error}"));
                self.refusal(at, &error)?;
            }
        }
        self.after(at)
    }

    fn submitted(
        &mut self,
        at: usize,
        mutation: &Mutation,
        accepted: strandline_core::lifecycle::api::Accepted,
        ends_group: bool,
    ) -> Judged {
        let state = match mutation.change {
            Change::Put { blob } => State::Present { blob },
            Change::Delete => State::Deleted,
        };
        let latest = self.nodes[at].latest.get(&mutation.key).copied();
        let purged = self.purged(at, latest);
        let node = &mut self.nodes[at];
        let before = self.tree.version(&node.submitted).expect("known");
        if accepted.version <= before {
            let text = format!("{at} gave {} after {before}", accepted.version);
            return Err(Violation::new("versions", text));
        }
        let version = latest.map_or(Version::ZERO, |(_, version)| version);
        if mutation.if_version.is_some_and(|expected| expected != version && !(purged && expected.is_zero()))
        {
            let text = format!("{at} took {mutation:?}, the key is at {version}");
            return Err(Violation::new("condition", text));
        }
        let authority = AuthorityId::from_text(&node.identity);
        let record = RecordLimits::default()
            .record(mutation.key.clone(), state, accepted.version, authority)
            .expect("it was taken");
        let digest = self.tree.submit(node.submitted, &record, ends_group);
        node.submitted = digest;
        node.latest.insert(mutation.key.clone(), (state, accepted.version));
        node.pending.push_back((accepted.lsn.get(), digest));
        Ok(())
    }

    /// Whether a compaction may have dropped this tombstone: a long one does so round by round, and
    /// tells only at its end.
    fn purged(&self, at: usize, latest: Option<(State, Version)>) -> bool {
        let Some((State::Deleted, version)) = latest else { return false };
        version <= self.nodes[at].floor || version <= self.status(at).floor
    }

    fn refusal(&self, at: usize, error: &MutationError) -> Judged {
        let node = &self.nodes[at];
        if let MutationError::Precondition { key, found, .. } = error {
            let latest = node.latest.get(key).copied();
            let purged = self.purged(at, latest);
            let version = latest.map_or(Version::ZERO, |(_, version)| version);
            if *found != version && !(purged && found.is_zero()) {
                let text = format!("{at} says that {key} is at {found}, it is at {version}");
                return Err(Violation::new("condition", text));
            }
        }
        Ok(())
    }

    pub(super) fn compact(&mut self, at: usize) -> Judged {
        let now = self.nodes[at].now(self.time_ns);
        let upto = if self.rng.once_in(4) {
            let version = self.nodes[at].claim.version;
            let back = self.rng.below(6).min(version.sequence.saturating_sub(1));
            Some(Version::new(version.epoch, version.sequence - back))
        } else {
            None
        };
        if self.nodes[at].replica().is_some() {
            self.step(7, at, 0);
            let status = self.status(at);
            if !status.compacting {
                let active = status.members.into_iter().filter(|member| member.state == "active");
                self.nodes[at].counted = active.map(|member| (member.identity, member.acked)).collect();
            }
            self.nodes[at].replica_mut().expect("it serves").handle_compact(now, upto);
            self.after(at)?;
        }
        Ok(())
    }

    pub(super) fn members(&mut self, at: usize, change: MembersChange) -> Judged {
        let now = self.nodes[at].now(self.time_ns);
        if self.nodes[at].replica().is_none() {
            return Ok(());
        }
        let lives = self.lives(at, &change);
        let request = self.nodes[at].replica_mut().expect("it serves").handle_members(now, change);
        self.nodes[at].changing.insert(request, lives);
        self.step(8, at, 0);
        self.after(at)
    }

    /// Starts every node that is down, and recovers those that halted.
    pub(super) fn start_all(&mut self) -> Judged {
        for at in 0..self.nodes.len() {
            if self.nodes[at].halted {
                // The same process recovers: the page cache is what it was.
                self.count(Fault::RecoverInPlace);
                self.stop(at, false);
            }
            if self.nodes[at].closed {
                self.stop(at, false);
            }
            self.start(at)?;
        }
        Ok(())
    }

    /// Starts a node that is down.
    pub(super) fn start(&mut self, at: usize) -> Judged {
        let node = &mut self.nodes[at];
        if !matches!(node.life, Life::Down) {
            return Ok(());
        }
        node.starts += 1;
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.rng.next().to_be_bytes());
        seed[8..16].copy_from_slice(&(node.starts << 8 | at as u64).to_be_bytes());
        let (now, config, seed) = (node.now(self.time_ns), node.config.clone(), Seed::new(seed));
        let there = node.host.fs.exists(Name::File(FileName::Current));
        if node.made && !there && node.damage.is_empty() && !node.regressed {
            return Err(Violation::new("lost", format!("{at} has no current, it vouched for it")));
        }
        let recovery = if there || node.made {
            Recovery::open(now, seed, config)
        } else {
            Recovery::create(now, seed, config, node.init())
        };
        node.life = Life::Recovering(Box::new(recovery));
        // What was asked for before is answered late.
        if !node.host.stale.is_empty() && self.rng.once_in(2) {
            let stale = std::mem::take(&mut node.host.stale);
            node.host.counts.add(Fault::StaleCompletion);
            let Life::Recovering(recovery) = &mut node.life else { unreachable!("it was just set") };
            for answer in stale {
                recovery.handle_completion(now, answer);
            }
        }
        self.step(9, at, 0);
        self.tell(|| format!("{at} starts"));
        self.after(at)
    }

    /// The process of a node ends; with it the machine, if `power` is cut.
    pub(super) fn stop(&mut self, at: usize, power: bool) {
        self.break_all(at);
        self.outside_loses(at);
        let node = &mut self.nodes[at];
        if matches!(node.life, Life::Recovering(_)) && node.made {
            node.host.counts.add(Fault::CrashInRecovery);
        }
        if !matches!(node.life, Life::Refused(_)) {
            node.life = Life::Down;
        }
        node.halted = false;
        node.closed = false;
        // Whether a change that was under way is stored is uncertain.
        for (name, _) in std::mem::take(&mut node.changing).into_values().flatten() {
            node.removed.remove(&name);
        }
        node.paused.clear();
        node.closing.clear();
        if power {
            node.host.power_cut()
        } else {
            node.host.kill()
        }
        self.tell(|| format!("{at} ends{}", if power { ", power cut" } else { "" }));
    }

    /// Injects a fault.
    fn inject(&mut self, at: usize, fault: Fault) -> Judged {
        match fault {
            Fault::Kill | Fault::PowerCut => {
                // In the midst of work there is most to lose.
                let at = if self.rng.once_in(4) { at } else { self.busy(at)? };
                if matches!(self.nodes[at].life, Life::Up(_) | Life::Recovering(_)) {
                    self.count(fault);
                    self.stop(at, fault == Fault::PowerCut);
                }
                if self.rng.once_in(2) { self.start(at) } else { Ok(()) }
            }
            Fault::Close => {
                let now = self.nodes[at].now(self.time_ns);
                let Some(replica) = self.nodes[at].replica_mut() else { return Ok(()) };
                replica.handle_close(now);
                self.count(fault);
                self.step(10, at, 0);
                self.after(at)
            }
            Fault::ShortWrite
            | Fault::FailedWrite
            | Fault::FailedSync
            | Fault::FailedRead
            | Fault::BlobFailed => {
                self.nodes[at].host.armed.once.insert(fault);
                Ok(())
            }
            Fault::BlobRotten => self.rot(at),
            Fault::FullDisk => {
                self.nodes[at].host.armed.full = true;
                Ok(())
            }
            Fault::Evicted => {
                if self.nodes[at].host.fs.evict(&mut self.rng) > 0 {
                    self.count(fault);
                }
                Ok(())
            }
            Fault::BitFlip => {
                self.damage(at, fault, |rng, _, bytes| {
                    let bit = rng.index(bytes.len() * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                });
                Ok(())
            }
            Fault::MisdirectedWrite => {
                self.damage(at, fault, |rng, fs, bytes| {
                    let pages = fs.clean_pages();
                    let (other, there) = pages[rng.index(pages.len())];
                    *bytes = fs.disk_page(other, there);
                });
                Ok(())
            }
            Fault::StaleSector => {
                self.damage(at, fault, |_, _, bytes| *bytes = vec![0; PAGE]);
                Ok(())
            }
            Fault::SlowCompletion => {
                self.count(fault);
                self.nodes[at].slow_until_ns = self.time_ns + self.rng.below(5_000) * 1_000_000;
                Ok(())
            }
            Fault::StaleCompletion => self.stale(at),
            Fault::LinkBreak => self.link_break(at),
            Fault::Delay => {
                self.delay(at);
                Ok(())
            }
            Fault::OneWayCut => {
                self.one_way_cut(at);
                Ok(())
            }
            Fault::HalfOpen => {
                self.half_open(at);
                Ok(())
            }
            Fault::HostileBytes => {
                self.hostile_bytes(at);
                Ok(())
            }
            Fault::DuplicateLink => {
                let peer = self.other(at);
                if self.connected(at, peer) {
                    self.count(fault);
                    return self.connect(at, peer);
                }
                Ok(())
            }
            Fault::ClockJump => {
                self.count(fault);
                let hours_ns = self.hours_ns();
                self.nodes[at].clock.ahead_ns += hours_ns;
                Ok(())
            }
            Fault::ClockStall => {
                self.count(fault);
                let until_ns = self.time_ns + self.hours_ns() % 60_000_000_000;
                self.nodes[at].clock.stalled = Some((self.time_ns, until_ns));
                Ok(())
            }
            Fault::ClockBackwards => {
                self.count(fault);
                let back_ns = self.hours_ns().min(self.nodes[at].clock.ahead_ns) + self.rng.below(1_000_000);
                self.nodes[at].clock.behind_ns += back_ns;
                Ok(())
            }
            Fault::RestoredBackup => self.restored_backup(at),
            Fault::Restore => self.restore(at),
            Fault::Reseed => self.reseed(at),
            Fault::WipedDisk => self.wiped_disk(at),
            Fault::SecondOpener => self.second_opener(at),
            Fault::WrongMembers => {
                self.count(fault);
                self.members(0, MembersChange::Add("nobody".into()))
            }
            Fault::TwoNames => {
                let name = self.nodes[1].identity.clone();
                self.intruder(fault, &name, false)
            }
            Fault::TwoWriters => self.intruder(fault, "z", true),
            Fault::LostAuthority => {
                self.lost_authority(at);
                Ok(())
            }
            Fault::MovedAuthority | Fault::WrongEpoch => self.fence(at, fault),
            Fault::UnsyncedLost
            | Fault::UnsyncedReordered
            | Fault::TornWrite
            | Fault::ZeroTail
            | Fault::LostRename
            | Fault::LostEntry
            | Fault::InstantCompletion
            | Fault::OutOfOrder
            | Fault::BlobLost
            | Fault::Reorder
            | Fault::Split
            | Fault::CrashInRecovery
            | Fault::RecoverInPlace
            | Fault::RemovedMember
            | Fault::LapsedMember => unreachable!("{fault:?} comes by itself"),
        }
    }

    /// Something is written, compacted or changed, and is under way. Says which node has something
    /// to lose by now.
    fn busy(&mut self, at: usize) -> Result<usize, Violation> {
        match self.rng.below(8) {
            0 => self.compact(0)?,
            1 => self.members(0, MembersChange::Add("b".into()))?,
            _ => {
                for _ in 0..1 + self.rng.below(3) {
                    let mutation = self.put(false, 0);
                    self.mutate(0, &[mutation])?;
                }
            }
        }
        for _ in 0..self.rng.below(24) {
            self.tick()?;
        }
        for _ in 0..32 {
            let loses = |node: &Node| node.host.fs.undecided() > 0;
            if let Some(found) = self.nodes.iter().position(loses) {
                return Ok(found);
            }
            self.tick()?;
        }
        Ok(at)
    }

    /// Up to an hour or so.
    fn hours_ns(&mut self) -> u64 {
        self.rng.below(5_000_000) * 1_000_000
    }

    fn stale(&mut self, at: usize) -> Judged {
        let now = self.nodes[at].now(self.time_ns);
        let Some(answer) = self.nodes[at].host.stale.pop() else { return Ok(()) };
        self.count(Fault::StaleCompletion);
        self.step(11, at, 0);
        match &mut self.nodes[at].life {
            Life::Up(replica) => replica.handle_completion(now, answer),
            Life::Recovering(recovery) => recovery.handle_completion(now, answer),
            Life::Down | Life::Refused(_) => {}
        }
        self.after(at)
    }

    /// Damages one page of what is durable, one at a time.
    fn damage(&mut self, at: usize, fault: Fault, change: impl FnOnce(&mut Rng, &Fs, &mut Vec<u8>)) {
        let node = &mut self.nodes[at];
        if !node.damage.is_empty() || !node.made || matches!(node.life, Life::Recovering(_)) {
            return;
        }
        let pages = node.host.fs.clean_pages();
        if pages.is_empty() {
            return;
        }
        let (name, page) = pages[self.rng.index(pages.len())];
        let mut bytes = node.host.fs.disk_page(name, page);
        change(&mut self.rng, &node.host.fs, &mut bytes);
        if bytes == node.host.fs.disk_page(name, page) {
            return;
        }
        node.host.fs.damage(name, page, &bytes);
        let range = (page * PAGE) as u64..((page + 1) * PAGE) as u64;
        let segment = match name {
            Name::File(FileName::Segment(number)) => Some((number.0, range)),
            Name::File(_) | Name::Temporary(_) => None,
        };
        node.damage.push(Damage { fault, segment });
        let identity = node.identity.clone();
        self.lossy.insert(identity);
        self.count(fault);
        self.tell(|| {
            format!("{at}: {} in page {page} of {name:?} of log {}", fault.name(), hex(&LOG.0[..2]))
        });
    }
}
