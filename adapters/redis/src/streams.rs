//! Streams for applications: handles that ask for themselves, and readers that wait for news.

use crate::connect::{ANSWER_MS_DEFAULT, Waited, Waiter, connect};
use crate::names::Names;
use crate::server::Server;
use redis::Client;
use redis::aio::MultiplexedConnection;
use std::collections::VecDeque;
use strandline_core::stream::error::{CallerError, Setting, StreamError};
use strandline_core::stream::event::Entry;
use strandline_core::stream::limits::{READ_EVENTS_DEFAULT, REPLAY_BYTES_DEFAULT};
use strandline_core::stream::op::{Condition, Nonce};
use strandline_core::stream::reader::Read;
use strandline_core::stream::reply::{Told, Uncertain};
use strandline_core::stream::retention::Settings;
use strandline_core::stream::settings::Taking;
use strandline_core::stream::{
    Event, EventId, Handle, Ids, OnceKey, Outcome, ServerFault, StreamName, StreamReply, Verb, reader,
};

/// Why a call gave no reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The call was refused; nothing was changed.
    Refused(StreamError),
    /// No answer came: the step may have been done. Its [`Uncertain::repeatable`] says whether the same
    /// call may be made again.
    Uncertain(Box<Uncertain>),
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::Uncertain(_) => f.write_str("no answer came: the step may have been done"),
        }
    }
}

impl std::error::Error for Failure {}

impl<E: Into<StreamError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// A server, or a way to one. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Streams {
    client: Client,
    server: Server<MultiplexedConnection>,
}

impl Streams {
    /// Connects to `redis://…` or `rediss://…`.
    ///
    /// Cancel safe: nothing is asked of the server.
    ///
    /// # Errors
    /// An address that is none, or a server that does not answer.
    pub async fn connect(url: &str, names: Names) -> Result<Self, StreamError> {
        let client = Client::open(url).map_err(|error| ServerFault::Answer {
            detail: format!("expected an address like redis://host/, found {error}"),
        })?;
        let server = connect(&client, names, ANSWER_MS_DEFAULT).await?;
        Ok(Self { client, server })
    }

    /// A handle of a stream, asking for nothing yet; it is bound by its first call.
    ///
    /// # Errors
    /// `InvalidOption` for a name that cannot be one here, or settings that contradict each other. The
    /// Pulse layout has no window of idempotency records.
    pub fn stream(&self, name: impl Into<String>, settings: Settings) -> Result<Stream, CallerError> {
        let layout = self.server.layout();
        if settings.has_once_window() && layout == strandline_core::stream::Layout::Pulse {
            return Err(CallerError::InvalidOption { setting: Setting::OnceWindow });
        }
        let handle = Handle::new(StreamName::new(name)?, settings.wanted()?, layout)?;
        Ok(Stream { server: self.server.clone(), handle })
    }

    /// A reader of these streams. It attaches to each as it is, and never makes one.
    ///
    /// Not cancel safe in part: a dropped call leaves no trace, but no reader either.
    ///
    /// # Errors
    /// What attaching was refused with.
    pub async fn reader(&self, streams: &[&Stream], taking: Taking) -> Result<Tail, Failure> {
        let block_ms = taking.block_ms;
        let waiter = Waiter::connect(&self.client, self.server.names().clone(), block_ms).await?;
        let mut tail = Tail {
            server: self.server.clone(),
            client: self.client.clone(),
            waiter: Some(waiter),
            block_ms,
            reader: reader::Reader::new(taking),
            ready: VecDeque::new(),
        };
        for stream in streams {
            tail.reader.attach(&stream.handle)?;
            tail.drive().await?;
        }
        Ok(tail)
    }
}

fn nonce() -> Result<Nonce, StreamError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ServerFault::Answer {
        detail: format!("expected entropy of this machine, found {error}"),
    })?;
    Ok(Nonce(bytes))
}

/// A handle of one stream: bound by its first call to one generation, for ever.
///
/// No call is cancel safe in one respect: dropped before its end, it may have been done. Nothing else is
/// lost by dropping one.
#[derive(Clone, Debug)]
pub struct Stream {
    server: Server<MultiplexedConnection>,
    handle: Handle,
}

impl Stream {
    /// What it is bound to, and what it asks for.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    async fn ask(&mut self, verb: Verb) -> Result<Told, Failure> {
        let op = self.handle.op(verb, nonce()?);
        match self.server.apply(&op).await {
            Outcome::Answered { result, .. } => {
                self.handle.answered(&op.verb, &result);
                let StreamReply { told, .. } = result?;
                Ok(told)
            }
            Outcome::Uncertain(uncertain) => Err(Failure::Uncertain(Box::new(uncertain))),
        }
    }

    /// Binds, making the stream if need be.
    ///
    /// # Errors
    /// See [`Failure`]; `ConfigMismatch` when the generation has another contract than asked for.
    pub async fn open(&mut self) -> Result<(), Failure> {
        self.ask(Verb::Open).await.map(|_| ())
    }

    async fn publish(&mut self, event: Event, condition: Condition) -> Result<Option<EventId>, Failure> {
        let told = self.ask(Verb::Add { event, condition }).await?;
        let Told::Added { id } = told else { return Err(strange(&told)) };
        Ok(id)
    }

    /// Publishes an event, making the stream if need be.
    ///
    /// # Errors
    /// See [`Failure`]. Asking again after an uncertain outcome may publish a second copy:
    /// [`Stream::add_once`] does not.
    pub async fn add(&mut self, event: Event) -> Result<EventId, Failure> {
        let told = self.publish(event, Condition::Always).await?;
        told.ok_or_else(|| strange(&Told::Added { id: None }))
    }

    /// Publishes if there is data; `None` when there is none. Makes nothing.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn add_if_exists(&mut self, event: Event) -> Result<Option<EventId>, Failure> {
        self.publish(event, Condition::IfExists).await
    }

    /// Publishes if `last` is the last position given out; `None` when it is not. Makes nothing.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn append_after(&mut self, last: EventId, event: Event) -> Result<Option<EventId>, Failure> {
        self.publish(event, Condition::After(last)).await
    }

    /// Publishes exactly once under a key: the position, and whether this call published it.
    ///
    /// # Errors
    /// See [`Failure`]; `IdempotencyConflict` when the key stands for another event. After an uncertain
    /// outcome the same call is to be made again.
    pub async fn add_once(&mut self, key: OnceKey, event: Event) -> Result<(EventId, bool), Failure> {
        let told = self.ask(Verb::AddOnce { key, event }).await?;
        let Told::AddedOnce { id, published } = told else { return Err(strange(&told)) };
        Ok((id, published))
    }

    /// Everything that is kept, in one step.
    ///
    /// # Errors
    /// See [`Failure`]; `SnapshotUnbounded` without a length bound.
    pub async fn snapshot(&mut self) -> Result<Vec<Entry>, Failure> {
        let told = self.ask(Verb::Snapshot).await?;
        let Told::Entries(entries) = told else { return Err(strange(&told)) };
        Ok(entries)
    }

    /// Deletes entries; how many of them were there.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn remove(&mut self, ids: Ids) -> Result<u64, Failure> {
        let told = self.ask(Verb::Remove { ids }).await?;
        let Told::Removed { count } = told else { return Err(strange(&told)) };
        Ok(count)
    }

    /// What follows `after`, which must still be kept (zero: what there is), within the default budgets.
    ///
    /// # Errors
    /// See [`Failure`]; `ReplayPositionUnavailable` when the anchor is gone.
    pub async fn replay(&mut self, after: EventId) -> Result<Vec<Entry>, Failure> {
        let (events_max, bytes_max) = (READ_EVENTS_DEFAULT, REPLAY_BYTES_DEFAULT);
        let told = self.ask(Verb::Replay { after, events_max, bytes_max }).await?;
        let Told::Replayed { entries, .. } = told else { return Err(strange(&told)) };
        Ok(entries)
    }

    /// Ends the generation with everything it owns; whether this call ended it.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn destroy(&mut self) -> Result<bool, Failure> {
        let told = self.ask(Verb::Destroy).await?;
        let Told::Destroyed { now } = told else { return Err(strange(&told)) };
        Ok(now)
    }
}

fn strange(told: &Told) -> Failure {
    ServerFault::Answer { detail: format!("expected the reply of this operation, found {told:?}") }.into()
}

/// A reader of one or several streams: every event once, in the order of each stream.
#[derive(Debug)]
pub struct Tail {
    client: Client,
    server: Server<MultiplexedConnection>,
    waiter: Option<Waiter>,
    block_ms: u64,
    reader: reader::Reader,
    ready: VecDeque<(StreamName, Entry)>,
}

impl Tail {
    /// The next event; waits for it. It ends with the first error of a generation that ended.
    ///
    /// Cancel safe: what was read and not handed out is handed out by the next call.
    ///
    /// # Errors
    /// `StreamDestroyed`, `StreamLost` or `DeadlineElapsed` end the reader. An unknown outcome of a read is
    /// asked again by the next call.
    pub async fn next(&mut self) -> Result<(StreamName, Entry), Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            self.reader.pass()?;
            self.drive().await?;
            if self.ready.is_empty() {
                self.wait().await?;
            }
        }
    }

    async fn drive(&mut self) -> Result<(), Failure> {
        while let Some(op) = self.reader.op(nonce()?) {
            match self.server.apply(&op).await {
                Outcome::Answered { result, .. } => {
                    if let Read::Entries(stream, entries) = self.reader.answered(&op, result)? {
                        self.ready.extend(entries.into_iter().map(|entry| (stream.clone(), entry)));
                    }
                }
                Outcome::Uncertain(uncertain) => return Err(Failure::Uncertain(Box::new(uncertain))),
            }
        }
        Ok(())
    }

    /// Waits on a connection that is taken out meanwhile: a dropped wait leaves none that is half used.
    async fn wait(&mut self) -> Result<(), Failure> {
        let mut waiter = match self.waiter.take() {
            Some(waiter) => waiter,
            None => Waiter::connect(&self.client, self.server.names().clone(), self.block_ms).await?,
        };
        match waiter.wait(&self.reader.positions()).await {
            Waited::Rung | Waited::TimeOut => self.waiter = Some(waiter),
            // The next pass finds out whether the server is there, and the next wait connects anew.
            Waited::Broken => {}
        }
        Ok(())
    }
}
