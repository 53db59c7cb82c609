//! What is done to blobs, and what must hold of them.

use super::{Judged, Violation, World};
use crate::fault::Fault;
use crate::rng::Choose;
use std::collections::BTreeSet;
use strandline_core::lifecycle::api::{Collect, Scan, Scrub, Status};
use strandline_core::record::{BlobKey, Key, State, Version};

/// Nothing is young in a world where a blob is named in the moment in which it is stored.
const UNTOUCHED_MS: u64 = 0;

/// A scrub is not what a run waits for.
const BYTES_PER_SECOND: u64 = 1 << 40;

impl World {
    /// Collects the blobs that nothing needs, or says which they are.
    pub(super) fn collect(&mut self, at: usize) -> Judged {
        let now = self.nodes[at].now(self.time_ns);
        let dry_run = self.rng.once_in(4);
        let Some(replica) = self.nodes[at].replica_mut() else { return Ok(()) };
        replica.handle_collect(now, Collect { dry_run, untouched_ms: UNTOUCHED_MS });
        self.step(12, at, 0);
        self.after(at)
    }

    /// Looks at every blob of a node.
    pub(super) fn scrub(&mut self, at: usize) -> Judged {
        let now = self.nodes[at].now(self.time_ns);
        let Some(replica) = self.nodes[at].replica_mut() else { return Ok(()) };
        replica.handle_scrub(now, Scrub { bytes_per_second: BYTES_PER_SECOND });
        self.step(13, at, 0);
        self.after(at)
    }

    /// Looks at every blob of every node that serves.
    pub(super) fn scrub_all(&mut self) -> Judged {
        for at in 0..self.nodes.len() {
            self.scrub(at)?;
        }
        self.settle()
    }

    /// One blob of a node is lost or damaged, behind the back of everyone.
    pub(super) fn rot(&mut self, at: usize) -> Judged {
        let Self { nodes, rng, .. } = self;
        let Some(key) = nodes[at].host.blobs.rot(rng) else { return Ok(()) };
        self.nodes[at].rotten.insert(key);
        self.nodes[at].rotted.insert(key);
        self.count(Fault::BlobRotten);
        self.tell(|| format!("{at}: blob {key} rots"));
        Ok(())
    }

    /// Whether what a node shows has its blob, or the node says that it waits for it. One that rotted
    /// since it was last looked at nobody knows of.
    pub(super) fn has_blob(&self, at: usize, key: &Key, found: Option<(State, Version)>) -> Judged {
        let Some((State::Present { blob }, version)) = found else { return Ok(()) };
        let node = &self.nodes[at];
        // Before it has looked after a start it does not say that anything is complete.
        let waits = node
            .replica()
            .is_some_and(|replica| replica.blob_pending(key) || replica.status().complete.is_zero());
        if waits || node.host.blobs.holds(&blob) || node.rotten.contains(&blob) {
            return Ok(());
        }
        let text = format!("{at} shows {version} and has not its blob {blob:?}, and does not say so");
        Err(Violation::new("blob", text))
    }

    /// What a node, and what is known of its members, says to be complete.
    pub(super) fn complete(&self, at: usize, status: &Status) -> Judged {
        if status.complete > status.tail {
            let text = format!("{at} is complete to {}, its tail is {}", status.complete, status.tail);
            return Err(Violation::new("complete", text));
        }
        if let Some(member) = status.members.iter().find(|member| member.complete > member.acked) {
            let text = format!("{at} thinks that {member:?} has blobs without records");
            return Err(Violation::new("complete", text));
        }
        let node = &self.nodes[at];
        for (key, (state, version)) in &node.mirror {
            let State::Present { blob } = state else { continue };
            let waits = node.replica().is_some_and(|replica| replica.blob_pending(key));
            let current = node.replica().and_then(|replica| replica.get(key));
            let is_current = current.is_some_and(|entry| entry.version == *version);
            if waits && is_current && *version <= status.complete {
                let text = format!("{at} waits for {blob:?} of {version} and says it is complete to it");
                return Err(Violation::new("complete", text));
            }
        }
        Ok(())
    }

    /// At the end every node is scrubbed, and has each blob that it shows if anyone has it.
    pub(super) fn mended(&mut self) -> Judged {
        if self.forked {
            return Ok(());
        }
        self.scrub_all()?;
        for _ in 0..4 {
            self.settle()?;
            if self.lacks_nothing().is_ok() {
                break;
            }
            // The next look at what waits comes with time.
            self.time_ns += 16_000_000_000;
        }
        self.lacks_nothing()
    }

    fn lacks_nothing(&self) -> Judged {
        let holders: Vec<usize> =
            (0..self.nodes.len()).filter(|at| self.nodes[*at].replica().is_some()).collect();
        for at in &holders {
            let (node, replica) = (&self.nodes[*at], self.nodes[*at].replica().expect("it serves"));
            let scan = Scan {
                namespace: None,
                prefix: Vec::new(),
                after: None,
                entries_max: 1_000_000,
                deleted: false,
            };
            let linked: BTreeSet<String> =
                replica.status().links.into_iter().map(|link| link.identity).collect();
            for (key, entry) in replica.scan(&scan).entries {
                let State::Present { blob } = entry.state else { continue };
                let elsewhere = |other: &&usize| {
                    linked.contains(&self.nodes[**other].identity)
                        && self.nodes[**other].host.blobs.holds(&blob)
                };
                if !node.host.blobs.holds(&blob)
                    && let Some(other) = holders.iter().find(elsewhere)
                {
                    let text = format!("{at} lacks {blob:?} of {key}, and {other} has it");
                    return Err(Violation::new("not mended", text));
                }
            }
        }
        Ok(())
    }

    /// A blob that nothing knows to be bad does not stay so for ever: what was found bad is known.
    pub(super) fn scrubbed(&mut self, at: usize, bad: &[BlobKey]) {
        for blob in bad {
            self.nodes[at].rotten.remove(blob);
        }
    }
}
