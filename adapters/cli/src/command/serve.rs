//! `strandline serve`: a node.

use crate::backend::node::{self, NodeBackend};
use crate::context::Context;
use crate::control::server::Server as Control;
use crate::exit::Failure;
use crate::output::Output;
use crate::peers::{PeerEntry, PeersFile, Role};
use serde::Serialize;
use std::fs;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use strandline_core::error::StorageFault;
use strandline_core::lifecycle::api::{Event, LinkRole};
use strandline_file::node::{Node, NodeHandle};
use strandline_net::{NetConfig, NetworkError, Peer};
use strandline_tokio::{ServeConfig, ServeError, Server};
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
    /// How much to log on standard error.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    log_level: tracing::Level,
}

const PEERS_HELP: &str = "\
The peers file (TOML; keep it readable by its owner only):
  token = \"what this node proves its name with when it calls others\"
  [[peers]]
  identity = \"b\"
  address = \"b.example:7401\"  # absent: it only calls us
  token = \"what b proves its name with when it calls us\"  # absent: it never does
  role = \"both\"  # or \"source\": we only send, or \"receiver\": we only receive

Once ready it prints `listening on ADDRESS:PORT`.";

#[derive(Serialize)]
struct Ready<'a> {
    listening: SocketAddr,
    log: &'a str,
    identity: &'a str,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let peers = PeersFile::read(&args.peers)?;
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(args.log_level).init();
    let dir = context.dir()?;
    let (node, report) = node::open(dir).map_err(|e| node::start_failure(dir, e))?;
    if let Some((file, offset, bytes)) = report.cut {
        context.output.note(format!(
            "recovered: {bytes} bytes that were never acknowledged were cut from {file} at offset {offset}"
        ));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::storage(format!("cannot start the runtime: {e}")))?;
    runtime.block_on(serve(args, context.output, dir, node, peers))
}

async fn serve(args: &Args, output: Output, dir: &Path, node: Node, peers: PeersFile) -> Result<(), Failure> {
    // Before the node is ready, so that no signal after that is missed.
    let mut ends = Ends::new(node.handle())?;
    let backend = NodeBackend::new(node.handle().clone());
    let server = strandline_tokio::serve(ServeConfig {
        node,
        listen: args.listen,
        peers: peers.peers.into_iter().map(peer).collect(),
        token: peers.token,
        limits: NetConfig::default(),
    })
    .await
    .map_err(|e| start_failure(args, e))?;
    let ended = match Control::start(dir, backend) {
        Ok(control) => {
            let ended = match ready(args, output, &server).await {
                Ok(()) => ends.wait().await,
                Err(failure) => Err(failure),
            };
            tokio::task::block_in_place(|| control.stop());
            ended
        }
        Err(error) => Err(Failure::io("listen on the control socket in", dir, &error)),
    };
    let closed = server.shutdown().await;
    ended?;
    Ok(closed?)
}

/// What a person is told when the network does not start.
fn start_failure(args: &Args, error: ServeError) -> Failure {
    let text = format!("cannot serve on {}: {error}", args.listen);
    match error {
        ServeError::Network(NetworkError::Introduction(_) | NetworkError::PeerTwice { .. }) => {
            Failure::usage(text).advise(format!("correct the peers file {}", args.peers.display()))
        }
        ServeError::Network(NetworkError::Listen { .. }) => {
            Failure::peer(text).advise("name an address of this machine that is free")
        }
        ServeError::Network(NetworkError::Node(_)) => Failure::refused(text),
        ServeError::Entropy(_) => Failure::storage(text),
    }
}

async fn ready(args: &Args, output: Output, server: &Server) -> Result<(), Failure> {
    let status = server.handle().status().await.map_err(|e| Failure::refused(e.to_string()))?;
    let listening = server.local_addr();
    let ready = Ready { listening, log: &status.log.to_string(), identity: &status.identity };
    output.result(format!("listening on {listening}"), &ready)?;
    if let Some(file) = &args.ready_file {
        // Under another name first: whoever waits for the file must not see half of it.
        let fresh = file.with_added_extension("new");
        fs::write(&fresh, format!("{listening}\n"))
            .and_then(|()| fs::rename(&fresh, file))
            .map_err(|e| Failure::io("write", file, &e))?;
    }
    Ok(())
}

fn peer(entry: PeerEntry) -> Peer {
    Peer {
        identity: entry.identity,
        address: entry.address,
        token: entry.token,
        role: match entry.role {
            Role::Both => LinkRole::Both,
            Role::Source => LinkRole::Source,
            Role::Receiver => LinkRole::Receiver,
        },
    }
}

/// What ends a node: a signal, or the journal that stopped.
struct Ends {
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
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            halted,
        })
    }

    async fn wait(&mut self) -> Result<(), Failure> {
        tokio::select! {
            _ = self.interrupt.recv() => Ok(()),
            _ = self.terminate.recv() => Ok(()),
            Some(fault) = self.halted.recv() => Err(fault.into()),
        }
    }
}
