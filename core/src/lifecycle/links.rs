//! The table of live links: slots with use counts, and one link per peer.

use super::api::{LinkRefused, LinkRole, RequestError};
use super::session::{Peer, Session};
use super::shared::Shared;
use crate::id::LinkId;
use crate::record::Version;
use crate::wire::handshake::Authenticated;
use alloc::vec::Vec;

/// Live links by slot. A slot that is used again gets another count, so that a link that is gone
/// can never name its successor.
#[derive(Debug, Default)]
pub(super) struct Links {
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    uses: u32,
    session: Option<Session>,
}

/// Which of two links with one peer stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stays {
    /// The one that is there.
    Old,
    /// The one that was just authenticated.
    New,
}

/// The rule for two links of one identity: of two dialed by different sides the one dialed by the
/// smaller identity stays; of two dialed by the same side the newer one.
fn duplicate(ours: &str, theirs: &str, old_dialed_by_us: bool, new_dialed_by_us: bool) -> Stays {
    match (old_dialed_by_us, new_dialed_by_us) {
        (true, true) | (false, false) => Stays::New,
        (true, false) if ours < theirs => Stays::Old,
        (true, false) => Stays::New,
        (false, true) if theirs < ours => Stays::Old,
        (false, true) => Stays::New,
    }
}

/// Whether a link with this peer may be taken up at all.
pub(super) fn admit(
    shared: &Shared,
    authenticated: &Authenticated,
    peer: &Peer,
    role: LinkRole,
) -> Result<(), LinkRefused> {
    let identity = peer.identity.clone();
    if identity == shared.current.identity {
        return Err(LinkRefused::OwnName { identity });
    }
    match (authenticated.log(), role) {
        (Some(found), _) if found != shared.current.log => {
            Err(LinkRefused::Log { identity, expected: shared.current.log, found })
        }
        (Some(_), _) | (None, LinkRole::Source | LinkRole::Receiver) => Ok(()),
        (None, LinkRole::Both) => Err(LinkRefused::RoleNeeded { identity }),
    }
}

impl Links {
    /// Whether another link of the same identity must go, or this one may not come.
    pub(super) fn judge_duplicate(
        &self,
        shared: &Shared,
        peer: &Peer,
    ) -> Result<Option<LinkId>, LinkRefused> {
        let old = self.iter().find(|s| !s.down && s.peer.identity == peer.identity);
        let Some(old) = old else { return Ok(None) };
        match duplicate(&shared.current.identity, &peer.identity, old.peer.dialed, peer.dialed) {
            Stays::New => Ok(Some(old.link)),
            Stays::Old => Err(LinkRefused::Duplicate { identity: peer.identity.clone() }),
        }
    }

    /// A free place, at most `links_max`.
    pub(super) fn open(&mut self, links_max: u32) -> Result<LinkId, LinkRefused> {
        let free = self.slots.iter().position(|slot| slot.session.is_none());
        let at = match free {
            Some(at) => at,
            None if self.slots.len() >= links_max as usize => return Err(LinkRefused::Full { links_max }),
            None => {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            }
        };
        self.slots[at].uses += 1;
        Ok(LinkId { slot: at as u32, uses: self.slots[at].uses })
    }

    pub(super) fn insert(&mut self, session: Session) {
        let at = session.link.slot as usize;
        self.slots[at].session = Some(session);
    }

    pub(super) fn get_mut(&mut self, link: LinkId) -> Option<&mut Session> {
        self.slots.get_mut(link.slot as usize)?.session.as_mut().filter(|s| s.link == link)
    }

    pub(super) fn remove(&mut self, link: LinkId) -> Option<Session> {
        self.get_mut(link)?;
        self.slots[link.slot as usize].session.take()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().filter_map(|slot| slot.session.as_ref())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slots.iter_mut().filter_map(|slot| slot.session.as_mut())
    }

    /// A peer whose records this replica is still taking.
    pub(super) fn ahead_of(&self, tail: Version) -> Option<RequestError> {
        let takes = |s: &&Session| !s.down && !s.is_stopped() && s.evidence.peer_tail > tail;
        self.iter().find(takes).map(|session| RequestError::PeerAhead {
            peer: session.peer.identity.clone(),
            theirs: session.evidence.peer_tail,
            ours: tail,
        })
    }

    pub(super) fn ids(&self) -> Vec<LinkId> {
        self.iter().map(|session| session.link).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialed_by_the_same_side_the_newer_stays() {
        assert_eq!(duplicate("a", "b", true, true), Stays::New);
        assert_eq!(duplicate("a", "b", false, false), Stays::New);
    }

    #[test]
    fn dialed_by_different_sides_the_smaller_identitys_stays() {
        assert_eq!(duplicate("a", "b", true, false), Stays::Old);
        assert_eq!(duplicate("b", "a", true, false), Stays::New);
        assert_eq!(duplicate("a", "b", false, true), Stays::New);
        assert_eq!(duplicate("b", "a", false, true), Stays::Old);
    }

    #[test]
    fn both_sides_agree_which_link_stays() {
        // One link dialed by a, one by b; each side may learn of them in either order.
        for (a_sees_own_first, b_sees_own_first) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let keeps_a_dialed = |ours, theirs, own_first: bool, own_is_a: bool| {
                let stays = duplicate(ours, theirs, own_first, !own_first);
                let kept_is_own = (stays == Stays::Old) == own_first;
                kept_is_own == own_is_a
            };
            let a = keeps_a_dialed("a", "b", a_sees_own_first, true);
            let b = keeps_a_dialed("b", "a", b_sees_own_first, false);
            assert!(a && b, "both keep the one a dialed");
        }
    }
}
