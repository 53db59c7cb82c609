//! Answers what a hub's buffer cannot, out of the log.

use futures::channel::mpsc;
use futures::{Stream, StreamExt as _};
use strandline_core::coverage::{Command, History, Mark, TopicName, log, op};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::lifecycle::api::{Page, SubscriptionEnd};
use strandline_core::ticket::Ticket;
use strandline_hub::{Backend, HubHandle, ShardId};
use strandline_net::Handle;

/// Bounds of resumes that are answered out of the log.
#[derive(Clone, Copy, Debug)]
pub struct HistoryLimits {
    /// Changes, of whatever namespace, that are read for one of them. What lies further back is refused.
    pub records_max: u32,
    /// How many are answered at a time; the others wait. Each takes a subscription of the replica.
    pub under_way_max: usize,
}

impl Default for HistoryLimits {
    fn default() -> Self {
        Self { records_max: 200_000, under_way_max: 8 }
    }
}

/// One question.
pub(crate) struct Asked {
    hub: HubHandle,
    shard: ShardId,
    ticket: Ticket<op::History>,
    topic: TopicName,
    after: Mark,
    events_max: u32,
}

/// Hands questions to who may wait for their answers. As many wait as there are subscribers, at most.
pub(crate) struct LogBackend {
    pub(crate) asked: mpsc::UnboundedSender<Asked>,
}

impl Backend for LogBackend {
    fn start(&self, hub: &HubHandle, shard: ShardId, command: Command) {
        match command {
            Command::History { ticket, topic, after, events_max } => {
                let asked = Asked { hub: hub.clone(), shard, ticket, topic, after, events_max };
                if let Err(refused) = self.asked.unbounded_send(asked) {
                    // The feed is gone: nobody reads the log any more.
                    let Asked { hub, shard, ticket, .. } = refused.into_inner();
                    hub.complete(
                        shard,
                        ticket.complete(Err(unread("expected a feed that runs, found none"))),
                    );
                }
            }
            command @ (Command::Subscribe { .. }
            | Command::Unsubscribe { .. }
            | Command::Abandon { .. }
            | Command::Position { .. }
            | Command::Publish { .. }) => unreachable!("a hub fed by a log wants {command:?}"),
        }
    }
}

/// Answers until nobody asks any more.
pub(crate) async fn answer(node: &Handle, limits: HistoryLimits, asked: impl Stream<Item = Asked>) {
    let answered = asked.map(|asked| async move {
        let Asked { hub, shard, ticket, topic, after, events_max } = asked;
        let result = read(node, &topic, after, events_max, limits.records_max).await;
        hub.complete(shard, ticket.complete(result));
    });
    answered.buffer_unordered(limits.under_way_max.max(1)).for_each(|()| std::future::ready(())).await;
}

async fn read(
    node: &Handle,
    topic: &TopicName,
    after: Mark,
    events_max: u32,
    records_max: u32,
) -> Result<History, StorageFault> {
    let cursor = log::cursor(after);
    let mut changes = node.subscribe(cursor).await.map_err(|error| unread(&error.to_string()))?;
    let through = match log::judged(changes.verdict()) {
        Ok(through) => through,
        Err(refused) => return Ok(refused),
    };
    let (mut at, mut events, mut read) = (cursor.at, Vec::new(), 0_u64);
    while at < through && events.len() < events_max as usize && read < u64::from(records_max) {
        match changes.next().await {
            Some(Page::Changes { records, .. }) => {
                read += records.len() as u64;
                at = records.last().map_or(at, |record| record.version);
                events.extend(log::messages(after.incarnation, topic, &records));
            }
            // A compaction went past it meanwhile.
            Some(Page::Lost(verdict)) => {
                return Ok(log::judged(&verdict).err().unwrap_or(History::Run(events)));
            }
            Some(Page::Ended(SubscriptionEnd::Storage(fault))) => return Err(fault),
            Some(Page::Ended(SubscriptionEnd::Closing)) | None => return Err(unread("the replica closes")),
            Some(Page::ResetBegin { .. } | Page::State { .. } | Page::ResetEnd { .. }) => {
                unreachable!("no reset was asked for")
            }
        }
    }
    // Where a bound ended it, this vouches for no more than was read.
    Ok(History::Through { events, through: log::position(at) })
}

fn unread(detail: &str) -> StorageFault {
    StorageFault {
        action: StorageAction::Read,
        file: "log".into(),
        offset: None,
        cause: StorageCause::Failed,
        detail: detail.into(),
    }
}
