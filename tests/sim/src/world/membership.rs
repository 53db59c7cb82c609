//! Who was removed does not count in the life that was removed, and what was restored is whole.

use super::{Judged, Violation, World};
use crate::fault::Fault;
use crate::rng::Choose;
use strandline_core::id::Incarnation;
use strandline_core::lifecycle::api::{Done, MembersChange, RequestId, Status};

impl World {
    /// Whom a change removes, in which life of its data; whom it adds, without.
    pub(super) fn lives(&self, at: usize, change: &MembersChange) -> Vec<(String, Option<Incarnation>)> {
        let members = self.status(at).members;
        let of = |name: Option<&String>| {
            let members = members.iter().filter(|member| name.is_none_or(|name| member.identity == *name));
            members.filter_map(|member| Some((member.identity.clone(), Some(member.incarnation?)))).collect()
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

    /// No member counts in the life in which it was removed, unless it took a snapshot since.
    pub(super) fn counts_anew(&self, at: usize, status: &Status) -> Judged {
        let removed = &self.nodes[at].removed;
        let wrong = status.members.iter().find(|member| {
            member.state == "active"
                && member.incarnation.as_ref() == removed.get(&member.identity)
                && removed.contains_key(&member.identity)
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
