//! How a node stands, in Prometheus' text format.

use super::page::Page;
use std::collections::BTreeMap;
use strandline_core::lifecycle::api::{LinkStatus, Status};
use strandline_core::verdict::Verdict;

/// The metrics of a node. Every label is a state or a reason of ours.
///
/// Positions are two numbers, epoch and sequence, as a version is. A lag is that of the one furthest
/// behind; who that is, `strandline status` tells.
#[must_use]
pub fn metrics(status: &Status) -> String {
    let mut page = Page::new();
    positions(&mut page, status);
    sizes(&mut page, status);
    peers(&mut page, status);
    flags(&mut page, status);
    page.text()
}

fn positions(page: &mut Page, status: &Status) {
    for (name, help, version) in [
        ("tail", "the last durable version", status.tail),
        ("submitted", "the last submitted version", status.submitted),
        ("floor", "what compaction kept", status.floor),
    ] {
        page.gauge(&format!("{name}_epoch"), &format!("Epoch of {help}."), version.epoch);
        page.gauge(&format!("{name}_sequence"), &format!("Sequence of {help}."), version.sequence);
    }
    page.gauge("incarnation", "Counter of this life of the data.", status.incarnation.counter.into());
}

fn sizes(page: &mut Page, status: &Status) {
    let keys = BTreeMap::from([("present", status.present), ("deleted", status.tombstones)]);
    page.labelled("keys", "Keys by state.", "state", &keys);
    page.gauge("journal_entries", "Journal entries retained.", status.entries);
    page.gauge("journal_bytes", "Journal bytes retained.", status.journal_bytes);
    let outstanding = status.commands_outstanding as u64;
    page.gauge("commands_outstanding", "Commands to disks that are not answered.", outstanding);
}

fn peers(page: &mut Page, status: &Status) {
    let mut verdicts: BTreeMap<&str, u64> =
        ["none", "complete", "gap", "unknown", "diverged"].map(|verdict| (verdict, 0)).into();
    for link in &status.links {
        *verdicts.entry(verdict(link)).or_default() += 1;
    }
    page.labelled("links", "Links to peers by verdict.", "verdict", &verdicts);
    let mut members: BTreeMap<&str, u64> = ["joining", "active", "lapsed"].map(|state| (state, 0)).into();
    for member in &status.members {
        *members.entry(member.state).or_default() += 1;
    }
    page.labelled("members", "Members by state.", "state", &members);
    let most = |lags: &mut dyn Iterator<Item = u64>| lags.max().unwrap_or(0);
    let entries = most(&mut status.links.iter().filter_map(|link| link.lag.entries));
    page.gauge("link_lag_entries", "Journal entries that the link furthest behind lacks.", entries);
    let age = most(&mut status.links.iter().filter_map(|link| link.lag.age_ms));
    page.gauge("link_lag_milliseconds", "Age of the oldest of them.", age);
    let entries = most(&mut status.members.iter().filter_map(|member| member.lag_entries));
    page.gauge("member_lag_entries", "Journal entries that the member furthest behind lacks.", entries);
    page.gauge("subscriptions", "Open subscriptions.", status.subscriptions.len() as u64);
}

const fn verdict(link: &LinkStatus) -> &'static str {
    match &link.verdict {
        None => "none",
        Some(Verdict::Complete { .. }) => "complete",
        Some(Verdict::Gap { .. }) => "gap",
        Some(Verdict::Unknown { .. }) => "unknown",
        Some(Verdict::Diverged(_)) => "diverged",
    }
}

fn flags(page: &mut Page, status: &Status) {
    for (name, help, holds) in [
        ("halted", "Whether a fault has stopped the journal.", status.halted.is_some()),
        ("fenced", "Whether writes are refused until it is fenced.", status.fenced.is_some()),
        ("authority", "Whether it writes the log.", status.authority.is_some()),
        ("installing", "Whether a snapshot is being taken up.", status.installing),
        ("compacting", "Whether the journal is being compacted.", status.compacting),
        ("compaction_blocked", "Whether compaction waits for somebody.", status.blocked_by.is_some()),
    ] {
        page.gauge(name, help, u64::from(holds));
    }
}
