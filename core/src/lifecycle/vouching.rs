//! What a peer says of its history beside its acknowledgements, and what we say of ours: a version
//! alone does not tell whose record it is.

use super::api::{Divergence, PairReason, PeerFaultKind};
use super::digests::{Answered, DigestFor};
use super::judge::short;
use super::parting::Search;
use super::session::Session;
use super::shared::Shared;
use crate::record::Version;
use crate::time::Instant;
use crate::verdict::Verdict;
use crate::wire::own::{DigestAt, DigestGet, EpochMark, OwnMessage};
use alloc::collections::VecDeque;
use alloc::string::ToString;

/// Most questions for digests that a session answers: a search over any log takes fewer.
pub(super) const QUESTIONS_MAX: u32 = 64;

/// Acknowledgements in a row that bring no progress before repair with the peer stops.
const STALLED_MAX: u32 = 8;

/// The first rest after an acknowledgement without progress; doubled each time.
const REST_MS: u64 = 20;

/// How many batches a peer may owe an answer for; those sent before are forgotten.
pub(super) const SENT_MAX: usize = 64;

/// What a session knows of the peer's word beside its acknowledgements.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Ends of batches and cuts of snapshots that went over this link and were not acknowledged.
    sent: VecDeque<Version>,
    /// Up to here the peer's history was found to be ours, by digest or by what it took from here.
    pub(super) agreed: Version,
    /// What the peer acknowledged last.
    last_ack: Option<Version>,
    /// The version whose digest the peer was asked for, to judge an acknowledgement.
    pub(super) asked: Option<Version>,
    /// What we vouched for and the peer has not confirmed; more of its records wait for that.
    pub(super) confirming: VecDeque<Version>,
    /// Acknowledgements that wait for a comparison.
    pub(super) held: VecDeque<Version>,
    /// Questions the peer has asked.
    answered: u32,
    /// Questions we have asked.
    questions: u32,
    /// Where the peer's floor was last.
    pub(super) peer_floor: Version,
    /// Where its tail was last.
    pub(super) peer_tail: Version,
    /// It said where it stands.
    pub(super) stood: bool,
    /// Its latest epoch.
    pub(super) peer_epoch: Option<EpochMark>,
    /// Where the peer said it stands, and the higher version it once acknowledged: whether it has that is
    /// being asked.
    pub(super) doubted: Option<(Version, Version)>,
    /// Acknowledgements in a row without progress, and until when the source rests for it.
    stalled: u32,
    rest_until: Instant,
    /// The search for where histories part.
    pub(super) search: Option<Search>,
}

/// What an acknowledgement by a Strandline peer needs before it counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum AckNeeds {
    /// Nothing: it answers what was sent here, or was vouched for.
    Nothing,
    /// A comparison that is under way.
    Comparison,
    /// The digest there: nobody said how the peer came by these records.
    Digest,
}

impl Evidence {
    /// A batch or snapshot that ends here goes out.
    pub(super) fn sends(&mut self, to: Version) {
        if self.sent.len() == SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(to);
    }

    fn needs(&self, version: Version, compares: bool) -> AckNeeds {
        let accounted = version <= self.agreed || self.sent.contains(&version);
        match (compares || self.asked.is_some(), accounted) {
            (true, true | false) => AckNeeds::Comparison,
            (false, true) => AckNeeds::Nothing,
            (false, false) => AckNeeds::Digest,
        }
    }

    /// The peer's history up to here is ours.
    pub(super) fn agree(&mut self, version: Version) {
        self.agreed = self.agreed.max(version);
    }

    /// Whether the source must rest, since what it sends brings nothing forward.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.stalled > 0 && now < self.rest_until
    }
}

impl Session {
    /// Whether an acknowledgement by a Strandline peer may count now; if not it is kept until a
    /// digest was compared.
    pub(super) fn ack_counts(&mut self, shared: &mut Shared, version: Version) -> bool {
        if !self.peer.history || !shared.opaque.chained || version <= shared.history.floor() {
            return true;
        }
        match self.evidence.needs(version, self.digests.compares()) {
            AckNeeds::Nothing => return true,
            AckNeeds::Comparison => {}
            AckNeeds::Digest => {
                if !self.ask_digest(shared, version) {
                    return true;
                }
                self.evidence.asked = Some(version);
            }
        }
        self.hold_ack(shared, version);
        false
    }

    /// Keeps an acknowledgement until a digest was compared.
    pub(super) fn hold_ack(&mut self, shared: &mut Shared, version: Version) {
        if self.evidence.held.len() >= SENT_MAX {
            let found = alloc::format!("{} without one", SENT_MAX + 1);
            self.fault(shared, PeerFaultKind::Limit, "an answer to a question for a digest", found);
        } else {
            self.evidence.held.push_back(version);
        }
    }

    /// Takes the acknowledgements that were kept, unless something is still being compared.
    pub(super) fn release_acks(&mut self, shared: &mut Shared) {
        while !self.is_stopped()
            && !self.judging()
            && !self.digests.compares()
            && self.evidence.asked.is_none()
        {
            let Some(version) = self.evidence.held.pop_front() else { return };
            self.on_ack(shared, version);
        }
    }

    /// Asks the peer for its digest, unless too much was asked.
    pub(super) fn ask_digest(&mut self, shared: &mut Shared, version: Version) -> bool {
        if self.evidence.questions >= QUESTIONS_MAX {
            return false;
        }
        self.evidence.questions += 1;
        self.send_own(shared, OwnMessage::DigestGet(DigestGet { version }));
        true
    }

    /// Whether what the peer says of itself is being compared: what it sends meanwhile waits.
    pub(super) fn comparing(&self) -> bool {
        self.digests.compares() || self.evidence.asked.is_some() || !self.evidence.confirming.is_empty()
    }

    /// The peer asks for the digest of our history.
    pub(super) fn on_digest_get(&mut self, shared: &mut Shared, get: DigestGet) {
        self.evidence.answered += 1;
        if self.evidence.answered > QUESTIONS_MAX {
            let (expected, found) = (QUESTIONS_MAX.to_string(), self.evidence.answered.to_string());
            return self.fault(shared, PeerFaultKind::Limit, expected + " questions for digests", found);
        }
        self.want_digest(shared, get.version, DigestFor::Answer);
    }

    /// Tells the peer our digest, which it asked for or waits for. An answer asks nothing, so that none
    /// is answered: two peers would tell each other the same for ever.
    pub(super) fn tell_digest(&mut self, shared: &mut Shared, version: Version, digest: Option<[u8; 32]>) {
        self.send_digest(shared, DigestAt { version, digest, asks: false });
    }

    fn send_digest(&mut self, shared: &mut Shared, at: DigestAt) {
        if at.digest.is_none() && at.version < shared.history.floor() {
            // What a compaction took is not told apart from what was never here, but by the floor.
            self.send_standing(shared);
        }
        self.send_own(shared, OwnMessage::Digest(at));
    }

    /// The peer says what its history is at a version: an answer, or evidence it brings unasked.
    pub(super) fn on_digest(&mut self, shared: &mut Shared, at: DigestAt) {
        if self.evidence.search.as_ref().is_some_and(|search| search.asked == at.version) {
            return match at.digest {
                Some(theirs) => self.want_digest(shared, at.version, DigestFor::Part(theirs)),
                None => self.part_step(shared, at.version, None, None),
            };
        }
        if self.is_stopped() {
            return;
        }
        self.undoubted(shared, &at);
        if self.too_early(shared, "a digest") {
            return;
        }
        self.evidence.asked.take_if(|asked| *asked == at.version);
        if let Some(vouched) = self.evidence.confirming.iter().position(|version| *version == at.version) {
            self.evidence.confirming.remove(vouched);
        }
        let (floor, tail) = (shared.history.floor(), shared.history.tail());
        let within = at.version >= floor && at.version <= tail;
        if within && shared.opaque.chained && !shared.history.contains(at.version) {
            let found = super::judging::diverged(PairReason::ForeignVersion, at.version, tail);
            return self.part(shared, found);
        }
        match at.digest {
            Some(theirs) if within => {
                let purpose = if at.asks { DigestFor::Confirm(theirs) } else { DigestFor::Compare(theirs) };
                self.want_digest(shared, at.version, purpose);
            }
            // It cannot tell, or we cannot: by version only.
            Some(_) | None => {
                self.evidence.agree(at.version);
                if at.asks {
                    self.tell_digest(shared, at.version, None);
                }
                self.release_acks(shared);
                self.retry(shared);
            }
        }
    }

    /// As [`Session::compared`], for a peer that waits for our word before it takes more of ours: it
    /// follows only if histories are the same.
    pub(super) fn confirmed(
        &mut self,
        shared: &mut Shared,
        version: Version,
        ours: Option<[u8; 32]>,
        theirs: [u8; 32],
    ) {
        if ours.is_none_or(|ours| ours == theirs) {
            self.tell_digest(shared, version, ours);
        }
        self.compared(shared, version, ours, theirs);
    }

    /// Our digest where the peer vouched for its own.
    pub(super) fn compared(
        &mut self,
        shared: &mut Shared,
        version: Version,
        ours: Option<[u8; 32]>,
        theirs: [u8; 32],
    ) {
        match ours {
            Some(ours) if ours != theirs => {
                let found = Divergence {
                    at: version,
                    ours: short(&ours),
                    theirs: short(&theirs),
                    reason: PairReason::OtherHistory,
                };
                return self.part(shared, Verdict::Diverged(found));
            }
            Some(_) | None => self.evidence.agree(version),
        }
        self.release_acks(shared);
        self.retry(shared);
    }

    /// Acknowledges what this link did not bring, with our digest ahead of it.
    pub(super) fn vouch(&mut self, shared: &mut Shared, version: Version, answered: Answered) {
        let vouches = self.peer.history && shared.opaque.chained && !version.is_zero();
        match answered {
            Answered::Batch if vouches => self.arrivals.vouching += 1,
            Answered::Batch | Answered::Snapshot => {}
        }
        if vouches {
            return self.want_digest(shared, version, DigestFor::Vouch(answered));
        }
        self.send_ack(shared, version);
    }

    pub(super) fn vouched(
        &mut self,
        shared: &mut Shared,
        version: Version,
        answered: Answered,
        digest: Option<[u8; 32]>,
    ) {
        match answered {
            Answered::Batch => self.arrivals.vouching = self.arrivals.vouching.saturating_sub(1),
            Answered::Snapshot => {}
        }
        let asks = self.peer.window;
        self.send_digest(shared, DigestAt { version, digest, asks });
        if asks {
            // More may be on its way that was sent before the peer could compare: that waits.
            if self.evidence.confirming.len() >= SENT_MAX {
                let found = alloc::format!("{} without one", SENT_MAX + 1);
                return self.fault(shared, PeerFaultKind::Limit, "a word on what was vouched for", found);
            }
            self.evidence.confirming.push_back(version);
        }
        self.send_ack(shared, version);
        self.acknowledge_durable(shared);
        self.retry(shared);
    }

    /// Counts an acknowledgement. One after the other without progress, and repair would go on for
    /// ever: first the source rests longer each time, then a person must look.
    pub(super) fn ack_progress(&mut self, shared: &mut Shared, version: Version) -> bool {
        self.evidence.sent.retain(|sent| *sent > version);
        self.evidence.agree(version);
        // The first one of a reference peer says where it stands: nothing could bring progress before it.
        let stood = self.peer.history.then_some(Version::ZERO);
        if self.evidence.last_ack.replace(version).or(stood).is_none_or(|last| version > last) {
            self.evidence.stalled = 0;
            return true;
        }
        self.evidence.stalled += 1;
        if self.evidence.stalled >= STALLED_MAX {
            self.stop(shared, Verdict::Unknown { reason: PairReason::NoProgress });
            return false;
        }
        let rest_ms = REST_MS << self.evidence.stalled;
        self.evidence.rest_until = shared.now.mono.after_ms(rest_ms);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(sequence: u64) -> Version {
        Version::new(1, sequence)
    }

    #[test]
    fn an_acknowledgement_of_what_was_sent_needs_nothing() {
        let mut evidence = Evidence::default();
        evidence.sends(v(5));
        assert_eq!(evidence.needs(v(5), false), AckNeeds::Nothing);
        assert_eq!(evidence.needs(v(5), true), AckNeeds::Comparison);
    }

    #[test]
    fn an_acknowledgement_of_what_was_vouched_for_needs_nothing() {
        let evidence = Evidence { agreed: v(7), ..Evidence::default() };
        assert_eq!(evidence.needs(v(7), false), AckNeeds::Nothing);
    }

    #[test]
    fn an_acknowledgement_of_anything_else_needs_the_digest() {
        let mut evidence = Evidence::default();
        evidence.sends(v(5));
        assert_eq!(evidence.needs(v(6), false), AckNeeds::Digest);
        evidence.asked = Some(v(6));
        assert_eq!(evidence.needs(v(6), false), AckNeeds::Comparison);
    }

    #[test]
    fn only_as_many_sent_batches_are_remembered() {
        let mut evidence = Evidence::default();
        for sequence in 1..=SENT_MAX as u64 + 1 {
            evidence.sends(v(sequence));
        }
        assert_eq!(evidence.sent.len(), SENT_MAX);
        assert_eq!(evidence.needs(v(1), false), AckNeeds::Digest);
    }
}
