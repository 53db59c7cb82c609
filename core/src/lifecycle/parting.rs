//! Where two histories part: what a peer vouches for is compared, and once it differs the version is
//! searched for, so that a person sees it on both sides.

use super::api::{Divergence, PairReason, PairVerdict, PeerFaultKind, Verified};
use super::digests::{Answered, DigestFor};
use super::judge::{Standing, short};
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
const SENT_MAX: usize = 64;

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
    asked: Option<Version>,
    /// What we vouched for and the peer has not confirmed; more of its records wait for that.
    confirming: VecDeque<Version>,
    /// Acknowledgements that wait for a comparison.
    held: VecDeque<Version>,
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
    /// Acknowledgements in a row without progress, and until when the source rests for it.
    stalled: u32,
    rest_until: Instant,
    search: Option<Search>,
}

/// The search for the first version that differs.
#[derive(Debug)]
struct Search {
    /// What was found, its `at` being narrowed.
    found: Divergence,
    /// Nothing is known to differ up to here.
    low: Version,
    /// The lowest version of ours known not to be the peer's.
    high: Version,
    /// `high` is only suspected: the peer is ahead, and may or may not go on from our history.
    suspected: bool,
    asked: Version,
    since: Instant,
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
        if self.evidence.held.len() >= SENT_MAX {
            let found = alloc::format!("{} without one", SENT_MAX + 1);
            self.fault(shared, PeerFaultKind::Limit, "an answer to a question for a digest", found);
        } else {
            self.evidence.held.push_back(version);
        }
        false
    }

    fn release_acks(&mut self, shared: &mut Shared) {
        while !self.is_stopped() && !self.digests.compares() && self.evidence.asked.is_none() {
            let Some(version) = self.evidence.held.pop_front() else { return };
            self.on_ack(shared, version);
        }
    }

    /// Asks the peer for its digest, unless too much was asked.
    fn ask_digest(&mut self, shared: &mut Shared, version: Version) -> bool {
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

    pub(super) fn tell_digest(&mut self, shared: &mut Shared, version: Version, digest: Option<[u8; 32]>) {
        self.send_own(shared, OwnMessage::Digest(DigestAt { version, digest }));
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
        if self.too_early(shared, "a digest") {
            return;
        }
        let asked = self.evidence.asked.take_if(|asked| *asked == at.version).is_some();
        let vouched = self.evidence.confirming.iter().position(|version| *version == at.version);
        let answer = asked || vouched.and_then(|at| self.evidence.confirming.remove(at)).is_some();
        let (floor, tail) = (shared.history.floor(), shared.history.tail());
        let within = at.version >= floor && at.version <= tail;
        if within && shared.opaque.chained && !shared.history.contains(at.version) {
            let found = super::judging::diverged(PairReason::ForeignVersion, at.version, tail);
            return self.part(shared, found);
        }
        match at.digest {
            Some(theirs) if within => {
                let purpose = if answer { DigestFor::Compare(theirs) } else { DigestFor::Confirm(theirs) };
                self.want_digest(shared, at.version, purpose);
            }
            // It cannot tell, or we cannot: by version only.
            Some(_) | None => {
                self.evidence.agree(at.version);
                if !answer && self.peer.window {
                    self.tell_digest(shared, at.version, None);
                }
                self.release_acks(shared);
                self.retry(shared);
            }
        }
    }

    /// As [`Session::compared`], for evidence that came unasked. A peer that has more of ours on its way
    /// waits for our word before it takes that: it follows only if histories are the same.
    pub(super) fn confirmed(
        &mut self,
        shared: &mut Shared,
        version: Version,
        ours: Option<[u8; 32]>,
        theirs: [u8; 32],
    ) {
        if self.peer.window && ours.is_none_or(|ours| ours == theirs) {
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
        self.tell_digest(shared, version, digest);
        if self.peer.window {
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

    /// Histories differ: repair ends at once, and the verdict is given when it is known where they
    /// part, or that it cannot be known.
    pub(super) fn part(&mut self, shared: &mut Shared, verdict: PairVerdict) {
        let Verdict::Diverged(found) = verdict else { return self.stop(shared, verdict) };
        let (floor, tail) = (shared.history.floor(), shared.history.tail());
        let (high, suspected) = match found.reason {
            PairReason::OtherHistory => (Some(found.at), false),
            PairReason::ForeignVersion => (shared.history.first_after(found.at).map(|(_, v)| v), false),
            PairReason::AheadOfTail | PairReason::OtherIncarnation => (Some(tail), true),
            PairReason::BelowFloor
            | PairReason::FencedEpoch
            | PairReason::SnapshotTooLarge
            | PairReason::BlobTooLarge
            | PairReason::BlobMissing
            | PairReason::NoProgress => (None, false),
        };
        let high = high.filter(|high| {
            self.peer.history && shared.opaque.chained && *high > floor && shared.history.contains(*high)
        });
        let Some(high) = high else { return self.stop(shared, Verdict::Diverged(found)) };
        self.halt_repair(shared);
        let since = shared.now.mono;
        self.evidence.search =
            Some(Search { found, low: floor, high, suspected, asked: Version::ZERO, since });
        self.ask_next(shared);
    }

    fn ask_next(&mut self, shared: &mut Shared) {
        let Some(search) = &mut self.evidence.search else { return };
        let records = shared.history.records_between(search.low, search.high);
        let next = match (search.suspected, records) {
            (true, _) => Some(search.high),
            (false, 0 | 1) => None,
            (false, records) => shared.history.nth_after(search.low, records / 2),
        };
        let Some(next) = next else { return self.parted(shared) };
        search.asked = next;
        search.since = shared.now.mono;
        if !self.ask_digest(shared, next) {
            self.parted(shared);
        }
    }

    /// One answer of the search. `theirs` is absent where the peer's log has no such version.
    pub(super) fn part_step(
        &mut self,
        shared: &mut Shared,
        version: Version,
        ours: Option<[u8; 32]>,
        theirs: Option<[u8; 32]>,
    ) {
        let Some(search) = self.evidence.search.as_mut().filter(|search| search.asked == version) else {
            return;
        };
        let same = match (ours, theirs) {
            (Some(ours), Some(theirs)) => ours == theirs,
            // Below its floor it cannot tell; above, it would know a version that it has.
            (_, None) => version <= self.evidence.peer_floor,
            // A compaction of ours took it.
            (None, Some(_)) => true,
        };
        match (search.suspected, same) {
            // The peer goes on from where we end.
            (true, true) => return self.parted(shared),
            (true, false) => {
                search.suspected = false;
                search.found.reason = PairReason::OtherHistory;
            }
            (false, true) => search.low = version,
            (false, false) => {
                search.high = version;
                if let (Some(ours), Some(theirs)) = (ours, theirs) {
                    (search.found.ours, search.found.theirs) = (short(&ours), short(&theirs));
                }
            }
        }
        self.ask_next(shared);
    }

    /// The search is over: the verdict, with the lowest version of ours known to differ.
    fn parted(&mut self, shared: &mut Shared) {
        let Some(Search { mut found, high, suspected, .. }) = self.evidence.search.take() else { return };
        // What is only suspected may part below what was searched.
        found.at = if suspected { found.at.min(high) } else { high };
        self.stop(shared, Verdict::Diverged(found));
    }

    /// A search whose peer does not answer ends with what is known.
    pub(super) fn expire_search(&mut self, shared: &mut Shared) {
        let keepalive_ms = shared.config.keepalive_ms;
        let late = |search: &Search| search.since.after_ms(keepalive_ms) <= shared.now.mono;
        if self.evidence.search.as_ref().is_some_and(late) {
            self.parted(shared);
        }
    }

    /// The peer stopped, and said why: our own search is of no use any more.
    pub(super) fn drop_search(&mut self) {
        self.evidence.search = None;
        self.evidence.held.clear();
        self.evidence.asked = None;
        self.evidence.confirming.clear();
    }

    /// Counts an acknowledgement. One after the other without progress, and repair would go on for
    /// ever: first the source rests longer each time, then a person must look.
    pub(super) fn ack_progress(&mut self, shared: &mut Shared, version: Version) -> bool {
        self.evidence.sent.retain(|sent| *sent > version);
        self.evidence.agree(version);
        // The first one says where the peer stands: nothing could bring progress before it.
        if self.evidence.last_ack.replace(version).is_none_or(|last| version > last) {
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

    /// The verdict over a peer whose standing is judged, if the life of its data must be told: it
    /// acknowledged more than it holds, or is another life that cannot be compared or is ahead.
    pub(super) fn judge_life(
        &self,
        shared: &Shared,
        theirs: &Standing,
        verified: Verified,
    ) -> Option<PairVerdict> {
        let mark = shared.acked.get(&self.peer.identity)?;
        // What it brought over this link since it said where it stands it holds as well.
        let holds = theirs.tail.max(self.evidence.agreed);
        let life = life(mark.incarnation == self.peer.incarnation, mark.version, holds, verified);
        let reason = PairReason::OtherIncarnation;
        match life {
            Life::Same => None,
            Life::Less => Some(Verdict::Gap { from: theirs.tail, to: mark.version, reason }),
            Life::LessUnverified => Some(Verdict::Unknown { reason }),
        }
    }
}

/// How the life of a peer's data stands to what it once acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Life {
    /// It holds what it acknowledged, or is another life that holds at least as much.
    Same,
    /// It lost records that it had acknowledged: wiped, or a copy put back. What is left is ours.
    Less,
    /// The same, and nothing says that what is left is ours.
    LessUnverified,
}

/// The rows of the table.
fn life(same: bool, acked: Version, holds: Version, verified: Verified) -> Life {
    match (holds >= acked, same, verified) {
        (true, true | false, Verified::Digest | Verified::VersionOnly) => Life::Same,
        (false, true | false, Verified::Digest) | (false, true, Verified::VersionOnly) => Life::Less,
        (false, false, Verified::VersionOnly) => Life::LessUnverified,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(sequence: u64) -> Version {
        Version::new(1, sequence)
    }

    #[test]
    fn life_holds_what_it_acknowledged() {
        for same in [true, false] {
            for verified in [Verified::Digest, Verified::VersionOnly] {
                assert_eq!(life(same, v(5), v(5), verified), Life::Same);
                assert_eq!(life(same, v(5), v(9), verified), Life::Same);
            }
        }
    }

    #[test]
    fn life_lost_what_it_acknowledged() {
        for same in [true, false] {
            assert_eq!(life(same, v(5), v(4), Verified::Digest), Life::Less);
        }
        assert_eq!(life(true, v(5), v(4), Verified::VersionOnly), Life::Less);
    }

    #[test]
    fn life_lost_and_cannot_be_compared() {
        assert_eq!(life(false, v(5), v(4), Verified::VersionOnly), Life::LessUnverified);
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
