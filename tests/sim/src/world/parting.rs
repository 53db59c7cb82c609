//! When histories part: an epoch begins without what somebody holds, or a copy brings that back.

use super::{Judged, Violation, World};
use crate::model::Digest;
use strandline_core::lifecycle::api::Status;

/// Behind what an epoch began: nothing of an older one follows that.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Base {
    epoch: u64,
    digest: Digest,
}

impl World {
    /// An epoch is durable at a node. One that begins anywhere while somebody holds records that its
    /// writer does not is another history.
    pub(super) fn epoch_started(&mut self, at: usize, epoch: u64, authority: &str) -> Judged {
        self.nodes[at].epoch = self.nodes[at].epoch.max(epoch);
        if self.nodes[at].identity != authority {
            return Ok(());
        }
        let name = self.epochs.entry(epoch).or_insert_with(|| authority.to_string());
        if name != authority && !self.forked {
            let text = format!("{authority} begins epoch {epoch}, {name} has begun it");
            return Err(Violation::new("epoch twice", text));
        }
        // One that was being taken when its node ended may begin after a later one.
        self.forked |= epoch < self.epoch;
        self.epoch = self.epoch.max(epoch);
        self.parts_from(at);
        let digest = self.nodes[at].submitted_or_claimed();
        self.begins(Base { epoch, digest });
        let node = &mut self.nodes[at];
        node.writes = true;
        node.submitted = node.submitted_or_claimed();
        if node.pending.is_empty() {
            node.latest.clone_from(&node.mirror);
        }
        Ok(())
    }

    /// Whoever holds what a new writer does not is another history from then on.
    pub(super) fn parts_from(&mut self, at: usize) {
        let base = self.nodes[at].submitted_or_claimed();
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != at);
        let mut held = others.flat_map(|(_, node)| [node.claim.digest, node.submitted_or_claimed()]);
        self.forked |= held.any(|digest| self.tree.path(&digest, &base).is_none());
    }

    fn begins(&mut self, base: Base) {
        if !self.bases.contains(&base) {
            self.bases.push(base);
        }
    }

    /// A node recovered an epoch that nobody wrote in: it may have ended before it said that it began.
    pub(super) fn begins_bare(&mut self, status: &Status) {
        if status.tail.epoch < status.epoch {
            self.begins(Base { epoch: status.epoch, digest: status.tail_digest });
        }
    }

    /// What a copy brings back was held by nobody while it lay aside, so an epoch may have begun without
    /// it meanwhile: then it is another history.
    pub(super) fn parts_behind(&self, digest: &Digest) -> bool {
        self.bases.iter().any(|base| {
            let of_it = |next: &Digest| self.tree.version(next).is_some_and(|v| v.epoch >= base.epoch);
            let before = self.tree.path(digest, &base.digest).is_some();
            let behind = self.tree.path(&base.digest, digest);
            !before && !behind.is_some_and(|path| path.first().is_none_or(of_it))
        })
    }
}
