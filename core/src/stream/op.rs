//! Operations: each is one atomic step on the server's state.

use super::contract::GroupContract;
use super::event::{Event, EventId, Ids, OnceKey};
use super::name::{ConsumerName, GroupName, StreamName};
use super::retention::{Contract, Wanted};
use alloc::string::String;

/// Random number of one incarnation of a stream. With it, generation 1 after a loss of state is not
/// generation 1 before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Nonce(pub [u8; 16]);

/// What a handle is bound to: one generation of a stream, for ever.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bound {
    /// The generation, from 1.
    pub generation: u64,
    /// Its nonce; `None` in the Pulse layout, which has none.
    pub nonce: Option<Nonce>,
    /// Its contract; `None` where the Pulse layout's record held none.
    pub contract: Option<Contract>,
}

/// Who asks: what the handle is bound to, if it is, and what it would make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct By {
    /// The handle's generation; `None` before its first operation.
    pub bound: Option<Bound>,
    /// What the handle asks for.
    pub wanted: Wanted,
    /// The nonce of a generation that this step makes. Fresh for every step.
    pub nonce: Nonce,
    /// The handle was told that its generation ended: it must not bring it back.
    pub ended: bool,
}

/// A condition on publishing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Condition {
    /// Publish; make the stream if need be.
    Always,
    /// Publish only if there is data; make nothing.
    IfExists,
    /// Publish only if the last position given out is this one; make nothing.
    After(EventId),
}

/// A lease as its owner shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Who took it.
    pub owner: String,
    /// Its number: higher for every later owner.
    pub fence: u64,
    /// How long each use renews it.
    pub lease_ms: u64,
}

/// What is asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verb {
    /// Bind to the stream, making it if need be.
    Open,
    /// Bind to the stream as it is; tells the last position given out.
    Attend,
    /// Publish.
    Add {
        /// The event.
        event: Event,
        /// When.
        condition: Condition,
    },
    /// Publish exactly once under a key.
    AddOnce {
        /// The caller's key.
        key: OnceKey,
        /// The event.
        event: Event,
    },
    /// Delete entries.
    Remove {
        /// Which; unknown ones count for nothing.
        ids: Ids,
    },
    /// Everything that is kept, in one step.
    Snapshot,
    /// End the generation with everything it owns.
    Destroy,
    /// Entries after a position, for a reader.
    Read {
        /// After what.
        after: EventId,
        /// At most so many.
        events_max: u32,
    },
    /// Entries after a position that must still be there, within budgets; strict about their shape.
    Replay {
        /// After what; zero for "whatever is there".
        after: EventId,
        /// At most so many.
        events_max: u32,
        /// At most so much: ID, name, payload and topic of each.
        bytes_max: u64,
    },
    /// Make the group, or make it again at its cursor; its contract must be this one.
    GroupOpen {
        /// The group.
        group: GroupName,
        /// Its contract.
        contract: GroupContract,
        /// What the asker knows to be settled, where the server has lost it.
        settled: Option<EventId>,
    },
    /// Entries nobody of the group has been given yet.
    GroupRead {
        /// The group.
        group: GroupName,
        /// Who asks.
        consumer: ConsumerName,
        /// At most so many.
        events_max: u32,
    },
    /// Settle entries; the cursor moves over the settled prefix.
    GroupAck {
        /// The group.
        group: GroupName,
        /// Which entries.
        ids: Ids,
    },
    /// Make a consumer, a member, and its keep-alive, in one step.
    GroupRegister {
        /// The group.
        group: GroupName,
        /// Who.
        consumer: ConsumerName,
    },
    /// Say that a consumer lives.
    GroupKeepAlive {
        /// The group.
        group: GroupName,
        /// Who.
        consumer: ConsumerName,
    },
    /// Take a consumer out; it is deleted only when nothing is pending for it.
    GroupDetach {
        /// The group.
        group: GroupName,
        /// Who.
        consumer: ConsumerName,
        /// Whether what is pending for it is given back first, for anybody to claim at once. Not in the
        /// Pulse layout.
        release: bool,
    },
    /// Give entries back, to be claimed by anybody once a time has passed. Not in the Pulse layout.
    GroupNack {
        /// The group.
        group: GroupName,
        /// Who had them. What is pending for another counts for nothing.
        consumer: ConsumerName,
        /// Which entries.
        ids: Ids,
        /// The time. With too many put off already, the rest stays with the consumer.
        delay_ms: u64,
    },
    /// Move entries to the dead letters, and settle them, in one step. Not in the Pulse layout.
    GroupBury {
        /// The group.
        group: GroupName,
        /// Who had them. What is pending for another counts for nothing.
        consumer: ConsumerName,
        /// Which entries.
        ids: Ids,
    },
    /// Say that somebody was told of a group's holes. Not in the Pulse layout.
    GroupTold {
        /// The group.
        group: GroupName,
        /// All up to this number.
        through: u64,
    },
    /// How the groups stand that come behind a name, in the order of their names.
    Groups {
        /// Behind which; `None` from the first.
        after: Option<GroupName>,
        /// At most so many, and never more than `GROUPS_LISTED_MAX`.
        groups_max: u32,
    },
    /// Dead letters after a position among them. Not in the Pulse layout.
    DeadRead {
        /// After what.
        after: EventId,
        /// At most so many.
        events_max: u32,
    },
    /// Delete dead letters. Not in the Pulse layout.
    DeadRemove {
        /// Their positions among the dead letters.
        ids: Ids,
    },
    /// Take or keep the lease of a group's recovery.
    LeaseAcquire {
        /// The group.
        group: GroupName,
        /// Who.
        owner: String,
        /// For how long.
        lease_ms: u64,
    },
    /// Keep the lease.
    LeaseRenew {
        /// The group.
        group: GroupName,
        /// The lease.
        lease: Lease,
    },
    /// Take over entries that were pending for too long.
    GroupClaim {
        /// The group.
        group: GroupName,
        /// The lease, renewed in the same step.
        lease: Lease,
        /// Who takes them.
        consumer: ConsumerName,
        /// Pending for at least so long.
        idle_ms: u64,
        /// From which position on.
        from: EventId,
        /// At most so many.
        events_max: u32,
    },
    /// Take out members that have been silent for twice the grace.
    GroupSweep {
        /// The group.
        group: GroupName,
        /// The lease, renewed in the same step.
        lease: Lease,
        /// The grace.
        grace_ms: u64,
    },
}

/// What an operation may do about a generation that is not there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Creates {
    /// An unbound handle makes a generation.
    Yes,
    /// It never does.
    No,
}

/// What is checked about the generation, in this order, before an operation looks at its data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Checks {
    /// An unbound handle that may make a generation: its own deadline, before anything else. The
    /// reference's `add_once` looks at the contract first.
    pub wanted_first: bool,
    /// A bound handle's contract is still the generation's.
    pub contract: bool,
    /// The generation's deadline has not elapsed.
    pub clock: bool,
}

/// What may follow an answer that never came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Repeat {
    /// Asking again is safe: the second answer is as good as the first.
    Safe,
    /// Asking again may do it twice, or lose what the first answer held.
    Unsafe,
}

impl Verb {
    /// Whether an unbound handle makes a generation by this.
    #[must_use]
    pub const fn creates(&self) -> Creates {
        match self {
            Self::Open | Self::AddOnce { .. } | Self::GroupOpen { .. } => Creates::Yes,
            Self::Add { condition: Condition::Always, .. } => Creates::Yes,
            Self::Add { condition: Condition::IfExists | Condition::After(_), .. } => Creates::No,
            Self::Attend | Self::Remove { .. } | Self::Snapshot | Self::Destroy => Creates::No,
            Self::Read { .. } | Self::Replay { .. } => Creates::No,
            Self::GroupRead { .. } | Self::GroupAck { .. } | Self::GroupRegister { .. } => Creates::No,
            Self::GroupKeepAlive { .. } | Self::GroupDetach { .. } => Creates::No,
            Self::LeaseAcquire { .. } | Self::LeaseRenew { .. } => Creates::No,
            Self::GroupClaim { .. } | Self::GroupSweep { .. } => Creates::No,
            Self::GroupNack { .. } | Self::GroupBury { .. } => Creates::No,
            Self::DeadRead { .. } | Self::DeadRemove { .. } | Self::GroupTold { .. } => Creates::No,
            Self::Groups { .. } => Creates::No,
        }
    }

    /// Whether, in the Pulse layout, a handle bound to generation 1 brings a lost record back by this:
    /// what makes a generation, and what attends to one, as the reference does.
    #[must_use]
    pub const fn restores(&self) -> bool {
        match self {
            Self::Attend | Self::Read { .. } => true,
            Self::Open | Self::Add { .. } | Self::AddOnce { .. } | Self::GroupOpen { .. } => {
                matches!(self.creates(), Creates::Yes)
            }
            Self::Remove { .. } | Self::Snapshot | Self::Destroy | Self::Replay { .. } => false,
            Self::GroupRead { .. } | Self::GroupAck { .. } | Self::GroupRegister { .. } => false,
            Self::GroupKeepAlive { .. } | Self::GroupDetach { .. } => false,
            Self::LeaseAcquire { .. } | Self::LeaseRenew { .. } => false,
            Self::GroupClaim { .. } | Self::GroupSweep { .. } => false,
            Self::GroupNack { .. } | Self::GroupBury { .. } => false,
            Self::DeadRead { .. } | Self::DeadRemove { .. } | Self::GroupTold { .. } => false,
            Self::Groups { .. } => false,
        }
    }

    /// What is checked about the generation first. A snapshot looks at the clock itself, after its
    /// bound; destroying and removing never do.
    #[must_use]
    pub const fn checks(&self) -> Checks {
        let (wanted_first, contract, clock) = match self {
            Self::AddOnce { .. } => (false, true, true),
            Self::Open | Self::Attend | Self::Add { .. } => (true, true, true),
            Self::Read { .. } | Self::Replay { .. } => (true, true, true),
            Self::Snapshot => (true, true, false),
            Self::Remove { .. } | Self::Destroy => (true, false, false),
            Self::GroupOpen { .. } | Self::GroupRead { .. } | Self::GroupAck { .. } => (true, false, true),
            Self::GroupRegister { .. } | Self::GroupKeepAlive { .. } => (true, false, true),
            Self::GroupDetach { .. } | Self::LeaseAcquire { .. } => (true, false, true),
            Self::LeaseRenew { .. } | Self::GroupClaim { .. } | Self::GroupSweep { .. } => {
                (true, false, true)
            }
            Self::GroupNack { .. } | Self::GroupBury { .. } => (true, false, true),
            Self::DeadRead { .. } | Self::DeadRemove { .. } | Self::GroupTold { .. } => (true, false, true),
            Self::Groups { .. } => (true, false, true),
        };
        Checks { wanted_first, contract, clock }
    }

    /// Whether it may be asked again after an unknown outcome.
    #[must_use]
    pub const fn repeat(&self) -> Repeat {
        match self {
            Self::Open | Self::Attend | Self::Snapshot | Self::Read { .. } | Self::Replay { .. } => {
                Repeat::Safe
            }
            // The record of the first time answers the second.
            Self::AddOnce { .. } => Repeat::Safe,
            // A second copy.
            Self::Add { condition: Condition::Always | Condition::IfExists, .. } => Repeat::Unsafe,
            // The first time moved the last position, so the second is refused: nobody can tell by whom.
            Self::Add { condition: Condition::After(_), .. } => Repeat::Unsafe,
            // The count of the second time is lower, the state the same.
            Self::Remove { .. } | Self::GroupAck { .. } => Repeat::Safe,
            // A bound handle; an unbound one would be told of a generation that it did not end.
            Self::Destroy => Repeat::Safe,
            Self::GroupOpen { .. } | Self::GroupRegister { .. } | Self::GroupKeepAlive { .. } => Repeat::Safe,
            Self::GroupDetach { .. } | Self::LeaseAcquire { .. } | Self::LeaseRenew { .. } => Repeat::Safe,
            // Entries given out by an answer that never came are pending: they come back by a claim.
            Self::GroupRead { .. } => Repeat::Safe,
            Self::GroupClaim { .. } | Self::GroupSweep { .. } => Repeat::Safe,
            // What the first time gave back or buried is no longer the consumer's.
            Self::GroupNack { .. } | Self::GroupBury { .. } => Repeat::Safe,
            Self::DeadRead { .. } | Self::DeadRemove { .. } | Self::GroupTold { .. } => Repeat::Safe,
            Self::Groups { .. } => Repeat::Safe,
        }
    }

    /// Whether its answer hands out something that a failover may take back: positions, entries, or that
    /// there are none. What only keeps a group going is asked again anyhow.
    #[must_use]
    pub const fn hands_out(&self) -> bool {
        match self {
            Self::Open | Self::Attend | Self::Add { .. } | Self::AddOnce { .. } | Self::Remove { .. } => true,
            Self::Snapshot | Self::Destroy | Self::Read { .. } | Self::Replay { .. } => true,
            Self::GroupRead { .. } | Self::GroupClaim { .. } | Self::DeadRead { .. } => true,
            Self::GroupOpen { .. } | Self::GroupAck { .. } | Self::GroupRegister { .. } => false,
            Self::GroupKeepAlive { .. } | Self::GroupDetach { .. } | Self::GroupSweep { .. } => false,
            Self::LeaseAcquire { .. } | Self::LeaseRenew { .. } | Self::GroupTold { .. } => false,
            Self::GroupNack { .. } | Self::GroupBury { .. } | Self::DeadRemove { .. } => false,
            Self::Groups { .. } => false,
        }
    }

    /// Whether the Pulse layout refuses it: it has no place for what this writes.
    #[must_use]
    pub const fn is_tagged_only(&self) -> bool {
        match self {
            Self::GroupNack { .. } | Self::GroupBury { .. } => true,
            Self::DeadRead { .. } | Self::DeadRemove { .. } | Self::GroupTold { .. } => true,
            Self::GroupDetach { release, .. } => *release,
            Self::Open | Self::Attend | Self::Add { .. } | Self::AddOnce { .. } | Self::Remove { .. } => {
                false
            }
            Self::Snapshot
            | Self::Destroy
            | Self::Read { .. }
            | Self::Replay { .. }
            | Self::Groups { .. } => false,
            Self::GroupOpen { .. } | Self::GroupRead { .. } | Self::GroupAck { .. } => false,
            Self::GroupRegister { .. } | Self::GroupKeepAlive { .. } => false,
            Self::LeaseAcquire { .. } | Self::LeaseRenew { .. } => false,
            Self::GroupClaim { .. } | Self::GroupSweep { .. } => false,
        }
    }
}

/// One step: on which stream, for whom, what.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamOp {
    /// The stream.
    pub stream: StreamName,
    /// Who asks.
    pub by: By,
    /// What.
    pub verb: Verb,
}

impl StreamOp {
    /// Whether it asks the same kind of thing of the same stream.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let kind = core::mem::discriminant::<Verb>;
        self.stream == other.stream && kind(&self.verb) == kind(&other.verb)
    }
}
