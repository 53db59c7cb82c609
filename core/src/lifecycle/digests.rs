//! Digests of our history that a session needs and that are not at hand: computed one after the
//! other, each from the anchor before it.

use super::api::PeerFaultKind;
use super::entry::is_record;
use super::history::extend_digest;
use super::judge::Standing;
use super::session::Session;
use super::shared::{ReadFor, Shared};
use super::vouching::SENT_MAX;
use crate::error::StorageFault;
use crate::journal::read::{EntryReader, ReadRequest};
use crate::record::Version;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// What a digest of ours is wanted for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum DigestFor {
    /// To judge where the peer stands: at its tail.
    Standing(Standing),
    /// To compare with what the peer says of itself there.
    Compare([u8; 32]),
    /// The same, for a peer that waits for our word.
    Confirm([u8; 32]),
    /// To tell the peer, which asked.
    Answer,
    /// To vouch for an acknowledgement of records that this link did not bring.
    Vouch(Answered),
    /// To find where histories part; what the peer says there.
    Part([u8; 32]),
}

/// What an acknowledgement answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answered {
    /// A batch.
    Batch,
    /// The offer of a snapshot.
    Snapshot,
}

#[derive(Debug)]
struct Job {
    version: Version,
    purpose: DigestFor,
}

/// Recomputing one digest, from the anchor before it.
#[derive(Debug)]
struct Running {
    reader: EntryReader,
    digest: [u8; 32],
    job: Job,
}

/// Most digests that a session may wait for: what a peer may owe an answer for, each way.
const WAITING_MAX: usize = 2 * SENT_MAX;

/// The digests that one session waits for, at most [`WAITING_MAX`]: a peer that makes us compute more,
/// by telling digests or offering what we have, breaks a limit.
#[derive(Debug, Default)]
pub(super) struct Digests {
    waiting: VecDeque<Job>,
    running: Option<Running>,
}

impl Digests {
    fn any(&self, wanted: impl Fn(&DigestFor) -> bool) -> bool {
        let running = self.running.iter().map(|running| &running.job);
        running.chain(&self.waiting).any(|job| wanted(&job.purpose))
    }

    /// Whether where the peer stands is being judged.
    pub(super) fn judges(&self) -> bool {
        self.any(|purpose| matches!(purpose, DigestFor::Standing(_)))
    }

    /// Whether something the peer vouched for is being compared.
    pub(super) fn compares(&self) -> bool {
        self.any(|purpose| matches!(purpose, DigestFor::Compare(_) | DigestFor::Confirm(_)))
    }

    /// Gives up what repair wanted; the peer's questions are still answered.
    pub(super) fn stop_repair(&mut self) {
        let answers = |purpose: &DigestFor| matches!(purpose, DigestFor::Answer | DigestFor::Part(_));
        self.waiting.retain(|job| answers(&job.purpose));
        self.running.take_if(|running| !answers(&running.job.purpose));
    }
}

impl Session {
    /// Computes our digest at `version`, and goes on with `purpose` when it is known.
    pub(super) fn want_digest(&mut self, shared: &mut Shared, version: Version, purpose: DigestFor) {
        if self.digests.waiting.len() >= WAITING_MAX {
            let expected = alloc::format!("at most {WAITING_MAX} digests to be computed");
            return self.fault(shared, PeerFaultKind::Limit, expected, "more");
        }
        self.digests.waiting.push_back(Job { version, purpose });
        self.next_digest(shared);
    }

    fn next_digest(&mut self, shared: &mut Shared) {
        while self.digests.running.is_none() && !self.down {
            let Some(job) = self.digests.waiting.pop_front() else { return };
            let Some((from, version, digest)) = at_hand(shared, job.version) else {
                self.digest_known(shared, job, None);
                continue;
            };
            let through = shared.history.lsn_of(job.version);
            match (version == job.version, from, through) {
                (false, Some(from), Some(through)) => {
                    let reader = EntryReader::new(from, through);
                    self.digests.running = Some(Running { reader, digest, job });
                    self.read_digest(shared);
                }
                (true, ..) => self.digest_known(shared, job, Some(digest)),
                (false, ..) => self.digest_known(shared, job, None),
            }
        }
    }

    fn read_digest(&mut self, shared: &mut Shared) {
        let Some(running) = &self.digests.running else { return };
        let link = self.link;
        let more = shared.read_entries(&running.reader, |request| ReadFor::Digest(link, request));
        if more == Ok(true) {
            return;
        }
        let Some(Running { digest, job, .. }) = self.digests.running.take() else { return };
        // A compaction that took the entries meanwhile leaves nothing to tell by.
        let known = more.is_ok().then_some(digest);
        self.digest_known(shared, job, known);
        self.next_digest(shared);
    }

    /// Entries for a digest were read.
    pub(super) fn on_digest_read(
        &mut self,
        shared: &mut Shared,
        request: ReadRequest,
        result: Result<Vec<u8>, StorageFault>,
    ) {
        let Some(running) = &mut self.digests.running else { return self.next_digest(shared) };
        let digest = &mut running.digest;
        let accepted = result.and_then(|bytes| {
            running.reader.accept(&request, &bytes, &mut |_, kind, entry| {
                if is_record(kind) {
                    *digest = extend_digest(digest, entry);
                }
                ControlFlow::Continue(())
            })
        });
        match accepted {
            Ok(()) => self.read_digest(shared),
            Err(fault) => self.read_failed(shared, fault),
        }
    }

    fn digest_known(&mut self, shared: &mut Shared, job: Job, digest: Option<[u8; 32]>) {
        match job.purpose {
            DigestFor::Standing(theirs) => self.standing_digested(shared, &theirs, digest),
            DigestFor::Compare(theirs) => self.compared(shared, job.version, digest, theirs),
            DigestFor::Confirm(theirs) => self.confirmed(shared, job.version, digest, theirs),
            DigestFor::Answer => self.tell_digest(shared, job.version, digest),
            DigestFor::Vouch(answered) => self.vouched(shared, job.version, answered, digest),
            DigestFor::Part(theirs) => self.part_step(shared, job.version, digest, Some(theirs)),
        }
    }
}

/// The anchor to compute the digest at `version` from, if our log knows that version and its chain is
/// one that others can compare.
fn at_hand(shared: &Shared, version: Version) -> Option<(Option<crate::id::Lsn>, Version, [u8; 32])> {
    if !shared.opaque.chained || !shared.history.contains(version) {
        return None;
    }
    let (at, next, digest) = shared.history.anchor_at_or_before(version);
    Some((next, at, digest))
}
