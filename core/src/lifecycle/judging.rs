//! Judging the pair: standings go out and come in, and no record goes before both were judged.

use super::api::{PairVerdict, PeerFaultKind, Verified};
use super::digests::DigestFor;
use super::epochs::Side;
use super::judge::{self, AckCase, Judgement, Known, Standing, Takes};
use super::membership::MemberInput;
use super::session::Session;
use super::shared::Shared;
use super::source::Source;
use crate::record::Version;
use crate::verdict::Verdict;
use crate::wire::own::{Acknowledgement, Mark, OwnMessage, Position};
use alloc::string::ToString;

impl Session {
    /// Tells the peer where we stand.
    pub(super) fn send_standing(&mut self, shared: &mut Shared) {
        let standing = shared.standing();
        let position = Position {
            floor: Mark { version: standing.floor, digest: standing.floor_digest },
            tail: Mark { version: standing.tail, digest: standing.tail_digest },
            epochs: shared.history.epochs(),
        };
        self.send_own(shared, OwnMessage::Position(position));
    }

    /// The peer says where it stands. The first time this opens repair; later it is a sign of life
    /// that must not contradict what is known.
    pub(super) fn on_position(&mut self, shared: &mut Shared, position: &Position) {
        // Also while it is searched where histories part: below it the peer cannot tell.
        self.evidence.peer_floor = position.floor.version;
        if self.is_stopped() {
            return;
        }
        let theirs = Standing {
            floor: position.floor.version,
            floor_digest: position.floor.digest,
            tail: position.tail.version,
            tail_digest: position.tail.digest,
        };
        // Not left to the next position, though where the peer stands is: who writes in an epoch that is over must
        // not go on until then.
        if let Some(last) = position.epochs.last() {
            shared.heard_epoch(last);
        }
        if self.digests.judges() {
            return;
        }
        self.evidence.peer_tail = theirs.tail;
        self.evidence.stood = true;
        self.evidence.peer_epoch = position.epochs.last().cloned();
        let side = Side { tail: theirs.tail, epochs: &position.epochs };
        if let Some(found) = shared.judge_epochs(shared.history.tail(), side) {
            return self.stop(shared, found);
        }
        let tail = shared.history.tail();
        if self.told.is_none() && self.peer.waits && !tail.is_zero() && tail <= theirs.tail {
            // The peer takes our tail from our position; up to where the blobs are it learns from this.
            self.send_ack(shared, tail);
        }
        self.judge_standing(shared, theirs);
    }

    /// Judges where the peer stands, with our digest there if both have one.
    pub(super) fn judge_standing(&mut self, shared: &mut Shared, theirs: Standing) {
        if self.needs_digest(shared, &theirs) {
            return self.want_digest(shared, theirs.tail, DigestFor::Standing(theirs));
        }
        let known = shared.known(theirs.tail);
        self.judged(shared, &theirs, known);
    }

    /// Whether comparing needs a digest that is not at hand.
    fn needs_digest(&self, shared: &Shared, theirs: &Standing) -> bool {
        let ours = shared.standing();
        theirs.tail > ours.floor
            && theirs.tail < ours.tail
            && theirs.tail_digest.is_some()
            && ours.floor_digest.is_some()
            && shared.history.contains(theirs.tail)
    }

    /// Our digest at the peer's tail is known, or cannot be any more: a compaction took what would tell.
    pub(super) fn standing_digested(
        &mut self,
        shared: &mut Shared,
        theirs: &Standing,
        digest: Option<[u8; 32]>,
    ) {
        let known = digest.map_or_else(|| shared.known(theirs.tail), |digest| Known::Ours(Some(digest)));
        self.judged(shared, theirs, known);
    }

    /// The standing of the peer is judged.
    fn judged(&mut self, shared: &mut Shared, theirs: &Standing, known: Known) {
        let takes = if self.takes(shared) { Takes::Records } else { Takes::Nothing };
        let ours = shared.standing();
        let judgement = judge::judge(&ours, theirs, known, shared.known(theirs.floor), takes);
        let first = matches!(self.source, Source::Waiting);
        match judgement {
            Judgement::Given(Verdict::Diverged(found)) => {
                let found = self.of_another_life(shared, found);
                self.part(shared, Verdict::Diverged(found));
            }
            Judgement::Given(verdict @ Verdict::Complete { verified, .. }) => {
                if first && !self.told_life(shared, theirs, verified) {
                    return;
                }
                self.evidence.agree(theirs.tail);
                if let (Verified::Digest, Some(mark)) = (verified, &self.evidence.peer_epoch) {
                    shared.adopt_epoch(mark, theirs.tail);
                }
                if first {
                    self.acknowledged(shared, theirs.tail);
                }
                self.open(shared, first, Some(verdict));
            }
            Judgement::Given(verdict @ (Verdict::Gap { .. } | Verdict::Unknown { .. })) => {
                // A snapshot takes the place of whatever it holds: nothing need be compared.
                if first && self.told_life(shared, theirs, Verified::Digest) {
                    self.acknowledged(shared, theirs.tail);
                    self.open(shared, first, Some(verdict));
                }
            }
            Judgement::Behind(verified) => {
                self.acked = self.acked.max(shared.history.tail());
                self.ahead = Some(*theirs);
                let verdict = Verdict::Complete { through: ours.tail, verified };
                self.open(shared, first, Some(verdict));
            }
        }
    }

    fn open(&mut self, shared: &mut Shared, first: bool, verdict: Option<PairVerdict>) {
        if let Some(verdict) = verdict.filter(|_| first || !self.waits_for_blobs()) {
            self.give_verdict(shared, verdict);
        }
        if first {
            self.source = if self.sends() { Source::Idle } else { Source::Off };
            if let Some(complete) = self.complete_early.take() {
                self.complete(shared, complete);
            }
            self.pump_source(shared);
            self.want_wanted(shared);
            self.release_acks(shared);
            // What came while the standing was being judged.
            self.retry(shared);
        }
    }

    /// What the peer has, from a judged standing or an accepted acknowledgement.
    pub(super) fn acknowledged(&mut self, shared: &mut Shared, version: Version) {
        self.acked = version;
        let (identity, incarnation) = (&self.peer.identity, self.peer.incarnation);
        shared.member_seen(identity, incarnation);
        // A book without room for this peer holds back compaction for no member: all have a place.
        let _ = shared.acked.reconcile(identity, incarnation, version);
        shared.member_input(identity, MemberInput::Acknowledged { version });
    }

    /// The peer has the blobs of everything up to here.
    fn complete(&mut self, shared: &mut Shared, complete: Version) {
        let (identity, incarnation) = (&self.peer.identity, self.peer.incarnation);
        let acked = shared.acked.get(identity).map_or(Version::ZERO, |mark| mark.version);
        // Of a peer without a place in the book nothing is known, and nothing counts.
        let _ = shared.acked.complete(identity, incarnation, complete.min(acked));
    }

    /// The peer acknowledges what it has durably applied, and up to where it has the blobs as well.
    pub(super) fn on_own_ack(&mut self, shared: &mut Shared, ack: Acknowledgement) {
        if self.is_stopped() || !self.sends() {
            return;
        }
        if self.judging() {
            if !self.too_early(shared, "an acknowledgement") {
                self.complete_early = Some(ack.complete);
            }
            return;
        }
        if ack.watermark <= self.acked && !self.answers(ack.watermark) {
            // Nothing new was applied: only blobs came.
            self.complete(shared, ack.complete);
            return self.pump_source(shared);
        }
        self.complete_early = Some(ack.complete);
        self.on_ack(shared, ack.watermark);
    }

    /// The peer acknowledges what it has durably applied.
    pub(super) fn on_ack(&mut self, shared: &mut Shared, version: Version) {
        if self.is_stopped() {
            return;
        }
        if !self.sends() && !self.peer.history {
            // A peer of the reference says where it stands on every link, also on one that it only
            // sends on: nothing goes its way, so its mark changes nothing.
            return;
        }
        if !self.sends() {
            let found = alloc::format!("an acknowledgement of {version}");
            return self.fault(
                shared,
                PeerFaultKind::Sequence,
                "no acknowledgements on a receiving link",
                found,
            );
        }
        if self.judging() {
            // A peer that was ahead is judged again once we are there; its words do not wait for that.
            if self.digests.judges() {
                return self.hold_ack(shared, version);
            }
            let found = alloc::format!("an acknowledgement of {version}");
            return self.fault(shared, PeerFaultKind::Sequence, "a standing before anything else", found);
        }
        if !self.ack_counts(shared, version) {
            return;
        }
        let startup = matches!(self.source, Source::Waiting);
        if !self.peer.waits {
            // It stores the blobs first.
            self.complete_early = Some(version);
        }
        let (floor, tail) = (shared.history.floor(), shared.history.tail());
        match judge::ack_case(floor, tail, version, shared.history.contains(version)) {
            AckCase::Ours => {
                if !self.ack_progress(shared, version) {
                    return;
                }
                self.acknowledged(shared, version);
                if let Some(complete) = self.complete_early.take() {
                    self.complete(shared, complete);
                }
                if !self.waits_for_blobs() {
                    let verified = self.verified();
                    self.give_verdict(shared, Verdict::Complete { through: tail, verified });
                }
                self.source_acked(shared, version);
            }
            AckCase::BelowFloor => {
                if !self.ack_progress(shared, version) {
                    return;
                }
                self.acknowledged(shared, version);
                let reason = super::api::PairReason::BelowFloor;
                self.give_verdict(shared, Verdict::Gap { from: version, to: floor, reason });
                self.source_acked(shared, version);
            }
            AckCase::AboveTail => {
                let verdict = diverged(super::api::PairReason::AheadOfTail, version, tail);
                self.part(shared, verdict);
            }
            AckCase::Foreign if startup || (self.peer.history && shared.opaque.chained) => {
                let verdict = diverged(super::api::PairReason::ForeignVersion, version, tail);
                self.part(shared, verdict);
            }
            AckCase::Foreign => {
                let expected = "a version of this log's records";
                self.fault(shared, PeerFaultKind::Acknowledgement, expected, version.to_string());
            }
        }
    }
}

pub(super) fn diverged(reason: super::api::PairReason, theirs: Version, ours: Version) -> PairVerdict {
    Verdict::Diverged(super::api::Divergence {
        at: theirs,
        ours: ours.to_string(),
        theirs: theirs.to_string(),
        reason,
    })
}
