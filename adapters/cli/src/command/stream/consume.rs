//! `strandline stream consume`.

use super::fault;
use super::show;
use super::tail::{may_follow, start};
use super::target::{Access, Answered, Beside, Contract, Place, Target, closing};
use crate::context::Context;
use crate::exit::Failure;
use std::time::{Duration, Instant};
use strandline_core::stream::client::LogPosition;
use strandline_core::stream::event::Entry;
use strandline_core::stream::group::{Consumer, Taken};
use strandline_core::stream::limits::LEASE_MS_DEFAULT;
use strandline_core::stream::op::Lease;
use strandline_core::stream::reply::{Missed, Told};
use strandline_core::stream::settings::{TakeSettings, Taking};
use strandline_core::stream::{ConsumerName, EventId, GroupName, Ids, Start, StreamName, Verb};

/// Most events that are taken at once.
const TAKEN_MAX: u64 = 1_000;
/// How long one wait for news lasts.
const WAIT_MS: u64 = 2_000;
/// How long the lease of a claim lasts; each claim renews it.
const LEASE_MS: u64 = 5_000;
/// How long another one's lease is waited for.
const LEASE_WAIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Take events as a member of a group: print each, then acknowledge it. Makes the stream and the group
/// if need be.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    #[arg(value_parser = super::stream)]
    stream: StreamName,
    #[arg(value_parser = super::group)]
    group: GroupName,
    /// Who takes them; a name of this process if none is given.
    #[arg(long, value_parser = consumer)]
    consumer: Option<ConsumerName>,
    /// Where a new group begins: 0 for the oldest event, $ for the newest, or behind a position.
    #[arg(long, default_value = "0", value_name = "ID", value_parser = start)]
    from: Start,
    /// Only events of this topic.
    #[arg(long)]
    topic: Option<String>,
    /// The grace of a silent member in milliseconds; part of the group's contract.
    #[arg(long, default_value_t = 20_000, value_name = "MS")]
    grace_ms: u64,
    /// First take over what others have left pending for so many milliseconds.
    #[arg(long, value_name = "MS")]
    claim_idle_ms: Option<u64>,
    /// Print, and leave the events pending.
    #[arg(long)]
    no_ack: bool,
    /// Go on with what comes; on a server only.
    #[arg(long)]
    follow: bool,
    /// End after so many events.
    #[arg(long, value_name = "EVENTS")]
    max: Option<u64>,
    #[command(flatten)]
    contract: Contract,
}

fn consumer(text: &str) -> Result<ConsumerName, String> {
    ConsumerName::new(text).map_err(|_| "expected 1 to 512 characters, none of space, NUL, * ? [ ]".into())
}

/// One run of the command.
struct Run<'a> {
    args: &'a Args,
    context: &'a Context,
    target: &'a mut Target,
    consumer: Consumer,
    left: u64,
}

pub(super) async fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let caller = |error| fault::caller(&error);
    let mut settings = TakeSettings::new().start(args.from).grace(Duration::from_millis(args.grace_ms));
    if let Some(topic) = &args.topic {
        settings = settings.topic(topic.as_str());
    }
    let taking: Taking = settings.taking().map_err(caller)?;
    let name = match &args.consumer {
        Some(name) => name.clone(),
        None => ConsumerName::new(format!("cli-{}", std::process::id())).map_err(caller)?,
    };
    let consumer = Consumer::new(args.group.clone(), name, taking, LEASE_MS_DEFAULT);
    let handle = args.contract.handle(&args.stream)?;
    let mut target = args.place.open(context, Access::Make).await?;
    let done = async {
        may_follow(&target, args.follow)?;
        let left = args.max.unwrap_or(u64::MAX);
        let mut run = Run { args, context, target: &mut target, consumer, left };
        run.consumer.join(&handle, None).map_err(caller)?;
        while run.step().await?.is_some() {}
        let taken = run.take().await;
        // What stays pending is there for others to claim.
        run.consumer.close();
        while run.step().await?.is_some() {}
        taken
    };
    let done = done.await;
    closing(target, done)
}

impl Run<'_> {
    async fn step(&mut self) -> Result<Option<Taken>, Failure> {
        let Self { target, consumer, context, .. } = self;
        let Some(Answered { op, result, beside }) = target.drive(|nonce| consumer.op(nonce)).await? else {
            return Ok(None);
        };
        // One operation is under way at a time: nothing was noted since it was asked.
        let noted = consumer.noted(&op);
        if let Beside::Server(standing) = beside
            && let Some(failover) = consumer.heard(&op, noted, standing.as_ref())
        {
            show::failover(context.output, &failover)?;
        }
        let taken = consumer.answered(&op, result).map_err(|error| fault::refusal(target, &error))?;
        if let Beside::Server(Some(standing)) = beside {
            consumer.note(&op, &standing);
        }
        Ok(Some(taken))
    }

    async fn ask(&mut self, verb: Verb) -> Result<Told, Failure> {
        let handle = self.consumer.handle(&self.args.stream);
        let mut handle = handle.expect("joined above").clone();
        self.target.ask(&mut handle, verb).await
    }

    async fn take(&mut self) -> Result<(), Failure> {
        if let Some(idle_ms) = self.args.claim_idle_ms {
            self.claim(idle_ms).await?;
        }
        while self.left > 0 {
            // What comes behind this position meanwhile rings the wait below.
            let Told::Attended { last: after, .. } = self.ask(Verb::Attend).await? else {
                unreachable!("attending tells the last position")
            };
            // No more than is wanted: what is taken and not printed would stay pending.
            self.consumer.read_at_most(u32::try_from(self.left.min(TAKEN_MAX)).expect("at most that"));
            self.consumer.pass().map_err(|error| fault::caller(&error))?;
            let mut quiet = true;
            while let Some(taken) = self.step().await? {
                let Taken::Entries(_, entries, missed) = taken else { continue };
                self.tell(&missed).await?;
                quiet &= entries.is_empty();
                self.hand_over(&entries).await?;
            }
            if quiet && !self.args.follow {
                return Ok(());
            }
            if quiet {
                let handle = self.consumer.handle(&self.args.stream).expect("joined above");
                let generation = handle.bound().map_or(0, |bound| bound.generation);
                let stream = self.args.stream.clone();
                self.target.wait(vec![LogPosition { stream, generation, after }], WAIT_MS).await;
            }
        }
        Ok(())
    }

    /// Prints the holes of the group, then says that somebody was told: they are told once.
    async fn tell(&mut self, missed: &[Missed]) -> Result<(), Failure> {
        for missed in missed {
            show::gap(self.context.output, &self.args.stream, missed.reason, missed.dropped)?;
        }
        if let Some(last) = missed.last() {
            let verb = Verb::GroupTold { group: self.args.group.clone(), through: last.number };
            self.ask(verb).await?;
        }
        Ok(())
    }

    /// Prints, then acknowledges: what was printed last may be printed again after a crash.
    async fn hand_over(&mut self, entries: &[Entry]) -> Result<(), Failure> {
        let mut ids = Vec::new();
        for entry in entries.iter().take(usize::try_from(self.left).unwrap_or(usize::MAX)) {
            show::entry(self.context.output, entry)?;
            ids.push(entry.id);
        }
        self.left -= ids.len() as u64;
        if !self.args.no_ack && !ids.is_empty() {
            let ids = Ids::new(ids).map_err(|error| fault::caller(&error))?;
            self.ask(Verb::GroupAck { group: self.args.group.clone(), ids }).await?;
        }
        Ok(())
    }

    /// Takes over what others left pending, under the group's lease.
    async fn claim(&mut self, idle_ms: u64) -> Result<(), Failure> {
        let (group, consumer) = (self.args.group.clone(), self.consumer.name().clone());
        let (owner, fence) = self.lease().await?;
        let lease = |lease_ms| Lease { owner: owner.clone(), fence, lease_ms };
        let mut from = EventId::ZERO;
        loop {
            let verb = Verb::GroupClaim {
                group: group.clone(),
                lease: lease(LEASE_MS),
                consumer: consumer.clone(),
                idle_ms,
                from,
                events_max: u32::try_from(self.left.min(TAKEN_MAX)).expect("at most that"),
            };
            let Told::Claimed { next, entries, vanished, counts: _, missed } = self.ask(verb).await? else {
                unreachable!("a claim tells what it took")
            };
            self.tell(&missed).await?;
            // The Pulse layout keeps no holes: it is said here, or never.
            for id in vanished.iter().filter(|_| missed.is_empty()) {
                self.context.output.note(format!("{id} was pending and is no longer kept"));
            }
            self.hand_over(&entries).await?;
            if next == EventId::ZERO || self.left == 0 {
                break;
            }
            from = next;
        }
        // The next one need not wait for it to lapse.
        self.ask(Verb::LeaseRenew { group, lease: lease(1) }).await.map(drop)
    }

    /// Takes the lease of the group's recovery, when whoever has it lets it lapse; owner and fence.
    async fn lease(&mut self) -> Result<(String, u64), Failure> {
        let owner = self.consumer.owner(&self.args.stream);
        let start = Instant::now();
        loop {
            let group = self.args.group.clone();
            let verb = Verb::LeaseAcquire { group, owner: owner.clone(), lease_ms: LEASE_MS };
            let Told::Leased { acquired, fence } = self.ask(verb).await? else {
                unreachable!("a lease tells who has it")
            };
            if acquired {
                return Ok((owner, fence));
            }
            if start.elapsed() > LEASE_WAIT {
                let text = format!("another consumer recovers the group, under fence {fence}");
                return Err(Failure::refused(text).advise("try again when it is done"));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
