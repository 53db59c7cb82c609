//! Streams and their handles.

use crate::backend::Backend;
use crate::driver::Driver;
use crate::group::GroupBuilder;
use crate::reader::ReaderBuilder;
use crate::shared::{Closes, Shared};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use strandline_core::stream::client::{Failover, Failure, HandleId, StreamCounters};
use strandline_core::stream::error::{CallerError, ServerFault, Setting, StreamError};
use strandline_core::stream::event::Entry;
use strandline_core::stream::failover::{Doubt, Survival};
use strandline_core::stream::limits::{GROUPS_LISTED_MAX, READ_EVENTS_DEFAULT, REPLAY_BYTES_DEFAULT};
use strandline_core::stream::listing::{GroupTotals, Groups};
use strandline_core::stream::op::Condition;
use strandline_core::stream::reply::{DeadLetter, Told};
use strandline_core::stream::retention::Settings;
use strandline_core::stream::{Event, EventId, GroupName, Handle, Ids, Layout, OnceKey, StreamName, Verb};

/// All streams of one backend. Cheap to clone.
#[derive(Clone)]
pub struct Streams {
    pub(crate) alive: Arc<Closes>,
}

impl Streams {
    /// Streams on a backend, and the driver that must run for them; nothing is asked of the backend.
    ///
    /// # Errors
    /// Only a machine without entropy.
    pub fn new(backend: impl Backend) -> Result<(Self, Driver), StreamError> {
        let shared = Shared::new(Arc::new(backend))?;
        let driver = Driver { shared: shared.clone() };
        Ok((Self { alive: Arc::new(Closes(shared)) }, driver))
    }

    /// A stream by its name; settings follow, and [`StreamBuilder::handle`].
    pub fn stream(&self, name: impl Into<String>) -> StreamBuilder {
        StreamBuilder { streams: self.clone(), name: name.into(), settings: Settings::new(), bad: None }
    }

    /// What was counted since it was made, over all its handles, readers and consumers.
    #[must_use]
    pub fn counters(&self) -> StreamCounters {
        self.alive.0.turn(|state, _| state.client.counters().clone())
    }

    /// Ends the driver. Calls that follow end with [`Failure::Closed`], and nothing of them is asked. One that
    /// is under way ends with its answer if that still comes to its caller, otherwise as unknown; it is not
    /// asked again. Readers and consumers end with [`Failure::Closed`] too, once they have handed out what
    /// they were told. Consumers are to be closed before: this leaves what they hold to be claimed after their
    /// grace.
    pub fn close(&self) {
        self.alive.0.close();
    }
}

/// Settings of a handle. A handle that names any part of the contract insists on the whole; one that
/// names none adopts what is there.
#[derive(Clone)]
#[must_use = "a builder makes its handle by `handle`"]
pub struct StreamBuilder {
    streams: Streams,
    name: String,
    settings: Settings,
    bad: Option<Setting>,
}

impl StreamBuilder {
    /// Bounds the log to exactly so many events.
    pub fn max_len(mut self, events: u64) -> Self {
        self.settings = self.settings.max_len(events);
        self
    }

    /// Leaves the log without a bound.
    pub fn unbounded(mut self) -> Self {
        self.settings = self.settings.unbounded();
        self
    }

    /// Lets the data end so long after the first write. Parts of a millisecond are cut off.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings = self.settings.ttl(ttl);
        self
    }

    /// Lets every write move the end of the data.
    pub fn sliding(mut self) -> Self {
        self.settings = self.settings.sliding();
        self
    }

    /// Lets the whole generation end at this instant, by the server's clock.
    pub fn deadline(mut self, at: SystemTime) -> Self {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).ok();
        match since.and_then(|since| u64::try_from(since.as_millis()).ok()) {
            Some(at_ms) => self.settings = self.settings.deadline_ms(at_ms),
            None => self.bad = Some(Setting::Deadline),
        }
        self
    }

    /// Keeps idempotency records for so long.
    pub fn once_window(mut self, window: Duration) -> Self {
        self.settings = self.settings.once_window(window);
        self
    }

    /// Takes all settings at once, in place of those given so far.
    pub const fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The handle. Nothing is asked of the server: its first call binds it.
    ///
    /// # Errors
    /// `InvalidOption` for a name that cannot be one here, or settings that cannot be or contradict each
    /// other; `ConfigMismatch` for a window of idempotency records below the TTL.
    pub fn handle(self) -> Result<Stream, CallerError> {
        if let Some(setting) = self.bad {
            return Err(CallerError::InvalidOption { setting });
        }
        let shared = &self.streams.alive.0;
        if self.settings.has_once_window() && shared.backend.layout() == Layout::Pulse {
            return Err(CallerError::InvalidOption { setting: Setting::OnceWindow });
        }
        let (name, wanted) = (StreamName::new(self.name)?, self.settings.wanted()?);
        let id = shared.turn(|state, now| state.client.handle_stream(now, name, wanted))?;
        Ok(Stream { streams: self.streams, id })
    }
}

/// A handle of one stream: bound by its first call to one generation, for ever. A clone is bound to what
/// it was cloned from.
///
/// Every call is cancel safe in this respect: dropped before its end it may have been done, and nothing
/// else is lost by dropping it. What may be asked twice is asked again by itself, a few times, after an
/// unknown outcome; [`Failure::Uncertain`] then tells that nobody knows.
pub struct Stream {
    pub(crate) streams: Streams,
    pub(crate) id: HandleId,
}

impl Clone for Stream {
    fn clone(&self) -> Self {
        let id = self.shared().turn(|state, now| state.client.handle_clone(now, self.id));
        // The handle is kept for as long as this value lives.
        Self { streams: self.streams.clone(), id: id.unwrap_or(self.id) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared().forget(self.id);
    }
}

impl Stream {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.streams.alive.0
    }

    /// What it is bound to, and what it asks for, as of now.
    #[must_use]
    pub fn state(&self) -> Option<Handle> {
        self.shared().turn(|state, _| state.client.handle(self.id).cloned())
    }

    /// The last change of its server's history that an answer to this handle showed: whether what it had
    /// been answered before is still so, and up to which position. `None` when there was none.
    #[must_use]
    pub fn failover(&self) -> Option<Failover> {
        self.shared().failover(self.id)
    }

    /// Asks the server where it stands, and judges by that whether the last answer to this handle is still
    /// so. A backend whose servers do not take over from each other keeps what it answered. Dropping it has
    /// no effect.
    pub async fn survival(&self) -> Survival {
        let shared = self.shared();
        if !shared.backend.fails_over() {
            return Survival::Kept;
        }
        let Some(stream) = self.state().map(|handle| handle.stream().clone()) else {
            return Survival::Unknown { reason: Doubt::NothingNoted };
        };
        let standing = shared.backend.standing(stream).await;
        shared.turn(|state, _| state.client.survival(self.id, standing.as_ref()))
    }

    async fn ask(&self, verb: Verb) -> Result<Told, Failure> {
        self.shared().call(self.id, verb).await
    }

    /// Binds, making the stream if need be.
    ///
    /// # Errors
    /// See [`Failure`]; `ConfigMismatch` when the generation has another contract than asked for.
    pub async fn open(&self) -> Result<(), Failure> {
        self.ask(Verb::Open).await.map(|_| ())
    }

    async fn publish(&self, event: Event, condition: Condition) -> Result<Option<EventId>, Failure> {
        let told = self.ask(Verb::Add { event, condition }).await?;
        let Told::Added { id } = told else { return Err(strange(&told)) };
        Ok(id)
    }

    /// Publishes an event, making the stream if need be.
    ///
    /// Dropped before its end it may have published; so may one that ends with an unknown outcome.
    /// Asking again may then publish a second copy: [`Stream::add_once`] does not.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn add(&self, event: Event) -> Result<EventId, Failure> {
        let told = self.publish(event, Condition::Always).await?;
        told.ok_or_else(|| strange(&Told::Added { id: None }))
    }

    /// Publishes if there is data; `None` when there is none. Makes nothing. Dropping it is as with
    /// [`Stream::add`].
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn add_if_exists(&self, event: Event) -> Result<Option<EventId>, Failure> {
        self.publish(event, Condition::IfExists).await
    }

    /// Publishes if `last` is the last position given out; `None` when it is not. Makes nothing. Dropped
    /// before its end it may have published; asking again tells by `None` that something did.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn append_after(&self, last: EventId, event: Event) -> Result<Option<EventId>, Failure> {
        self.publish(event, Condition::After(last)).await
    }

    /// Publishes exactly once under a key: the position, and whether this call published it. Dropped
    /// before its end, or after an unknown outcome, the same call is simply to be made again.
    ///
    /// # Errors
    /// See [`Failure`]; `IdempotencyConflict` when the key stands for another event.
    pub async fn add_once(&self, key: OnceKey, event: Event) -> Result<(EventId, bool), Failure> {
        let told = self.ask(Verb::AddOnce { key, event }).await?;
        let Told::AddedOnce { id, published } = told else { return Err(strange(&told)) };
        Ok((id, published))
    }

    /// Everything that is kept, in one step. Dropping it has no effect on the stream.
    ///
    /// # Errors
    /// See [`Failure`]; `SnapshotUnbounded` without a length bound.
    pub async fn snapshot(&self) -> Result<Vec<Entry>, Failure> {
        let told = self.ask(Verb::Snapshot).await?;
        let Told::Entries(entries) = told else { return Err(strange(&told)) };
        Ok(entries)
    }

    /// Deletes entries; how many of them were there. Dropped before its end it may have deleted them;
    /// asking again is safe.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn remove(&self, ids: Ids) -> Result<u64, Failure> {
        let told = self.ask(Verb::Remove { ids }).await?;
        let Told::Removed { count } = told else { return Err(strange(&told)) };
        Ok(count)
    }

    /// What follows `after`, which must still be kept (zero: what there is), within the default budgets.
    /// Called again with the last position it gave, it reads on; an empty answer is the end. Dropping it
    /// has no effect on the stream.
    ///
    /// # Errors
    /// See [`Failure`]; `ReplayPositionUnavailable` when the anchor is gone.
    pub async fn replay(&self, after: EventId) -> Result<Vec<Entry>, Failure> {
        let (events_max, bytes_max) = (READ_EVENTS_DEFAULT, REPLAY_BYTES_DEFAULT);
        let told = self.ask(Verb::Replay { after, events_max, bytes_max }).await?;
        let Told::Replayed { entries, .. } = told else { return Err(strange(&told)) };
        Ok(entries)
    }

    /// Ends the generation with everything it owns; whether this call ended it. Dropped before its end
    /// it may have; asking again by the same, bound handle is safe.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn destroy(&self) -> Result<bool, Failure> {
        let told = self.ask(Verb::Destroy).await?;
        let Told::Destroyed { now } = told else { return Err(strange(&told)) };
        Ok(now)
    }

    /// How the groups of the stream stand that come behind a name (`None`: from the first), at most a hundred
    /// of them, by name. Behind the last of them the next page begins; `more` says whether there is one.
    /// Each group is told as of the same step of the server. Dropping it has no effect on the stream.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn groups(&self, after: Option<&GroupName>) -> Result<Groups, Failure> {
        let told = self.ask(Verb::Groups { after: after.cloned(), groups_max: GROUPS_LISTED_MAX }).await?;
        let Told::Groups(groups) = told else { return Err(strange(&told)) };
        Ok(groups)
    }

    /// All groups of the stream in sum, for metrics. Pages are told one after the other: what changes
    /// meanwhile may be seen or not. Dropping it has no effect on the stream.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn group_totals(&self) -> Result<GroupTotals, Failure> {
        let (mut totals, mut after) = (GroupTotals::default(), None);
        loop {
            let page = self.groups(after.as_ref()).await?;
            totals = totals.and(GroupTotals::of(&page.groups));
            after = page.groups.into_iter().last().map(|group| group.group).filter(|_| page.more);
            if after.is_none() {
                return Ok(totals);
            }
        }
    }

    /// Dead letters behind a position among them, in order, at most `events_max` (zero: from the first).
    /// Dropping it has no effect on the stream.
    ///
    /// # Errors
    /// See [`Failure`]; `TaggedOnly` in the Pulse layout.
    pub async fn dead_letters(&self, after: EventId, events_max: u32) -> Result<Vec<DeadLetter>, Failure> {
        let told = self.ask(Verb::DeadRead { after, events_max }).await?;
        let Told::Dead(letters) = told else { return Err(strange(&told)) };
        Ok(letters)
    }

    /// Deletes dead letters by their positions among them ([`DeadLetter::at`]); how many were there.
    /// Dropped before its end it may have deleted them; asking again is safe.
    ///
    /// # Errors
    /// See [`Failure`]; `TaggedOnly` in the Pulse layout.
    pub async fn remove_dead_letters(&self, ats: Ids) -> Result<u64, Failure> {
        let told = self.ask(Verb::DeadRemove { ids: ats }).await?;
        let Told::Removed { count } = told else { return Err(strange(&told)) };
        Ok(count)
    }

    /// A group of consumers on this stream; others may be added.
    pub fn group(&self, name: impl Into<String>) -> GroupBuilder {
        GroupBuilder::new(self, name.into())
    }

    /// A reader of this stream; others may be added.
    pub fn reader(&self) -> ReaderBuilder {
        ReaderBuilder::new(self)
    }
}

pub(crate) fn strange(told: &Told) -> Failure {
    ServerFault::Answer { detail: format!("expected the reply of this operation, found {told:?}") }.into()
}
