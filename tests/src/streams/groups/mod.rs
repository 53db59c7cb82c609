//! A simulation of groups and leases: workers with their root machines, a network, and the model in the
//! place of a server, with the faults of one.
//!
//! Faults: an answer lost before or after its effect, an effect that comes after its asker gave up, a
//! server that refuses for a while, a failover to a replica that lags, the loss of everything, of a log,
//! or of a group, steps of the server's clock, workers that are killed, stand still, give back, or forget
//! what they were handed.
//!
//! Held: no event is settled that nobody processed; none is lost without a hole that somebody was told of
//! (except by a failover, which loses what its replica never had, and by the loss of everything, which
//! ends every worker with that word); a fence has one owner, and rises.

mod judge;
mod rng;
mod worker;
mod world;

pub use self::world::Counts;

/// Plays one seed: the faults that were injected, by name.
///
/// # Errors
/// What was broken, and the last things that happened before.
pub fn run(seed: u64) -> Result<Counts, String> {
    world::World::new(seed).run()
}
