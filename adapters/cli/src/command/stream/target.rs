//! Where the streams are: a directory of this machine, or a server.

use super::fault;
use crate::backend::once_free;
use crate::context::Context;
use crate::cut::Cut;
use crate::exit::Failure;
use std::env::VarError;
use std::path::Path;
use std::time::Duration;
use strandline_core::journal::log::LogError;
use strandline_core::stream::client::LogPosition;
use strandline_core::stream::embedded::EmbeddedError;
use strandline_core::stream::failover::Standing;
use strandline_core::stream::op::Nonce;
use strandline_core::stream::reply::Told;
use strandline_core::stream::retention::Settings;
use strandline_core::stream::{
    Handle, Layout, Outcome, StreamError, StreamName, StreamOp, StreamReply, Verb,
};
use strandline_embedded::{Embedded, EmbeddedOptions, OpenFailed};
use strandline_file::OpenError;
use strandline_redis::{ANSWER_MS_DEFAULT, Address, Bounds, Connection, Names, Redis, Server};
use strandline_streams::{Backend as _, Waited};

/// Where the server's URL is looked for if the command line says nothing. Not clap's: help would print it,
/// with its password, and it would count more than a directory that is named.
const URL_VARIABLE: &str = "STRANDLINE_REDIS_URL";
/// Rest after a wait that failed at once.
const PAUSE: Duration = Duration::from_millis(20);

/// Which server, if any.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Place {
    /// A Redis or Valkey server, instead of the directory; without --dir also as STRANDLINE_REDIS_URL says.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// What the server's keys begin with.
    #[arg(long, default_value = "strandline", value_name = "NAME", value_parser = super::stream)]
    prefix: StreamName,
}

/// The contract of a generation that a command makes. A stream that is there must have it, if any part
/// of it is given.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Contract {
    /// Keep at most so many events; 1000 if nothing is said.
    #[arg(long, value_name = "EVENTS")]
    max_len: Option<u64>,
    /// Keep all events.
    #[arg(long, conflicts_with = "max_len")]
    unbounded: bool,
    /// Let the events end so many milliseconds after the first one.
    #[arg(long, value_name = "MS")]
    ttl_ms: Option<u64>,
    /// Let every event move that end.
    #[arg(long, requires = "ttl_ms")]
    sliding: bool,
    /// Let everything end at this instant, in milliseconds since 1970.
    #[arg(long, value_name = "MS", conflicts_with = "ttl_ms")]
    deadline_ms: Option<u64>,
    /// Remember the keys of `add-once` for so many milliseconds; one day if nothing is said.
    #[arg(long, value_name = "MS")]
    once_window_ms: Option<u64>,
}

impl Contract {
    fn settings(&self) -> Settings {
        let mut settings = Settings::new();
        if let Some(max_len) = self.max_len {
            settings = settings.max_len(max_len);
        }
        if self.unbounded {
            settings = settings.unbounded();
        }
        if let Some(ms) = self.ttl_ms {
            settings = settings.ttl(Duration::from_millis(ms));
        }
        if self.sliding {
            settings = settings.sliding();
        }
        if let Some(ms) = self.deadline_ms {
            settings = settings.deadline_ms(ms);
        }
        if let Some(ms) = self.once_window_ms {
            settings = settings.once_window(Duration::from_millis(ms));
        }
        settings
    }

    /// A handle that makes, or insists on, this.
    pub(super) fn handle(&self, stream: &StreamName) -> Result<Handle, Failure> {
        self.settings()
            .wanted()
            .and_then(|wanted| Handle::new(stream.clone(), wanted, Layout::Tagged))
            .map_err(|error| fault::caller(&error))
    }
}

/// A handle that takes a stream as it is.
pub(super) fn adopting(stream: &StreamName) -> Result<Handle, Failure> {
    let handle = Handle::new(stream.clone(), Settings::new().wanted().unwrap_or_default(), Layout::Tagged);
    handle.map_err(|error| fault::caller(&error))
}

/// A server: one way for operations, and a connection to look around with.
pub(super) struct Remote {
    redis: Redis,
    pub(super) server: Server<Connection>,
}

pub(super) enum Target {
    Directory(Embedded),
    Remote(Box<Remote>),
}

/// Whether a command may make the directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Access {
    Make,
    Existing,
}

impl Place {
    /// Opens the directory, or connects.
    pub(super) async fn open(&self, context: &Context, access: Access) -> Result<Target, Failure> {
        match self.server(context)? {
            Some(url) => self.connect(&url).await,
            None => {
                let dir = context.named_dir()?.ok_or_else(|| {
                    Failure::usage("expected a directory or a server, found neither")
                        .advise("give --dir DIR, or --redis redis://HOST/")
                })?;
                if access == Access::Existing && !dir.join("current").exists() {
                    let text = format!("expected streams in {}, found none", dir.display());
                    return Err(Failure::refused(text).advise("`stream add` makes them"));
                }
                open(dir, context).map(Target::Directory)
            }
        }
    }

    /// The server's URL. What is said on the command line counts more than what the environment says.
    fn server(&self, context: &Context) -> Result<Option<String>, Failure> {
        if self.redis.is_some() || context.dir_was_given {
            return Ok(self.redis.clone());
        }
        match std::env::var(URL_VARIABLE) {
            Ok(url) => Ok(Some(url)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => {
                Err(Failure::usage(format!("expected a URL in {URL_VARIABLE}, found what is not UTF-8")))
            }
        }
    }

    async fn connect(&self, url: &str) -> Result<Target, Failure> {
        let shown = without_secrets(url);
        let address = Address::one(url).map_err(|e| {
            Failure::usage(format!("expected an address like redis://HOST:PORT/, found {shown:?}: {e}"))
        })?;
        let names = Names::Tagged { prefix: self.prefix.clone(), tag: None };
        let server = address.server(names.clone(), ANSWER_MS_DEFAULT).await;
        let server = server.map_err(|e| {
            Failure::peer(format!("cannot reach {shown}: {e}")).advise("is the server running there?")
        })?;
        let redis =
            Redis::at(address, names, Bounds::default()).map_err(|e| Failure::storage(e.to_string()))?;
        Ok(Target::Remote(Box::new(Remote { redis, server })))
    }
}

/// A URL without what may be a password: whatever stands before the host, and the parameters.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) =
        url.split_once("://").map_or(("", url), |(_, rest)| (&url[..url.len() - rest.len()], rest));
    let host = rest.rsplit_once('@').map_or_else(|| rest.to_owned(), |(_, host)| format!("...@{host}"));
    let host = host.split_once('?').map_or_else(|| host.clone(), |(host, _)| format!("{host}?..."));
    format!("{scheme}{host}")
}

fn open(dir: &Path, context: &Context) -> Result<Embedded, Failure> {
    let in_use = |failed: &OpenFailed| matches!(failed, OpenFailed::Open(OpenError::InUse(_)));
    let failed = match once_free(|| Embedded::open(dir, EmbeddedOptions::default()), in_use) {
        Ok((embedded, opened)) => {
            context.tell_cut(Cut::of_streams(&opened).as_ref());
            return Ok(embedded);
        }
        Err(failed) => failed,
    };
    let text = failed.to_string();
    Err(match failed {
        OpenFailed::Open(OpenError::InUse(_)) => {
            Failure::refused(text).advise("one program at a time has it open; try again when that ended")
        }
        OpenFailed::Open(OpenError::Storage(fault))
        | OpenFailed::Keyspace(EmbeddedError::Log(LogError::Storage(fault))) => fault.into(),
        OpenFailed::Keyspace(EmbeddedError::Log(LogError::OtherKind { .. } | LogError::Exists { .. })) => {
            Failure::usage(text).advise("streams need a directory of their own")
        }
        OpenFailed::Keyspace(_) | OpenFailed::Entropy(_) => Failure::storage(text),
    })
}

fn nonce() -> Result<Nonce, Failure> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Failure::storage(format!("expected 16 random bytes from the system, found: {e}")))?;
    Ok(Nonce(bytes))
}

impl Target {
    pub(super) const fn is_remote(&self) -> bool {
        match self {
            Self::Directory(_) => false,
            Self::Remote(_) => true,
        }
    }

    /// Does one operation.
    async fn apply(&mut self, op: StreamOp) -> Outcome {
        match self {
            Self::Directory(embedded) => embedded.apply(op).await,
            Self::Remote(remote) => remote.redis.apply(op).await,
        }
    }

    /// Asks for a handle.
    pub(super) async fn ask(&mut self, handle: &mut Handle, verb: Verb) -> Result<Told, Failure> {
        match self.apply(handle.op(verb.clone(), nonce()?)).await {
            Outcome::Answered { result, .. } => {
                handle.answered(&verb, &result);
                result.map(|reply| reply.told).map_err(|error| fault::refusal(self, &error))
            }
            Outcome::Uncertain(left) => Err(fault::uncertain(left)),
        }
    }

    /// Asks what a reader or consumer wants next; `None` when it wants nothing.
    pub(super) async fn drive(
        &mut self,
        op: impl FnOnce(Nonce) -> Option<StreamOp>,
    ) -> Result<Option<Answered>, Failure> {
        let Some(op) = op(nonce()?) else { return Ok(None) };
        let (outcome, beside) = match self {
            Self::Directory(embedded) => (embedded.apply(op.clone()).await, Beside::NoServer),
            Self::Remote(remote) => {
                let (outcome, standing) = remote.redis.apply_beside(op.clone()).await;
                (outcome, Beside::Server(standing))
            }
        };
        match outcome {
            Outcome::Answered { at: Some(_), result } => Ok(Some(Answered { op, result, beside })),
            // The server did not come to it: that says nothing of its history.
            Outcome::Answered { at: None, result } => {
                Ok(Some(Answered { op, result, beside: Beside::NoServer }))
            }
            Outcome::Uncertain(left) => Err(fault::uncertain(left)),
        }
    }

    /// Waits for news behind these positions.
    pub(super) async fn wait(&self, logs: Vec<LogPosition>, wait_ms: u64) {
        let waited = match self {
            Self::Directory(embedded) => embedded.wait(logs, wait_ms).await,
            Self::Remote(remote) => remote.redis.wait(logs, wait_ms).await,
        };
        if waited == Waited::Broken {
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Leaves the directory.
    pub(super) fn close(self) -> Result<(), Failure> {
        match self {
            Self::Directory(embedded) => embedded.close().map_err(Failure::from),
            Self::Remote(_) => Ok(()),
        }
    }
}

/// An operation and what it was answered.
pub(super) struct Answered {
    pub(super) op: StreamOp,
    pub(super) result: Result<StreamReply, StreamError>,
    pub(super) beside: Beside,
}

/// What stands beside an answer.
#[derive(Clone, Copy)]
pub(super) enum Beside {
    /// Nothing: there is no server that another one could take over from.
    NoServer,
    /// Where the server stood in its history, if it says so.
    Server(Option<Standing>),
}

/// What failed first is what a person must know.
pub(super) fn closing(target: Target, done: Result<(), Failure>) -> Result<(), Failure> {
    match (done, target.close()) {
        (Ok(()), Ok(())) => Ok(()),
        (Err(failure), _) | (Ok(()), Err(failure)) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_url_that_may_be_a_password_is_shown() {
        for (url, shown) in [
            ("redis://host:6379/0", "redis://host:6379/0"),
            ("rediss://user:secret@host/", "rediss://...@host/"),
            ("redis://:sec/r@et@host/", "redis://...@host/"),
            ("redis+unix:///run/redis.sock?pass=secret", "redis+unix:///run/redis.sock?..."),
            ("user:secret@host", "...@host"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
