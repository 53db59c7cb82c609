//! A chat page: its messages are a state that is fetched, and what is said later comes live. A page that was
//! asleep, or whose connection broke, is given what it missed, or fetches the state anew.
//!
//! `cargo run -p strandline-http --example chat -- 127.0.0.1:8080`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;
use strandline_core::coverage::{Outcome, Publish, TopicName};
use strandline_core::id::Run;
use strandline_http::events::{Access, Action, Denied, Events, Gate, Grant, Options};
use strandline_hub::HubHandle;
use tokio::sync::Mutex;

/// Pages listen; only this program publishes, by `/say`.
struct Listeners;

impl Gate for Listeners {
    fn admit(&self, _request: &axum::http::request::Parts) -> Result<Box<dyn Grant>, Denied> {
        Ok(Box::new(Self))
    }
}

impl Grant for Listeners {
    fn topic(&self, _topic: &TopicName, action: Action) -> Access {
        match action {
            Action::Subscribe => Access::Allowed,
            Action::Publish => Access::Denied,
        }
    }
}

struct Chat {
    topic: TopicName,
    hub: HubHandle,
    /// Everything that was said. Held while a message goes out, so that both have one order.
    messages: Mutex<Vec<Value>>,
}

async fn page() -> Html<&'static str> {
    Html(include_str!("chat.html"))
}

async fn messages(State(chat): State<Arc<Chat>>) -> Json<Vec<Value>> {
    Json(chat.messages.lock().await.clone())
}

async fn say(State(chat): State<Arc<Chat>>, text: String) -> StatusCode {
    let mut messages = chat.messages.lock().await;
    let message = json!({ "number": messages.len() + 1, "text": text });
    // In the state first: whoever is told to fetch it finds what the stream has told.
    messages.push(message.clone());
    match chat.hub.publish(&chat.topic, Publish::new(message.to_string().as_bytes())).await {
        Ok(Outcome::Accepted(_)) => StatusCode::NO_CONTENT,
        Ok(Outcome::NoSequence | Outcome::Refused(_) | Outcome::Uncertain(_)) | Err(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// The page, its state, and its live topic.
pub(crate) fn app(hub: HubHandle) -> Router {
    let topic = TopicName::parse("chat").expect("a name that a topic can have");
    let live = Events::guarded(hub.clone(), Options::default(), Listeners).router();
    let chat = Arc::new(Chat { topic, hub, messages: Mutex::default() });
    Router::new()
        .route("/", get(page))
        .route("/messages", get(messages))
        .route("/say", post(say))
        .with_state(chat)
        .nest("/live", live)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("expected an address to listen on")?;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed)?;
    let (hub, driver) = HubHandle::in_process(Run(1), seed);
    tokio::spawn(driver.run(tokio::time::sleep));
    Ok(axum::serve(tokio::net::TcpListener::bind(address).await?, app(hub)).await?)
}
