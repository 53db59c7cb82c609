//! `strandline members`: whom compaction waits for.

use crate::context::Context;
use crate::exit::Failure;
use crate::report::{MemberReport, StatusReport};
use clap::Subcommand;
use serde::Serialize;
use strandline_core::lifecycle::api::MembersChange;

/// Show or change whom compaction waits for.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a replica; it counts once it has read a cut.
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

#[derive(Serialize)]
struct Listed<'a> {
    /// Whether anybody ever said who the members are.
    members_configured: bool,
    members: &'a [MemberReport],
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let change = match &args.action {
        Action::Add { identity } => Some(MembersChange::Add(identity.clone())),
        Action::Remove { identity } => Some(MembersChange::Remove(identity.clone())),
        Action::List => None,
        Action::Clear => Some(MembersChange::Clear),
    };
    let status = context.with_replica(|replica| {
        if let Some(change) = &change {
            replica.members(change)?;
        }
        replica.status()
    })?;
    let StatusReport { members_configured, members, .. } = &status;
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

/// A member as a row of a table.
pub(crate) fn row(member: &MemberReport) -> [String; 3] {
    [member.identity.clone(), member.state.clone(), member.acked.to_string()]
}
