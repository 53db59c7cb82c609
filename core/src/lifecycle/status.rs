//! How a replica stands, for people and metrics.

use super::api::{MemberStatus, Status};
use super::links::Links;
use super::session::Session;
use super::shared::Shared;
use crate::record::Version;
use alloc::string::ToString;

pub(super) fn of(shared: &Shared, links: &Links) -> Status {
    let member = |member: &super::membership::Member| MemberStatus {
        identity: member.identity.clone(),
        state: member.state.name(),
        acked: shared.acked.get(&member.identity).map_or(Version::ZERO, |mark| mark.version),
        complete: shared.acked.get(&member.identity).map_or(Version::ZERO, |mark| mark.complete),
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
        links: links.iter().map(Session::status).collect(),
        installing: shared.install.is_some(),
        compacting: shared.compaction.is_some(),
        halted: shared.halted.clone(),
        commands_outstanding: shared.out.outstanding(),
    }
}
