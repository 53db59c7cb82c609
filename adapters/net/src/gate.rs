//! How many connections the listener holds: those that are not authenticated yet, and links.
//!
//! The two are counted apart, so that a flood of strangers takes no place of a peer. A stranger that
//! comes when its places are taken displaces the oldest one: a peer is done within a few round trips,
//! who waits silently is not.

use futures::channel::oneshot;
use futures::future::{Either, select};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most places of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GateLimits {
    pub(crate) handshakes_max: usize,
    pub(crate) handshakes_per_address_max: usize,
    pub(crate) links_max: usize,
    pub(crate) links_per_address_max: usize,
}

/// Counts open connections.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    open: Arc<Mutex<Open>>,
    limits: GateLimits,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// In the order they came; dropping the sender displaces one.
    handshakes: BTreeMap<u64, (Origin, oneshot::Sender<Infallible>)>,
    links: usize,
    links_by_origin: BTreeMap<Origin, usize>,
}

/// What counts as one address: of IPv6 the network of 64 bits, since whoever has one address has them
/// all.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Origin(IpAddr);

impl Origin {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Self(Ipv6Addr::from(network).into())
            }
        }
    }
}

/// Why an authenticated connection gets no link. A closed set: it becomes a metric label.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Turned {
    #[error("{max} links are open, which is the limit")]
    All { max: usize },
    #[error("{max} links with this address are open, which is the limit")]
    Address { max: usize },
}

impl Gate {
    pub(crate) fn new(limits: GateLimits) -> Self {
        Self { open: Arc::default(), limits }
    }

    /// Takes a connection in, which has until now said nothing. Where its places are taken the oldest
    /// one in the handshake gives way: of its own address if that holds as many as it may, else of the
    /// address that holds the most.
    pub(crate) fn enter(&self, address: IpAddr) -> Handshaking {
        let origin = Origin::of(address);
        let mut open = lock(&self.open);
        if open.handshakes_of(origin) >= self.limits.handshakes_per_address_max.max(1) {
            open.displace(origin);
        } else if open.handshakes.len() >= self.limits.handshakes_max.max(1) {
            let greediest = open.greediest().unwrap_or(origin);
            open.displace(greediest);
        }
        let (tx, displaced) = oneshot::channel();
        let id = open.next;
        open.next += 1;
        open.handshakes.insert(id, (origin, tx));
        drop(open);
        Handshaking { gate: self.clone(), origin, id, displaced }
    }

    /// How many connections are in the handshake, and how many links stand.
    pub(crate) fn open(&self) -> (usize, usize) {
        let open = lock(&self.open);
        (open.handshakes.len(), open.links)
    }
}

impl Open {
    fn handshakes_of(&self, origin: Origin) -> usize {
        self.handshakes.values().filter(|(of, _)| *of == origin).count()
    }

    fn greediest(&self) -> Option<Origin> {
        let mut counts = BTreeMap::new();
        self.handshakes.values().for_each(|(origin, _)| *counts.entry(*origin).or_insert(0_usize) += 1);
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(origin, _)| origin)
    }

    fn displace(&mut self, origin: Origin) {
        let oldest = self.handshakes.iter().find(|(_, (of, _))| *of == origin).map(|(id, _)| *id);
        if let Some(oldest) = oldest {
            self.handshakes.remove(&oldest);
        }
    }
}

/// A connection that is not authenticated. Dropping it gives its place back.
#[derive(Debug)]
pub(crate) struct Handshaking {
    gate: Gate,
    origin: Origin,
    id: u64,
    displaced: oneshot::Receiver<Infallible>,
}

impl Handshaking {
    /// What `work` gives, or `None` if the connection is displaced first; then the work is dropped.
    pub(crate) async fn or<F: Future>(&mut self, work: F) -> Option<F::Output> {
        match select(&mut self.displaced, pin!(work)).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    }

    /// Gives the place for one of a link.
    pub(crate) fn into_link(self) -> Result<Linked, Turned> {
        let Self { gate, origin, .. } = &self;
        let limits = gate.limits;
        let mut open = lock(&gate.open);
        if open.links >= limits.links_max {
            return Err(Turned::All { max: limits.links_max });
        }
        let from_here = open.links_by_origin.get(origin).copied().unwrap_or(0);
        if from_here >= limits.links_per_address_max {
            return Err(Turned::Address { max: limits.links_per_address_max });
        }
        open.links_by_origin.insert(*origin, from_here + 1);
        open.links += 1;
        drop(open);
        Ok(Linked { open: Arc::clone(&gate.open), origin: *origin })
    }
}

impl Drop for Handshaking {
    fn drop(&mut self) {
        lock(&self.gate.open).handshakes.remove(&self.id);
    }
}

/// The place of one link. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Linked {
    open: Arc<Mutex<Open>>,
    origin: Origin,
}

impl Drop for Linked {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        open.links -= 1;
        if let Some(from_here) = open.links_by_origin.get_mut(&self.origin) {
            *from_here -= 1;
            if *from_here == 0 {
                open.links_by_origin.remove(&self.origin);
            }
        }
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::executor::block_on;
    use futures::future::pending;

    const LIMITS: GateLimits = GateLimits {
        handshakes_max: 3,
        handshakes_per_address_max: 2,
        links_max: 3,
        links_per_address_max: 2,
    };

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn is_displaced(one: &mut Handshaking) -> bool {
        one.or(pending::<()>()).now_or_never() == Some(None)
    }

    #[test]
    fn one_address_cannot_take_every_link() {
        let gate = Gate::new(LIMITS);
        let link = |last| gate.enter(address(last)).into_link();
        let _a = link(1).expect("first");
        let b = link(1).expect("second");
        assert_eq!(link(1).expect_err("third of one"), Turned::Address { max: 2 });
        let _c = link(2).expect("another address");
        assert_eq!(link(3).expect_err("fourth of all"), Turned::All { max: 3 });
        drop(b);
        link(1).expect("a place came back");
        assert_eq!(gate.open(), (0, 2));
    }

    #[test]
    fn a_flood_of_one_address_displaces_itself() {
        let gate = Gate::new(LIMITS);
        let mut other = gate.enter(address(2));
        let mut flood: Vec<_> = (0..100).map(|_| gate.enter(address(1))).collect();
        assert_eq!(gate.open(), (3, 0));
        assert!(!is_displaced(&mut other));
        let displaced = flood.iter_mut().map(is_displaced).filter(|gone| *gone).count();
        assert_eq!(displaced, 98, "all but the newest two");
        assert!(!is_displaced(&mut flood[98]) && !is_displaced(&mut flood[99]));
    }

    #[test]
    fn a_full_gate_displaces_the_oldest_of_the_greediest() {
        let gate = Gate::new(LIMITS);
        let mut single = gate.enter(address(2));
        let mut first = gate.enter(address(1));
        let mut second = gate.enter(address(1));
        let mut newcomer = gate.enter(address(3));
        assert!(is_displaced(&mut first));
        assert!(![&mut single, &mut second, &mut newcomer].into_iter().any(is_displaced));
    }

    #[test]
    fn who_is_done_first_is_not_displaced() {
        let gate = Gate::new(LIMITS);
        let mut one = gate.enter(address(1));
        assert_eq!(block_on(one.or(async { 7 })), Some(7));
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address_and_a_mapped_one_as_ipv4() {
        let of = |text: &str| Origin::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn an_address_that_left_is_forgotten() {
        let gate = Gate::new(LIMITS);
        drop(gate.enter(address(1)).into_link().expect("first"));
        drop(gate.enter(address(1)));
        let open = lock(&gate.open);
        assert!(open.links_by_origin.is_empty() && open.handshakes.is_empty());
    }
}
