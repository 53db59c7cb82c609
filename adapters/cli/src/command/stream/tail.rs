//! `strandline stream tail`.

use super::fault;
use super::show;
use super::target::{Access, Answered, Beside, Place, Target, adopting, closing};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::Output;
use strandline_core::stream::reader::{Read, Reader};
use strandline_core::stream::reply::{Dropped, GapReason};
use strandline_core::stream::settings::TakeSettings;
use strandline_core::stream::{Start, StreamName};

/// How long one wait for news lasts.
const WAIT_MS: u64 = 2_000;

/// Print the events of streams from a position on, and with --follow those that come.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    #[arg(required = true, value_parser = super::stream)]
    streams: Vec<StreamName>,
    /// Where to begin: 0 for the oldest event, $ for the newest, or behind a position.
    #[arg(long, default_value = "0", value_name = "ID", value_parser = start)]
    from: Start,
    /// Only events of this topic.
    #[arg(long)]
    topic: Option<String>,
    /// Only events whose topic this regular expression matches.
    #[arg(long, conflicts_with = "topic")]
    pattern: Option<String>,
    /// Go on with what comes; on a server only.
    #[arg(long)]
    follow: bool,
    /// End after so many events.
    #[arg(long, value_name = "EVENTS")]
    max: Option<u64>,
}

pub(super) fn start(text: &str) -> Result<Start, String> {
    Start::parse(text)
        .ok_or_else(|| format!("expected 0, $ or a position like 1700000000123-0, found {text:?}"))
}

/// In a directory nothing can come while this process has it open.
pub(super) fn may_follow(target: &Target, follow: bool) -> Result<(), Failure> {
    if follow && !target.is_remote() {
        let text = "expected --redis with --follow: nobody can publish while this program has the directory";
        return Err(Failure::usage(text));
    }
    Ok(())
}

pub(super) async fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let mut settings = TakeSettings::new().start(args.from);
    if let Some(topic) = &args.topic {
        settings = settings.topic(topic.as_str());
    }
    if let Some(pattern) = &args.pattern {
        settings = settings.pattern(pattern.as_str());
    }
    let reader = Reader::new(settings.taking().map_err(|error| fault::caller(&error))?);
    let mut target = args.place.open(context, Access::Existing).await?;
    let done = async {
        may_follow(&target, args.follow)?;
        read(args, context, &mut target, reader).await
    };
    let done = done.await;
    closing(target, done)
}

async fn read(
    args: &Args,
    context: &Context,
    target: &mut Target,
    mut reader: Reader,
) -> Result<(), Failure> {
    for stream in &args.streams {
        reader.attach(&adopting(stream)?).map_err(|error| fault::caller(&error))?;
        while step(target, &mut reader, context.output).await?.is_some() {}
    }
    let mut left = args.max.unwrap_or(u64::MAX);
    loop {
        reader.pass().map_err(|error| fault::caller(&error))?;
        let mut quiet = true;
        while let Some(read) = step(target, &mut reader, context.output).await? {
            let (stream, entries, gap) = match read {
                Read::More => continue,
                Read::Entries(stream, entries, dropped) => {
                    (stream, entries, dropped.map(|dropped| (GapReason::Trimmed, dropped)))
                }
                Read::Lost(stream, after) => (
                    stream,
                    Vec::new(),
                    Some((GapReason::LogLost, Dropped { after, before: None, events: None })),
                ),
            };
            if let Some((why, dropped)) = gap {
                show::gap(context.output, &stream, why, dropped)?;
            }
            quiet &= entries.is_empty();
            for entry in &entries {
                if left == 0 {
                    return Ok(());
                }
                show::entry(context.output, entry)?;
                left -= 1;
            }
        }
        if left == 0 || (quiet && !args.follow) {
            return Ok(());
        }
        if quiet {
            target.wait(reader.positions(), WAIT_MS).await;
        }
    }
}

async fn step(target: &mut Target, reader: &mut Reader, output: Output) -> Result<Option<Read>, Failure> {
    let Some(Answered { op, result, beside }) = target.drive(|nonce| reader.op(nonce)).await? else {
        return Ok(None);
    };
    if let Beside::Server(standing) = beside
        && let Some(failover) = reader.heard(&op, standing.as_ref())
    {
        show::failover(output, &failover)?;
    }
    reader.answered(&op, result).map(Some).map_err(|error| fault::refusal(target, &error))
}
