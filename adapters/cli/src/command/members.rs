//! `strandline members`: whom compaction waits for.

use crate::context::Context;
use crate::exit::Failure;
use crate::report::{MemberReport, StatusReport};
use crate::text::{VersionText, size};
use clap::Subcommand;
use serde::Serialize;
use strandline_core::lifecycle::api::MembersChange;
use strandline_core::lifecycle::membership::MemberState;

/// Show or change whom compaction waits for.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Show where each member counts for compaction, how far it is behind, and who holds it up.
    #[arg(long)]
    explain: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a replica; it counts once it has read a cut. One that was removed before counts once it was
    /// reseeded, or took a snapshot.
    Add {
        /// Its identity.
        identity: String,
    },
    /// Remove a replica; it must be reseeded before it can count again.
    Remove {
        /// Its identity.
        identity: String,
    },
    /// List the members.
    List,
    /// Remove all, and say so: compaction waits for nobody.
    Clear,
}

/// The state of a member that must be reseeded before it counts.
const LAPSED: &str = MemberState::Lapsed.name();

#[derive(Serialize)]
struct Listed<'a> {
    /// Whether anybody ever said who the members are.
    members_configured: bool,
    members: &'a [MemberReport],
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let change = match &args.action {
        Some(Action::Add { identity }) => Some(MembersChange::Add(identity.clone())),
        Some(Action::Remove { identity }) => Some(MembersChange::Remove(identity.clone())),
        Some(Action::List) | None => None,
        Some(Action::Clear) => Some(MembersChange::Clear),
    };
    let status = context.with_replica(|replica| {
        if let Some(change) = &change {
            replica.members(change)?;
        }
        replica.status()
    })?;
    if args.explain {
        explain(&status, context)?;
    } else {
        list(&status, context)?;
    }
    let added = |member: &&MemberReport| match &args.action {
        Some(Action::Add { identity }) => member.identity == *identity && member.state == LAPSED,
        Some(Action::Remove { .. } | Action::List | Action::Clear) | None => false,
    };
    if let Some(member) = status.members.iter().find(added) {
        let name = &member.identity;
        context.output.note(format!(
            "{name} was removed before: it is repaired, and counts once it was reseeded or took a snapshot"
        ));
    }
    Ok(())
}

fn list(status: &StatusReport, context: &Context) -> Result<(), Failure> {
    let StatusReport { members_configured, members, .. } = status;
    if context.output.is_json() {
        return context.output.result("", &Listed { members_configured: *members_configured, members });
    }
    if !members_configured {
        return context.output.text("no membership is configured; compaction is blocked");
    }
    if members.is_empty() {
        return context.output.text("no members; compaction waits for nobody");
    }
    context.output.table(["member", "state", "acked"], members.iter().map(row))
}

#[derive(Serialize)]
struct Explained<'a> {
    floor: VersionText,
    tail: VersionText,
    members_configured: bool,
    members: &'a [MemberReport],
    compactable: Option<VersionText>,
    blocked_by: Option<&'a str>,
}

/// Says how far compaction may go, and who keeps it from going further.
pub(crate) fn explain(status: &StatusReport, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    if output.is_json() {
        let explained = Explained {
            floor: status.floor,
            tail: status.tail,
            members_configured: status.members_configured,
            members: &status.members,
            compactable: status.compactable,
            blocked_by: status.blocked_by.as_deref(),
        };
        return output.result("", &explained);
    }
    if !status.members.is_empty() {
        let head = ["member", "state", "counts at", "behind by", "for"];
        output.table(head, status.members.iter().map(explained_row))?;
    }
    let upto = match (&status.compactable, &status.blocked_by) {
        (Some(upto), None) => {
            format!("the journal may be compacted from {} up to the tail, {upto}", status.floor)
        }
        (Some(upto), Some(who)) => {
            format!(
                "the journal may be compacted from {} up to {upto}; {who} needs what is above",
                status.floor
            )
        }
        (None, Some(why)) => format!("nothing may be compacted: {why}"),
        (None, None) => "nothing may be compacted".to_owned(),
    };
    output.text(&upto)
}

fn explained_row(member: &MemberReport) -> [String; 5] {
    let counts =
        member.counts_at.map_or_else(|| "nothing: it is not waited for".to_owned(), |v| v.to_string());
    [
        member.identity.clone(),
        member.state.clone(),
        counts,
        size(member.lag_bytes),
        format!("{} s", member.lag_ms / 1000),
    ]
}

/// A member as a row of a table.
pub(crate) fn row(member: &MemberReport) -> [String; 3] {
    [member.identity.clone(), member.state.clone(), member.acked.to_string()]
}
