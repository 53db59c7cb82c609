//! How streams and their groups stand, in Prometheus' text format.

use super::page::Page;
use std::collections::BTreeMap;
use strandline_core::stream::client::{Fenced, GapReason, Missing, StreamCounters};
use strandline_core::stream::listing::GroupTotals;

/// The metrics of whoever uses streams: what it counted (`Streams::counters`), and how the groups stand that
/// it looked at (`Stream::group_totals`, the sum of several by `GroupTotals::and`). Every label is a reason or
/// a verdict of ours; no stream, group or consumer is named. Counters begin at zero with the process, and
/// every value of a label is there from the start.
#[must_use]
pub fn stream_metrics(counters: &StreamCounters, groups: &GroupTotals) -> String {
    let mut page = Page::new();
    standing(&mut page, groups);
    work(&mut page, counters);
    missing(&mut page, counters);
    kept_out(&mut page, counters);
    page.text()
}

fn standing(page: &mut Page, groups: &GroupTotals) {
    let known = groups.groups - groups.lag_unknown.min(groups.groups);
    let counts = BTreeMap::from([("known", known), ("unknown", groups.lag_unknown)]);
    page.labelled("stream_groups", "Groups by whether their lag is known.", "lag", &counts);
    page.gauge("stream_members", "Consumers in them.", groups.members);
    page.gauge("stream_lag_events", "Events that the groups were not given yet.", groups.lag);
    page.gauge("stream_pending_events", "Events that were given out and not settled.", groups.pending);
    let oldest = groups.oldest_pending_ms;
    page.gauge(
        "stream_oldest_pending_milliseconds",
        "Since the lowest pending position was given out.",
        oldest,
    );
    page.gauge("stream_later_events", "Events that are put off.", groups.later);
}

fn work(page: &mut Page, counters: &StreamCounters) {
    for (name, help, count) in [
        ("stream_published", "Events that were published.", counters.published),
        ("stream_handed_out", "Events that were handed out.", counters.handed_out),
        ("stream_again", "Those that had been given to somebody before.", counters.again),
        ("stream_settled", "Events that were settled.", counters.settled),
        ("stream_buried", "Events that became dead letters.", counters.buried),
        ("stream_uncertain", "Askings that had no answer.", counters.uncertain),
    ] {
        page.counter(name, help, count);
    }
    let leases = BTreeMap::from([("taken", counters.leases_taken), ("lost", counters.leases_lost)]);
    page.counted("stream_lease_changes", "Leases of a group's recovery.", "change", &leases);
}

fn missing(page: &mut Page, counters: &StreamCounters) {
    let each = |of: fn(&Missing) -> u64| -> BTreeMap<&str, u64> {
        let count = |reason: &GapReason| counters.missing.get(reason).map_or(0, of);
        GapReason::ALL.iter().map(|reason| (reason.word(), count(reason))).collect()
    };
    page.counted("stream_gaps", "Gaps that were handed out.", "reason", &each(|missing| missing.gaps));
    let events = each(|missing| missing.events);
    page.counted("stream_missing_events", "Events they told of, where known.", "reason", &events);
}

fn kept_out(page: &mut Page, counters: &StreamCounters) {
    let count = |fenced: &Fenced| counters.fenced.get(fenced).copied().unwrap_or(0);
    let fenced = Fenced::ALL.iter().map(|fenced| (fenced.label(), count(fenced))).collect();
    page.counted("stream_fenced", "Operations that a fence kept out.", "fence", &fenced);
    let failovers = counters.failovers;
    let verdicts =
        BTreeMap::from([("kept", failovers.kept), ("lost", failovers.lost), ("unknown", failovers.unknown)]);
    page.counted("stream_failovers", "Changes of a server's history.", "verdict", &verdicts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_core::stream::client::Failovers;

    fn value(page: &str, name: &str) -> u64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().expect("a number")
    }

    #[test]
    fn every_reason_has_a_line_and_what_was_counted_stands_in_it() {
        let counters = StreamCounters {
            published: 1,
            handed_out: 2,
            again: 3,
            settled: 4,
            buried: 5,
            missing: BTreeMap::from([(GapReason::Trimmed, Missing { gaps: 6, events: 7 })]),
            fenced: BTreeMap::from([(Fenced::Lease, 8)]),
            leases_taken: 9,
            leases_lost: 10,
            failovers: Failovers { kept: 11, lost: 12, unknown: 13 },
            uncertain: 14,
        };
        let groups = GroupTotals {
            groups: 15,
            lag: 16,
            lag_unknown: 5,
            pending: 17,
            oldest_pending_ms: 18,
            later: 19,
            members: 20,
        };
        let page = stream_metrics(&counters, &groups);
        for (name, expected) in [
            ("stream_published_total", 1),
            ("stream_handed_out_total", 2),
            ("stream_again_total", 3),
            ("stream_settled_total", 4),
            ("stream_buried_total", 5),
            ("stream_gaps_total{reason=\"trimmed\"}", 6),
            ("stream_gaps_total{reason=\"pending\"}", 0),
            ("stream_gaps_total{reason=\"lost\"}", 0),
            ("stream_missing_events_total{reason=\"trimmed\"}", 7),
            ("stream_fenced_total{fence=\"lease\"}", 8),
            ("stream_fenced_total{fence=\"destroyed\"}", 0),
            ("stream_fenced_total{fence=\"lost\"}", 0),
            ("stream_lease_changes_total{change=\"taken\"}", 9),
            ("stream_lease_changes_total{change=\"lost\"}", 10),
            ("stream_failovers_total{verdict=\"kept\"}", 11),
            ("stream_failovers_total{verdict=\"lost\"}", 12),
            ("stream_failovers_total{verdict=\"unknown\"}", 13),
            ("stream_uncertain_total", 14),
            ("stream_groups{lag=\"known\"}", 10),
            ("stream_groups{lag=\"unknown\"}", 5),
            ("stream_lag_events", 16),
            ("stream_pending_events", 17),
            ("stream_oldest_pending_milliseconds", 18),
            ("stream_later_events", 19),
            ("stream_members", 20),
        ] {
            assert_eq!(value(&page, &format!("strandline_{name}")), expected, "{name}");
        }
    }
}
