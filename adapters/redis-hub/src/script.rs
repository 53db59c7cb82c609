//! The two scripts: what they are given, and what their answers say.

use crate::names::HubNames;
use crate::wire::number;
use redis::{Cmd, ErrorKind, Script, ServerErrorKind, Value};
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

/// How events go out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PubSub {
    /// Over channels of a server.
    Plain,
    /// Over the channels of a cluster's shards: each stays with the master of its topic.
    Sharded,
}

impl PubSub {
    pub(crate) const fn publish(self) -> &'static str {
        match self {
            Self::Plain => "PUBLISH",
            Self::Sharded => "SPUBLISH",
        }
    }

    pub(crate) const fn subscribe(self) -> &'static str {
        match self {
            Self::Plain => "SUBSCRIBE",
            Self::Sharded => "SSUBSCRIBE",
        }
    }

    pub(crate) const fn unsubscribe(self) -> &'static str {
        match self {
            Self::Plain => "UNSUBSCRIBE",
            Self::Sharded => "SUNSUBSCRIBE",
        }
    }
}

/// What the scripts keep, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// How long the state and the history of a topic outlive their last use.
    pub topic_state_ms: u64,
    /// How long a publish token is remembered.
    pub token_ms: u64,
    /// Events that the history of a topic keeps; zero keeps none.
    pub history_events_max: u64,
}

/// A script as a server knows it.
#[derive(Clone, Debug)]
struct Program {
    code: String,
    hash: String,
}

impl Program {
    fn new(script: &str, pubsub: PubSub) -> Self {
        let code = format!("local PUBLISH = '{}'\n{STANDING}{script}", pubsub.publish());
        Self { hash: Script::new(&code).get_hash().to_owned(), code }
    }
}

/// One run of a script, with all the keys that it touches.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    program: &'a Program,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Call<'_> {
    /// By its hash, as servers remember it.
    pub(crate) fn short(&self) -> Cmd {
        self.command("EVALSHA", &self.program.hash)
    }

    /// With its text, for a server that does not know it. A cluster's masters learn it one by one, so
    /// that one which is gone costs its own topics only.
    pub(crate) fn whole(&self) -> Cmd {
        self.command("EVAL", &self.program.code)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }

    fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Self {
        self.arguments.push(argument.as_ref().to_vec());
        self
    }

    fn run(&self, connection: &mut dyn redis::ConnectionLike) -> Result<Value, StorageFault> {
        let answer = match self.short().query(connection) {
            Err(error) if unknown(&error) => self.whole().query(connection),
            answer => answer,
        };
        answer.map_err(|error| failed(&error))
    }
}

/// The server has not seen this script, and did nothing.
pub(crate) fn unknown(error: &redis::RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// The scripts of one installation.
#[derive(Clone, Debug)]
pub struct HubScripts {
    names: HubNames,
    keeping: Keeping,
    position: Program,
    publish: Program,
}

impl HubScripts {
    /// The scripts that use these names.
    #[must_use]
    pub fn new(names: HubNames, keeping: Keeping, pubsub: PubSub) -> Self {
        let (position, publish) = (Program::new(POSITION, pubsub), Program::new(PUBLISH, pubsub));
        Self { names, keeping, position, publish }
    }

    /// The names they use.
    #[must_use]
    pub const fn names(&self) -> &HubNames {
        &self.names
    }

    pub(crate) const fn keeping(&self) -> Keeping {
        self.keeping
    }

    /// The position script, ready to run.
    pub(crate) fn position(&self, asked: Asked<'_>) -> Call<'_> {
        self.call(&self.position, asked)
    }

    /// The publish script, ready to run.
    pub(crate) fn publish(&self, asked: Asked<'_>, offer: Offer<'_>) -> Call<'_> {
        let mut call = self.call(&self.publish, asked);
        call.keys.push(self.names.token(asked.topic, offer.token));
        call.arg(self.keeping.token_ms.to_string()).arg(offer.at.0.to_string());
        call.arg(offer.kind).arg(offer.payload).arg(self.keeping.history_events_max.to_string());
        call
    }

    fn call<'a>(&'a self, program: &'a Program, asked: Asked<'_>) -> Call<'a> {
        let Asked { topic, seen, nonce } = asked;
        let (incarnation, sequence) = match seen {
            None => (String::new(), 0),
            Some(seen) => (seen.incarnation.to_string(), seen.position.as_sequence().unwrap_or(u64::MAX)),
        };
        let keys = vec![self.names.state(topic), self.names.history(topic)];
        let mut call = Call { program, keys, arguments: Vec::new() };
        call.arg(self.names.channel(topic)).arg(hex(&nonce)).arg(incarnation).arg(sequence.to_string());
        call.arg(self.keeping.topic_state_ms.to_string());
        call
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
        standing(&self.position(asked).run(connection)?)
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
        minted(&self.publish(asked, offer).run(connection)?)
    }
}
