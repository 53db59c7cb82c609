//! `strandline stream groups`.

use super::target::{Access, Place, Target, adopting, closing};
use crate::context::Context;
use crate::exit::Failure;
use serde::Serialize;
use strandline_core::stream::limits::GROUPS_LISTED_MAX;
use strandline_core::stream::listing::{GroupState, OldestPending};
use strandline_core::stream::reply::Told;
use strandline_core::stream::{StreamName, Verb};

/// Show the consumer groups of a stream: contract, cursor, what is pending and for how long, how many events
/// they were not given yet, members, fence.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    #[arg(value_parser = super::stream)]
    stream: StreamName,
}

#[derive(Serialize)]
struct Line {
    group: String,
    /// Filter, start, no-ack, grace; `None` where only a cursor is left.
    contract: Option<Vec<String>>,
    /// Up to where everything is settled.
    cursor: Option<String>,
    pending: u64,
    lag: Option<u64>,
    oldest: Option<Oldest>,
    members: Vec<String>,
    /// The number of the last lease.
    fence: u64,
    later: u64,
    missed: u64,
}

#[derive(Serialize)]
struct Oldest {
    id: String,
    /// `None` for one that was given back.
    consumer: Option<String>,
    idle_ms: u64,
    deliveries: u64,
}

impl Oldest {
    fn of(pending: OldestPending) -> Self {
        let OldestPending { id, consumer, idle_ms, count } = pending;
        let consumer = consumer.map(|consumer| consumer.to_string());
        Self { id: id.to_string(), consumer, idle_ms, deliveries: count }
    }
}

impl Line {
    fn of(state: GroupState) -> Self {
        Self {
            group: state.group.to_string(),
            contract: state.contract.map(|contract| contract.fields().map(|(_, value)| value).to_vec()),
            cursor: state.cursor.map(|id| id.to_string()),
            pending: state.pending,
            lag: state.lag,
            oldest: state.oldest.map(Oldest::of),
            members: state.members.into_iter().map(|member| member.consumer.to_string()).collect(),
            fence: state.fence,
            later: state.later,
            missed: state.missed,
        }
    }

    fn row(self) -> [String; 8] {
        let shown = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        // What was given back waits for nobody in particular.
        let oldest = self.oldest.filter(|oldest| oldest.consumer.is_some());
        [
            self.group,
            shown(self.contract.map(|fields| fields.join(" "))),
            shown(self.cursor),
            self.pending.to_string(),
            shown(self.lag.map(|lag| lag.to_string())),
            shown(oldest.map(|oldest| format!("{} ms, {}x", oldest.idle_ms, oldest.deliveries))),
            self.members.join(" "),
            self.fence.to_string(),
        ]
    }
}

const HEAD: [&str; 8] = ["group", "contract", "cursor", "pending", "lag", "oldest", "members", "fence"];

async fn all(target: &mut Target, stream: &StreamName) -> Result<Vec<Line>, Failure> {
    let (mut handle, mut after, mut lines) = (adopting(stream)?, None, Vec::new());
    loop {
        let verb = Verb::Groups { after: after.take(), groups_max: GROUPS_LISTED_MAX };
        let Told::Groups(page) = target.ask(&mut handle, verb).await? else {
            return Err(Failure::peer("expected the groups of the stream, found something else"));
        };
        after = page.groups.last().map(|state| state.group.clone()).filter(|_| page.more);
        lines.extend(page.groups.into_iter().map(Line::of));
        if after.is_none() {
            return Ok(lines);
        }
    }
}

pub(super) async fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let mut target = args.place.open(context, Access::Existing).await?;
    let lines = all(&mut target, &args.stream).await;
    let done = lines.and_then(|lines| {
        if context.output.is_json() {
            return lines.iter().try_for_each(|line| context.output.result("", line));
        }
        context.output.table(HEAD, lines.into_iter().map(Line::row))
    });
    closing(target, done)
}
