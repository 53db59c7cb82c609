//! `strandline events explain`.

use super::client::{Ask, Server, query};
use crate::exit::Failure;
use crate::output::Output;
use strandline_core::coverage::TopicName;
use strandline_http::events::Explained;

/// Say how an ID that a client brings back is judged, topic by topic, with the evidence.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    server: Server,
    /// The topics of the stream.
    #[arg(long = "topic", value_name = "TOPIC", required = true, value_parser = super::topic)]
    topics: Vec<TopicName>,
    /// What `id:` said last.
    id: String,
}

pub(super) async fn run(args: &Args, output: Output) -> Result<(), Failure> {
    let query = query(&args.topics, &[("last_event_id", &args.id)]);
    let explained: Vec<Explained> = args.server.json(Ask::get("/explain", query)).await?;
    if output.is_json() {
        return explained.iter().try_for_each(|topic| output.result("", topic));
    }
    let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let rows = explained.iter().map(|e| {
        let reason = shown(&e.reason);
        [e.topic.clone(), e.verdict.clone(), reason, shown(&e.cursor), shown(&e.floor), shown(&e.head)]
    });
    output.table(["topic", "verdict", "reason", "cursor", "floor", "head"], rows)
}
