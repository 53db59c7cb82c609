//! Live topics over HTTP: a hub behind `/events`, `/publish` and `/position`.
//!
//! | path | does |
//! |---|---|
//! | `GET /events?topics=a,b` | the stream, as `text/event-stream`; see [`subscribe`] for the parameters |
//! | `POST /publish?topic=a` | publishes the body; `kind=` names it, the header `idempotency-key` makes repeats one; refused to pages of other sites |
//! | `GET /position?topics=a,b` | the ID that goes with a state which is read afterwards |
//! | `GET /explain?topics=a,b&last_event_id=…` | how that ID would be judged, with the evidence |
//! | `GET /strandline.js` | the client for browsers |
//!
//! A page asks for its position **first**, then fetches its state, then subscribes after that position.
//! An `EventSource` never connects again after a status of 4xx or 5xx, so it always gets 200: a refused
//! resume is the event `sync_required` in its stream. A client that can read a status asks with
//! `client=fetch` or takes `application/json`, and gets 409 or 410.
//!
//! ```no_run
//! use axum::Router;
//! use strandline_core::id::Run;
//! use strandline_http::events::{Events, Options};
//! use strandline_hub::HubHandle;
//!
//! # async fn example(seed: [u8; 32]) -> std::io::Result<()> {
//! let (hub, driver) = HubHandle::in_process(Run(1), seed);
//! tokio::spawn(driver.run(tokio::time::sleep));
//! let events = Events::new(hub, Options::default());
//! let app: Router = Router::new().nest("/live", events.router());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! axum::serve(listener, app).await
//! # }
//! ```

mod access;
mod answer;
mod ask;
mod body;
mod explain;
mod feed;
mod publish;
mod site;
mod subscribe;

pub use access::{Access, Action, Denied, Everyone, Gate, Grant};
pub use answer::Problem;
pub use ask::{Ask, BadAsk, LastEventId};
pub use explain::{Explained, explain};
pub use subscribe::subscribe;

use axum::Router;
use axum::http::header;
use axum::routing::{get, post};
use std::sync::Arc;
use std::time::Duration;
use strandline_hub::HubHandle;
use tokio::sync::watch;

/// The client for browsers: an ECMAScript module without dependencies.
pub const CLIENT: &str = include_str!("../../client/strandline.js");

/// Periods and bounds of the responder. The bounds on streams are the hub's own: per topic, per client,
/// in all.
#[derive(Clone, Debug)]
pub struct Options {
    /// A stream that was silent for this long is sent a comment, so that nobody between takes it for
    /// dead. It moves no cursor.
    pub keep_alive_ms: u64,
    /// How long a client waits at least before it connects again.
    pub retry_ms: u64,
    /// At most this much is added to each such wait at random, so that clients which were cut off
    /// together do not come back together.
    pub retry_jitter_ms: u64,
    /// Bytes of one publish.
    pub body_bytes_max: usize,
    /// How long a client may take to send one, from its headers on. Whoever is slower is told 408, and
    /// nothing was published.
    pub body_ms: u64,
    /// Origins, as browsers write them (`https://app.example`), whose pages may publish beside our own. A
    /// page of any other site is refused, whatever cookies its browser sends along.
    pub publish_origins: Vec<String>,
    /// How long `/position`, and a client that wants a status, wait for the hub; and how long the rest of
    /// a refused publish is read, so that its client sees why.
    pub answer_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_alive_ms: 15_000,
            retry_ms: 1_000,
            retry_jitter_ms: 2_000,
            body_bytes_max: 256 << 10,
            body_ms: 30_000,
            publish_origins: Vec::new(),
            answer_ms: 5_000,
        }
    }
}

impl Options {
    /// A wait before a client connects again.
    fn retry(&self) -> u64 {
        let mut bytes = [0; 8];
        // Without randomness the wait is only less well spread.
        let _ = getrandom::fill(&mut bytes);
        self.retry_ms + u64::from_le_bytes(bytes) % self.retry_jitter_ms.saturating_add(1)
    }

    fn body(&self) -> Duration {
        Duration::from_millis(self.body_ms)
    }

    fn answer(&self) -> Duration {
        Duration::from_millis(self.answer_ms)
    }
}

struct Inner {
    hub: HubHandle,
    options: Options,
    gate: Box<dyn Gate>,
    draining: watch::Sender<bool>,
}

/// A hub as it is served. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    inner: Arc<Inner>,
}

impl Events {
    /// Serves `hub` to everyone.
    #[must_use]
    pub fn new(hub: HubHandle, options: Options) -> Self {
        Self::guarded(hub, options, Everyone)
    }

    /// Serves `hub` to those whom `gate` lets through.
    #[must_use]
    pub fn guarded(hub: HubHandle, options: Options, gate: impl Gate) -> Self {
        let (draining, _) = watch::channel(false);
        Self { inner: Arc::new(Inner { hub, options, gate: Box::new(gate), draining }) }
    }

    /// The hub.
    #[must_use]
    pub fn hub(&self) -> &HubHandle {
        &self.inner.hub
    }

    /// The routes of the table above.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/events", get(subscribe::events))
            .route("/publish", post(publish::publish))
            .route("/position", get(subscribe::position))
            .route("/explain", get(explain::page))
            .route("/strandline.js", get(script))
            .with_state(self.clone())
    }

    /// Ends all streams with word to connect again, spread over the jitter; whoever comes meanwhile is
    /// sent away the same way. The hub goes on, and so does `/publish`.
    pub fn drain(&self) {
        self.inner.draining.send_replace(true);
    }

    fn is_draining(&self) -> bool {
        *self.inner.draining.borrow()
    }

    fn options(&self) -> &Options {
        &self.inner.options
    }

    fn gate(&self) -> &dyn Gate {
        &*self.inner.gate
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Events({:?}, draining: {})", self.inner.hub, self.is_draining())
    }
}

async fn script() -> impl axum::response::IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, CLIENT)
}
