//! Connections between nodes: bytes both ways, and what happens to them.

use super::{Judged, Violation, World};
use crate::fault::Fault;
use crate::host::Outgoing;
use crate::rng::Choose;
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{Flow, LinkRole};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::wire::capability::Capabilities;
use strandline_core::wire::handshake::{
    Authenticated, DialAuth, Handshake, ListenAuth, PeerCredential, Progress,
};
use strandline_core::wire::identity::PeerIdentity;

/// A connection. Direction 0 goes from the first end to the second.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) ends: [(usize, LinkId); 2],
    /// Nothing is delivered before this time.
    delayed_until_ns: [u64; 2],
    /// Nothing is delivered any more.
    cut: [bool; 2],
    pub(super) broken: bool,
    /// Which ends know that it is broken.
    told: [bool; 2],
    /// Bytes that no peer sent were put into it.
    pub(super) hostile: bool,
}

impl Conn {
    /// Whether a fault works on it.
    pub(super) fn faulty(&self) -> bool {
        self.broken || self.cut != [false; 2] || self.hostile
    }
}

fn identity(replica: &Replica) -> PeerIdentity {
    PeerIdentity::parse(replica.identity()).expect("a short name")
}

/// The name of a replica, and what it declares.
pub(super) fn side(replica: &Replica) -> (PeerIdentity, Capabilities) {
    (identity(replica), replica.capabilities())
}

/// A handshake over no wire: what `a`, which dials, and `b` then know of each other.
pub(crate) fn authenticate(a: &Replica, b: &Replica) -> (Authenticated, Authenticated) {
    handshake(side(a), side(b))
}

/// As [`authenticate`], by names and what they declare.
pub(super) fn handshake(
    (name_a, of_a): (PeerIdentity, Capabilities),
    (name_b, of_b): (PeerIdentity, Capabilities),
) -> (Authenticated, Authenticated) {
    let mut to_b = Vec::new();
    let dial = DialAuth {
        token: "secret".into(),
        identity: Some(name_a.clone()),
        capabilities: of_a,
        expect: Some(name_b.clone()),
    };
    let dialer = Handshake::dial(dial, &mut to_b).expect("short");
    let listener = Handshake::listen(ListenAuth {
        identity: Some(name_b),
        capabilities: of_b,
        credentials: vec![PeerCredential::of_token(name_a, "secret")],
    });
    let mut to_a = Vec::new();
    let Ok(Progress::Done { peer: for_b, .. }) = listener.handle_received(&to_b, &mut to_a) else {
        unreachable!("the listener knows the dialer")
    };
    let Ok(Progress::Done { peer: for_a, .. }) = dialer.handle_received(&to_a, &mut Vec::new()) else {
        unreachable!("the dialer knows the listener")
    };
    (for_a, for_b)
}

impl World {
    /// Whether a connection between the two is up.
    pub(super) fn connected(&self, a: usize, b: usize) -> bool {
        let joins = |conn: &Conn| {
            let ends = [conn.ends[0].0, conn.ends[1].0];
            !conn.broken && (ends == [a, b] || ends == [b, a])
        };
        self.conns.values().any(joins)
    }

    /// `a` dials `b`. Nothing happens if one of them does not serve.
    pub(super) fn connect(&mut self, a: usize, b: usize) -> Judged {
        let (Some(of_a), Some(of_b)) = (self.nodes[a].replica(), self.nodes[b].replica()) else {
            return Ok(());
        };
        let (for_a, for_b) = authenticate(of_a, of_b);
        let Some(link_a) = self.link_up(a, &for_a, LinkRole::Both)? else { return Ok(()) };
        let Some(link_b) = self.link_up(b, &for_b, LinkRole::Both)? else {
            self.link_down(a, link_a)?;
            return Ok(());
        };
        self.conns_made += 1;
        let id = self.conns_made;
        self.tell(|| format!("connect {a} {link_a} with {b} {link_b}"));
        let ends = [(a, link_a), (b, link_b)];
        for (side, end) in ends.into_iter().enumerate() {
            self.by_link.insert(end, (id, side));
        }
        let conn = Conn {
            ends,
            delayed_until_ns: [0; 2],
            cut: [false; 2],
            broken: false,
            told: [false; 2],
            hostile: false,
        };
        self.conns.insert(id, conn);
        self.after(a)?;
        self.after(b)
    }

    pub(super) fn link_up(
        &mut self,
        at: usize,
        peer: &Authenticated,
        role: LinkRole,
    ) -> Result<Option<LinkId>, Violation> {
        let now = self.nodes[at].now(self.time_ns);
        self.step(1, at, 0);
        let Some(replica) = self.nodes[at].replica_mut() else { return Ok(None) };
        match replica.handle_link_up(now, peer, role) {
            Ok(link) => {
                self.nodes[at].host.out.insert(link, Outgoing::default());
                self.nodes[at].host.wake(link);
                Ok(Some(link))
            }
            Err(refused) => {
                self.tell(|| format!("{at} refuses a link: {refused}"));
                self.after(at)?;
                Ok(None)
            }
        }
    }

    pub(super) fn link_down(&mut self, at: usize, link: LinkId) -> Judged {
        let now = self.nodes[at].now(self.time_ns);
        self.step(2, at, u64::from(link.slot));
        let node = &mut self.nodes[at];
        node.host.forget(link);
        node.paused.remove(&link);
        node.closing.remove(&link);
        if let Some(replica) = node.replica_mut() {
            replica.handle_link_down(now, link);
        }
        self.after(at)
    }

    /// A connection ends; its ends learn it later.
    pub(super) fn break_conn(&mut self, id: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.broken = true;
            for (node, link) in conn.ends {
                // A node that started again may have used the name of the link again.
                if self.by_link.get(&(node, link)).is_none_or(|(other, _)| *other != id) {
                    continue;
                }
                if let Some(out) = self.nodes[node].host.out.get_mut(&link) {
                    out.bytes.clear();
                }
            }
        }
    }

    /// A node is gone: its connections break, and it needs not be told.
    pub(super) fn break_all(&mut self, at: usize) {
        let ids: Vec<u64> = self.conns.keys().copied().collect();
        for id in ids {
            let conn = &self.conns[&id];
            let Some(side) = conn.ends.iter().position(|(node, _)| *node == at) else { continue };
            self.break_conn(id);
            let conn = self.conns.get_mut(&id).expect("it was there");
            conn.told[side] = true;
            let end = conn.ends[side];
            self.by_link.remove(&end);
            self.forget_told(id);
        }
    }

    fn forget_told(&mut self, id: u64) {
        if self.conns.get(&id).is_some_and(|conn| conn.told == [true; 2]) {
            self.conns.remove(&id);
        }
    }

    /// Connections of which this node must still be told that they broke.
    pub(super) fn untold(&self, at: usize) -> Option<u64> {
        let untold = |conn: &Conn| {
            conn.broken && conn.ends.iter().zip(conn.told).any(|((node, _), told)| *node == at && !told)
        };
        self.conns.iter().find(|(_, conn)| untold(conn)).map(|(id, _)| *id)
    }

    pub(super) fn tell_broken(&mut self, at: usize, id: u64) -> Judged {
        let conn = self.conns.get_mut(&id).expect("untold() found it");
        let side = usize::from(conn.ends[0].0 != at);
        conn.told[side] = true;
        let end = conn.ends[side];
        self.by_link.remove(&end);
        self.forget_told(id);
        self.tell(|| format!("{at} learns that {} is gone", end.1));
        self.link_down(at, end.1)
    }

    /// Connections that have something for this node, with the direction.
    pub(super) fn deliverable(&self, at: usize) -> Vec<(u64, usize)> {
        let mut found = Vec::new();
        for (id, conn) in &self.conns {
            for direction in 0..2 {
                let (from, to) = (conn.ends[direction], conn.ends[1 - direction]);
                let open =
                    !conn.broken && !conn.cut[direction] && conn.delayed_until_ns[direction] <= self.time_ns;
                if to.0 == at
                    && open
                    && !self.nodes[at].paused.contains(&to.1)
                    && self.nodes[from.0].host.out.get(&from.1).is_some_and(|out| !out.bytes.is_empty())
                {
                    found.push((*id, direction));
                }
            }
        }
        found
    }

    pub(super) fn deliver(&mut self, id: u64, direction: usize) -> Judged {
        let conn = &self.conns[&id];
        let ((from, out_link), (to, link)) = (conn.ends[direction], conn.ends[1 - direction]);
        let window = self.profile.window;
        let out = self.nodes[from].host.out.get_mut(&out_link).expect("deliverable() found it");
        let all = out.bytes.len();
        let count = match self.rng.below(8) {
            0 => 1 + self.rng.index(all.min(16)),
            1 | 2 => 1 + self.rng.index(all),
            _ => all,
        };
        if count < all {
            self.counts.add(Fault::Split);
        }
        let bytes: Vec<u8> = out.bytes.drain(..count).collect();
        let woken = out.full && out.bytes.len() <= window / 2;
        if woken {
            out.full = false;
            self.nodes[from].host.wake(out_link);
        }
        self.tell(|| format!("{to} receives {count} of {all} bytes on {link} from {from}"));
        self.hand_bytes(to, link, &bytes)?;
        if woken { self.after(from) } else { Ok(()) }
    }

    /// A node gets bytes of a link.
    pub(super) fn hand_bytes(&mut self, to: usize, link: LinkId, bytes: &[u8]) -> Judged {
        let now = self.nodes[to].now(self.time_ns);
        self.step(3, to, bytes.len() as u64);
        let Some(replica) = self.nodes[to].replica_mut() else { return Ok(()) };
        match replica.handle_received(now, link, bytes) {
            Flow::More => {}
            Flow::Pause => {
                self.nodes[to].paused.insert(link);
            }
        }
        self.after(to)
    }

    /// Ends connections that a side wants closed and whose bytes are out.
    pub(super) fn close_drained(&mut self, at: usize, patient: bool) -> bool {
        let drained = self.nodes[at].closing.iter().copied().find(|link| {
            let empty = self.nodes[at].host.out.get(link).is_none_or(|out| out.bytes.is_empty());
            let place = self
                .by_link
                .get(&(at, *link))
                .and_then(|(id, side)| self.conns.get(id).map(|conn| conn.cut[*side] || conn.broken));
            empty || !patient || place.unwrap_or(true)
        });
        let Some(link) = drained else { return false };
        self.nodes[at].closing.remove(&link);
        if self.is_outside(at, link) {
            self.break_outside();
        }
        if let Some((id, _)) = self.by_link.get(&(at, link)).copied() {
            self.break_conn(id);
        }
        true
    }

    /// When the next delayed connection moves again.
    pub(super) fn next_delayed_ns(&self) -> Option<u64> {
        let times = self.conns.values().flat_map(|conn| conn.delayed_until_ns);
        times.filter(|time| *time > self.time_ns).min()
    }

    /// Breaks whatever connection a fault works on.
    pub(super) fn heal_links(&mut self) {
        self.break_outside();
        let faulty: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| conn.faulty()).map(|(id, _)| *id).collect();
        for id in faulty {
            self.break_conn(id);
        }
        for conn in self.conns.values_mut() {
            conn.delayed_until_ns = [0; 2];
        }
    }

    /// Some connection of this node that is up, and one of its directions, for a fault of the
    /// network that is counted then.
    fn victim(&mut self, at: usize, fault: Fault) -> Option<(u64, usize)> {
        let of_node = |conn: &Conn| !conn.broken && conn.ends.iter().any(|(node, _)| *node == at);
        let ids: Vec<u64> = self.conns.iter().filter(|(_, conn)| of_node(conn)).map(|(id, _)| *id).collect();
        let id = *ids.get(self.rng.index(ids.len()))?;
        self.counts.add(fault);
        Some((id, self.rng.index(2)))
    }

    /// Both ends learn at once that their connection is gone.
    pub(super) fn link_break(&mut self, at: usize) -> Judged {
        let Some((id, _)) = self.victim(at, Fault::LinkBreak) else { return Ok(()) };
        self.break_conn(id);
        while let Some(end) = self
            .conns
            .get(&id)
            .and_then(|conn| conn.ends.iter().zip(conn.told).find(|(_, told)| !told).map(|(end, _)| *end))
        {
            self.tell_broken(end.0, id)?;
        }
        Ok(())
    }

    /// A connection is gone; one side learns it soon, the other may write on.
    pub(super) fn half_open(&mut self, at: usize) {
        if let Some((id, direction)) = self.victim(at, Fault::HalfOpen) {
            let conn = self.conns.get_mut(&id).expect("picked");
            conn.cut = [true; 2];
            let (node, link) = conn.ends[direction];
            self.nodes[node].closing.insert(link);
        }
    }

    pub(super) fn one_way_cut(&mut self, at: usize) {
        if let Some((id, direction)) = self.victim(at, Fault::OneWayCut) {
            self.conns.get_mut(&id).expect("picked").cut[direction] = true;
        }
    }

    pub(super) fn delay(&mut self, at: usize) {
        if let Some((id, direction)) = self.victim(at, Fault::Delay) {
            let until = self.time_ns + (1 + self.rng.below(20_000)) * 1_000_000;
            self.conns.get_mut(&id).expect("picked").delayed_until_ns[direction] = until;
        }
    }

    /// Bytes that no peer sent are put into a connection.
    pub(super) fn hostile_bytes(&mut self, at: usize) {
        if let Some((id, direction)) = self.victim(at, Fault::HostileBytes) {
            self.hostile(id, direction);
        }
    }

    fn hostile(&mut self, id: u64, direction: usize) {
        let conn = self.conns.get_mut(&id).expect("picked");
        conn.hostile = true;
        let (node, link) = conn.ends[direction];
        let count = 1 + self.rng.below(64);
        let mut garbage: Vec<u8> = (0..count).map(|_| self.rng.below(256) as u8).collect();
        if self.rng.once_in(2) {
            // What looks like a frame and is no message.
            let length = u32::try_from(garbage.len()).expect("short");
            let mut frame = b"SHV1".to_vec();
            frame.extend(length.to_be_bytes());
            frame.append(&mut garbage);
            garbage = frame;
        }
        let Some(out) = self.nodes[node].host.out.get_mut(&link) else { return };
        let at = self.rng.index(out.bytes.len() + 1);
        let rest = out.bytes.split_off(at);
        out.bytes.extend(garbage);
        out.bytes.extend(rest);
    }
}
