//! The receiving side of a link: judge the batch, fetch the blobs it needs, append, and acknowledge
//! what is durable.

use super::api::{CloseReason, MutationError, PeerFaultKind};
use super::command::BlobCommand;
use super::delivery::{Delivery, delivery};
use super::digests::Answered;
use super::session::Session;
use super::shared::{LinkPurpose, Shared};
use crate::error::StorageFault;
use crate::id::Lsn;
use crate::record::{BlobKey, Record, State, Version};
use crate::wire::repair::Batch;
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Where receiving stands.
#[derive(Debug)]
pub(super) enum Receive {
    /// Nothing is being taken.
    Idle,
    /// A batch waits for the judgement of the peer, for its blobs, for room in the journal, or for a
    /// snapshot to be installed.
    Held { batch: Batch, blobs: Looked },
    /// The batch's records are submitted; they are acknowledged when durable.
    Applying {
        upto: Lsn,
        /// What to acknowledge then.
        to: Version,
        /// How these records came to be here.
        by: By,
    },
    /// What was durable before is acknowledged as soon as the digest that vouches for it is known.
    Vouching,
    /// Repair was stopped by a verdict.
    Stopped,
}

/// How the records that a batch brought came to be in our log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum By {
    /// This batch was appended.
    This,
    /// They were there, or another link brought them: only the digest says that they are the same.
    Another,
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

impl Session {
    /// The peer sends records.
    pub(super) fn on_batch(&mut self, shared: &mut Shared, batch: Batch) {
        match self.receive {
            Receive::Idle => {}
            Receive::Stopped => return,
            Receive::Held { .. } | Receive::Applying { .. } | Receive::Vouching => {
                let expected = "no batch before the last one was acknowledged";
                return self.fault(shared, PeerFaultKind::Sequence, expected, batch.to.to_string());
            }
        }
        if self.too_early(shared, "a batch") || !self.may_receive(shared, batch.to) {
            return;
        }
        self.receive = Receive::Held { batch, blobs: Looked::No };
        self.advance_batch(shared);
    }

    /// Whether records up to `to` may come over this link at all; says so if not.
    pub(super) fn may_receive(&mut self, shared: &mut Shared, to: Version) -> bool {
        if self.takes(shared) || to <= shared.submitted {
            return true;
        }
        if shared.authority.is_some() && to.epoch < shared.latest_epoch_number() {
            let ours = alloc::format!("epoch {}", shared.latest_epoch_number());
            self.stop(shared, super::fencing::fenced_at(to, ours, to.to_string()));
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

    /// Goes on with the batch that is held as far as it can; harmless at any time.
    pub(super) fn advance_batch(&mut self, shared: &mut Shared) {
        if self.down || self.judging() || self.comparing() || shared.installing() || shared.fencing.is_some()
        {
            return;
        }
        let Receive::Held { batch, blobs } = &self.receive else { return };
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
            Looked::Known => self.append_batch(shared),
        }
    }

    /// Asks the blob store which blobs of the held batch are missing.
    fn look_at_blobs(&mut self, shared: &mut Shared) {
        let Receive::Held { batch, blobs } = &mut self.receive else { return };
        let keys: BTreeSet<BlobKey> = batch.records.iter().filter_map(blob_of).collect();
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
        let Receive::Held { blobs, .. } = &mut self.receive else { return };
        if *blobs != Looked::Asked(look) {
            return;
        }
        *blobs = Looked::Known;
        let lengths = match result {
            Ok(lengths) => lengths,
            Err(fault) => return self.close(shared, CloseReason::Storage(fault)),
        };
        for (key, _) in keys.iter().zip(&lengths).filter(|(_, length)| length.is_none()) {
            self.fetch.want(*key);
        }
        self.pump_fetch(shared);
        self.advance_batch(shared);
    }

    /// The held batch was judged; once all its blobs are stored its records are submitted.
    fn append_batch(&mut self, shared: &mut Shared) {
        if !self.fetch.is_done() {
            return;
        }
        let Receive::Held { batch, .. } = &self.receive else { return };
        // It goes on where we are: no snapshot is needed that nobody brings.
        shared.abandon_idle_install();
        let to = batch.to;
        match shared.submit_records(&batch.records) {
            Ok(upto) => {
                self.acked = self.acked.max(to);
                self.receive = Receive::Applying { upto, to, by: By::This };
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
        match shared.journal.submitted_next_lsn().before() {
            Some(upto) if shared.journal.durable() < Some(upto) => {
                self.receive = Receive::Applying { upto, to, by: By::Another };
            }
            Some(_) | None => self.vouch(shared, to, Answered::Batch),
        }
    }

    /// The durable prefix grew.
    pub(super) fn on_durable(&mut self, shared: &mut Shared) {
        if let Receive::Applying { upto, to, by } = self.receive
            && shared.journal.durable() >= Some(upto)
        {
            match by {
                By::This => {
                    self.receive = Receive::Idle;
                    if self.peer.history {
                        // Only durable records may be sent, so the peer has what it sent us.
                        self.evidence.agree(to);
                        self.acknowledged(shared, to);
                    }
                    self.send_ack(shared, to);
                }
                By::Another => self.vouch(shared, to, Answered::Batch),
            }
        }
        self.retry_offered(shared);
        self.advance_batch(shared);
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
