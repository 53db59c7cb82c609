//! `strandline stream add` and `add-once`.

use super::target::{Access, Contract, Place, Target, closing};
use super::{fault, position};
use crate::content;
use crate::context::Context;
use crate::exit::Failure;
use serde::Serialize;
use std::io::{self, Read};
use std::path::PathBuf;
use strandline_core::stream::limits::EVENT_BYTES_MAX;
use strandline_core::stream::op::Condition;
use strandline_core::stream::reply::Told;
use strandline_core::stream::{Event, EventId, Handle, OnceKey, StreamName, Verb};

/// What is published.
#[derive(clap::Args, Debug)]
struct What {
    #[command(flatten)]
    place: Place,
    #[arg(value_parser = super::stream)]
    stream: StreamName,
    /// The event's name; readers may dispatch on it.
    name: String,
    /// The event's bytes; standard input if none is named.
    file: Option<PathBuf>,
    /// The event's topic; filters look at it.
    #[arg(long)]
    topic: Option<String>,
    #[command(flatten)]
    contract: Contract,
}

/// Publish a file, or standard input, as one event; makes the stream if need be.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    what: What,
    /// Only if the stream has events; makes nothing.
    #[arg(long)]
    if_exists: bool,
    /// Only if this is the last position given out; makes nothing.
    #[arg(long, value_name = "ID", conflicts_with = "if_exists", value_parser = position)]
    after: Option<EventId>,
}

/// Publish under a key: however often it is run with one key, the event is there once.
#[derive(clap::Args, Debug)]
pub(super) struct OnceArgs {
    #[command(flatten)]
    what: What,
    /// The key; 1 to 256 bytes.
    #[arg(long)]
    key: String,
}

#[derive(Serialize)]
struct Published {
    id: String,
    published: bool,
    generation: u64,
}

impl What {
    async fn open(&self, context: &Context, access: Access) -> Result<(Target, Handle, Event), Failure> {
        let handle = self.contract.handle(&self.stream)?;
        let mut event = Event::new(self.name.as_str(), read(self.file.as_ref())?);
        if let Some(topic) = &self.topic {
            event = event.and_then(|event| event.with_topic(topic.as_str()));
        }
        let event = event.map_err(|error| fault::caller(&error))?;
        Ok((self.place.open(context, access).await?, handle, event))
    }
}

fn read(file: Option<&PathBuf>) -> Result<Vec<u8>, Failure> {
    let (mut bytes, most) = (Vec::new(), EVENT_BYTES_MAX as u64 + 1);
    let read = match file {
        Some(path) => {
            let file = content::open(path)?;
            file.take(most).read_to_end(&mut bytes)
        }
        None => io::stdin().lock().take(most).read_to_end(&mut bytes),
    };
    read.map_err(|e| Failure::storage(format!("cannot read the event: {e}")))?;
    Ok(bytes)
}

fn tell(context: &Context, handle: &Handle, id: EventId, published: bool) -> Result<(), Failure> {
    let generation = handle.bound().map_or(0, |bound| bound.generation);
    let id = id.to_string();
    let text = if published { id.clone() } else { format!("{id}, published before") };
    context.output.result(text, &Published { id, published, generation })
}

pub(super) async fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let (condition, access) = match (args.if_exists, args.after) {
        (false, None) => (Condition::Always, Access::Make),
        (true, _) => (Condition::IfExists, Access::Existing),
        (false, Some(id)) => (Condition::After(id), Access::Existing),
    };
    let (mut target, mut handle, event) = args.what.open(context, access).await?;
    let told = target.ask(&mut handle, Verb::Add { event, condition }).await;
    let done = told.and_then(|told| {
        let Told::Added { id } = told else { unreachable!("an add tells a position") };
        let id = id.ok_or_else(|| {
            Failure::refused("not published: the condition does not hold")
                .advise("`stream explain` shows the last position")
        })?;
        tell(context, &handle, id, true)
    });
    closing(target, done)
}

pub(super) async fn run_once(args: &OnceArgs, context: &Context) -> Result<(), Failure> {
    let key = OnceKey::new(args.key.as_str()).map_err(|error| fault::caller(&error))?;
    let (mut target, mut handle, event) = args.what.open(context, Access::Make).await?;
    let told = target.ask(&mut handle, Verb::AddOnce { key, event }).await;
    let done = told.and_then(|told| {
        let Told::AddedOnce { id, published } = told else { unreachable!("add_once tells a position") };
        tell(context, &handle, id, published)
    });
    closing(target, done)
}
