//! The changes of a node as live topics over HTTP.

use crate::entropy;
use crate::exit::Failure;
use axum::Router;
use strandline_core::coverage::HubConfig;
use strandline_core::id::Run;
use strandline_http::events::{Events, Options};
use strandline_http::ops;
use strandline_hub::{HandleOptions, HubHandle};
use strandline_net::Handle;
use strandline_replica_hub::{HistoryLimits, ReplicaHub, serve};
use tokio::task::JoinHandle;

/// A hub that is fed by a node, and its routes.
pub(crate) struct Topics {
    node: Handle,
    hub: HubHandle,
    events: Events,
    running: [JoinHandle<()>; 2],
}

impl Topics {
    /// Starts to feed a hub with the changes of `node`.
    pub(crate) async fn start(node: Handle) -> Result<Self, Failure> {
        let options = HandleOptions { report: Box::new(report), ..HandleOptions::default() };
        let (config, limits, seed) = (HubConfig::minted(), HistoryLimits::default(), entropy::random()?);
        let made = serve(node.clone(), config, options, limits, Run(1), seed).await;
        let ReplicaHub { hub, driver, feed } = made.map_err(|e| Failure::refused(e.to_string()))?;
        let running =
            [tokio::spawn(driver.run(tokio::time::sleep)), tokio::spawn(feed.run(tokio::time::sleep))];
        let events = Events::new(hub.clone(), Options::default());
        Ok(Self { node, hub, events, running })
    }

    /// The routes of the topics and of the node, with the metrics of both.
    pub(crate) fn router(&self) -> Router {
        ops::router_with(self.node.clone(), self.hub.clone()).merge(self.events.router())
    }

    /// Lets all streams end with word to connect again.
    pub(crate) fn drain(&self) {
        self.events.drain();
    }
}

impl Drop for Topics {
    fn drop(&mut self) {
        self.hub.close();
        self.running.iter().for_each(JoinHandle::abort);
    }
}

/// Logs what a hub reports.
pub(crate) fn report(_hub: &HubHandle, event: &strandline_core::coverage::Event) {
    use strandline_core::coverage::Event;
    match event {
        Event::Refused { topic, reason } => tracing::info!(%topic, reason = reason.label(), "resume refused"),
        Event::CoverageLost { topic, reason } => {
            tracing::warn!(%topic, reason = reason.label(), "coverage lost");
        }
        Event::SubscriptionEnded { topic, reason } => {
            tracing::info!(%topic, reason = reason.label(), "subscription ended");
        }
        Event::Slow { topic, .. } => tracing::info!(%topic, "a subscriber is slow"),
        Event::Ready(_) | Event::Published { .. } => {}
    }
}
