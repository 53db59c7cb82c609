//! How a replica stands, for people and metrics.

use super::api::{Lag, MemberStatus, Status};
use super::links::Links;
use super::shared::Shared;
use crate::record::Version;
use alloc::string::ToString;

impl Shared {
    /// How far who has everything up to `version` is behind our durable tail.
    pub(super) fn lag(&self, version: Version) -> Lag {
        Lag { entries: self.behind(version), age_ms: self.ages.age_ms(self.now.mono, version) }
    }
}

pub(super) fn of(shared: &Shared, links: &Links) -> Status {
    let member = |member: &super::membership::Member| {
        let mark = shared.acked.get(&member.identity);
        let acked = mark.map_or(Version::ZERO, |mark| mark.version);
        let complete = mark.map_or(Version::ZERO, |mark| mark.complete);
        let (identity, state) = (member.identity.clone(), member.state.name());
        MemberStatus { identity, state, acked, complete, lag: shared.lag(acked) }
    };
    let index = shared.journal.index();
    Status {
        log: shared.current.log,
        identity: shared.current.identity.clone(),
        incarnation: shared.current.incarnation,
        namespaces: shared.current.namespaces.clone(),
        authority: shared.authority.as_ref().map(|authority| authority.id().to_string()),
        fenced: shared.fenced.clone(),
        submitted: shared.submitted,
        tail: shared.history.tail(),
        tail_digest: shared.history.tail_digest(),
        floor: shared.history.floor(),
        entries: index.entries(),
        journal_bytes: index.bytes(),
        present: shared.views.present(),
        tombstones: shared.views.tombstones(),
        complete: shared.complete(),
        blobs_wanted: shared.wanted.len() as u64,
        members_configured: shared.members.configured(),
        members: shared.members.list().iter().map(member).collect(),
        links: links.iter().map(|session| session.status(shared)).collect(),
        subscriptions: shared.subscriptions_status(),
        installing: shared.install.is_some(),
        compaction_blocked_by: shared.compaction_blocked().map(|error| error.to_string()),
        compacting: shared.compaction.is_some(),
        halted: shared.halted.clone(),
        commands_outstanding: shared.out.outstanding(),
    }
}
