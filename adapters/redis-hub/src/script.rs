//! The two scripts: what they are given, and what their answers say.

use crate::names::HubNames;
use crate::wire::number;
use redis::{Script, ScriptInvocation, Value};
use strandline_core::coverage::{Accepted, Mark, Minted, Position, Standing, TopicName};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::{Incarnation, hex};
use strandline_core::time::WallTime;

const STANDING: &str = include_str!("lua/standing.lua");
const POSITION: &str = include_str!("lua/position.lua");
const PUBLISH: &str = include_str!("lua/publish.lua");

/// What both scripts are given.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The topic.
    pub topic: &'a TopicName,
    /// The highest position seen.
    pub seen: Option<Mark>,
    /// For the incarnation that the script may make.
    pub nonce: [u8; 8],
}

/// What the publish script is given beside.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    /// Of this publish.
    pub token: &'a str,
    /// When it happened.
    pub at: WallTime,
    /// Its kind.
    pub kind: &'a str,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// The scripts of one installation.
#[derive(Clone, Debug)]
pub struct HubScripts {
    names: HubNames,
    topic_state_ms: u64,
    token_ms: u64,
    position: Script,
    publish: Script,
}

impl HubScripts {
    /// With the lifetimes of a topic's state since its last use, and of a publish token.
    #[must_use]
    pub fn new(names: HubNames, topic_state_ms: u64, token_ms: u64) -> Self {
        let with_standing = |script: &str| Script::new(&format!("{STANDING}{script}"));
        let (position, publish) = (with_standing(POSITION), with_standing(PUBLISH));
        Self { names, topic_state_ms, token_ms, position, publish }
    }

    /// The names they use.
    #[must_use]
    pub const fn names(&self) -> &HubNames {
        &self.names
    }

    /// The position script, ready to run.
    #[must_use]
    pub fn position(&self, asked: Asked<'_>) -> ScriptInvocation<'_> {
        let mut run = self.position.prepare_invoke();
        run.key(self.names.state(asked.topic)).arg(self.names.channel(asked.topic));
        self.standing(&mut run, asked);
        run
    }

    /// The publish script, ready to run.
    #[must_use]
    pub fn publish(&self, asked: Asked<'_>, offer: Offer<'_>) -> ScriptInvocation<'_> {
        let mut run = self.publish.prepare_invoke();
        run.key(self.names.state(asked.topic))
            .key(self.names.token(asked.topic, offer.token))
            .arg(self.names.channel(asked.topic));
        self.standing(&mut run, asked);
        run.arg(self.token_ms).arg(offer.at.0).arg(offer.kind).arg(offer.payload);
        run
    }

    fn standing(&self, run: &mut ScriptInvocation<'_>, asked: Asked<'_>) {
        let (incarnation, sequence) = match asked.seen {
            None => (String::new(), 0),
            Some(seen) => (seen.incarnation.to_string(), seen.position.as_sequence().unwrap_or(u64::MAX)),
        };
        run.arg(hex(&asked.nonce)).arg(incarnation).arg(sequence).arg(self.topic_state_ms);
    }
}

/// What the position script answered.
pub(crate) fn standing(value: &Value) -> Result<Standing, StorageFault> {
    match words(value)?.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["unreadable"] => Ok(Standing::Unreadable),
        ["at", incarnation, sequence] => {
            let mark = mark(incarnation, sequence)?;
            Ok(Standing::At { incarnation: mark.incarnation, minted: mark.position })
        }
        ref other => Err(strange(format!("expected a position, found {other:?}"))),
    }
}

/// What the publish script answered.
pub(crate) fn minted(value: &Value) -> Result<Minted, StorageFault> {
    match words(value)?.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["unreadable"] => Ok(Minted::NoSequence),
        [how @ ("accepted" | "repeated"), incarnation, sequence] => {
            let mark = mark(incarnation, sequence)?;
            Ok(Minted::Accepted(Accepted { mark, repeated: how == "repeated" }))
        }
        ref other => Err(strange(format!("expected an accepted publish, found {other:?}"))),
    }
}

fn mark(incarnation: &str, sequence: &str) -> Result<Mark, StorageFault> {
    let mark = Incarnation::parse(incarnation).zip(number(sequence));
    let (incarnation, sequence) =
        mark.ok_or_else(|| strange(format!("expected a mark, found {incarnation:?} {sequence:?}")))?;
    Ok(Mark { incarnation, position: Position::sequence(sequence) })
}

fn words(value: &Value) -> Result<Vec<String>, StorageFault> {
    redis::from_redis_value_ref(value).map_err(|e| strange(format!("expected words, found {e}")))
}

pub(crate) fn strange(detail: String) -> StorageFault {
    fault(StorageCause::Damaged, detail)
}

pub(crate) fn fault(cause: StorageCause, detail: String) -> StorageFault {
    StorageFault { action: StorageAction::Write, file: "redis".into(), offset: None, cause, detail }
}

pub(crate) fn failed(error: &redis::RedisError) -> StorageFault {
    fault(StorageCause::Failed, error.to_string())
}

impl HubScripts {
    /// Runs the position script over a blocking connection.
    ///
    /// # Errors
    /// The server's fault: whether the script ran is uncertain.
    pub fn run_position(
        &self,
        connection: &mut dyn redis::ConnectionLike,
        asked: Asked<'_>,
    ) -> Result<Standing, StorageFault> {
        let value: Value = self.position(asked).invoke(connection).map_err(|e| failed(&e))?;
        standing(&value)
    }

    /// Runs the publish script over a blocking connection.
    ///
    /// # Errors
    /// The server's fault: whether the script ran is uncertain.
    pub fn run_publish(
        &self,
        connection: &mut dyn redis::ConnectionLike,
        asked: Asked<'_>,
        offer: Offer<'_>,
    ) -> Result<Minted, StorageFault> {
        let value: Value = self.publish(asked, offer).invoke(connection).map_err(|e| failed(&e))?;
        minted(&value)
    }
}
