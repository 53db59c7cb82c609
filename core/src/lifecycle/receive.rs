//! The receiving side of a link: judge the batch, fetch the blobs it needs, append, and acknowledge
//! what is durable.

use super::api::{CloseReason, MutationError, PairVerdict, PeerFaultKind};
use super::command::BlobCommand;
use super::delivery::{Delivery, delivery};
use super::digests::Answered;
use super::session::Session;
use super::shared::{LinkPurpose, Shared};
use crate::error::StorageFault;
use crate::id::Lsn;
use crate::record::{BlobKey, Record, State, Version};
use crate::time::Instant;
use crate::wire::message::Message;
use crate::wire::own::{Acknowledgement, OwnMessage};
use crate::wire::repair::Batch;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Where receiving stands.
#[derive(Debug)]
pub(super) enum Receive {
    /// No batch is being looked at.
    Idle,
    /// A batch waits for the judgement of the peer, for its blobs, for room in the journal, or for a
    /// snapshot to be installed.
    Held(Held),
    /// Repair was stopped by a verdict.
    Stopped,
}

/// The batch whose turn it is.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) batch: Batch,
    pub(super) blobs: Looked,
    /// Its blobs that are not stored and may still come.
    pub(super) missing: BTreeSet<BlobKey>,
    /// Its blobs that the peer does not have either.
    pub(super) absent: BTreeSet<BlobKey>,
    /// How many blobs had been found lost when its blobs were looked at.
    lost: u64,
    /// Since when its blobs are waited for.
    pub(super) since: Instant,
    /// The verdict before it was said that its blobs do not come.
    pub(super) before: Option<Option<PairVerdict>>,
}

/// What is known of the blobs that a held batch needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Looked {
    /// Nothing.
    No,
    /// The blob store is being asked, by this look.
    Asked(u64),
    /// Those that are missing are wanted by the link's fetch.
    Known,
}

/// Records that are submitted; they are acknowledged when durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Applying {
    upto: Lsn,
    /// What to acknowledge then.
    to: Version,
    /// How these records came to be here.
    by: By,
}

/// How the records that a batch brought came to be in our log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum By {
    /// This batch was appended.
    This,
    /// They were there, or another link brought them, or some of them: only the digest says that they
    /// are the same.
    Another,
}

/// What came over a link and is not acknowledged, beside the batch that is held.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Batches whose turn has not come.
    queued: VecDeque<Batch>,
    /// In the order of the journal.
    applying: VecDeque<Applying>,
    /// Acknowledgements that wait for the digest that must come first.
    pub(super) vouching: u32,
    /// The highest version that was acknowledged over this link: the peer sends more once it hears of it,
    /// also while batches that it covers are still in the queue.
    acknowledged: Version,
}

/// How many batches may be in the queue for each that may be out: an acknowledgement of what another link
/// brought covers some that were not looked at yet.
const QUEUED_FOR_EACH_OUT: usize = 8;

impl Arrivals {
    fn all(&self) -> usize {
        self.queued.len() + self.applying.len() + self.vouching as usize
    }

    /// Those that were not acknowledged.
    fn open(&self) -> usize {
        let open = |to: &Version| *to > self.acknowledged;
        let queued = self.queued.iter().map(|batch| batch.to).filter(open).count();
        queued + self.applying.iter().map(|applying| applying.to).filter(open).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all() == 0
    }

    /// Whether records that another link brought are still to be vouched for: until the peer has
    /// compared, nothing that it sent after them is taken.
    fn unvouched(&self) -> bool {
        self.vouching > 0 || self.applying.iter().any(|applying| applying.by == By::Another)
    }

    /// The blobs that batches whose turn has not come name.
    pub(super) fn blobs(&self) -> impl Iterator<Item = BlobKey> {
        self.queued.iter().flat_map(|batch| batch.records.iter().filter_map(blob_of))
    }
}

impl Session {
    /// The peer sends records.
    pub(super) fn on_batch(&mut self, shared: &mut Shared, batch: Batch) {
        let held = match &self.receive {
            Receive::Stopped => return,
            Receive::Idle => 0,
            Receive::Held(held) => usize::from(held.batch.to > self.arrivals.acknowledged),
        };
        let open_max = self.peer.batches_open_max();
        let (open, all) = (held + self.arrivals.open(), self.arrivals.all());
        if open >= open_max || all >= open_max * QUEUED_FOR_EACH_OUT {
            let expected = alloc::format!("at most {open_max} batches before one is acknowledged");
            return self.fault(shared, PeerFaultKind::Sequence, expected, batch.to.to_string());
        }
        if self.too_early(shared, "a batch") || !self.may_receive(shared, batch.to) {
            return;
        }
        self.arrivals.queued.push_back(batch);
        self.advance_batch(shared);
    }

    /// Whether records up to `to` may come over this link at all; says so if not.
    pub(super) fn may_receive(&mut self, shared: &mut Shared, to: Version) -> bool {
        if to <= shared.submitted {
            return true;
        }
        let takes = self.takes(shared);
        if (takes || shared.authority.is_some()) && to.epoch < shared.latest_epoch_number() {
            let ours = alloc::format!("epoch {}", shared.latest_epoch_number());
            self.stop(shared, super::fencing::fenced_at(to, ours, to.to_string()));
        } else if takes {
            return true;
        } else if shared.authority.is_some() {
            let verdict =
                super::judging::diverged(super::api::PairReason::AheadOfTail, to, shared.history.tail());
            self.part(shared, verdict);
        } else {
            let expected = "no records on a sending link";
            self.fault(shared, PeerFaultKind::Sequence, expected, to.to_string());
        }
        false
    }

    /// Goes on with the batches that came as far as it can; harmless at any time.
    pub(super) fn advance_batch(&mut self, shared: &mut Shared) {
        while !self.down
            && !self.judging()
            && !self.comparing()
            && !shared.installing()
            && shared.fencing.is_none()
            && !self.arrivals.unvouched()
        {
            if matches!(self.receive, Receive::Idle) {
                let Some(batch) = self.arrivals.queued.pop_front() else { return };
                self.receive = Receive::Held(Held {
                    batch,
                    blobs: Looked::No,
                    missing: BTreeSet::new(),
                    absent: BTreeSet::new(),
                    lost: shared.blobs_lost,
                    since: shared.now.mono,
                    before: None,
                });
            }
            self.advance_held(shared);
            if !matches!(self.receive, Receive::Idle) {
                return;
            }
        }
    }

    fn advance_held(&mut self, shared: &mut Shared) {
        let Receive::Held(Held { batch, blobs, missing, absent, .. }) = &mut self.receive else { return };
        if let Some(at) = contradiction(shared, &batch.records) {
            let verdict =
                super::judging::diverged(super::api::PairReason::OtherHistory, at, shared.submitted);
            return self.part(shared, verdict);
        }
        match delivery(shared.submitted, batch.from, batch.to) {
            Delivery::Duplicate => {
                let to = batch.to;
                return self.on_duplicate(shared, to);
            }
            Delivery::Gap if batch.from < shared.submitted && self.peer.window => {
                // More may be on its way behind it: what another link brought meanwhile is left out.
                let ours = shared.submitted;
                if shared.opaque.chained && self.evidence.agreed < ours {
                    // The peer must have compared what another link brought before we take the rest.
                    if shared.history.tail() == ours {
                        self.vouch(shared, ours, Answered::Batch);
                    }
                    return;
                }
                if !batch.records.iter().any(|record| record.version == ours) {
                    let verdict =
                        super::judging::diverged(super::api::PairReason::OtherHistory, batch.to, ours);
                    return self.part(shared, verdict);
                }
                batch.records.retain(|record| record.version > ours);
                batch.from = ours;
                *blobs = Looked::No;
                missing.clear();
                absent.clear();
            }
            Delivery::Gap if batch.from < shared.submitted => {
                // Another link brought the beginning of it meanwhile: say where we stand.
                let to = shared.submitted;
                return self.acknowledge_when_durable(shared, to);
            }
            Delivery::Gap => {
                let (expected, found) = (shared.submitted.to_string(), batch.from.to_string());
                return self.fault(shared, PeerFaultKind::Order, expected, found);
            }
            Delivery::Ready => {}
        }
        let Receive::Held(Held { batch, blobs, lost, .. }) = &self.receive else { return };
        match lineage(shared, &batch.records) {
            Ok(()) => {}
            Err(Lineage::Foreign { expected, found }) => {
                return self.fault(shared, PeerFaultKind::Lineage, expected, found);
            }
            Err(Lineage::Fenced { at, ours }) => {
                return self.stop(shared, super::fencing::fenced_at(at, ours, at.to_string()));
            }
        }
        match blobs {
            Looked::No => self.look_at_blobs(shared),
            Looked::Asked(_) => {}
            // What was there then may be what was lost since.
            Looked::Known if *lost != shared.blobs_lost => self.look_at_blobs(shared),
            Looked::Known => self.append_batch(shared),
        }
    }

    /// Asks the blob store which blobs of the held batch are missing.
    fn look_at_blobs(&mut self, shared: &mut Shared) {
        let Receive::Held(Held { batch, blobs, lost, .. }) = &mut self.receive else { return };
        let keys: BTreeSet<BlobKey> = batch.records.iter().filter_map(blob_of).collect();
        if keys.iter().any(|key| shared.is_removing(key)) {
            // Tried again when the collection that removes it is through.
            return;
        }
        *lost = shared.blobs_lost;
        if keys.is_empty() {
            *blobs = Looked::Known;
            return self.append_batch(shared);
        }
        self.looks += 1;
        *blobs = Looked::Asked(self.looks);
        let keys: Vec<BlobKey> = keys.into_iter().collect();
        shared.blob(self.link, LinkPurpose::StatWanted(self.looks, keys.clone()), |ticket| {
            BlobCommand::Stat { ticket, keys }
        });
    }

    /// The blob store said which blobs of the held batch it has.
    pub(super) fn on_stat_wanted(
        &mut self,
        shared: &mut Shared,
        look: u64,
        keys: &[BlobKey],
        result: Result<Vec<Option<u64>>, StorageFault>,
    ) {
        let Receive::Held(held) = &mut self.receive else { return };
        if held.blobs != Looked::Asked(look) {
            return;
        }
        held.blobs = Looked::Known;
        let lengths = match result {
            Ok(lengths) => lengths,
            Err(fault) => return self.close(shared, CloseReason::Storage(fault)),
        };
        let missing = keys.iter().zip(&lengths).filter(|(_, length)| length.is_none()).map(|(key, _)| key);
        for key in missing.filter(|key| !held.absent.contains(key)) {
            held.missing.insert(*key);
            self.fetch.want(*key);
        }
        self.pump_fetch(shared);
        self.advance_batch(shared);
    }

    /// The held batch was judged; once its blobs are stored, or known not to be had from this peer, its
    /// records are submitted.
    fn append_batch(&mut self, shared: &mut Shared) {
        let Receive::Held(held) = &mut self.receive else { return };
        let wanted_max = shared.config.blobs_wanted_max as usize;
        if !held.missing.is_empty()
            || (!held.absent.is_empty() && shared.wanted.len() + held.batch.records.len() > wanted_max)
        {
            return;
        }
        // It goes on where we are: no snapshot is needed that nobody brings.
        shared.abandon_idle_install();
        let to = held.batch.to;
        match shared.submit_records(&held.batch.records, &held.absent) {
            Ok(upto) => {
                let before = held.before.take();
                self.acked = self.acked.max(to);
                self.receive = Receive::Idle;
                self.arrivals.applying.push_back(Applying { upto, to, by: By::This });
                if let Some(verdict) = before.flatten() {
                    self.give_verdict(shared, verdict);
                }
            }
            // Tried again when the journal has room: after the next durable batch, or compaction.
            Err(MutationError::Full { .. } | MutationError::JournalFull { .. }) => {}
            Err(MutationError::Halted(_) | MutationError::Closing) => {
                self.close(shared, CloseReason::Closing);
            }
            Err(error) => {
                self.fault(
                    shared,
                    PeerFaultKind::Limit,
                    "records within this log's limits",
                    error.to_string(),
                );
            }
        }
    }

    /// A batch brings nothing new. A peer of the reference is answered as the reference does, with
    /// our tail; a Strandline peer with what it sent, since it may not know our tail yet.
    fn on_duplicate(&mut self, shared: &mut Shared, to: Version) {
        let tail = shared.submitted;
        self.acknowledge_when_durable(shared, if self.peer.history { to } else { tail });
    }

    /// Answers a batch when everything submitted so far is durable.
    fn acknowledge_when_durable(&mut self, shared: &mut Shared, to: Version) {
        self.receive = Receive::Idle;
        match shared.journal.submitted_next_lsn().before() {
            Some(upto) if shared.journal.durable() < Some(upto) => {
                self.arrivals.applying.push_back(Applying { upto, to, by: By::Another });
            }
            Some(_) | None => self.vouch(shared, to, Answered::Batch),
        }
    }

    /// Says that everything up to `watermark` is durable here, and, to a peer that knows of blobs that
    /// wait, up to where their blobs are, too.
    pub(super) fn send_ack(&mut self, shared: &mut Shared, watermark: Version) {
        self.acked = self.acked.max(watermark);
        self.arrivals.acknowledged = self.arrivals.acknowledged.max(watermark);
        if !self.peer.waits {
            return self.send(shared, &Message::Ack { watermark });
        }
        let complete = shared.complete().min(watermark);
        self.told = Some(Acknowledgement { watermark, complete });
        self.send_own(shared, OwnMessage::Ack(Acknowledgement { watermark, complete }));
    }

    /// Tells the peer that more is complete than it was last told, if it is.
    pub(super) fn tell_complete(&mut self, shared: &mut Shared) {
        let Some(told) = self.told.filter(|_| !self.down && !self.is_stopped()) else { return };
        if shared.complete().min(told.watermark) > told.complete {
            self.send_ack(shared, told.watermark);
        }
    }

    /// Acknowledges what became durable of what came over this link: one word for all of it. While a
    /// digest that must come first is being computed, what became durable after it waits.
    pub(super) fn acknowledge_durable(&mut self, shared: &mut Shared) {
        let mut durable: Option<(Version, By)> = None;
        while self.arrivals.vouching == 0
            && let Some(applying) = self.arrivals.applying.front()
            && shared.journal.durable() >= Some(applying.upto)
        {
            let by = match (durable, applying.by) {
                (Some((_, By::Another)), By::This | By::Another) => By::Another,
                (None | Some((_, By::This)), by) => by,
            };
            durable = Some((applying.to, by));
            self.arrivals.applying.pop_front();
        }
        match durable {
            None => {}
            Some((to, By::This)) => {
                if self.peer.history {
                    // Only durable records may be sent, so the peer has what it sent us.
                    self.evidence.agree(to);
                    self.acknowledged(shared, to);
                }
                self.send_ack(shared, to);
            }
            Some((to, By::Another)) => self.vouch(shared, to, Answered::Batch),
        }
    }

    /// The durable prefix grew.
    pub(super) fn on_durable(&mut self, shared: &mut Shared) {
        self.acknowledge_durable(shared);
        self.tell_complete(shared);
        self.retry_offered(shared);
        self.advance_batch(shared);
        self.reconsider_push(shared);
        self.pump_source(shared);
    }
}

pub(super) fn blob_of(record: &Record) -> Option<BlobKey> {
    match record.state {
        State::Present { blob } => Some(blob),
        State::Deleted => None,
    }
}

/// The first record that our log, which reaches beyond it, cannot hold: what another link brought
/// meanwhile was another history. What a later record of its key, or the floor, hides is not told.
fn contradiction(shared: &Shared, records: &[Record]) -> Option<Version> {
    let floor = shared.history.floor();
    let ours = |record: &&Record| record.version > floor && record.version <= shared.submitted;
    let contradicts = |record: &&Record| match shared.views.latest(&record.key) {
        Some(entry) if entry.version == record.version => {
            entry.state != record.state || entry.authority != record.authority
        }
        Some(entry) => entry.version < record.version,
        None => true,
    };
    records.iter().filter(ours).find(contradicts).map(|record| record.version)
}

/// Why records are not appended to this log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Lineage {
    /// Another namespace, or another authority in a known epoch.
    Foreign { expected: String, found: String },
    /// An epoch that had ended: a later one has begun here.
    Fenced { at: Version, ours: String },
}

/// Whether records belong to this log: its namespaces, one authority per epoch, no epoch that is over.
fn lineage(shared: &Shared, records: &[Record]) -> Result<(), Lineage> {
    let mut last = shared.latest_epoch();
    for record in records {
        let namespace = record.key.namespace();
        if !shared.current.namespaces.iter().any(|n| n == namespace) {
            let expected = alloc::format!("one of this log's {} namespaces", shared.current.namespaces.len());
            return Err(Lineage::Foreign { expected, found: namespace.escape_ascii().to_string() });
        }
        match last {
            Some((epoch, authority)) if record.version.epoch < epoch => {
                let ours = alloc::format!("epoch {epoch} of {authority}");
                return Err(Lineage::Fenced { at: record.version, ours });
            }
            Some((epoch, authority)) if epoch == record.version.epoch && *authority != record.authority => {
                let expected = alloc::format!("authority {authority} in epoch {epoch}");
                return Err(Lineage::Foreign { expected, found: record.authority.to_string() });
            }
            Some(_) | None => last = Some((record.version.epoch, &record.authority)),
        }
    }
    Ok(())
}
