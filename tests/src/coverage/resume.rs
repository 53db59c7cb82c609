//! A client that comes back, as the scenarios ask for it.

use super::host::at_ms;
use super::judge::{Answer, Resumed};
use super::play::step;
use super::scenario::Step;
use super::world::{Sub, World, name};
use strandline_core::coverage::{
    Claim, CursorSet, From, How, Item, Position, Reason, Subscribe, SubscribeError,
};
use strandline_core::verdict::Verdict;

/// The name of a subscriber that exists only while a resume is looked at.
pub const PASSING: &str = " passing";

/// A wish to resume.
pub struct Wish<'a> {
    /// At which instance.
    pub instance: &'a str,
    /// Of which topic.
    pub topic: &'a str,
    /// The cursor as the scenario numbers it; zero asks for all that is held.
    pub cursor: u64,
    /// Where to begin.
    pub from: From,
    /// The cursor is of another ID space than that of now.
    pub foreign: bool,
    /// Who resumes.
    pub sub: Option<&'a str>,
    /// What happens meanwhile.
    pub during: Vec<Step>,
}

/// The claim of a step's `cursor` and `space`.
///
/// # Errors
/// If the space has another form than `s0`, `s1`, ….
pub fn from_of(world: &World, topic: &str, cursor: u64, space: Option<&str>) -> Result<(From, bool), String> {
    if cursor == 0 {
        return Ok((From::Earliest, false));
    }
    let now = world.spaces.len();
    let number = match space {
        None => now,
        Some(text) => text
            .strip_prefix('s')
            .and_then(|n| n.parse::<usize>().ok())
            .ok_or_else(|| format!("space {text:?} has another form than s1"))?,
    };
    let empty = super::world::Space::default();
    let space = match number.checked_sub(1) {
        Some(index) => world.spaces.get(index).ok_or_else(|| format!("space s{number} did not begin"))?,
        None => &empty,
    };
    // A topic of which nothing was ever published here has no space that a cursor could be of.
    let unknown = space.positions.is_empty() || world.hosts.values().all(|h| h.hub.topic(topic).is_none());
    Ok((From::After(world.claim(cursor, space)), number != now || unknown))
}

/// Resumes, plays what happens meanwhile, and lets the settle time pass if there is no answer yet.
///
/// # Errors
/// If a step within has another form.
pub fn resume(world: &mut World, wish: Wish<'_>) -> Result<Resumed, String> {
    let sub = wish.sub.unwrap_or(PASSING);
    let now = at_ms(world.ms);
    let topic = name(wish.topic);
    let result = world.host(wish.instance).hub.handle_subscribe(now, &topic, Subscribe::new(wish.from));
    let refused = |answer| Resumed {
        answer,
        waited: false,
        channel_closed: true,
        foreign: wish.foreign,
        cursor: wish.cursor,
    };
    let id = match result {
        Ok(id) => id,
        Err(SubscribeError::Closed) => {
            return Ok(refused(Answer::SyncRequired { reason: Reason::Closed, at: None }));
        }
        Err(other) => return Err(format!("the resume was not taken: {other}")),
    };
    let new = Sub { instance: wish.instance.into(), id: Some(id), items: Vec::new(), closed: false };
    world.subs.insert(sub.into(), vec![new]);
    world.pump();
    world.collect(sub);
    let waited = nothing(world, sub);
    let began = world.ms;
    for within in &wish.during {
        if let Some(after_ms) = within.args.number("after_ms") {
            world.advance((began + after_ms).saturating_sub(world.ms));
        }
        step(world, within)?;
        world.collect(sub);
    }
    if nothing(world, sub) {
        world.advance((began + world.setup.settle_ms + 1).saturating_sub(world.ms));
        world.collect(sub);
    }
    let answer = answer(world, sub)?;
    Ok(Resumed { answer, waited, channel_closed: false, foreign: wish.foreign, cursor: wish.cursor })
}

fn nothing(world: &World, sub: &str) -> bool {
    world.subs.get(sub).is_none_or(|subs| subs[0].items.is_empty())
}

/// Takes the answer out of what the stream has given so far; live events stay for later.
fn answer(world: &mut World, sub: &str) -> Result<Answer, String> {
    let items = std::mem::take(&mut world.subs.get_mut(sub).ok_or("nobody resumed")?[0].items);
    let mut rest = items.into_iter().peekable();
    let answer = match rest.next() {
        Some(Item::Opened(opened)) => {
            let mut numbers = Vec::new();
            while let Some(item) = rest.peek() {
                match item {
                    Item::Event { entry, how: How::Replayed } => numbers.extend(world.number(entry.mark)),
                    // A hole in what is held, told in its place to one who asked for all there is.
                    Item::SyncRequired { .. } if !opened.resumed => {}
                    Item::SyncRequired { .. }
                    | Item::Event { .. }
                    | Item::Opened(_)
                    | Item::Gap { .. }
                    | Item::Stale { .. }
                    | Item::Closed => break,
                }
                rest.next();
            }
            Answer::Replay { numbers, through: opened.through }
        }
        Some(Item::Stale { reason }) => {
            let at = match rest.peek() {
                Some(Item::SyncRequired { at, .. }) => Some(*at),
                _ => None,
            };
            if at.is_some() {
                rest.next();
            }
            Answer::SyncRequired { reason, at }
        }
        Some(Item::SyncRequired { reason, at }) => Answer::SyncRequired { reason, at: Some(at) },
        other => return Err(format!("expected an answer first, found {other:?}")),
    };
    world.subs.get_mut(sub).expect("looked at above")[0].items = rest.collect();
    Ok(answer)
}

/// Whether the stream of a resume tells of a loss within three heartbeats.
pub fn told_later(world: &mut World, sub: &str) -> bool {
    let heartbeat_ms = strandline_core::coverage::HubTimes::default().heartbeat_ms;
    world.advance(3 * heartbeat_ms);
    world.collect(sub);
    let items = world.subs.get(sub).map(|subs| subs[0].items.as_slice()).unwrap_or_default();
    items.iter().any(|item| matches!(item, Item::Stale { .. } | Item::SyncRequired { .. }))
}

/// Ends the subscriber of a resume that nobody kept.
pub fn pass(world: &mut World) {
    let before: u64 = exits(world);
    let now = at_ms(world.ms);
    for sub in world.subs.remove(PASSING).into_iter().flatten() {
        if let (Some(id), Some(host)) = (sub.id, world.hosts.get_mut(&sub.instance)) {
            host.hub.handle_unsubscribe(now, id);
        }
    }
    world.pump();
    world.passing_exits += exits(world) - before;
}

fn exits(world: &World) -> u64 {
    world.hosts.values().flat_map(|h| h.hub.counters().ended.values()).sum()
}

/// The bare query of a hub that takes no subscribers any more: what it holds is all there will be.
pub fn after_close(world: &World, wish: &Wish<'_>) -> Resumed {
    let hub = &world.hosts[wish.instance].hub;
    let through = hub
        .topic(wish.topic)
        .and_then(|t| t.coverage)
        .map(|c| strandline_core::coverage::Mark { incarnation: c.incarnation, position: c.head });
    let after = match wish.from {
        From::After(claim) => match (hub.peek(wish.topic, claim), claim) {
            (Verdict::Complete { .. }, Claim::Cursor(mark)) => Ok(mark.position),
            (Verdict::Complete { .. }, Claim::Legacy(position)) => Ok(position),
            (Verdict::Complete { .. }, Claim::Unreadable) => Err(Reason::Unreadable),
            (Verdict::Gap { reason, .. } | Verdict::Unknown { reason }, _) => Err(reason),
            (Verdict::Diverged(never), _) => match never {},
        },
        From::Now | From::Earliest | From::Since(_) | From::Last => Ok(Position::ZERO),
    };
    let answer = match after {
        Err(reason) => Answer::SyncRequired { reason, at: through },
        Ok(after) => {
            let later = hub.held(wish.topic).filter(|entry| entry.mark.position > after);
            Answer::Replay { numbers: later.filter_map(|e| world.number(e.mark)).collect(), through }
        }
    };
    Resumed { answer, waited: false, channel_closed: false, foreign: wish.foreign, cursor: wish.cursor }
}

/// What an HTTP request with this header asks for; `None` for a fresh client.
pub fn from_header(world: &World, topic: &str, header: Option<&str>) -> Option<(From, u64)> {
    let codec = world.hosts[super::world::INSTANCE].hub.codec().clone();
    let claim = CursorSet::read(&codec, &[topic], header).claim(0)?;
    Some(match claim {
        Claim::Legacy(position) => {
            let number = position.as_sequence().expect("63 bits");
            let position = Position::sequence(world.position(number, world.space()));
            (From::After(Claim::Legacy(position)), number)
        }
        Claim::Cursor(_) | Claim::Unreadable => (From::After(claim), u64::MAX),
    })
}
