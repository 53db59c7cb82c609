//! `strandline events publish`.

use super::client::{Ask, Server, query};
use crate::content;
use crate::exit::Failure;
use crate::output::Output;
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::path::PathBuf;
use strandline_core::coverage::TopicName;

/// More than any server takes as one event.
const EVENT_BYTES_MAX: u64 = 16 << 20;

/// Publish a file, or standard input, as one event.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    server: Server,
    #[arg(value_parser = super::topic)]
    topic: TopicName,
    /// The event's bytes; standard input if none is named.
    file: Option<PathBuf>,
    /// A name for clients to dispatch on.
    #[arg(long, default_value = "")]
    kind: String,
    /// Repeats with one token are one publish.
    #[arg(long)]
    token: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct Published {
    id: String,
    position: String,
    repeated: bool,
}

pub(super) async fn run(args: &Args, output: Output) -> Result<(), Failure> {
    let ask = Ask {
        method: Method::POST,
        route: "/publish",
        query: query(std::slice::from_ref(&args.topic), &[("kind", &args.kind)]),
        headers: args.token.iter().map(|token| ("idempotency-key", token.clone())).collect(),
        body: read(args)?,
    };
    let published: Published = args.server.json(ask).await?;
    let again = if published.repeated { ", published before" } else { "" };
    output.result(format!("{} at {}{again}", published.id, published.position), &published)
}

fn read(args: &Args) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = match &args.file {
        Some(path) => {
            let file = content::open(path)?;
            file.take(EVENT_BYTES_MAX + 1).read_to_end(&mut bytes)
        }
        None => io::stdin().lock().take(EVENT_BYTES_MAX + 1).read_to_end(&mut bytes),
    };
    read.map_err(|e| Failure::storage(format!("cannot read the event: {e}")))?;
    if bytes.len() as u64 > EVENT_BYTES_MAX {
        return Err(Failure::usage(format!(
            "expected an event of at most {EVENT_BYTES_MAX} bytes, found more"
        )));
    }
    Ok(bytes)
}
