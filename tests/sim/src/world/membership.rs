//! Who was removed does not count in the life that was removed, and what was restored is whole.

use super::{Judged, Violation, World};
use crate::fault::Fault;
use crate::node::Removed;
use crate::rng::Choose;
use strandline_core::lifecycle::api::{Done, MemberStatus, MembersChange, RequestId, Status};

impl World {
    /// Whom a change removes, in which life of its data; whom it adds, without.
    pub(super) fn lives(&self, at: usize, change: &MembersChange) -> Vec<(String, Option<Removed>)> {
        let members = self.status(at).members;
        let of = |name: Option<&String>| {
            let members = members.iter().filter(|member| name.is_none_or(|name| member.identity == *name));
            let removed = |member: &MemberStatus| {
                let (life, acked) = (member.incarnation?, member.acked);
                Some((member.identity.clone(), Some(Removed { life, acked, may_count: false })))
            };
            members.filter_map(removed).collect()
        };
        match change {
            MembersChange::Add(name) => vec![(name.clone(), None)],
            MembersChange::Remove(name) => of(Some(name)),
            MembersChange::Clear => of(None),
        }
    }

    /// A change of the members is stored, or is not one. A person reseeds most of those who need it.
    pub(super) fn changed(&mut self, at: usize, request: RequestId, done: &Done) -> Judged {
        let Some(lives) = self.nodes[at].changing.remove(&request) else { return Ok(()) };
        if *done != Done::Members {
            return Ok(());
        }
        for (name, life) in lives {
            match life {
                Some(life) => drop(self.nodes[at].removed.insert(name, life)),
                None if self.nodes[at].removed.contains_key(&name) => {
                    self.count(Fault::RemovedMember);
                    let again = self.nodes.iter().position(|node| node.identity == name && !node.twin);
                    if let Some(again) = again.filter(|again| *again != at)
                        && !self.rng.once_in(3)
                    {
                        self.to_reseed.insert(again);
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Whoever has less than the floor is offered a snapshot. One that got the same from another peer by
    /// then answers by acknowledging it, and counts without having taken it.
    pub(super) fn needs_snapshots(&mut self, at: usize, status: &Status) {
        for (name, removed) in &mut self.nodes[at].removed {
            let member = status.members.iter().find(|member| member.identity == *name);
            removed.may_count |= member.map_or(removed.acked, |member| member.acked) < status.floor;
        }
    }

    /// No member counts in the life in which it was removed, unless a snapshot was due to it since. Where
    /// two nodes carry its name they come in turns, and each is another life than the one before.
    pub(super) fn counts_anew(&mut self, at: usize, status: &Status) -> Judged {
        self.needs_snapshots(at, status);
        let wrong = status.members.iter().find(|member| {
            let removed = self.nodes[at].removed.get(&member.identity).filter(|removed| !removed.may_count);
            let two = || self.nodes.iter().any(|node| node.twin && node.identity == member.identity);
            member.state == "active"
                && removed.is_some_and(|removed| member.incarnation == Some(removed.life))
                && !two()
        });
        wrong.map_or(Ok(()), |member| {
            Err(Violation::new("removed member", format!("{at} counts {member:?}, which it had removed")))
        })
    }

    /// A restored backup is what was durable when it was taken, in another life.
    pub(super) fn restored_whole(&mut self, at: usize, status: &Status) -> Judged {
        let Some((digest, life)) = self.nodes[at].restored.take() else { return Ok(()) };
        let whole = status.tail_digest == digest || !self.nodes[at].damage.is_empty();
        if whole && status.incarnation != life && status.authority.is_none() {
            return Ok(());
        }
        let text = format!("{at} was restored and shows {} in {:?}", status.tail, status.incarnation);
        Err(Violation::new("restore", text))
    }
}
