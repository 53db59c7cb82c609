//! The sidecars beside `current`: the authority's reservation, the members, and the book of
//! acknowledgements. Each has one write out at a time; what changes meanwhile goes with the next.

use super::api::{Done, Entry, Event, MembersChange, RequestError, RequestId};
use super::authority::Authority;
use super::membership::{MemberInput, Members, compaction_bound};
use super::shared::{Purpose, Shared};
use crate::error::StorageFault;
use crate::id::Incarnation;
use crate::id::Lsn;
use crate::journal::command::{FileName, StorageCommand};
use crate::journal::sidecar::Envelope;
use crate::record::canonical::encode_parts;
use crate::record::{Record, Version};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Longest content of a sidecar.
const CONTENT_BYTES_MAX: u32 = 1 << 20;

/// The envelope of `authority`.
pub(super) const AUTHORITY: Envelope =
    Envelope { file: FileName::Authority, magic: *b"SLAU", format: 1, payload_bytes_max: CONTENT_BYTES_MAX };
/// The envelope of `members`.
pub(super) const MEMBERS: Envelope =
    Envelope { file: FileName::Members, magic: *b"SLME", format: 1, payload_bytes_max: CONTENT_BYTES_MAX };
/// The envelope of `acked`.
pub(super) const ACKED: Envelope =
    Envelope { file: FileName::Acked, magic: *b"SLAK", format: 1, payload_bytes_max: CONTENT_BYTES_MAX };

/// Which writes are out.
#[derive(Debug, Default)]
pub(super) struct Saves {
    /// The members as they will be once stored, and who asked.
    members: Option<(RequestId, Members)>,
    /// States of members changed without a request; they go with the next write.
    members_dirty: bool,
    acked: bool,
    authority: bool,
    /// The change of the members that waits for the write that is out.
    queued: Option<(RequestId, MembersChange)>,
    /// A write about peers failed: none is tried again, and compaction has nothing new to go by.
    failed: Option<StorageFault>,
}

impl Shared {
    pub(super) fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    pub(super) fn replace(&mut self, purpose: Purpose, envelope: &Envelope, content: &[u8]) {
        let (file, bytes) = (envelope.file, envelope.encode(content));
        self.out.command(purpose, |ticket| StorageCommand::Replace { ticket, file, bytes });
    }

    /// Asks for more versions ahead, if the authority wants some.
    pub(super) fn reserve(&mut self) {
        if self.halted.is_some() {
            return;
        }
        if let Some(content) = self.authority.as_mut().and_then(Authority::wants_reservation) {
            self.saves.authority = true;
            self.replace(Purpose::Authority, &AUTHORITY, &content);
        }
    }

    /// Whether a write of the authority's sidecar is out.
    pub(super) const fn saving_authority(&self) -> bool {
        self.saves.authority
    }

    /// One goes out.
    pub(super) const fn begin_authority_save(&mut self) {
        self.saves.authority = true;
    }

    /// The reservation is stored, or not. A failure is final, like one of the journal.
    pub(super) fn on_reserved(&mut self, result: Result<(), StorageFault>) -> Result<(), StorageFault> {
        self.saves.authority = false;
        if let Some(authority) = self.authority.as_mut().filter(|authority| authority.reserving()) {
            authority.reserved(result.is_ok());
        }
        result
    }

    /// Up to where the journal may take what was submitted: versions whose reservation is durable.
    pub(super) fn gate(&mut self) -> Option<Lsn> {
        let reserved = self.authority.as_ref()?.gate();
        while self.gated.front().is_some_and(|(_, last)| *last <= reserved) {
            self.gated.pop_front();
        }
        // The journal of an authority begins with its epoch, so that a record has an entry before it.
        self.gated.front().map(|(first, _)| first.before().unwrap_or(Lsn::FIRST))
    }

    /// Hands what may go to the journal.
    pub(super) fn submit(&mut self) {
        if self.halted.is_some() {
            return;
        }
        let gate = self.gate();
        self.journal.submit(gate, &mut self.out);
    }

    /// Records on disk that the last batch is durable.
    pub(super) fn seal(&mut self) {
        if self.halted.is_some() {
            return;
        }
        let gate = self.gate();
        self.journal.seal(gate, &mut self.out);
    }

    /// Changes the members. The answer comes when they are stored.
    pub(super) fn change_members(
        &mut self,
        request: RequestId,
        change: MembersChange,
    ) -> Result<(), RequestError> {
        if let Some(fault) = self.halted.as_ref().or(self.saves.failed.as_ref()) {
            return Err(RequestError::Storage(fault.clone()));
        }
        if self.saves.members.is_some() {
            if self.saves.queued.is_some() {
                return Err(RequestError::Busy { what: "a change of the members" });
            }
            self.saves.queued = Some((request, change));
            return Ok(());
        }
        let mut members = self.members.clone();
        members.change(&change)?;
        if let MembersChange::Remove(identity) = &change {
            self.acked.forget(identity);
        }
        self.save_members(request, members);
        Ok(())
    }

    fn save_members(&mut self, request: RequestId, members: Members) {
        let content = members.encode();
        self.saves.members = Some((request, members));
        self.saves.members_dirty = false;
        self.replace(Purpose::Members(request), &MEMBERS, &content);
    }

    /// The members are stored, or not; only then do they count.
    pub(super) fn on_members_saved(&mut self, request: RequestId, result: Result<(), StorageFault>) {
        let Some((_, members)) = self.saves.members.take() else { return };
        let by_request = request != RequestId(0);
        match result {
            Ok(()) if by_request => {
                // What happened to members while they were being stored is not lost.
                let mut stored = members;
                for member in self.members.list() {
                    stored.carry_over(member);
                }
                self.members = stored;
                self.out.event(Event::Done { request, done: Done::Members });
            }
            Ok(()) => {}
            Err(fault) => {
                self.saves.failed = Some(fault.clone());
                if by_request {
                    let done = Done::Refused(RequestError::Storage(fault));
                    self.out.event(Event::Done { request, done });
                }
            }
        }
        if let Some((request, change)) = self.saves.queued.take()
            && let Err(error) = self.change_members(request, change)
        {
            self.out.event(Event::Done { request, done: Done::Refused(error) });
        }
    }

    /// Whether what is known of peers may still be stored.
    fn may_save(&self) -> bool {
        self.saves.failed.is_none() && self.halted.is_none()
    }

    /// A peer was authenticated, or reads, or acknowledged: its membership follows.
    pub(super) fn member_seen(&mut self, identity: &str, incarnation: Option<Incarnation>) {
        self.saves.members_dirty |= self.members.seen(identity, incarnation);
    }

    /// As [`Shared::member_seen`], for what a member does.
    pub(super) fn member_input(&mut self, identity: &str, input: MemberInput) {
        self.saves.members_dirty |= self.members.advance(identity, input);
    }

    /// Whether something about peers waits to be stored.
    pub(super) fn acked_dirty(&self) -> bool {
        self.may_save() && (self.acked.dirty() || (self.saves.members_dirty && self.saves.members.is_none()))
    }

    /// Stores what is known of peers.
    pub(super) fn save_acked(&mut self) {
        if !self.may_save() {
            return;
        }
        if let Some(content) = self.acked.begin_save() {
            self.saves.acked = true;
            self.replace(Purpose::Acked, &ACKED, &content);
        }
        if self.saves.members_dirty && self.saves.members.is_none() {
            self.save_members(RequestId(0), self.members.clone());
        }
    }

    /// The book is stored, or not. One that is not stored holds compaction back, nothing else.
    pub(super) fn on_acked_saved(&mut self, result: Result<(), StorageFault>) {
        self.saves.acked = false;
        self.policy_due = true;
        self.acked.saved(result.is_ok());
        if let Err(fault) = result {
            self.saves.failed = Some(fault);
        }
    }

    /// Whether a write of a sidecar, of `current` or of a checkpoint is out.
    pub(super) fn saving(&self) -> bool {
        let peers = self.saves.members.is_some() || self.saves.acked || self.acked_dirty();
        peers
            || self.saves.authority
            || self.compaction.is_some()
            || self.committing.is_some()
            || self.fencing.is_some()
    }

    /// What holds compaction back, if anything does.
    pub(super) fn compaction_blocked(&self) -> Option<RequestError> {
        let (tail, floor) = (self.history.tail(), self.history.floor());
        let bound = compaction_bound(&self.members, &self.acked, tail, floor);
        bound.and_then(|most| self.compaction_beside_resets(most)).err()
    }

    /// What holds compaction back, for an error that must name it.
    pub(super) fn compaction_blocker(&self) -> alloc::string::String {
        let blocked = self.compaction_blocked();
        blocked.map_or_else(|| "nothing: compact to make room".to_string(), |error| error.to_string())
    }

    /// The submitted version of a key; zero for none.
    pub(super) fn latest(&self, key: &crate::record::Key) -> Version {
        self.views.latest(key).map_or(Version::ZERO, |entry| entry.version)
    }

    /// Everything the journal made durable becomes visible, and part of the history.
    pub(super) fn publish(&mut self) {
        let Some(upto) = self.journal.durable() else { return };
        let Self { views, history, wanted, recent, .. } = self;
        let recent_bytes_max = u64::from(self.config.recent_bytes_max);
        let mut canonical = Vec::new();
        views.publish(upto, &mut |lsn, key, entry| {
            canonical.clear();
            encode_parts(key, &entry.state, entry.version, &entry.authority, &mut canonical);
            history.push(lsn, entry.version, &entry.authority, &canonical);
            wanted.settle(key, entry.version);
            let Entry { state, version, authority } = entry.clone();
            recent.push(Record { key: key.clone(), state, version, authority }, recent_bytes_max);
        });
        self.ages.push(self.now.mono, self.history.tail());
        self.wake_subscriptions();
    }
}
