//! `strandline serve`: a node.

use crate::access::{Reload, Source};
use crate::backend::{NodeBackend, open_here};
use crate::context::Context;
use crate::control::server::Server as Control;
use crate::epoch_file::{self, EpochFile};
use crate::exit::Failure;
use crate::output::Output;
use crate::topics::Topics;
use serde::Serialize;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strandline_core::error::StorageFault;
use strandline_core::lifecycle::api::Event;
use strandline_file::node::{Node, NodeConfig, NodeHandle};
use strandline_net::{Access, AccessError, NetConfig, NetworkError};
use strandline_tokio::{ServeConfig, ServeError, Server};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Serve the directory: listen for peers, call peers, take commands through the directory's control
/// socket. Ends on SIGINT or SIGTERM once everything written is durable.
#[derive(clap::Args, Debug)]
#[command(after_help = PEERS_HELP)]
pub(crate) struct Args {
    /// Where to listen for peers; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The peers file.
    #[arg(long, value_name = "FILE")]
    peers: PathBuf,
    /// Write the address listened on to this file once the node is ready.
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Listen to, and call, other machines without TLS. Whoever is on the way can then read tokens and
    /// records, and change them: only for networks that nobody else is on.
    #[arg(long)]
    plaintext: bool,
    #[command(flatten)]
    policy: PolicyArgs,
    /// Take each epoch that this file gives, as `fence --epoch` does: for a lease whose agent writes its
    /// fence token there, in decimal digits, by renaming. Looked at four times a second; missing or empty:
    /// nothing is taken.
    #[arg(long, value_name = "FILE")]
    epoch_file: Option<PathBuf>,
    /// Answer /healthz, /readyz and /metrics here, over plain HTTP and to whoever asks; port 0 takes any
    /// free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Also serve durable changes as live topics there, one for each namespace: /events, /position, /explain.
    /// Whoever may ask then sees keys, versions and blob names.
    #[arg(long, requires = "http")]
    events: bool,
    /// How much to log on standard error.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: tracing::Level,
}

/// What is done without being asked.
#[derive(clap::Args, Debug)]
struct PolicyArgs {
    /// Compact by itself once the journal holds so many bytes above the floor and half may go.
    #[arg(long, value_name = "BYTES")]
    compact_after_bytes: Option<u64>,
    /// The same, in records.
    #[arg(long, value_name = "RECORDS")]
    compact_after_entries: Option<u64>,
    /// A member with more bytes of journal than this above what it acknowledged lapses.
    #[arg(long, value_name = "BYTES")]
    member_lag_bytes_max: Option<u64>,
    /// A member that is behind for longer than this lapses.
    #[arg(long, value_name = "MILLISECONDS")]
    member_lag_ms_max: Option<u64>,
}

impl PolicyArgs {
    fn config(&self) -> NodeConfig {
        let mut config = NodeConfig::default();
        config.replica.compact_after_bytes = self.compact_after_bytes;
        config.replica.compact_after_entries = self.compact_after_entries;
        config.replica.member_lag_bytes_max = self.member_lag_bytes_max;
        config.replica.member_lag_ms_max = self.member_lag_ms_max;
        config
    }
}

const PEERS_HELP: &str = "\
The peers file (TOML; keep it readable by its owner only; paths are relative to it):
  token = \"what this node proves its name with when it calls others\"
  [tls]                     # absent: no TLS
  certificate = \"node.pem\"
  key = \"node.key\"
  authorities = \"ca.pem\"    # who vouches for peers; absent: only pinned certificates are believed
  revoked = \"crl.pem\"       # what the authorities have revoked; absent: nothing
  [[peers]]
  identity = \"b\"
  address = \"b.example:7401\"  # absent: it only calls us
  token = \"what b proves its name with when it calls us\"  # absent: it never does
  token_sha256 = \"...\"    # instead of `token`
  role = \"both\"           # or \"source\": we only send, or \"receiver\": we only receive
  certificate = \"named\"   # it names the peer (with TLS the default); or \"none\", or a list of SHA-256s
  logs = [\"...\"]          # which logs it may have; absent: any

SIGHUP, or `strandline reload`, reads all of these files anew. Once ready it prints `listening on
ADDRESS:PORT`.";

/// Longest time that HTTP clients get to take their answers when the node ends.
const HTTP_END: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Ready<'a> {
    listening: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    http: Option<SocketAddr>,
    log: &'a str,
    identity: &'a str,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let source = Source { peers: args.peers.clone(), plaintext: args.plaintext };
    let access = source.read()?;
    // A line that cannot be written must not end the task that logs it, as telling of that on the same
    // standard error would.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(args.log_level)
        .log_internal_errors(false)
        .init();
    let dir = context.dir()?;
    if let Some(file) = &args.ready_file {
        // One of an earlier run would say that this one is ready.
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::io("remove", file, &error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    let (node, cut) = open_here(dir, args.policy.config())?;
    context.tell_cut(cut.as_ref());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::storage(format!("cannot start the runtime: {e}")))?;
    runtime.block_on(serve(args, context.output, dir, node, (source, access)))
}

async fn serve(
    args: &Args,
    output: Output,
    dir: &Path,
    node: Node,
    (source, access): (Source, Access),
) -> Result<(), Failure> {
    // Before the node is ready, so that no signal after that is missed.
    let mut ends = Ends::new(node.handle())?;
    let backend = NodeBackend::new(node.handle().clone());
    let config = ServeConfig { node, listen: args.listen, access, limits: NetConfig::default() };
    let server = strandline_tokio::serve(config).await.map_err(|e| start_failure(args, &source, e))?;
    let reload = Reload::new(source, server.steer());
    let backend = backend.reloaded_by(reload.clone());
    let (ended, unanswered) = match Control::start(dir, backend) {
        Ok(control) => {
            let ended = match Http::start(args, &server).await {
                Ok(http) => {
                    let ended = match ready(args, output, &server, http.address).await {
                        Ok(()) => tokio::select! {
                            ended = ends.wait(&reload) => ended,
                            never = follow_epochs(args, &server) => match never {},
                        },
                        Err(failure) => Err(failure),
                    };
                    http.stop().await;
                    ended
                }
                Err(failure) => Err(failure),
            };
            (ended, Some(tokio::task::block_in_place(|| control.stop())))
        }
        Err(error) => (Err(Failure::io("listen on the control socket in", dir, &error)), None),
    };
    let closed = server.shutdown().await;
    if let Some(unanswered) = unanswered {
        // The node has answered what was still asked of it.
        tokio::task::block_in_place(|| unanswered.end());
    }
    ended?;
    Ok(closed?)
}

/// Takes the epochs of the file, if there is one.
async fn follow_epochs(args: &Args, server: &Server) -> std::convert::Infallible {
    match &args.epoch_file {
        Some(path) => epoch_file::follow(server.handle().clone(), EpochFile(path.clone())).await,
        None => std::future::pending().await,
    }
}

/// What a person is told when the network does not start.
fn start_failure(args: &Args, source: &Source, error: ServeError) -> Failure {
    let text = format!("cannot serve on {}: {error}", args.listen);
    match error {
        ServeError::Network(NetworkError::Access(error @ AccessError::Plaintext { .. })) => Failure::usage(
            format!("cannot serve on {}: {error}", args.listen),
        )
        .advise(
            "give the peers file a [tls] table, or `serve --plaintext` where nobody else is on the network",
        ),
        ServeError::Network(NetworkError::Access(error)) => source.unusable(&error.to_string()),
        ServeError::Network(NetworkError::Listen { .. }) => {
            Failure::peer(text).advise("name an address of this machine that is free")
        }
        ServeError::Network(NetworkError::Node(_)) => Failure::refused(text),
        ServeError::Entropy(_) => Failure::storage(text),
    }
}

/// The HTTP server of the node, if it is asked for one.
struct Http {
    address: Option<SocketAddr>,
    /// Dropped to end it, and its task.
    running: Option<(tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<io::Result<()>>)>,
    topics: Option<Topics>,
}

impl Http {
    async fn start(args: &Args, server: &Server) -> Result<Self, Failure> {
        let Some(address) = args.http else { return Ok(Self { address: None, running: None, topics: None }) };
        let failed = |error: io::Error| {
            Failure::peer(format!("cannot listen for HTTP on {address}: {error}"))
                .advise("name an address of this machine that is free")
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let node = server.handle().clone();
        let topics = if args.events { Some(Topics::start(node.clone()).await?) } else { None };
        let router = topics.as_ref().map_or_else(|| strandline_http::ops::router(node), Topics::router);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let until = async { drop(stopped.await) };
        let serving = axum::serve(listener, router).with_graceful_shutdown(until);
        let task = tokio::spawn(serving.into_future());
        Ok(Self { address: Some(address), running: Some((stop, task)), topics })
    }

    /// Ends it. A client that holds its connection open is not waited for.
    async fn stop(self) {
        if let Some((stop, task)) = self.running {
            drop(stop);
            self.topics.as_ref().inspect(|topics| topics.drain());
            let abort = task.abort_handle();
            if tokio::time::timeout(HTTP_END, task).await.is_err() {
                abort.abort();
            }
        }
    }
}

async fn ready(
    args: &Args,
    output: Output,
    server: &Server,
    http: Option<SocketAddr>,
) -> Result<(), Failure> {
    let status = server.handle().status().await.map_err(|e| Failure::refused(e.to_string()))?;
    let listening = server.local_addr();
    let ready = Ready { listening, http, log: &status.log.to_string(), identity: &status.identity };
    output.result(format!("listening on {listening}"), &ready)?;
    if let Some(http) = http {
        output.text(format!("HTTP on {http}"))?;
    }
    if let Some(file) = &args.ready_file {
        // Under another name first: whoever waits for the file must not see half of it.
        let fresh = file.with_added_extension("new");
        fs::write(&fresh, format!("{listening}\n"))
            .and_then(|()| fs::rename(&fresh, file))
            .map_err(|e| Failure::io("write", file, &e))?;
    }
    Ok(())
}

/// What ends a node: a signal, or the journal that stopped. And the signal that lets it reload.
struct Ends {
    hangup: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    halted: mpsc::UnboundedReceiver<StorageFault>,
}

impl Ends {
    fn new(node: &NodeHandle) -> Result<Self, Failure> {
        let signal = |kind| signal(kind).map_err(|e| Failure::storage(format!("cannot watch signals: {e}")));
        let (tell, halted) = mpsc::unbounded_channel();
        node.subscribe_events(move |event| {
            let Event::Halted { fault } = event else { return ControlFlow::Continue(()) };
            // Nobody listens any more once the node is closing.
            let _ = tell.send(fault.clone());
            ControlFlow::Break(())
        })
        .map_err(|e| Failure::refused(e.to_string()))?;
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            halted,
        })
    }

    async fn wait(&mut self, reload: &Reload) -> Result<(), Failure> {
        loop {
            tokio::select! {
                _ = self.hangup.recv() => {
                    // Nobody waits for an answer: the log has it.
                    match tokio::task::block_in_place(|| reload.now()) {
                        Ok(done) => tracing::info!(?done, "reloaded"),
                        Err(failure) => tracing::error!(%failure, "not reloaded: nothing has changed"),
                    }
                }
                _ = self.interrupt.recv() => return Ok(()),
                _ = self.terminate.recv() => return Ok(()),
                Some(fault) = self.halted.recv() => return Err(fault.into()),
            }
        }
    }
}
