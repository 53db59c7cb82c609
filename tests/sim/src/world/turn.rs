//! What a tick does: one effect, one answer, some bytes, or a deadline of one node.

use super::{Judged, Violation, World};
use crate::fault::Fault;
use crate::node::Life;
use crate::rng::Choose;
use strandline_core::id::LinkId;
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::recovery::NotRecovered;
use strandline_core::machine::{Machine, Next, drain};

/// What a node can do next.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Effect,
    Answer,
    Bytes(u64, usize),
    Told(u64),
    Deadline,
    Close,
    Outside(LinkId),
}

impl World {
    /// The world goes on a little. If nobody can do anything, time goes on to where somebody can.
    pub(super) fn tick(&mut self) -> Judged {
        if !self.tick_now()? {
            self.jump();
        }
        Ok(())
    }

    /// As [`World::tick`], without letting time pass for nothing. False if nobody can do anything.
    pub(super) fn tick_now(&mut self) -> Result<bool, Violation> {
        self.time_ns += self.rng.below(200_000);
        if self.outside.is_some() && self.rng.once_in(4) && self.outside_turn()? {
            return Ok(true);
        }
        let first = self.rng.index(self.nodes.len());
        for next in 0..self.nodes.len() {
            let at = (first + next) % self.nodes.len();
            if let Some(turn) = self.pick(at) {
                self.take(at, turn)?;
                return Ok(true);
            }
        }
        self.outside_turn()
    }

    fn pick(&mut self, at: usize) -> Option<Turn> {
        let node = &self.nodes[at];
        let (serves, slow) = match node.life {
            Life::Down | Life::Refused(_) => return None,
            Life::Recovering(_) => (false, node.slow_until_ns > self.time_ns),
            Life::Up(_) => (true, node.slow_until_ns > self.time_ns),
        };
        let mut turns: [Option<Turn>; 7] = [None; 7];
        turns[0] = (!slow && node.host.busy()).then_some(Turn::Effect);
        turns[1] = (!slow && !node.host.answers.is_empty()).then_some(Turn::Answer);
        if serves {
            let ways = self.deliverable(at);
            if !ways.is_empty() {
                let pick = self.rng.index(ways.len());
                if pick > 0 {
                    self.counts.add(Fault::Reorder);
                }
                turns[2] = Some(Turn::Bytes(ways[pick].0, ways[pick].1));
            }
            turns[3] = self.untold(at).map(Turn::Told);
            turns[4] = (self.due(at) || self.rng.once_in(256)).then_some(Turn::Deadline);
            turns[5] = (!self.nodes[at].closing.is_empty()).then_some(Turn::Close);
            turns[6] = self.outside_sends(at).map(Turn::Outside);
        }
        let can = turns.iter().flatten().count();
        if can == 0 {
            return None;
        }
        let pick = self.rng.index(can);
        turns.into_iter().flatten().nth(pick)
    }

    fn due(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        let deadline = node.replica().and_then(|replica| replica.pending().deadline);
        deadline.is_some_and(|deadline| deadline <= node.now(self.time_ns).mono)
    }

    fn take(&mut self, at: usize, turn: Turn) -> Judged {
        match turn {
            Turn::Effect => {
                self.nodes[at].host.advance();
                Ok(())
            }
            Turn::Answer => self.hand_in(at),
            Turn::Bytes(id, direction) => self.deliver(id, direction),
            Turn::Outside(link) => self.deliver_from_outside(at, link),
            Turn::Told(id) => self.tell_broken(at, id),
            Turn::Deadline => {
                let now = self.nodes[at].now(self.time_ns);
                self.step(4, at, 0);
                if let Some(replica) = self.nodes[at].replica_mut() {
                    replica.handle_timeout(now);
                }
                self.after(at)
            }
            Turn::Close => {
                // A host does not wait for ever for its last bytes to leave.
                let patient = !self.rng.once_in(64);
                self.close_drained(at, patient);
                Ok(())
            }
        }
    }

    fn hand_in(&mut self, at: usize) -> Judged {
        let Some(answer) = self.nodes[at].host.answer() else { return Ok(()) };
        let now = self.nodes[at].now(self.time_ns);
        self.step(5, at, self.nodes[at].host.outstanding() as u64);
        match &mut self.nodes[at].life {
            Life::Recovering(recovery) => recovery.handle_completion(now, answer),
            Life::Up(replica) => {
                if self.trace.is_some() {
                    let text = format!("{answer:?}");
                    replica.handle_completion(now, answer);
                    self.tell(|| format!("{at} <- {}", text.chars().take(160).collect::<String>()));
                } else {
                    replica.handle_completion(now, answer);
                }
            }
            Life::Down | Life::Refused(_) => {}
        }
        self.after(at)
    }

    /// Moves everything a machine has to say into its host, then looks at it.
    pub(super) fn after(&mut self, at: usize) -> Judged {
        let mut buf = std::mem::take(&mut self.buf);
        let node = &mut self.nodes[at];
        let budget = 1 + u32::try_from(self.rng.below(64)).expect("small");
        match &mut node.life {
            Life::Recovering(recovery) => {
                while drain(recovery.as_mut(), &mut node.host, &mut buf, budget) == Next::More {}
            }
            Life::Up(replica) => {
                while drain(replica.as_mut(), &mut node.host, &mut buf, budget) == Next::More {}
            }
            Life::Down | Life::Refused(_) => {}
        }
        self.buf = buf;
        if let Life::Recovering(_) = self.nodes[at].life {
            return self.finish(at);
        }
        self.events(at)
    }

    /// Recovery may be done.
    fn finish(&mut self, at: usize) -> Judged {
        let node = &mut self.nodes[at];
        if node.host.outstanding() > 0 {
            return Ok(());
        }
        let Life::Recovering(recovery) = std::mem::replace(&mut node.life, Life::Down) else {
            return Ok(());
        };
        match recovery.finish() {
            Ok((replica, report)) => {
                node.life = Life::Up(Box::new(replica));
                if let Some((FileName::Segment(number), offset, _)) = report.cut {
                    // Only after the judgement may what was cut be forgotten.
                    node.cut = Some((number.0, offset));
                }
                self.tell(|| format!("{at} recovered: {report:?}"));
                self.recovered(at)?;
                self.after(at)
            }
            Err(NotRecovered::Working(recovery)) => {
                node.life = Life::Recovering(recovery);
                Err(Violation::new("stuck", format!("{at} recovers and has nothing to do")))
            }
            Err(NotRecovered::Failed(error)) => {
                self.tell(|| format!("{at} is refused: {error}"));
                self.nodes[at].life = Life::Refused(error);
                self.refused(at)
            }
        }
    }

    /// Time goes on to the next moment at which somebody can do something; at most some seconds.
    fn jump(&mut self) {
        let next = self.next_ns(20_000_000_000);
        self.time_ns = next.max(self.time_ns + 1_000_000);
    }

    /// The next moment at which somebody can do something, at most `most_ns` ahead.
    pub(super) fn next_ns(&self, most_ns: u64) -> u64 {
        let mut next = self.time_ns + most_ns;
        for node in &self.nodes {
            if let Some(deadline) = node.replica().and_then(|replica| replica.pending().deadline) {
                let ahead = deadline.0.saturating_sub(node.now(self.time_ns).mono.0);
                next = next.min(self.time_ns.saturating_add(ahead));
            }
            if node.slow_until_ns > self.time_ns {
                next = next.min(node.slow_until_ns);
            }
            if let Some((_, until)) = node.clock.stalled
                && until > self.time_ns
            {
                next = next.min(until);
            }
        }
        self.next_delayed_ns().map_or(next, |delayed| next.min(delayed))
    }
}
