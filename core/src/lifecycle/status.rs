//! How a replica stands, for people and metrics.

use super::api::{Lag, MemberStatus, Status};
use super::bound::{counted, lowest};
use super::lagging::Behind;
use super::links::Links;
use super::membership::compaction_bound;
use super::shared::Shared;
use crate::record::Version;
use alloc::string::{String, ToString};

impl Shared {
    /// How far who has everything up to `version` is behind our durable tail.
    pub(super) fn lag(&self, version: Version) -> Lag {
        Lag { entries: self.behind(version), age_ms: self.ages.age_ms(self.now.mono, version) }
    }
}

pub(super) fn of(shared: &Shared, links: &Links) -> Status {
    let member = |member: &super::membership::Member| {
        let counts_at = counted(member, &shared.acked);
        let behind = counts_at.map_or_else(Behind::default, |at| shared.member_behind(&member.identity, at));
        let mark = shared.acked.get(&member.identity);
        let acked = mark.map_or(Version::ZERO, |mark| mark.version);
        MemberStatus {
            identity: member.identity.clone(),
            state: member.state.name(),
            incarnation: member.incarnation,
            acked,
            lag_entries: shared.behind(acked),
            complete: mark.map_or(Version::ZERO, |mark| mark.complete),
            counts_at,
            lag_bytes: behind.bytes,
            lag_ms: behind.ms,
        }
    };
    let (compactable, blocked_by) = compaction(shared);
    let index = shared.journal.index();
    Status {
        log: shared.current.log,
        identity: shared.current.identity.clone(),
        incarnation: shared.current.incarnation,
        namespaces: shared.current.namespaces.clone(),
        authority: shared.authority.as_ref().map(|authority| authority.id().to_string()),
        epoch: shared.history.epoch(),
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
        compactable,
        blocked_by,
        links: links.iter().map(|session| session.status(shared)).collect(),
        reads_for_peers: shared.sharing.reads(),
        subscriptions: shared.subscriptions_status(),
        installing: shared.install.is_some(),
        compacting: shared.compaction.is_some(),
        halted: shared.halted.clone(),
        commands_outstanding: shared.out.outstanding(),
    }
}

/// How far compaction may go, and who or what keeps it from going on to the tail.
fn compaction(shared: &Shared) -> (Option<Version>, Option<String>) {
    let (tail, floor) = (shared.history.tail(), shared.history.floor());
    let bound = compaction_bound(&shared.members, &shared.acked, tail, floor);
    match bound.and_then(|most| shared.compaction_beside_resets(most)) {
        Ok(upto) => {
            let holder = lowest(&shared.members, &shared.acked).filter(|(_, at)| *at < tail);
            (Some(upto), holder.map(|(member, _)| member.identity.clone()))
        }
        Err(error) => (None, Some(error.to_string())),
    }
}
