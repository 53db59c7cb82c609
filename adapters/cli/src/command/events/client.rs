//! Asks a server of live topics.

use crate::exit::Failure;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::time::Duration;
use strandline_core::coverage::TopicName;
use tokio::net::TcpStream;

/// Bytes of an answer that is no stream.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What to do about a publish whose answer is lost.
const REPEAT: &str = "publish again with the same --token: it is one publish";

/// Where the server is.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Server {
    /// The server of `events serve`, or the routes of an embedder.
    #[arg(long, env = "STRANDLINE_EVENTS_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Uri,
    /// Give a server up that does not take the connection, answers nothing or says nothing for so long. It
    /// says something every 15 s to those who wait for events.
    #[arg(long, value_name = "MS", default_value_t = 45_000, value_parser = clap::value_parser!(u64).range(1..))]
    silence_ms: u64,
}

/// The server said nothing for so long.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("nothing came for {} ms, the longest silence", .0.as_millis())]
pub(super) struct Silent(Duration);

/// What to ask.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) route: &'a str,
    pub(super) query: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl<'a> Ask<'a> {
    pub(super) fn get(route: &'a str, query: String) -> Self {
        Self { method: Method::GET, route, query, headers: Vec::new(), body: Vec::new() }
    }
}

#[derive(Deserialize)]
struct Problem {
    error: String,
    message: String,
}

impl Server {
    /// What `of` gives, unless the server says nothing for too long. `of` must be safe to drop.
    pub(super) async fn heard<T>(&self, of: impl Future<Output = T>) -> Result<T, Silent> {
        let longest = Duration::from_millis(self.silence_ms);
        tokio::time::timeout(longest, of).await.map_err(|_| Silent(longest))
    }

    /// Sends it and gives the answer, whatever its status.
    pub(super) async fn send(&self, ask: Ask<'_>) -> Result<Response<Incoming>, Failure> {
        let host = match (self.url.scheme_str(), self.url.authority()) {
            (Some("http"), Some(authority)) => authority.clone(),
            _ => {
                let text = format!("expected http://HOST[:PORT][/PATH], found {}", self.url);
                return Err(Failure::usage(text).advise("put what speaks TLS in front of the server only"));
            }
        };
        let unreachable = |e: &dyn std::fmt::Display| {
            Failure::peer(format!("cannot reach {host}: {e}")).advise("is `events serve` running there?")
        };
        let address = (host.host().trim_matches(['[', ']']), host.port_u16().unwrap_or(80));
        let connected = self.heard(TcpStream::connect(address)).await.map_err(|e| unreachable(&e))?;
        let socket = connected.map_err(|e| unreachable(&e))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(socket)).await.map_err(|e| unreachable(&e))?;
        // It ends with the answer's body.
        tokio::spawn(connection);
        let path = format!("{}{}?{}", self.url.path().trim_end_matches('/'), ask.route, ask.query);
        let writes = ask.method != Method::GET;
        let mut request = Request::builder().method(ask.method).uri(path).header("host", host.as_str());
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(ask.body)));
        let request = request.map_err(|e| Failure::usage(format!("cannot ask that: {e}")))?;
        let unanswered = |e: &dyn std::fmt::Display| lost(writes, format!("{host} gave no answer: {e}"));
        let answered = self.heard(sender.send_request(request)).await.map_err(|e| unanswered(&e))?;
        answered.map_err(|e| unanswered(&e))
    }

    /// Sends it and reads the answer.
    pub(super) async fn json<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Failure> {
        let writes = ask.method != Method::GET;
        let response = self.send(ask).await?;
        let status = response.status();
        if !status.is_success() {
            // The status alone says what became of it, if the words beside it are lost.
            return Err(problem(writes, status, &self.body(response).await.unwrap_or_default()));
        }
        let body = self.body(response).await.map_err(|text| lost(writes, text))?;
        serde_json::from_slice(&body).map_err(|e| lost(writes, format!("expected a JSON answer, found {e}")))
    }

    /// The whole body, or why it is not here.
    pub(super) async fn body(&self, response: Response<Incoming>) -> Result<Bytes, String> {
        let collected = self.heard(Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect()).await;
        let odd = |e: &dyn std::fmt::Display| {
            format!("expected an answer of at most {ANSWER_BYTES_MAX} bytes: {e}")
        };
        let collected = collected.map_err(|e| odd(&e))?.map_err(|e| odd(&e))?;
        Ok(collected.to_bytes())
    }
}

/// An answer that did not come whole: whoever wrote does not know whether it was done.
fn lost(writes: bool, text: String) -> Failure {
    if writes { Failure::uncertain(text).advise(REPEAT) } else { Failure::peer(text) }
}

/// What a refusal means here. What stands between here and the server refuses a write without knowing
/// whether the server did it.
pub(super) fn problem(writes: bool, status: StatusCode, body: &[u8]) -> Failure {
    let text = match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => format!("{} ({}): {}", problem.error, status.as_u16(), problem.message),
        Err(_) => format!("expected an answer of `events serve`, found the status {status}"),
    };
    match status {
        StatusCode::GATEWAY_TIMEOUT | StatusCode::BAD_GATEWAY => lost(writes, text),
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => Failure::usage(text),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED => {
            Failure::refused(text)
        }
        _ => Failure::peer(text),
    }
}

/// The parameters that name topics.
pub(super) fn query(topics: &[TopicName], more: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(topics.iter().map(|topic| ("topic", topic.as_str())));
    query.extend_pairs(more);
    query.finish()
}
