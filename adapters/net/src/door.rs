//! The rules in force, and the links that stand under them.

use crate::access::Rules;
use futures::channel::oneshot;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strandline_core::lifecycle::standing::{Admitted, Revoked};

/// Judges every link by the rules in force: when it is made, and again when the rules are replaced.
#[derive(Clone)]
pub(crate) struct Door(Arc<Mutex<Inside>>);

struct Inside {
    rules: Arc<Rules>,
    /// Dropped with the rules.
    _superseded: oneshot::Sender<Infallible>,
    links: BTreeMap<u64, (Admitted, oneshot::Sender<Revoked>)>,
    next: u64,
}

impl Door {
    pub(crate) fn new((rules, superseded): (Rules, oneshot::Sender<Infallible>)) -> Self {
        let rules = Arc::new(rules);
        let inside = Inside { rules, _superseded: superseded, links: BTreeMap::new(), next: 0 };
        Self(Arc::new(Mutex::new(inside)))
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.lock().rules)
    }

    /// Lets a link stand. The rules may have been replaced since its handshake began, so it is judged.
    pub(crate) fn admit(&self, admitted: Admitted) -> Result<Standing, Revoked> {
        let mut inside = self.lock();
        judge(&inside.rules, &admitted)?;
        let id = inside.next;
        inside.next += 1;
        let (tx, revoked) = oneshot::channel();
        inside.links.insert(id, (admitted, tx));
        drop(inside);
        Ok(Standing { door: self.clone(), id, revoked })
    }

    /// Puts other rules in force, and ends the links that they do not allow: how many.
    pub(crate) fn replace(&self, (rules, superseded): (Rules, oneshot::Sender<Infallible>)) -> usize {
        let mut inside = self.lock();
        inside.rules = Arc::new(rules);
        inside._superseded = superseded;
        let rules = Arc::clone(&inside.rules);
        let mut ended = 0;
        for (id, (admitted, tx)) in std::mem::take(&mut inside.links) {
            match judge(&rules, &admitted) {
                Ok(()) => drop(inside.links.insert(id, (admitted, tx))),
                Err(revoked) => {
                    ended += 1;
                    // One that has just ended hears nothing.
                    drop(tx.send(revoked));
                }
            }
        }
        ended
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn judge(rules: &Rules, admitted: &Admitted) -> Result<(), Revoked> {
    let listed = rules.peers.get(admitted.identity.as_str()).map(|peer| peer.listed());
    admitted.judge(listed.as_ref(), rules.log())
}

/// A link that stands. Dropping it takes it off the door's list.
pub(crate) struct Standing {
    door: Door,
    id: u64,
    /// Why it must end.
    pub(crate) revoked: oneshot::Receiver<Revoked>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.door.lock().links.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::peers::Peer;
    use crate::testing::identity;
    use futures::FutureExt;
    use strandline_core::lifecycle::api::LinkRole;
    use strandline_core::lifecycle::standing::Proof;
    use strandline_core::wire::admission::{Channel, Terms};
    use strandline_core::wire::capability::Capabilities;
    use strandline_core::wire::handshake::token_sha256;

    fn rules(peers: &[(&str, &str)]) -> (Rules, oneshot::Sender<Infallible>) {
        let peer = |(name, token): &(&str, &str)| Peer {
            identity: (*name).into(),
            address: None,
            token: Some((*token).into()),
            role: LinkRole::Both,
            terms: Terms::default(),
        };
        let access = Access { peers: peers.iter().map(peer).collect(), ..Access::default() };
        Rules::new("a", &Capabilities::default(), access).expect("valid")
    }

    fn link(name: &str, token: &str) -> Admitted {
        let proof = Proof::Token(token_sha256(token));
        Admitted { identity: identity(name), proof, channel: Channel::Plain, role: LinkRole::Both }
    }

    #[test]
    fn other_rules_end_the_links_that_they_do_not_allow() {
        let door = Door::new(rules(&[("b", "1"), ("c", "2"), ("d", "3")]));
        let mut links = [("b", "1"), ("c", "2"), ("d", "3")]
            .map(|(name, token)| door.admit(link(name, token)).map_err(|e| e.to_string()).expect("listed"));
        assert_eq!(door.replace(rules(&[("b", "1"), ("c", "9")])), 2);
        let heard = links.each_mut().map(|link| link.revoked.try_recv().expect("not lost"));
        assert_eq!(heard[0], None);
        assert_eq!(heard[1], Some(Revoked::Token { identity: identity("c") }));
        assert_eq!(heard[2], Some(Revoked::Unlisted { identity: identity("d") }));
    }

    #[test]
    fn a_handshake_under_older_rules_makes_no_link() {
        let door = Door::new(rules(&[("b", "1")]));
        let begun = link("b", "1");
        let old = door.rules();
        door.replace(rules(&[]));
        assert!(old.superseded.clone().now_or_never().is_some(), "whoever waits under them is told");
        let revoked = Revoked::Unlisted { identity: identity("b") };
        assert_eq!(door.admit(begun).map(drop), Err(revoked));
    }

    #[test]
    fn a_link_that_ended_is_forgotten() {
        let door = Door::new(rules(&[("b", "1")]));
        drop(door.admit(link("b", "1")));
        assert_eq!(door.replace(rules(&[])), 0);
    }
}
