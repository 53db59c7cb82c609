//! `strandline events tail`.

use super::client::{Ask, Server, problem, query};
use crate::entropy;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strandline_core::coverage::TopicName;

/// Bytes of one line of the stream.
const LINE_BYTES_MAX: usize = 32 << 20;
/// The shortest wait before a lost stream is asked for again; the longest is thirty times that.
const RETRY_MS: u64 = 500;

/// Print events as they come, each with the ID to go on from; connects again until interrupted.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    server: Server,
    #[arg(required = true, value_parser = super::topic)]
    topics: Vec<TopicName>,
    /// Go on after this ID.
    #[arg(long)]
    id: Option<String>,
    /// Where topics begin that the ID has no position of: now, earliest, last or since:MILLISECONDS.
    #[arg(long, default_value = "now")]
    from: String,
    /// End after so many events.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// What is printed, a line each.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    Event {
        id: &'a str,
        #[serde(flatten)]
        carried: &'a Event,
    },
    SyncRequired {
        id: &'a str,
        topic: &'a str,
        reason: &'a str,
    },
}

#[derive(Deserialize, Serialize)]
struct Event {
    topic: String,
    kind: String,
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

#[derive(Deserialize)]
struct Notice {
    topic: String,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    id: Option<String>,
    topics: Vec<Notice>,
}

#[derive(Default)]
struct Frame {
    event: String,
    data: String,
    id: Option<String>,
}

struct Tail<'a> {
    args: &'a Args,
    output: Output,
    id: Option<String>,
    left: Option<u64>,
}

pub(super) async fn run(args: &Args, output: Output) -> Result<(), Failure> {
    let mut tail = Tail { args, output, id: args.id.clone(), left: args.count };
    let (mut failures, mut connected) = (0_u32, false);
    while tail.left != Some(0) {
        match tail.connection(&mut connected).await {
            Ok(over) if over => return Ok(()),
            Ok(_) => failures = 0,
            // What never worked is no outage, and what is refused stays refused.
            Err(failure) if !connected || failure.exit != Exit::Peer => return Err(failure),
            Err(failure) => {
                output.note(&failure.message);
                failures = (failures + 1).min(5);
            }
        }
        if tail.left != Some(0) {
            pause(failures).await?;
        }
    }
    Ok(())
}

/// Longer after each failure, and never all clients together.
async fn pause(failures: u32) -> Result<(), Failure> {
    let longest = (RETRY_MS << failures).min(RETRY_MS * 30);
    let jitter = u64::from_le_bytes(entropy::random()?) % (longest / 2 + 1);
    tokio::time::sleep(Duration::from_millis(longest / 2 + jitter)).await;
    Ok(())
}

impl Tail<'_> {
    /// One connection, to its end. Returns whether the server says that nothing more comes.
    async fn connection(&mut self, connected: &mut bool) -> Result<bool, Failure> {
        let mut more = vec![("envelope", "json"), ("client", "fetch"), ("from", self.args.from.as_str())];
        more.extend(self.id.iter().map(|id| ("last_event_id", id.as_str())));
        let ask = Ask::get("/events", query(&self.args.topics, &more));
        let response = self.args.server.send(ask).await?;
        match response.status() {
            StatusCode::OK => *connected = true,
            StatusCode::NO_CONTENT => return Ok(true),
            StatusCode::CONFLICT | StatusCode::GONE => {
                *connected = true;
                let body = self.args.server.body(response).await.map_err(Failure::peer)?;
                return self.refused(&body).map(|()| false);
            }
            status => {
                let body = self.args.server.body(response).await.unwrap_or_default();
                return Err(problem(false, status, &body));
            }
        }
        self.stream(response.into_body()).await.map(|()| false)
    }

    fn refused(&mut self, body: &[u8]) -> Result<(), Failure> {
        let refusal: Refusal = serde_json::from_slice(body)
            .map_err(|e| Failure::peer(format!("expected a refusal as JSON, found {e}")))?;
        // Without a position the old one stays, and is refused again.
        let Some(id) = refusal.id else { return Ok(()) };
        for notice in refusal.topics {
            if let Some(reason) = &notice.reason {
                self.sync_required(&id, &notice.topic, reason)?;
            }
        }
        self.id = Some(id);
        Ok(())
    }

    async fn stream(&mut self, mut body: Incoming) -> Result<(), Failure> {
        let (mut rest, mut frame) = (Vec::new(), Frame::default());
        let cut = |e: &dyn std::fmt::Display| Failure::peer(format!("the stream was cut: {e}"));
        // A connection of which the other end is gone says nothing, and does not end either.
        while let Some(piece) = self.args.server.heard(body.frame()).await.map_err(|e| cut(&e))? {
            let piece = piece.map_err(|e| cut(&e))?;
            let Some(bytes) = piece.data_ref() else { continue };
            rest.extend_from_slice(bytes);
            let mut begin = 0;
            while let Some(end) = rest[begin..].iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&rest[begin..begin + end]).into_owned();
                begin += end + 1;
                if line.is_empty() {
                    self.take(std::mem::take(&mut frame))?;
                    if self.left == Some(0) {
                        return Ok(());
                    }
                } else {
                    frame.line(&line);
                }
            }
            rest.drain(..begin);
            if rest.len() > LINE_BYTES_MAX {
                return Err(Failure::peer(format!(
                    "expected lines of at most {LINE_BYTES_MAX} bytes, found more"
                )));
            }
        }
        Ok(())
    }

    fn take(&mut self, frame: Frame) -> Result<(), Failure> {
        let id = frame.id.clone().or_else(|| self.id.clone()).unwrap_or_default();
        let odd = |e: serde_json::Error| Failure::peer(format!("expected an event of the stream, found {e}"));
        match frame.event.as_str() {
            _ if frame.data.is_empty() => {}
            "" => {
                let event: Event = serde_json::from_str(&frame.data).map_err(odd)?;
                let data = event.data.as_ref().or(event.base64.as_ref()).map_or("", String::as_str);
                let text = format!(
                    "{} {} {data}",
                    event.topic,
                    if event.kind.is_empty() { "-" } else { &event.kind }
                );
                self.output.result(text, &Line::Event { id: &id, carried: &event })?;
                self.left = self.left.map(|left| left - 1);
            }
            "sync_required" => {
                let notice: Notice = serde_json::from_str(&frame.data).map_err(odd)?;
                self.sync_required(&id, &notice.topic, notice.reason.as_deref().unwrap_or_default())?;
            }
            // Opened, or a gap that is filled.
            _ => {}
        }
        // Only what was printed counts as seen.
        if frame.id.is_some() {
            self.id = frame.id;
        }
        Ok(())
    }

    fn sync_required(&self, id: &str, topic: &str, reason: &str) -> Result<(), Failure> {
        let text = format!("{topic} sync required: {reason}");
        self.output.result(text, &Line::SyncRequired { id, topic, reason })
    }
}

impl Frame {
    fn line(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event = value.to_owned(),
            "data" => self.data.push_str(value),
            "id" if !value.is_empty() => self.id = Some(value.to_owned()),
            _ => {}
        }
    }
}
