//! `/healthz`, `/readyz` and `/metrics` of a node, `/metrics` of a hub of live topics, and the page of
//! whoever uses streams.
//!
//! The answers say how a node stands and name nobody: labels are states and reasons, closed sets all of
//! them, never a peer's name. There is no authorisation: listen where only those may ask who may know.

mod hub;
mod metrics;
mod page;
mod streams;

pub use hub::hub_metrics;
pub use metrics::metrics;
pub use streams::stream_metrics;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use std::io;
use strandline_core::lifecycle::api::Status;
use strandline_hub::HubHandle;
use strandline_net::Handle;
use tokio::net::TcpListener;

/// The content type of Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers for a node.
///
/// | path | answer |
/// |---|---|
/// | `/healthz` | 200 while the node answers and its journal goes on; else 503 |
/// | `/readyz` | 200 if it may be asked and written to, or followed; else 503 with the reason |
/// | `/metrics` | how it stands, in Prometheus' text format |
pub fn router(node: Handle) -> Router {
    routes(node, get(|State(node): State<Handle>| async move { node_page(&node, String::new).await }))
}

/// The same for a node whose changes are served as live topics: `/metrics` says how those stand too.
pub fn router_with(node: Handle, hub: HubHandle) -> Router {
    let page = move |State(node): State<Handle>| async move { node_page(&node, || hub_metrics(&hub)).await };
    routes(node, get(page))
}

fn routes(node: Handle, metrics: MethodRouter<Handle>) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", metrics)
        .with_state(node)
}

/// `/metrics` of a hub of live topics.
pub fn hub_router(hub: HubHandle) -> Router {
    Router::new().route("/metrics", get(move || async move { metrics_text(hub_metrics(&hub)) }))
}

/// Serves [`router`] until `until` ends; requests under way are answered.
///
/// Dropped: it stops at once.
///
/// # Errors
/// What the listener reports.
pub async fn serve(
    listener: TcpListener,
    node: Handle,
    until: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(node)).with_graceful_shutdown(until).await
}

/// Why a node is not ready, if it is not.
#[must_use]
pub fn unready(status: &Status) -> Option<String> {
    if let Some(fault) = &status.halted {
        return Some(format!("halted: {fault}"));
    }
    if status.installing {
        return Some("installing: a snapshot is being taken up, reads show what was before".into());
    }
    status.fenced.as_ref().map(|reason| format!("fenced: it refuses writes: {reason}"))
}

/// Why a node is not well, if it is not.
#[must_use]
pub fn unhealthy(status: &Status) -> Option<String> {
    status.halted.as_ref().map(|fault| format!("halted: {fault}"))
}

async fn healthz(State(node): State<Handle>) -> Response {
    judged(&node, unhealthy).await
}

async fn readyz(State(node): State<Handle>) -> Response {
    judged(&node, unready).await
}

async fn judged(node: &Handle, why_not: fn(&Status) -> Option<String>) -> Response {
    let why_not = match node.status().await {
        Ok(status) => why_not(&status),
        Err(unavailable) => Some(unavailable.to_string()),
    };
    match why_not {
        None => (StatusCode::OK, "ok\n".to_owned()).into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// The metrics of a node, and more of what runs with it.
async fn node_page(node: &Handle, more: impl FnOnce() -> String) -> Response {
    match node.status().await {
        Ok(status) => metrics_text(metrics(&status) + &more()),
        Err(unavailable) => (StatusCode::SERVICE_UNAVAILABLE, format!("{unavailable}\n")).into_response(),
    }
}

fn metrics_text(text: String) -> Response {
    ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response()
}
