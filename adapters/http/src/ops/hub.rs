//! How the live topics of a hub stand, in Prometheus' text format.

use super::page::Page;
use std::collections::BTreeMap;
use strandline_core::coverage::{Counters, EndReason, LostReason, Reason, TopicStatus};
use strandline_hub::HubHandle;

/// The metrics of a hub. Every label is a verdict or a reason of ours; no topic is named. Counters begin
/// at zero with the process, and every value of a label is there from the start.
///
/// Looks at each topic and each subscriber once, under the lock of its shard.
#[must_use]
pub fn hub_metrics(hub: &HubHandle) -> String {
    let mut page = Page::new();
    standing(&mut page, hub.streams(), &hub.topics());
    let counters = hub.counters();
    judged(&mut page, &counters);
    lost(&mut page, &counters);
    work(&mut page, &counters);
    page.text()
}

fn standing(page: &mut Page, streams: usize, topics: &[TopicStatus]) {
    let sum = |of: fn(&TopicStatus) -> usize| topics.iter().map(of).sum::<usize>() as u64;
    page.gauge("hub_streams", "Open streams, each over one or several topics.", streams as u64);
    page.gauge("hub_subscribers", "Subscribers, over all topics.", sum(|topic| topic.subscribers));
    let covered = sum(|topic| usize::from(topic.coverage.is_some()));
    let states = BTreeMap::from([("covered", covered), ("not_covered", topics.len() as u64 - covered)]);
    page.labelled("hub_topics", "Topics by whether they are vouched for.", "state", &states);
    page.gauge("hub_held_events", "Events held for those who come back.", sum(|topic| topic.held_events));
    page.gauge("hub_held_bytes", "Their bytes.", sum(|topic| topic.held_bytes));
    let lag = topics.iter().map(|topic| topic.waiting_items).max().unwrap_or(0) as u64;
    page.gauge("hub_lag_items", "Items that wait for the subscriber furthest behind.", lag);
}

fn judged(page: &mut Page, counters: &Counters) {
    let refused = |reason: &Reason| counters.refused.get(reason).copied().unwrap_or(0);
    let verdicts = BTreeMap::from([
        ("fresh", counters.fresh),
        ("complete", counters.resumed),
        ("refused", counters.refused.values().sum()),
    ]);
    page.counted("hub_subscribes", "Subscribers by how they were judged.", "verdict", &verdicts);
    let reasons = Reason::ALL.iter().map(|reason| (reason.label(), refused(reason))).collect();
    page.counted("hub_refused", "Resumes refused.", "reason", &reasons);
    page.counter("hub_sync_required", "Subscribers told to synchronise.", counters.sync_required);
    page.counter("hub_history_reads", "Resumes asked of the history behind.", counters.history_reads);
}

fn lost(page: &mut Page, counters: &Counters) {
    let lost = |reason: &LostReason| counters.lost.get(reason).copied().unwrap_or(0);
    let reasons = LostReason::ALL.iter().map(|reason| (reason.label(), lost(reason))).collect();
    page.counted("hub_coverage_lost", "Topics that are no longer vouched for.", "reason", &reasons);
    let ended = |reason: &EndReason| counters.ended.get(reason).copied().unwrap_or(0);
    let reasons = EndReason::ALL.iter().map(|reason| (reason.label(), ended(reason))).collect();
    page.counted("hub_subscriptions_ended", "Subscriptions at the server that ended.", "reason", &reasons);
    let again = counters.resubscriptions;
    page.counter("hub_resubscriptions", "Subscriptions asked of the server after a lost one.", again);
    page.counter("hub_holes", "Holes seen between positions.", counters.holes);
    page.counter("hub_missed", "Events known to have been missed.", counters.missed);
}

fn work(page: &mut Page, counters: &Counters) {
    for (name, help, count) in [
        ("hub_published", "Events that entered a topic.", counters.published),
        ("hub_queued", "Events put into queues of subscribers.", counters.queued),
        ("hub_polled", "Items handed out.", counters.polled),
        ("hub_dropped", "Events that did not fit the queue of a slow subscriber.", counters.dropped),
        ("hub_backfilled", "Gaps of slow subscribers filled from what is held.", counters.backfilled),
        ("hub_repeated", "Messages that came twice.", counters.repeated),
        ("hub_ignored", "Inputs of ended subscriptions.", counters.ignored),
        ("hub_position_runs", "Runs of the position script.", counters.position_runs),
    ] {
        page.counter(name, help, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_core::coverage::{Publish, TopicName};
    use strandline_core::id::Run;
    use strandline_hub::Start;

    fn value(page: &str, name: &str) -> u64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().expect("a number")
    }

    #[test]
    fn every_reason_has_a_line_and_what_happened_is_counted() {
        let (hub, _driver) = HubHandle::in_process(Run(1), [1; 32]);
        let topic = TopicName::parse("t").expect("a topic");
        let _slow = hub.subscribe(std::slice::from_ref(&topic), Start::now()).expect("a stream");
        let _refused =
            hub.subscribe(std::slice::from_ref(&topic), Start::after("rubbish")).expect("a stream");
        let publish = hub.publish(&topic, Publish::new(b"1"));
        assert!(futures::executor::block_on(publish).is_ok());
        let page = hub_metrics(&hub);
        for reason in Reason::ALL {
            let line = format!("strandline_hub_refused_total{{reason=\"{}\"}}", reason.label());
            assert_eq!(value(&page, &line), u64::from(reason == Reason::Unreadable), "{line}");
        }
        for reason in LostReason::ALL {
            let line = format!("strandline_hub_coverage_lost_total{{reason=\"{}\"}}", reason.label());
            assert_eq!(value(&page, &line), 0);
        }
        assert_eq!(value(&page, "strandline_hub_subscribers"), 2);
        assert_eq!(value(&page, "strandline_hub_topics{state=\"covered\"}"), 1);
        assert_eq!(value(&page, "strandline_hub_subscribes_total{verdict=\"fresh\"}"), 1);
        assert_eq!(value(&page, "strandline_hub_published_total"), 1);
        assert_eq!(value(&page, "strandline_hub_lag_items"), 2, "a notice and the event");
    }
}
