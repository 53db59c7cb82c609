//! `strandline status`: how the replica stands.

use super::members;
use crate::context::Context;
use crate::exit::Failure;
use crate::report::{LinkReport, StatusReport};
use crate::text::{shown, size};

/// Show how the replica, its members and its links stand.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, context: &Context) -> Result<(), Failure> {
    let status = context.with_replica(|replica| replica.status())?;
    let output = context.output;
    if output.is_json() {
        return output.result("", &status);
    }
    output.table(["replica", ""], rows(&status))?;
    if !status.members.is_empty() {
        output.table(["member", "state", "acked"], status.members.iter().map(members::row))?;
    }
    if !status.links.is_empty() {
        output.table(["link", "role", "state", "acked", "verdict"], status.links.iter().map(link_row))?;
    }
    Ok(())
}

fn rows(status: &StatusReport) -> Vec<[String; 2]> {
    let namespaces: Vec<_> = status.namespaces.iter().map(|n| shown(&n.0)).collect();
    let members = if !status.members_configured {
        "not configured: compaction is blocked".to_owned()
    } else if status.members.is_empty() {
        "none: compaction waits for nobody".to_owned()
    } else {
        status.members.len().to_string()
    };
    [
        ("log", status.log.clone()),
        ("identity", status.identity.clone()),
        ("incarnation", status.incarnation.clone()),
        ("namespaces", namespaces.join(", ")),
        ("doing", doing(status)),
        ("writes as", status.authority.clone().unwrap_or_else(|| "nobody: follows".to_owned())),
        ("epoch", status.epoch.to_string()),
        ("fenced", status.fenced.clone().unwrap_or_else(|| "no".to_owned())),
        ("tail", status.tail.to_string()),
        ("submitted", status.submitted.to_string()),
        ("floor", status.floor.to_string()),
        ("digest", status.tail_digest.clone()),
        ("journal", format!("{} entries, {}", status.entries, size(status.journal_bytes))),
        ("keys", format!("{} present, {} tombstones", status.present, status.tombstones)),
        ("blobs", blobs(status)),
        ("members", members),
        ("compaction waits for", status.blocked_by.clone().unwrap_or_else(|| "nobody".to_owned())),
        ("halted", status.halted.clone().unwrap_or_else(|| "no".to_owned())),
    ]
    .map(|(name, value)| [name.to_owned(), value])
    .to_vec()
}

fn blobs(status: &StatusReport) -> String {
    match status.blobs_wanted {
        0 => format!("complete up to {}", status.complete),
        wanted => format!("{wanted} awaited from peers, complete up to {}", status.complete),
    }
}

fn doing(status: &StatusReport) -> String {
    match (status.installing, status.compacting) {
        (true, true) => "installing a snapshot, compacting",
        (true, false) => "installing a snapshot",
        (false, true) => "compacting",
        (false, false) => "nothing beside its links",
    }
    .to_owned()
}

fn link_row(link: &LinkReport) -> [String; 5] {
    [
        link.identity.clone(),
        link.role.clone(),
        link.state.clone(),
        link.acked.to_string(),
        link.verdict.clone().unwrap_or_default(),
    ]
}
