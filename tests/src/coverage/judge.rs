//! Compares what a hub answered with what a scenario expects.

use super::world::World;
use serde_json::{Map, Value};
use strandline_core::coverage::{How, Item, Mark, Position, Reason};

/// What a resume was answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A stream without a cursor.
    Fresh,
    /// The replayed numbers; none means caught up. `through` is what is vouched for.
    Replay {
        /// The numbers.
        numbers: Vec<u64>,
        /// Up to here.
        through: Option<Mark>,
    },
    /// The client must synchronise.
    SyncRequired {
        /// Why.
        reason: Reason,
        /// What replaces its cursor.
        at: Option<Mark>,
    },
}

/// A resume, observed.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// The answer.
    pub answer: Answer,
    /// It had to be waited for.
    pub waited: bool,
    /// There is no stream.
    pub channel_closed: bool,
    /// The cursor's ID space is not the one of now.
    pub foreign: bool,
    /// The cursor, as a number.
    pub cursor: u64,
}

/// Which of our reasons says what a reference's label says. Ours knows more: the position script tells
/// where coverage starts, and a cursor tells its ID space.
#[must_use]
pub fn reason_fits(label: &str, reason: Reason, foreign: bool) -> bool {
    if foreign && reason == Reason::OtherIncarnation {
        return label != "unreadable_cursor" && label != "closed";
    }
    let ours: &[Reason] = match label {
        "no_coverage" => {
            &[Reason::NoCoverage, Reason::StartsAfterCursor, Reason::Behind, Reason::AheadOfHead]
        }
        "starts_after_cursor" => &[Reason::StartsAfterCursor, Reason::Behind],
        "evicted" => &[Reason::Evicted],
        "ahead_of_newest" => &[Reason::AheadOfHead],
        "authority_disagrees" => &[Reason::Behind, Reason::StartsAfterCursor, Reason::Missed],
        "missing_events" => &[
            Reason::StartsAfterCursor,
            Reason::Behind,
            Reason::Missed,
            Reason::NoCoverage,
            Reason::Disconnected,
        ],
        "unreadable_cursor" => &[Reason::Unreadable],
        "closed" => &[Reason::Closed],
        _ => &[],
    };
    ours.contains(&reason)
}

/// Whether a resume is what `expect` says. `told` is whether the stream told of a loss within three
/// heartbeats after the answer.
///
/// # Errors
/// Saying what differs.
pub fn resume_is(
    world: &World,
    resumed: &Resumed,
    expect: &Map<String, Value>,
    told: Option<bool>,
) -> Result<(), String> {
    let wanted = expect.get("answer").and_then(Value::as_str).ok_or("expected \"answer\"")?;
    match (wanted, &resumed.answer) {
        ("fresh", Answer::Fresh) => Ok(()),
        ("caught_up", Answer::Replay { numbers, through }) => replays(world, resumed, numbers, *through, &[]),
        ("replay", Answer::Replay { numbers, through }) => {
            replays(world, resumed, numbers, *through, &numbers_of(expect.get("ids")))
        }
        ("sync_required", Answer::SyncRequired { reason, at }) => {
            let label = expect.get("reason").and_then(Value::as_str).unwrap_or("");
            if !reason_fits(label, *reason, resumed.foreign) {
                return Err(format!("expected the reason {label:?}, found {reason:?}"));
            }
            let clears = expect.get("clears_cursor").and_then(Value::as_bool).unwrap_or(false);
            if clears && at.is_none() {
                return Err("expected a cursor that replaces the client's, found none".into());
            }
            Ok(())
        }
        // Up to `through` nothing is missing; what was lost above it was told in time.
        ("sync_required", Answer::Replay { numbers, through }) if told == Some(true) => {
            match lost(world, resumed, numbers, *through) {
                (0, above) if above > 0 => Ok(()),
                (below, above) => Err(format!("answered {numbers:?}: {below} missing below, {above} above")),
            }
        }
        (wanted, answer) => Err(format!("expected {wanted:?}, found {answer:?}")),
    }?;
    let closed = expect.get("channel").and_then(Value::as_str) == Some("closed");
    if closed != resumed.channel_closed {
        return Err(format!("expected the channel closed: {closed}, found {}", resumed.channel_closed));
    }
    // Waiting where the reference waits is never needed for a right answer; waiting where it does not is.
    if resumed.waited && expect.get("waited").and_then(Value::as_bool) == Some(false) {
        return Err("expected an answer without waiting".into());
    }
    Ok(())
}

/// How many published events are neither replayed nor known to the client: up to `through`, and above.
fn lost(world: &World, resumed: &Resumed, numbers: &[u64], through: Option<Mark>) -> (usize, usize) {
    let Some(through) = through else { return (0, 0) };
    let Some(space) = world.spaces.iter().find(|s| s.incarnation == Some(through.incarnation)) else {
        return (0, 0);
    };
    let missing = space.positions.iter().filter(|(n, _)| **n > resumed.cursor && !numbers.contains(n));
    let (below, above): (Vec<u64>, Vec<u64>) = missing
        .map(|(_, position)| *position)
        .partition(|position| Position::sequence(*position) <= through.position);
    (below.len(), above.len())
}

/// Whether exactly these are replayed; events that were on their way may follow live instead.
fn replays(
    world: &World,
    resumed: &Resumed,
    numbers: &[u64],
    through: Option<Mark>,
    wanted: &[u64],
) -> Result<(), String> {
    if numbers == wanted {
        return Ok(());
    }
    let follows = |number: &u64| {
        let position = world.space().positions.get(number).copied();
        through.is_some_and(|t| position.is_some_and(|p| Position::sequence(p) > t.position))
    };
    let live = wanted.strip_prefix(numbers).filter(|rest| !numbers.is_empty() && rest.iter().all(follows));
    match live {
        Some(_) => Ok(()),
        None => Err(format!("expected the replay {wanted:?} after {}, found {numbers:?}", resumed.cursor)),
    }
}

/// What a subscriber was given, sorted.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Live events.
    pub live: Vec<u64>,
    /// Events that came after a gap was told.
    pub backfilled: Vec<u64>,
    /// What it was told.
    pub notices: Vec<Item>,
}

impl Received {
    /// Sorts items.
    #[must_use]
    pub fn of(world: &World, items: &[Item]) -> Self {
        let mut out = Self::default();
        for item in items {
            match item {
                Item::Event { entry, how: How::Live | How::Replayed } => {
                    out.live.extend(world.number(entry.mark));
                }
                Item::Event { entry, how: How::Backfilled } => {
                    out.backfilled.extend(world.number(entry.mark))
                }
                Item::Gap { .. } | Item::Stale { .. } | Item::SyncRequired { .. } => {
                    out.notices.push(item.clone());
                }
                Item::Opened(_) | Item::Closed => {}
            }
        }
        out
    }

    /// Whether the stream told of the loss of this event.
    #[must_use]
    pub fn told_of(&self, world: &World, number: u64) -> bool {
        let mark = world.spaces.iter().rev().find_map(|space| {
            let position = Position::sequence(*space.positions.get(&number)?);
            Some(Mark { incarnation: space.incarnation?, position })
        });
        self.notices.iter().any(|notice| match notice {
            Item::Gap { after, through } => {
                mark.is_some_and(|m| *after < m.position && m.position <= *through)
            }
            Item::Stale { .. } => true,
            Item::SyncRequired { at, .. } => {
                mark.is_none_or(|m| m.incarnation != at.incarnation || m.position <= at.position)
            }
            Item::Opened(_) | Item::Event { .. } | Item::Closed => false,
        })
    }

    /// Whether this is what `expect` says.
    ///
    /// # Errors
    /// Saying what differs.
    pub fn is(&self, expect: &Map<String, Value>, closed: bool) -> Result<(), String> {
        if let Some(count) = expect.get("count").and_then(Value::as_u64) {
            let wanted = [expect.get("first"), expect.get("last")].map(|v| v.and_then(Value::as_u64));
            let found = [self.live.first().copied(), self.live.last().copied()];
            if self.live.len() as u64 != count || wanted != found {
                return Err(format!("expected {count} from {wanted:?}, found {} {found:?}", self.live.len()));
            }
        } else if let Some(ids) = expect.get("ids") {
            let wanted = numbers_of(Some(ids));
            if wanted != self.live {
                return Err(format!("expected {wanted:?}, found {:?}", self.live));
            }
        }
        let wanted = expect.get("closed").and_then(Value::as_bool).unwrap_or(false);
        if wanted != closed {
            return Err(format!("expected the stream closed: {wanted}, found {closed}"));
        }
        Ok(())
    }
}

/// A list of numbers; `"..."` between two stands for all between them.
#[must_use]
pub fn numbers_of(list: Option<&Value>) -> Vec<u64> {
    let mut out: Vec<u64> = Vec::new();
    let mut fill = false;
    for value in list.and_then(Value::as_array).into_iter().flatten() {
        match value.as_u64() {
            Some(number) if fill => {
                let from = out.last().map_or(number, |last| last + 1);
                out.extend(from..=number);
                fill = false;
            }
            Some(number) => out.push(number),
            None => fill = true,
        }
    }
    out
}
