//! How the groups of a generation stand: what is pending, who is there, and how far behind they are.

use super::contract::GroupContract;
use super::event::EventId;
use super::name::{ConsumerName, GroupName};
use alloc::vec::Vec;

/// One group as it stands in one step of the server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupState {
    /// Its name.
    pub group: GroupName,
    /// Its contract; `None` where only a cursor is left.
    pub contract: Option<GroupContract>,
    /// Up to where everything is settled.
    pub cursor: Option<EventId>,
    /// Up to where anything was given to anybody; `None` while the group is not on the log: it comes back
    /// with its next consumer.
    pub delivered: Option<EventId>,
    /// How many events were published behind that, kept or not; `None` where nobody counted (after a group
    /// was made amid a log, until it has caught up once), and in the Pulse layout.
    pub lag: Option<u64>,
    /// How many events were given to somebody and are not settled, those that were given back among them.
    pub pending: u64,
    /// The one of them with the lowest position.
    pub oldest: Option<OldestPending>,
    /// The members, by name.
    pub members: Vec<MemberState>,
    /// The number of the last lease of its recovery; zero if there was none.
    pub fence: u64,
    /// How many events are put off to a later instant.
    pub later: u64,
    /// How many holes nobody said were told.
    pub missed: u64,
}

/// An event that is not settled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OldestPending {
    /// Its position.
    pub id: EventId,
    /// Who has it; `None` for one that was given back.
    pub consumer: Option<ConsumerName>,
    /// How long ago it was given out last; since 1970 for one that may be claimed at once.
    pub idle_ms: u64,
    /// How often it was given out.
    pub count: u64,
}

/// A member of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberState {
    /// Who.
    pub consumer: ConsumerName,
    /// For how long it has not said that it lives; `None` where what it said is unreadable.
    pub silent_ms: Option<u64>,
    /// How many events it has not settled.
    pub pending: u64,
}

/// One page of the groups of a generation, by name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Groups {
    /// They.
    pub groups: Vec<GroupState>,
    /// More follow behind the last one.
    pub more: bool,
}

/// Several groups in sum, for metrics: nobody is named.
///
/// ```
/// use strandline_core::stream::listing::{GroupTotals, Groups};
/// let totals = GroupTotals::of(&Groups::default().groups);
/// assert_eq!(totals, GroupTotals::default());
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct GroupTotals {
    /// How many groups.
    pub groups: u64,
    /// Events behind what they were given, of those groups where that is known.
    pub lag: u64,
    /// Groups of which nobody knows how far behind they are.
    pub lag_unknown: u64,
    /// Events that are not settled.
    pub pending: u64,
    /// The longest of the groups: how long ago its pending event with the lowest position was given out last;
    /// zero where nobody has that one. Those behind it may be with a consumer for longer.
    pub oldest_pending_ms: u64,
    /// Events that are put off.
    pub later: u64,
    /// Members.
    pub members: u64,
}

impl GroupTotals {
    /// The sum of these groups.
    #[must_use]
    pub fn of(groups: &[GroupState]) -> Self {
        groups.iter().fold(Self::default(), |totals, group| totals.and(Self::of_one(group)))
    }

    fn of_one(group: &GroupState) -> Self {
        // What was given back says nothing about how slow anybody is.
        let held = group.oldest.as_ref().filter(|oldest| oldest.consumer.is_some());
        Self {
            groups: 1,
            lag: group.lag.unwrap_or(0),
            lag_unknown: u64::from(group.lag.is_none()),
            pending: group.pending,
            oldest_pending_ms: held.map_or(0, |oldest| oldest.idle_ms),
            later: group.later,
            members: group.members.len() as u64,
        }
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        let longest_ms = if self.oldest_pending_ms > other.oldest_pending_ms {
            self.oldest_pending_ms
        } else {
            other.oldest_pending_ms
        };
        Self {
            groups: self.groups.saturating_add(other.groups),
            lag: self.lag.saturating_add(other.lag),
            lag_unknown: self.lag_unknown.saturating_add(other.lag_unknown),
            pending: self.pending.saturating_add(other.pending),
            oldest_pending_ms: longest_ms,
            later: self.later.saturating_add(other.later),
            members: self.members.saturating_add(other.members),
        }
    }
}
