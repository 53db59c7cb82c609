//! The end of a run: the faults stop, everyone is restarted and connected, and all must agree or say
//! why they do not.

use super::{Judged, Violation, World};
use crate::effect::Armed;
use crate::node::{Clock, Life};
use strandline_core::lifecycle::api::{LinkStatus, PairReason};
use strandline_core::verdict::Verdict;

/// How often everyone is connected anew before they must agree.
const ROUNDS: u32 = 8;
/// Most ticks until nothing moves any more.
const TICKS_MAX: u32 = 400_000;

impl World {
    /// Heals the world and judges what is left.
    pub(super) fn quiesce(&mut self) -> Judged {
        self.tell(|| "== the faults stop".into());
        self.heal_links();
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            node.host.armed = Armed::default();
            node.slow_until_ns = 0;
            node.clock = Clock { ahead_ns: node.clock.ahead_ns, ..Clock::default() };
            let broken = node.halted || node.closed || !node.damage.is_empty() || node.twin;
            if broken && matches!(self.nodes[at].life, Life::Up(_) | Life::Recovering(_)) {
                self.stop(at, false);
            }
            self.nodes[at].host.stale.clear();
        }
        for round in 0..ROUNDS {
            self.restart(round)?;
            self.settle()?;
            // A person looks for what rotted: bytes that are not what their key says end every link.
            self.scrub_all()?;
            self.connect_all()?;
            self.settle()?;
            if self.agreed().is_ok() {
                break;
            }
            // Whatever waits for time gets some.
            self.time_ns += 70_000_000_000;
            self.settle()?;
        }
        self.agreed()?;
        self.mended()?;
        self.outside_agrees()?;
        for at in 0..self.nodes.len() {
            self.look(at)?;
        }
        Ok(())
    }

    fn restart(&mut self, round: u32) -> Judged {
        for at in 0..self.nodes.len() {
            if self.nodes[at].twin {
                continue;
            }
            // The answer to a command that failed before, or the end of a close, may still come.
            if round < 2 && (self.nodes[at].halted || self.nodes[at].closed) {
                self.stop(at, false);
            }
            if self.nodes[at].halted {
                return Err(Violation::new("halted", format!("{at} halts without a fault")));
            }
            // A person reseeds a follower whose damage was reported. The log's writer is lost.
            if matches!(self.nodes[at].life, Life::Refused(_)) && !self.nodes[at].writes {
                self.wipe(at)?;
            }
            self.start(at)?;
        }
        Ok(())
    }

    fn connect_all(&mut self) -> Judged {
        for a in 0..self.nodes.len() {
            for b in a + 1..self.nodes.len() {
                if !self.connected(a, b) {
                    self.connect(a, b)?;
                }
            }
        }
        Ok(())
    }

    /// Lets everything happen that happens without waiting for more than a little time.
    pub(super) fn settle(&mut self) -> Judged {
        let mut quiet = 0;
        for _ in 0..TICKS_MAX {
            if self.tick_now()? {
                quiet = 0;
                continue;
            }
            quiet += 1;
            if quiet > 4 {
                return Ok(());
            }
            self.time_ns = self.next_ns(1_000_000_000).max(self.time_ns + 1_000_000);
        }
        let out: Vec<_> = self.nodes.iter().map(|node| node.host.describe()).collect();
        Err(Violation::new("unsettled", format!("after {TICKS_MAX} ticks: {out:?}")))
    }

    /// Every pair of nodes that serve shows the same, or one of them says why not.
    fn agreed(&self) -> Judged {
        for a in 0..self.nodes.len() {
            for b in a + 1..self.nodes.len() {
                self.pair(a, b)?;
            }
        }
        Ok(())
    }

    fn pair(&self, a: usize, b: usize) -> Judged {
        let (Some(of_a), Some(of_b)) = (self.nodes[a].replica(), self.nodes[b].replica()) else {
            return self.down(a).and_then(|()| self.down(b));
        };
        let (of_a, of_b) = (of_a.status(), of_b.status());
        if of_a.tail_digest == of_b.tail_digest {
            return Ok(());
        }
        let says = |links: &[LinkStatus], name: &str| {
            links.iter().filter(|link| link.identity == name).any(|link| self.explains(link))
        };
        if says(&of_a.links, &of_b.identity) || says(&of_b.links, &of_a.identity) {
            return Ok(());
        }
        let text = format!(
            "{a} is at {}, {b} at {}, and no verdict says why: {:?}; {:?}",
            of_a.tail, of_b.tail, of_a.links, of_b.links
        );
        Err(Violation::new("no agreement", text))
    }

    /// A node may be down at the end if a person must decide about it.
    fn down(&self, at: usize) -> Judged {
        let node = &self.nodes[at];
        match node.life {
            Life::Up(_) | Life::Refused(_) => Ok(()),
            Life::Down if node.twin => Ok(()),
            Life::Down | Life::Recovering(_) => {
                Err(Violation::new("down", format!("{at} does not start without a fault")))
            }
        }
    }

    fn explains(&self, link: &LinkStatus) -> bool {
        match &link.verdict {
            None | Some(Verdict::Complete { .. }) => false,
            Some(Verdict::Diverged(_)) => self.forked,
            Some(Verdict::Unknown { reason } | Verdict::Gap { reason, .. }) => match reason {
                PairReason::SnapshotTooLarge | PairReason::BlobTooLarge | PairReason::OtherIncarnation => {
                    true
                }
                PairReason::BlobMissing
                | PairReason::BelowFloor
                | PairReason::AheadOfTail
                | PairReason::OtherHistory
                | PairReason::ForeignVersion
                | PairReason::FencedEpoch
                | PairReason::NoProgress => false,
            },
        }
    }
}
