//! How many connections the listener holds open, in all and from one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts open connections.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    open: Arc<Mutex<Open>>,
    all_max: usize,
    one_max: usize,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

/// Why a connection is turned away. A closed set: it becomes a metric label.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Turned {
    #[error("{max} connections are open, which is the limit")]
    All { max: usize },
    #[error("{max} connections from this address are open, which is the limit")]
    Address { max: usize },
}

impl Gate {
    pub(crate) fn new(all_max: usize, one_max: usize) -> Self {
        Self { open: Arc::default(), all_max, one_max }
    }

    /// Lets a connection in until the answer is dropped.
    pub(crate) fn enter(&self, address: IpAddr) -> Result<Entered, Turned> {
        let mut open = lock(&self.open);
        if open.all >= self.all_max {
            return Err(Turned::All { max: self.all_max });
        }
        let from_here = open.by_address.get(&address).copied().unwrap_or(0);
        if from_here >= self.one_max {
            return Err(Turned::Address { max: self.one_max });
        }
        open.by_address.insert(address, from_here + 1);
        open.all += 1;
        drop(open);
        Ok(Entered { open: Arc::clone(&self.open), address })
    }
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct Entered {
    open: Arc<Mutex<Open>>,
    address: IpAddr,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        open.all -= 1;
        if let Some(from_here) = open.by_address.get_mut(&self.address) {
            *from_here -= 1;
            if *from_here == 0 {
                open.by_address.remove(&self.address);
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

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn one_address_cannot_take_every_place() {
        let gate = Gate::new(3, 2);
        let _a = gate.enter(address(1)).expect("first");
        let b = gate.enter(address(1)).expect("second");
        assert_eq!(gate.enter(address(1)).expect_err("third of one"), Turned::Address { max: 2 });
        let _c = gate.enter(address(2)).expect("another address");
        assert_eq!(gate.enter(address(3)).expect_err("fourth of all"), Turned::All { max: 3 });
        drop(b);
        gate.enter(address(1)).expect("a place came back");
    }

    #[test]
    fn an_address_that_left_is_forgotten() {
        let gate = Gate::new(1, 1);
        drop(gate.enter(address(1)).expect("first"));
        assert!(lock(&gate.open).by_address.is_empty());
    }
}
