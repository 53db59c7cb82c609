//! `strandline reseed`: throw local history away and take a peer's.

use crate::access::Source;
use crate::backend::node::opening_failure;
use crate::backend::{Backend, NodeBackend, once_free, open_here, remote::Remote};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::Output;
use crate::report::{LinkReport, StatusReport};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strandline_file::node::NodeConfig;
use strandline_file::{OpenError, Reseed, ReseedError};
use strandline_net::{Access, NetConfig};
use strandline_tokio::ServeConfig;

/// Throw this replica's history away, after keeping a copy of it, and take that of a peer. It becomes
/// another life of the same name that follows; blobs stay. The directory must not be served.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Whose history to take: a peer of the peers file with an address.
    #[arg(long, value_name = "IDENTITY")]
    from: String,
    /// The peers file.
    #[arg(long, value_name = "FILE")]
    peers: PathBuf,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Call other machines without TLS, as for `serve`.
    #[arg(long)]
    plaintext: bool,
    /// How long the peer may take, with its blobs, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    wait_s: u64,
}

#[derive(Serialize)]
struct Report {
    identity: String,
    incarnation_before: String,
    incarnation: String,
    kept: PathBuf,
    tail: crate::text::VersionText,
    floor: crate::text::VersionText,
    tail_digest: String,
    /// Blobs that are not here yet.
    blobs_wanted: u64,
}

/// Time between two looks at how far it is.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let dir = context.dir()?;
    let access = of_one_peer(args)?;
    if Remote::reach(dir)?.is_some() {
        return Err(Failure::refused(format!("a node serves {}", dir.display()))
            .advise("stop the node, reseed, start it again"));
    }
    if !args.yes {
        confirm(dir)?;
    }
    let in_use = |error: &ReseedError| matches!(error, ReseedError::Open(OpenError::InUse(_)));
    let reseeded = once_free(|| strandline_file::reseed(dir), in_use).map_err(|error| failed(dir, error))?;
    let done = take(args, dir, access, context.output).map_err(|failure| {
        let kept = reseeded.kept.display();
        failure
            .partly(format!("the history is thrown away, that of {} has not taken its place", args.from))
            .advise_also(format!("nothing is lost: the history thrown away lies in {kept}"))
    })?;
    let Reseed { identity, before, after, kept } = reseeded;
    let text = format!(
        "{identity} begins anew as {after} with what {} has, up to {}; the old history lies in {}",
        args.from,
        done.tail,
        kept.display()
    );
    let report = Report {
        identity,
        incarnation_before: before.to_string(),
        incarnation: after.to_string(),
        kept,
        tail: done.tail,
        floor: done.floor,
        tail_digest: done.tail_digest,
        blobs_wanted: done.blobs_wanted,
    };
    context.output.result(text, &report)?;
    if done.blobs_wanted > 0 {
        let missing =
            format!("{} blobs did not come from {} within {} s", done.blobs_wanted, args.from, args.wait_s);
        return Err(Failure::incomplete(missing)
            .advise("start the node, which goes on asking its peers; `verify` names what is missing"));
    }
    Ok(())
}

/// What the peers file allows, with no other peer than the one named.
fn of_one_peer(args: &Args) -> Result<Access, Failure> {
    let source = Source { peers: args.peers.clone(), plaintext: args.plaintext };
    let read = || -> Result<Access, Failure> {
        let mut access = source.read()?;
        access.peers.retain(|peer| peer.identity == args.from);
        Ok(access)
    };
    // Once the history is thrown away it would be too late to hear of it.
    read()?.judge().map_err(|error| source.unusable(&error.to_string()))?;
    let access = read()?;
    match access.peers.first() {
        Some(peer) if peer.address.is_some() => Ok(access),
        Some(_) => Err(Failure::usage(format!("peer {} has no address to call", args.from))
            .advise("give it one in the peers file")),
        None => Err(Failure::usage(format!("{} is no peer of {}", args.from, args.peers.display()))),
    }
}

/// Asks the person at the terminal.
fn confirm(dir: &Path) -> Result<(), Failure> {
    let refused = || Failure::refused("not confirmed; nothing changed").advise("give --yes");
    if !std::io::stdin().is_terminal() {
        return Err(refused());
    }
    let mut out = std::io::stderr();
    let asked = write!(out, "throw the history in {} away, keeping a copy? [yes/no] ", dir.display());
    asked.and_then(|()| out.flush()).map_err(|_| refused())?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(|_| refused())?;
    if answer.trim() == "yes" { Ok(()) } else { Err(refused()) }
}

fn failed(dir: &Path, error: ReseedError) -> Failure {
    match error {
        ReseedError::Open(OpenError::InUse(in_use)) => {
            Failure::refused(in_use.to_string()).advise("wait for the other command, or stop the node")
        }
        ReseedError::Open(OpenError::Storage(fault)) | ReseedError::Storage(fault) => {
            let failure = opening_failure(dir, fault);
            Failure { message: format!("{}: {}", dir.display(), failure.message), ..failure }
        }
        ReseedError::Entropy(error) => Failure::storage(format!("the system gave no random bytes: {error}")),
    }
}

/// Calls the peer and waits until everything it had is here.
fn take(args: &Args, dir: &Path, access: Access, output: Output) -> Result<StatusReport, Failure> {
    let (node, _) = open_here(dir, NodeConfig::default())?;
    let mut backend = NodeBackend::new(node.handle().clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::storage(format!("cannot start the runtime: {e}")))?;
    runtime.block_on(async {
        // Nobody is told this address; the port is any free one, for as long as this takes.
        let listen = ([127, 0, 0, 1], 0).into();
        let config = ServeConfig { node, listen, access, limits: NetConfig::default() };
        let server = strandline_tokio::serve(config)
            .await
            .map_err(|e| Failure::peer(format!("cannot call {}: {e}", args.from)))?;
        let taken = tokio::task::block_in_place(|| wait(args, &mut backend, output));
        let closed = server.shutdown().await;
        let status = taken?;
        closed?;
        Ok(status)
    })
}

fn wait(args: &Args, backend: &mut NodeBackend, output: Output) -> Result<StatusReport, Failure> {
    let (start, longest) = (Instant::now(), Duration::from_secs(args.wait_s));
    let mut told = false;
    loop {
        let status = backend.status()?;
        let link = status.links.iter().find(|link| link.identity == args.from);
        if let Some(link) = link {
            if let Some(verdict) = link.stopped() {
                return Err(Failure::refused(format!(
                    "{} does not repair this replica: {verdict}",
                    args.from
                ))
                .advise("docs/OPERATIONS.md says what each verdict means"));
            }
            let has_records = reached(&status, link);
            if has_records && (status.blobs_wanted == 0 || start.elapsed() >= longest) {
                return Ok(status);
            }
            // A peer that lacks a blob itself may get it, or never: a person need not wait for it here.
            if has_records && !told {
                told = true;
                output.note(format!(
                    "the records are here; {} blobs are waited for, up to {} s: to stop is safe",
                    status.blobs_wanted, args.wait_s
                ));
            }
        }
        if start.elapsed() >= longest {
            let so_far = link.map_or_else(|| "no link".to_owned(), |link| format!("a link, {}", link.state));
            return Err(Failure::peer(format!(
                "{} was not taken over within {} s: {so_far}, up to {}",
                args.from, args.wait_s, status.tail
            ))
            .advise("start the node: it goes on where this ended"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether all records that the peer had when it said where it stands are here.
fn reached(status: &StatusReport, link: &LinkReport) -> bool {
    link.peer_tail.is_some_and(|tail| status.tail.0 >= tail.0) && !status.installing
}
