//! Groups: every event goes to one consumer, until it is settled.

use crate::party::Seated;
use crate::streams::{Stream, Streams, strange};
use futures::Stream as Futures;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use strandline_core::stream::client::{Consume, Delivery, End, Failure, Give, HandleId, Item};
use strandline_core::stream::error::{CallerError, ServerFault, Setting};
use strandline_core::stream::limits::{DELIVERIES_MAX_DEFAULT, LEASE_MS_DEFAULT};
use strandline_core::stream::reply::Told;
use strandline_core::stream::settings::TakeSettings;
use strandline_core::stream::{ConsumerName, GroupName, Ids, Start, StreamName};

/// Settings of a group and of one of its consumers. All consumers of a group must agree on filter, start,
/// `no_ack` and grace. Defaults: from the newest, all topics, 1000 events per read, none read ahead, 5 s per
/// wait, 20 s of grace, a lease of 1 s, 16 deliveries.
#[must_use = "a builder joins its consumer by `consumer`"]
pub struct GroupBuilder {
    streams: Streams,
    handles: Vec<HandleId>,
    group: String,
    settings: TakeSettings,
    lease: Option<Duration>,
    deliveries_max: Option<u64>,
    reads_ahead: bool,
}

impl GroupBuilder {
    pub(crate) fn new(stream: &Stream, group: String) -> Self {
        Self {
            streams: stream.streams.clone(),
            handles: vec![stream.id],
            group,
            settings: TakeSettings::new(),
            lease: None,
            deliveries_max: Some(DELIVERIES_MAX_DEFAULT),
            reads_ahead: false,
        }
    }

    /// Takes from another stream of the same backend too, by a group of the same name there.
    pub fn and(mut self, stream: &Stream) -> Self {
        self.handles.push(stream.id);
        self
    }

    /// Takes only events with this topic; the others count as settled.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.settings = self.settings.topic(topic);
        self
    }

    /// Takes only events whose topic this regular expression matches; the others count as settled.
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.settings = self.settings.pattern(pattern);
        self
    }

    /// Where the group begins, when it is made.
    pub fn start(mut self, start: Start) -> Self {
        self.settings = self.settings.start(start);
        self
    }

    /// Settles events before they are handed out: at most once.
    pub fn no_ack(mut self) -> Self {
        self.settings = self.settings.no_ack();
        self
    }

    /// How long an event may be unsettled before another consumer takes it over. A consumer that is
    /// silent for twice this time is taken out of the group.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings = self.settings.grace(grace);
        self
    }

    /// At most so many events per read. The next are taken when it is polled for them, and all handed out: see
    /// [`GroupBuilder::read_ahead`].
    pub fn max_polled(mut self, events: u32) -> Self {
        self.settings = self.settings.max_polled(events);
        self
    }

    /// Takes the next events as soon as the last one is handed out, while that is processed: for short work,
    /// which else waits for every read. The consumer then holds one event more than
    /// [`GroupBuilder::max_polled`]. Without it a worker leaves to others what it has not begun, which is what
    /// long work wants: what was taken ahead waits behind it, even if others are idle.
    pub const fn read_ahead(mut self) -> Self {
        self.reads_ahead = true;
        self
    }

    /// How long one read waits before it looks whether its streams still live.
    pub fn block(mut self, block: Duration) -> Self {
        self.settings = self.settings.block(block);
        self
    }

    /// How long the lease of the group's recovery lasts without renewal. It is renewed twice in that time.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Makes an event a dead letter instead of handing it out more often than this. Has no effect in the
    /// Pulse layout, which has no dead letters.
    pub const fn deliveries_max(mut self, deliveries: u64) -> Self {
        self.deliveries_max = Some(deliveries);
        self
    }

    /// Hands events out as often as it takes.
    pub const fn deliveries_unlimited(mut self) -> Self {
        self.deliveries_max = None;
        self
    }

    /// Joins the group as a consumer, making streams and group where they are missing. To `name` a random
    /// part is added: a worker that is started again is another consumer, and takes over what its
    /// predecessor left only by a claim.
    ///
    /// Dropped before its end it may leave a registered consumer behind, without any event: it is taken
    /// out by others after its grace.
    ///
    /// # Errors
    /// `InvalidOption` for settings that cannot be; `GroupConfigMismatch` where the group exists with
    /// other settings; what joining was refused with.
    pub async fn consumer(self, name: &str) -> Result<Consumer, Failure> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| ServerFault::Answer {
            detail: format!("expected entropy of this machine, found {error}"),
        })?;
        let name = ConsumerName::new(format!("{name}.{}", strandline_core::id::hex(&random)))?;
        let mut consume = Consume::new(GroupName::new(self.group)?, name.clone(), self.settings.taking()?);
        consume.deliveries_max = self.deliveries_max;
        consume.lease_ms = match self.lease {
            None => LEASE_MS_DEFAULT,
            Some(lease) => u64::try_from(lease.as_millis())
                .map_err(|_| CallerError::InvalidOption { setting: Setting::Lease })?,
        };
        let consume = consume.checked()?;
        let mut refused = None;
        let seated = Seated::new(self.streams, self.reads_ahead, |client, now| {
            client.handle_consumer(now, &self.handles, consume).unwrap_or_else(|error| {
                refused = Some(error);
                strandline_core::stream::client::PartyId::NONE
            })
        });
        if let Some(error) = refused {
            return Err(error.into());
        }
        seated.ready().await?;
        Ok(Consumer { seated, name })
    }
}

/// A consumer of a group on one or several streams, as a [`futures::Stream`] of events and gaps. It keeps
/// itself alive, takes over what stale consumers left, and cleans up after them, whether it is polled or
/// not, for as long as the driver runs.
///
/// What it hands out is to be settled by [`Consumer::ack`], given back by [`Consumer::nack`], or given up
/// by [`Consumer::bury`]. An event may be handed out again, here or elsewhere, until one of that is done:
/// processing must stand that, or use [`Delivery::fence`].
///
/// Cancel safe: dropping a future of `next()` loses nothing. A consumer that is dropped leaves as by
/// [`Consumer::close`], without waiting for it.
#[must_use = "streams do nothing unless polled"]
pub struct Consumer {
    seated: Seated,
    name: ConsumerName,
}

impl Consumer {
    /// Its identity in the group: the name it was given, and its random part.
    #[must_use]
    pub const fn name(&self) -> &ConsumerName {
        &self.name
    }

    /// The fence of the lease that it holds on a stream's group at the moment, if it does.
    #[must_use]
    pub fn lease(&self, stream: &StreamName) -> Option<u64> {
        self.seated.mailbox(|mailbox| mailbox.leases.get(stream).copied()).flatten()
    }

    /// What failed last and is being tried again.
    #[must_use]
    pub fn trouble(&self) -> Option<Failure> {
        self.seated.trouble()
    }

    async fn give(&self, stream: &StreamName, give: Give, ids: Ids) -> Result<Told, Failure> {
        let party = self.seated.party;
        self.seated.shared().ask(|client, now| client.handle_give(now, party, stream, give, ids)).await
    }

    fn one(delivery: &Delivery) -> Result<Ids, CallerError> {
        Ids::new([delivery.id])
    }

    /// Settles an event: it was processed. `false` when it already was, by whomever.
    ///
    /// Dropped before its end it may be settled or not; asking again is safe.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn ack(&self, delivery: &Delivery) -> Result<bool, Failure> {
        Ok(self.ack_all(&delivery.stream, Self::one(delivery)?).await? == 1)
    }

    /// Settles events of one stream; how many were not settled before. Dropping it is as with
    /// [`Consumer::ack`].
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn ack_all(&self, stream: &StreamName, ids: Ids) -> Result<u64, Failure> {
        let told = self.give(stream, Give::Ack, ids).await?;
        let Told::Acked { count, .. } = told else { return Err(strange(&told)) };
        Ok(count)
    }

    /// Gives an event back: it is handed out again, to anybody of the group, once `delay` has passed.
    /// `false` when it was no longer this consumer's, or too many events are put off already; then it
    /// comes back after the grace.
    ///
    /// Dropped before its end it may be given back or not; asking again is safe.
    ///
    /// # Errors
    /// See [`Failure`]; `InvalidOption` for more than thirty days, `TaggedOnly` in the Pulse layout.
    pub async fn nack(&self, delivery: &Delivery, delay: Duration) -> Result<bool, Failure> {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let told = self.give(&delivery.stream, Give::Nack { delay_ms }, Self::one(delivery)?).await?;
        let Told::Nacked { count } = told else { return Err(strange(&told)) };
        Ok(count == 1)
    }

    /// Makes an event a dead letter, and settles it, in one step. `false` when it was no longer this
    /// consumer's. Dropping it is as with [`Consumer::ack`].
    ///
    /// # Errors
    /// See [`Failure`]; `DeadLettersFull`; `TaggedOnly` in the Pulse layout.
    pub async fn bury(&self, delivery: &Delivery) -> Result<bool, Failure> {
        let told = self.give(&delivery.stream, Give::Bury, Self::one(delivery)?).await?;
        let Told::Buried { count, .. } = told else { return Err(strange(&told)) };
        Ok(count == 1)
    }

    /// Leaves the group: nothing more is read, what was handed out and not settled is given back, to be
    /// claimed at once, and the consumer is deleted. Settle before what is processed. In the Pulse layout
    /// what is pending stays so, and is claimed after the grace.
    ///
    /// Dropped before its end the leaving goes on by itself.
    ///
    /// # Errors
    /// What leaving was refused with, or [`Failure::Uncertain`]; then what is pending is claimed after
    /// the grace.
    pub async fn close(self) -> Result<(), Failure> {
        self.seated.close();
        match self.seated.ended().await {
            End::Closed => Ok(()),
            End::Failed(failure) => Err(failure),
        }
    }
}

impl Futures for Consumer {
    type Item = Result<Item, Failure>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().seated.poll_item(cx)
    }
}
