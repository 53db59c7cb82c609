//! Histories that part: writing, parting nodes, and what they say of each other.

use super::cluster::Cluster;
use strandline_core::lifecycle::api::{Divergence, Done};
use strandline_core::verdict::Verdict;

/// Puts `count` keys at a node, each with a blob that tells who wrote it.
pub(crate) fn write(cluster: &mut Cluster, at: usize, count: usize) {
    for i in 0..count {
        cluster.put(at, &format!("k{i}"), format!("{at} {i}").as_bytes());
        cluster.settle();
    }
}

/// Moves the right to write to a node.
pub(crate) fn fence(cluster: &mut Cluster, at: usize, epoch: u64) -> Done {
    let now = cluster.now;
    let request = cluster.replica(at).handle_fence(now, epoch);
    cluster.done(at, request)
}

/// Cuts all links of a node.
pub(crate) fn isolate(cluster: &mut Cluster, at: usize) {
    for link in cluster.nodes[at].links.keys().copied().collect::<Vec<_>>() {
        cluster.cut(at, link);
    }
    cluster.settle();
}

/// How a node says that it and a peer part.
pub(crate) fn divergence(cluster: &mut Cluster, at: usize, of: &str) -> Divergence {
    let links = cluster.replica(at).status().links;
    let link = links.into_iter().find(|link| link.identity == of).expect("a link");
    match link.verdict {
        Some(Verdict::Diverged(found)) => found,
        other => panic!("{other:?}"),
    }
}
