//! Asks a server of live topics.

use crate::exit::Failure;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use strandline_core::coverage::TopicName;
use tokio::net::TcpStream;

/// Bytes of an answer that is no stream.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where the server is.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Server {
    /// The server of `events serve`, or the routes of an embedder.
    #[arg(long, env = "STRANDLINE_EVENTS_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Uri,
}

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
        let socket = TcpStream::connect(address).await.map_err(|e| unreachable(&e))?;
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
        sender.send_request(request).await.map_err(|e| {
            let text = format!("{host} gave no answer: {e}");
            if writes { Failure::uncertain(text) } else { Failure::peer(text) }
        })
    }

    /// Sends it and reads the answer.
    pub(super) async fn json<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, Failure> {
        let writes = ask.method != Method::GET;
        let response = self.send(ask).await?;
        let status = response.status();
        if !status.is_success() {
            return Err(problem(status, &body(response).await?));
        }
        serde_json::from_slice(&body(response).await?).map_err(|e| {
            let text = format!("expected a JSON answer, found {e}");
            if writes { Failure::uncertain(text) } else { Failure::peer(text) }
        })
    }
}

/// The whole body.
pub(super) async fn body(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    body.map(http_body_util::Collected::to_bytes)
        .map_err(|e| Failure::peer(format!("expected an answer of at most {ANSWER_BYTES_MAX} bytes: {e}")))
}

/// What a refusal means here.
pub(super) fn problem(status: StatusCode, body: &[u8]) -> Failure {
    let text = match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => format!("{} ({}): {}", problem.error, status.as_u16(), problem.message),
        Err(_) => format!("expected an answer of `events serve`, found the status {status}"),
    };
    match status {
        StatusCode::GATEWAY_TIMEOUT => {
            Failure::uncertain(text).advise("publish again with the same --token: it is one publish")
        }
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
