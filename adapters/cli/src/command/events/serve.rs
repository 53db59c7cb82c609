//! `strandline events serve`.

use super::status;
use crate::entropy;
use crate::exit::Failure;
use crate::output::Output;
use crate::topics::report;
use axum::Router;
use axum::routing::get;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Duration;
use strandline_core::coverage::{HubConfig, HubLimits};
use strandline_core::id::Run;
use strandline_http::events::{Events, Options};
use strandline_http::ops::hub_router;
use strandline_hub::{Driver, HandleOptions, HubHandle, NoBackend};
use strandline_redis_hub::{HubNames, RedisBackend, RedisOptions};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Serve live topics and a status page over HTTP until SIGINT or SIGTERM. There is no authorisation:
/// listen where only those may ask who may, or put your own in front.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// The address; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Share topics with other instances over this Redis or Valkey. Without it they live in this process.
    #[arg(long, env = "STRANDLINE_REDIS", value_name = "URL", hide_env_values = true, group = "server")]
    redis: Option<String>,
    /// Share topics over a Redis Cluster: some of its masters. Each topic lives on the master of its slot.
    #[arg(long, value_name = "URL,...", value_delimiter = ',', conflicts_with = "redis", group = "server")]
    redis_cluster: Vec<String>,
    /// The names of this installation at the server.
    #[arg(long, default_value = "strandline", requires = "server")]
    namespace: String,
    /// Events of each topic that the server keeps for those whom no buffer reaches, as an instance that has
    /// just started; 0 keeps none.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    history_events_max: u64,
    /// Pages of this origin, as `https://app.example`, may publish too; those of other sites may not.
    #[arg(long = "publish-origin", value_name = "ORIGIN")]
    publish_origins: Vec<String>,
    /// Events that each topic keeps for those who come back.
    #[arg(long, value_name = "N", default_value_t = HubLimits::default().buffer.events_max)]
    buffer_events_max: usize,
    /// Streams in all.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    streams_max: u32,
    /// Streams of one topic.
    #[arg(long, value_name = "N")]
    topic_streams_max: Option<u32>,
    /// How long clients have to take what waits for them at the end.
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    drain_ms: u64,
}

#[derive(Serialize)]
struct Ready {
    http: SocketAddr,
}

pub(super) async fn run(args: &Args, output: Output) -> Result<(), Failure> {
    let (hub, driver) = hub(args)?;
    let (told, told_driver) = HubHandle::in_process(Run(1), entropy::random()?);
    let running = [driver, told_driver].map(|driver| tokio::spawn(driver.run(tokio::time::sleep)));
    let teller = tokio::spawn(status::tell(hub.clone(), told.clone()));
    let options = Options { publish_origins: args.publish_origins.clone(), ..Options::default() };
    let events = Events::new(hub.clone(), options);
    // The page's hub is its own, so that it does not count itself; nobody else publishes to it.
    let watched = Events::guarded(told.clone(), Options::default(), status::ReadOnly);
    let router =
        Router::new().route("/", get(status::page)).merge(events.router()).merge(hub_router(hub.clone()));
    let router = router.nest("/status", watched.router());
    let failed = |e: std::io::Error| {
        Failure::peer(format!("cannot listen for HTTP on {}: {e}", args.listen))
            .advise("name an address of this machine that is free")
    };
    let listener = TcpListener::bind(args.listen).await.map_err(failed)?;
    let http = listener.local_addr().map_err(failed)?;
    let mut stop = Stop::new()?;
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let until = async { drop(ended.await) };
    let mut serving =
        tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(until).await });
    output.result(format!("HTTP on {http}"), &Ready { http })?;
    tokio::select! {
        () = stop.wait() => {}
        done = &mut serving => return match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(failed(e)),
            Err(e) => Err(Failure::storage(format!("the server ended: {e}"))),
        },
    }
    drop(end);
    [&events, &watched].into_iter().for_each(Events::drain);
    if tokio::time::timeout(Duration::from_millis(args.drain_ms), &mut serving).await.is_err() {
        // Whoever holds a connection open is not waited for any longer.
        serving.abort();
    }
    [&hub, &told].into_iter().for_each(HubHandle::close);
    teller.abort();
    running.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

fn hub(args: &Args) -> Result<(HubHandle, Driver), Failure> {
    let defaults = HubLimits::default();
    let limits = HubLimits {
        buffer: strandline_core::coverage::BufferLimits {
            events_max: args.buffer_events_max,
            ..defaults.buffer
        },
        subscribers_max: Some(args.streams_max),
        topic_subscribers_max: args.topic_streams_max,
        ..defaults
    };
    let (options, seed) =
        (HandleOptions { report: Box::new(report), ..HandleOptions::default() }, entropy::random()?);
    let names = HubNames::new(&args.namespace).map_err(|bad| Failure::usage(bad.to_string()))?;
    let server = RedisOptions { history_events_max: args.history_events_max, ..RedisOptions::new(names) };
    let backend = match (&args.redis, &args.redis_cluster[..]) {
        (Some(url), _) => RedisBackend::new(url, &server),
        (None, [_, ..]) => RedisBackend::cluster(&args.redis_cluster, &server),
        (None, []) => {
            let config = HubConfig { limits, ..HubConfig::minted() };
            return Ok(HubHandle::new(config, options, NoBackend, Run(1), seed));
        }
    };
    let backend = backend.map_err(|e| Failure::usage(format!("expected the URL of a Redis server: {e}")))?;
    let config = HubConfig { limits, history: args.history_events_max > 0, ..HubConfig::broker() };
    Ok(HubHandle::new(config, options, backend, Run(1), seed))
}

/// The signals that end it.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Self, Failure> {
        let signal = |kind| signal(kind).map_err(|e| Failure::storage(format!("cannot watch signals: {e}")));
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
