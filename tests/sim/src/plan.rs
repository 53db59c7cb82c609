//! What happens in a run: an ordered list of operations, each with a seed of its own, so that a
//! failing run can be cut down by leaving some out.

use crate::fault::Fault;
use crate::rng::{Choose, Rng};

/// What an operation does to its node, or to a link of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Puts a small blob under a key.
    Put,
    /// Puts one that needs pieces.
    PutLarge,
    /// Deletes a key.
    Delete,
    /// Several changes as one.
    Batch,
    /// A change under a condition that may hold.
    Conditional,
    /// Compacts.
    Compact,
    /// Collects blobs that nothing needs.
    Collect,
    /// Looks for damage in the blobs.
    Scrub,
    /// Changes the members.
    Members,
    /// Connects with another node.
    Connect,
    /// Starts the node, if it is down.
    Start,
    /// Keeps a copy of the node.
    Backup,
    /// Looks at everything the node shows.
    Look,
    /// Faults that were armed do not come any more.
    Heal,
    /// Injects a fault.
    Inject(Fault),
}

/// One operation, and how long the world goes on after it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Op {
    /// What.
    pub kind: Kind,
    /// On which node.
    pub node: usize,
    /// Decides everything that is left open, and what happens in the ticks after it.
    pub seed: u64,
    /// Ticks of the world after it.
    pub ticks: u32,
}

/// Sizes of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Profile {
    /// Nodes; the first one writes.
    pub nodes: usize,
    /// Limits near their least.
    pub tiny: bool,
    /// Blobs that need pieces.
    pub large_blobs: bool,
    /// Distinct keys.
    pub keys: u64,
    /// Bytes that wait on a link before it takes no more.
    pub window: usize,
    /// Some commands are answered at once.
    pub instant: bool,
    /// Retained journal of the writer, in bytes.
    pub journal_bytes_max: u64,
    /// Members this many bytes behind lapse.
    pub member_lag_bytes_max: Option<u64>,
    /// Compaction by policy, in records above the floor.
    pub compact_after_entries: Option<u64>,
}

/// A run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Its seed.
    pub seed: u64,
    /// Its sizes.
    pub profile: Profile,
    /// What happens.
    pub ops: Vec<Op>,
}

/// How often faults come, beside work of weight 100.
fn weight(fault: Fault) -> u64 {
    match fault {
        // These happen by themselves.
        Fault::UnsyncedLost
        | Fault::UnsyncedReordered
        | Fault::TornWrite
        | Fault::ZeroTail
        | Fault::LostRename
        | Fault::LostEntry
        | Fault::InstantCompletion
        | Fault::OutOfOrder
        | Fault::BlobLost
        | Fault::Reorder
        | Fault::Split
        | Fault::CrashInRecovery
        | Fault::RecoverInPlace
        | Fault::RemovedMember
        | Fault::LapsedMember => 0,
        Fault::RestoredBackup
        | Fault::Restore
        | Fault::Reseed
        | Fault::WipedDisk
        | Fault::LostAuthority
        | Fault::TwoNames
        | Fault::TwoWriters
        | Fault::MovedAuthority => 1,
        Fault::WrongEpoch | Fault::BitFlip | Fault::MisdirectedWrite | Fault::StaleSector => 2,
        Fault::FailedSync
        | Fault::ShortWrite
        | Fault::FailedWrite
        | Fault::FullDisk
        | Fault::FailedRead
        | Fault::BlobFailed
        | Fault::BlobRotten
        | Fault::Evicted
        | Fault::StaleCompletion
        | Fault::SlowCompletion
        | Fault::Delay
        | Fault::OneWayCut
        | Fault::HalfOpen
        | Fault::DuplicateLink
        | Fault::HostileBytes
        | Fault::ClockJump
        | Fault::ClockStall
        | Fault::ClockBackwards
        | Fault::Close
        | Fault::SecondOpener
        | Fault::WrongMembers => 3,
        Fault::LinkBreak | Fault::Kill => 5,
        Fault::PowerCut => 8,
    }
}

impl Plan {
    /// The run of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0053_7472_616E_646C);
        let tiny = rng.once_in(2);
        let profile = Profile {
            nodes: 2 + rng.index(3),
            tiny,
            large_blobs: rng.once_in(12),
            keys: 3 + rng.below(if tiny { 12 } else { 60 }),
            window: 1 << (8 + rng.index(10)),
            instant: rng.once_in(2),
            journal_bytes_max: if rng.once_in(4) { 24 << 10 } else { 1 << 30 },
            member_lag_bytes_max: rng.once_in(6).then(|| 1_000 + rng.below(8_000)),
            compact_after_entries: rng.once_in(4).then(|| 5 + rng.below(40)),
        };
        let table = table(&mut rng, profile);
        let total: u64 = table.iter().map(|(_, weight)| weight).sum();
        let ops = (0..90 + rng.below(60)).map(|_| {
            let mut pick = rng.below(total);
            let kind = table.iter().find(|(_, weight)| {
                let here = pick < *weight;
                pick = pick.saturating_sub(*weight);
                here
            });
            let kind = kind.map_or(Kind::Put, |(kind, _)| *kind);
            let writer = matches!(
                kind,
                Kind::Put | Kind::PutLarge | Kind::Delete | Kind::Batch | Kind::Conditional | Kind::Members
            );
            let node = if writer { 0 } else { rng.index(profile.nodes) };
            let seed = rng.next();
            // Often much happens at once, sometimes nothing is left to do.
            let ticks = if rng.once_in(8) { rng.below(300) } else { 10 + rng.below(50) };
            Op { kind, node, seed, ticks: u32::try_from(ticks).expect("small") }
        });
        let ops = ops.collect();
        Self { seed, profile, ops }
    }

    /// The same run with these operations only.
    #[must_use]
    pub fn keep(&self, kept: &[usize]) -> Self {
        let ops = kept.iter().filter_map(|at| self.ops.get(*at)).copied().collect();
        Self { ops, ..self.clone() }
    }
}

/// Which operations this run has, and how often. Every run leaves some faults out, so that others
/// meet longer stretches of work.
fn table(rng: &mut Rng, profile: Profile) -> Vec<(Kind, u64)> {
    let mut table = vec![
        (Kind::Put, 30),
        (Kind::PutLarge, if profile.large_blobs { 4 } else { 0 }),
        (Kind::Delete, 12),
        (Kind::Batch, 10),
        (Kind::Conditional, 6),
        (Kind::Compact, 8),
        (Kind::Collect, 5),
        (Kind::Scrub, 3),
        (Kind::Members, 6),
        (Kind::Connect, 20),
        (Kind::Start, 12),
        (Kind::Backup, 2),
        (Kind::Look, 3),
        (Kind::Heal, 4),
    ];
    let calm = rng.once_in(10);
    for fault in Fault::ALL {
        if !calm && rng.once_in(2) {
            table.push((Kind::Inject(*fault), weight(*fault)));
        }
    }
    table.retain(|(_, weight)| *weight > 0);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_plan() {
        assert_eq!(Plan::of(7), Plan::of(7));
        assert_ne!(Plan::of(7), Plan::of(8));
    }
}
