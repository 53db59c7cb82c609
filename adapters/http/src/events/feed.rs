//! The body of a stream.

use super::access::Grant;
use super::{Events, Options};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use strandline_core::coverage::sse::{self, Frame};
use strandline_core::coverage::{Entry, Item};
use strandline_hub::{Delivery, Subscription};
use tokio::sync::watch;

/// Waiting items are put together into one piece of at least this size, if there are as many.
const PIECE_BYTES: usize = 16 << 10;

/// One subscription on its way to one client.
pub(super) struct Feed {
    subscription: Subscription,
    grant: Box<dyn Grant>,
    options: Options,
    envelope: bool,
    draining: watch::Receiver<bool>,
    /// Items that were taken to judge the resume, each with the ID after it.
    taken: VecDeque<(Delivery, String)>,
    began: bool,
    over: bool,
}

impl Feed {
    pub(super) fn new(
        events: &Events,
        subscription: Subscription,
        grant: Box<dyn Grant>,
        envelope: bool,
    ) -> Self {
        Self {
            subscription,
            grant,
            options: events.options().clone(),
            envelope,
            draining: events.inner.draining.subscribe(),
            taken: VecDeque::new(),
            began: false,
            over: false,
        }
    }

    /// Takes items beforehand.
    pub(super) async fn peek(&mut self) -> Option<&Delivery> {
        let delivery = self.subscription.next().await?;
        self.taken.push_back((delivery, self.subscription.id()));
        self.taken.back().map(|(delivery, _)| delivery)
    }

    /// Whether every topic has a position.
    pub(super) fn is_positioned(&self) -> bool {
        self.subscription.is_positioned()
    }

    /// The ID after everything taken so far.
    pub(super) fn id(&self) -> String {
        self.subscription.id()
    }

    pub(super) fn into_response(self) -> Response {
        let pieces = futures::stream::unfold(self, |mut feed| async move {
            let piece = feed.piece().await?;
            Some((Ok::<_, Infallible>(Bytes::from(piece)), feed))
        });
        stream(Body::from_stream(pieces))
    }

    /// The next bytes. They are asked for when the socket takes them: a slow reader fills its own queue
    /// in the hub, which tells it.
    async fn piece(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        if !self.began {
            // At once, so that whoever is between passes the answer on.
            self.began = true;
            sse::retry(self.options.retry(), &mut out);
            while let Some((delivery, id)) = self.taken.pop_front() {
                self.write(&delivery, &id, &mut out);
            }
        }
        while out.is_empty() {
            if self.over {
                return None;
            }
            let mut draining = self.draining.clone();
            let idle = tokio::time::sleep(Duration::from_millis(self.options.keep_alive_ms));
            tokio::select! {
                biased;
                _ = draining.wait_for(|draining| *draining) => {
                    self.over = true;
                    sse::retry(self.options.retry(), &mut out);
                }
                delivery = self.subscription.next() => match delivery {
                    Some(delivery) => self.write(&delivery, &self.subscription.id(), &mut out),
                    None => self.over = true,
                },
                () = idle => sse::keep_alive(&mut out),
            }
        }
        while out.len() < PIECE_BYTES {
            let Some(delivery) = self.subscription.try_next() else { break };
            self.write(&delivery, &self.subscription.id(), &mut out);
        }
        Some(out)
    }

    fn write(&self, delivery: &Delivery, id: &str, out: &mut Vec<u8>) {
        let Delivery { topic, item } = delivery;
        let frame = Frame { id: Some(id), topic: Some(topic.as_str()), retry_ms: None };
        match item {
            Item::Event { entry, .. } if !self.grant.event(topic, entry) => sse::moved(id, out),
            Item::Event { entry, .. } if self.envelope => envelope(topic.as_str(), entry, id, out),
            Item::SyncRequired { .. } => {
                sse::write(item, Frame { retry_ms: Some(self.options.retry()), ..frame }, out);
            }
            Item::Event { .. } | Item::Opened(_) | Item::Gap { .. } | Item::Stale { .. } | Item::Closed => {
                sse::write(item, frame, out);
            }
        }
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    topic: &'a str,
    kind: &'a str,
    at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

fn envelope(topic: &str, entry: &Entry, id: &str, out: &mut Vec<u8>) {
    let data = std::str::from_utf8(&entry.payload).ok();
    let base64 = data.is_none().then(|| STANDARD.encode(&entry.payload));
    let envelope = Envelope { topic, kind: &entry.kind, at_ms: entry.at.0, data, base64 };
    if !id.is_empty() {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    // JSON escapes line ends, so it is one line.
    serde_json::to_writer(&mut *out, &envelope).expect("a Vec takes everything, and names are text");
    out.extend_from_slice(b"\n\n");
}

/// A stream that only says when to come again: an `EventSource` gives up for good after any other status.
pub(super) fn later(options: &Options, why: &str) -> Response {
    let mut out = Vec::new();
    sse::retry(options.retry(), &mut out);
    out.extend_from_slice(b": ");
    out.extend_from_slice(why.as_bytes());
    out.extend_from_slice(b"\n\n");
    stream(Body::from(out))
}

fn stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    // A proxy that keeps, packs or gathers the stream keeps it from the client.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
