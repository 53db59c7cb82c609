//! Two real replicas and the connections between them: what may happen next, and what it does.

use crate::blobs::blob_key;
use crate::bounds::{Bounds, Side, Speech, Step};
use crate::connection::{Connection, End, declared};
use crate::host::{Node, Said};
use crate::spec::{Promise, Spec, mutation};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{CloseReason, Event, LinkRole};
use strandline_core::machine::Machine;
use strandline_core::record::Version;
use strandline_core::time::Now;
use strandline_core::verdict::Verdict;
use strandline_core::wire::handshake::Progress;
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, decode_message};
use strandline_core::wire::own::OwnMessage;

/// One thing that happens. Connections are counted in the order in which they were dialed; `to` and
/// `side` are the node at which it happens.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Action {
    /// A node does the next step of its script.
    Write(Side),
    /// A node without a link dials.
    Dial(Side),
    /// The next frame of a connection arrives.
    Deliver(u8, Side),
    /// It arrives, and will arrive again.
    Twice(u8, Side),
    /// It is lost, and the connection goes on.
    Lose(u8, Side),
    /// The frame behind it arrives first.
    Overtake(u8, Side),
    /// An end learns that the connection is gone, or breaks it.
    Break(u8, Side),
    /// The oldest effect that a node's disk holds back happens.
    Sync(Side),
    /// A node loses power after so many of the effects that are held back, and recovers.
    Crash(Side, u8),
    /// A keepalive's time passes.
    Tick,
}

/// What a state shows besides its promises, so that the report can tell that it was reached.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub(crate) struct Seen {
    pub(crate) converged: bool,
    pub(crate) installed: bool,
    pub(crate) diverged: bool,
    pub(crate) lost_unsynced: bool,
    pub(crate) replaced: bool,
}

pub(crate) struct World<'a> {
    bounds: &'a Bounds,
    pub(crate) nodes: [Node; 2],
    connections: Vec<Connection>,
    now: Now,
    script: [usize; 2],
    dials: [u8; 2],
    cuts: u8,
    crashes: [u8; 2],
    frame_faults: u8,
    ticks: u8,
    pub(crate) spec: Spec,
    pub(crate) seen: Seen,
    /// Whether what happens is looked at; not on a way that was gone before.
    looking: bool,
}

const SIDES: [Side; 2] = [0, 1];

impl<'a> World<'a> {
    /// Two empty replicas that have not met.
    pub(crate) fn new(bounds: &'a Bounds) -> Self {
        let writes = |side: Side| !bounds.script[side].is_empty();
        Self {
            nodes: [Node::new(0, writes(0), bounds.disks), Node::new(1, writes(1), bounds.disks)],
            connections: Vec::new(),
            now: Now::default(),
            script: [0, 0],
            dials: bounds.dials,
            cuts: bounds.cuts,
            crashes: bounds.crashes,
            frame_faults: bounds.frame_faults,
            ticks: bounds.ticks,
            spec: Spec::default(),
            seen: Seen::default(),
            looking: true,
            bounds,
        }
    }

    /// Goes a way that was looked at before, with `spec` at its end.
    pub(crate) fn again(bounds: &'a Bounds, way: &[Action], spec: &Spec) -> Self {
        let mut world = Self::new(bounds);
        world.looking = false;
        for action in way {
            world.act(*action);
        }
        world.looking = true;
        world.spec = spec.clone();
        world
    }

    fn writers(&self) -> [bool; 2] {
        SIDES.map(|side| !self.bounds.script[side].is_empty())
    }

    /// What may happen now.
    pub(crate) fn open(&self) -> Vec<Action> {
        let mut open = self.progress();
        for side in SIDES {
            if self.dials[side] > 0 && !self.connections.iter().any(|c| c.occupies(side)) {
                open.push(Action::Dial(side));
            }
            if self.crashes[side] > 0 {
                let held = u8::try_from(self.nodes[side].outside.held.len()).expect("few");
                open.extend((0..=held).map(|landed| Action::Crash(side, landed)));
            }
        }
        for (at, connection) in (0..).zip(&self.connections) {
            for to in SIDES {
                let frames = connection.inbox[to].len();
                if self.frame_faults > 0 && frames > 0 {
                    open.extend([Action::Twice(at, to), Action::Lose(at, to)]);
                    if frames > 1 {
                        open.push(Action::Overtake(at, to));
                    }
                }
                if self.cuts > 0 && !connection.is_down(to) && !self.may_end(connection, to) {
                    open.push(Action::Break(at, to));
                }
            }
        }
        if self.ticks > 0 {
            open.push(Action::Tick);
        }
        open
    }

    /// What happens without anything going wrong.
    fn progress(&self) -> Vec<Action> {
        let mut open = Vec::new();
        for side in SIDES {
            if self.script[side] < self.bounds.script[side].len() {
                open.push(Action::Write(side));
            }
            if !self.nodes[side].outside.held.is_empty() {
                open.push(Action::Sync(side));
            }
        }
        for (at, connection) in (0..).zip(&self.connections) {
            for to in SIDES {
                if !connection.inbox[to].is_empty() {
                    open.push(Action::Deliver(at, to));
                }
                if self.may_end(connection, to) {
                    open.push(Action::Break(at, to));
                }
            }
        }
        open
    }

    /// Whether an end will end without a new fault: the other end has, or its frames are unsound.
    fn may_end(&self, connection: &Connection, side: Side) -> bool {
        !connection.is_down(side) && (connection.is_down(1 - side) || connection.unsound)
    }

    /// Does one thing.
    pub(crate) fn act(&mut self, action: Action) {
        self.seen = Seen::default();
        let now = self.now;
        match action {
            Action::Write(side) => self.write(side),
            Action::Dial(side) => {
                self.dials[side] = self.dials[side].saturating_sub(1);
                let replicas = self.nodes.each_ref().map(|node| &node.replica);
                self.connections.push(Connection::dial(side, replicas, self.bounds.speech));
            }
            Action::Deliver(at, to) => self.deliver(usize::from(at), to, 0, false),
            Action::Twice(at, to) => {
                self.frame_fault(at);
                self.deliver(usize::from(at), to, 0, true);
            }
            Action::Lose(at, to) => {
                self.frame_fault(at);
                self.connections[usize::from(at)].inbox[to].pop_front();
            }
            Action::Overtake(at, to) => {
                self.frame_fault(at);
                self.deliver(usize::from(at), to, 1, false);
            }
            Action::Break(at, side) => {
                let at = usize::from(at);
                if !self.may_end(&self.connections[at], side) {
                    self.cuts -= 1;
                }
                self.broken(at, side);
            }
            Action::Sync(side) => {
                self.nodes[side].release(now);
            }
            Action::Crash(side, landed) => return self.crash(side, landed),
            Action::Tick => self.tick(),
        }
        self.settle(None);
    }

    fn write(&mut self, side: Side) {
        let step = self.bounds.script[side][self.script[side]];
        self.script[side] += 1;
        let node = &mut self.nodes[side];
        let Some(mutation) = mutation(step) else {
            node.replica.handle_compact(self.now, None);
            return;
        };
        if let Step::Put(text) = step {
            node.outside.blobs.stored.insert(blob_key(text.as_bytes()), text.as_bytes().to_vec());
        }
        // A refusal changes nothing, which the next look shows.
        let accepted = node.replica.handle_mutations(self.now, &[mutation]);
        if let (Ok(accepted), true) = (accepted, self.looking) {
            self.spec.wrote(side, step, accepted[0]);
        }
    }

    fn frame_fault(&mut self, at: u8) {
        self.frame_faults -= 1;
        self.connections[usize::from(at)].unsound = true;
    }

    fn tick(&mut self) {
        self.ticks -= 1;
        self.now.mono = self.now.mono.after_ms(15_000);
        for node in &mut self.nodes {
            node.replica.handle_timeout(self.now);
        }
    }

    /// The frame at place `index` arrives; it stays if it will come `again`.
    fn deliver(&mut self, at: usize, to: Side, index: usize, again: bool) {
        let connection = &mut self.connections[at];
        let frame = connection.inbox[to].remove(index).expect("a frame is there");
        if again {
            connection.inbox[to].push_front(frame.clone());
        }
        match &mut connection.ends[to] {
            End::Shaking(handshake) => {
                let handshake = handshake.take().expect("put back after every frame");
                let mut answer = Vec::new();
                let progress = handshake.handle_received(&frame, &mut answer);
                if !answer.is_empty() {
                    connection.send(1 - to, answer);
                }
                match progress {
                    Ok(Progress::More(handshake)) => connection.ends[to] = End::Shaking(Some(handshake)),
                    Ok(Progress::Done { peer, rest }) => {
                        assert!(rest.is_empty(), "frames come whole");
                        let role = self.role(to);
                        match self.nodes[to].replica.handle_link_up(self.now, &peer, role) {
                            Ok(link) => self.connections[at].ends[to] = End::Up(link),
                            Err(_) => self.connections[at].close(to),
                        }
                    }
                    Err(_) => connection.close(to),
                }
            }
            End::Up(link) => {
                let _ = self.nodes[to].replica.handle_received(self.now, *link, &frame);
            }
            End::Down => unreachable!("nothing is on its way to an end that is down"),
        }
    }

    /// A peer of the reference names no log: which way records go is configured.
    fn role(&self, side: Side) -> LinkRole {
        match self.bounds.speech {
            Speech::Native => LinkRole::Both,
            Speech::Reference if self.writers()[side] => LinkRole::Source,
            Speech::Reference => LinkRole::Receiver,
        }
    }

    fn broken(&mut self, at: usize, side: Side) {
        if let End::Up(link) = self.connections[at].ends[side] {
            self.nodes[side].replica.handle_link_down(self.now, link);
        }
        self.connections[at].close(side);
    }

    fn crash(&mut self, side: Side, landed: u8) {
        self.crashes[side] -= 1;
        for connection in &mut self.connections {
            connection.close(side);
        }
        self.seen.lost_unsynced = self.nodes[side].outside.held.len() > usize::from(landed);
        self.nodes[side].crash(self.now, landed);
        self.settle(Some(side));
    }

    /// Takes what both nodes have to say, and looks at what must hold.
    fn settle(&mut self, crashed: Option<Side>) {
        for side in SIDES {
            let said = self.nodes[side].run(self.now);
            self.said(side, said);
        }
        if !self.looking {
            return;
        }
        self.spec.look(&self.nodes, self.writers(), crashed);
        self.seen.converged = self.converged() && self.wrote();
        self.seen.diverged = SIDES.iter().all(|side| self.stopped(*side));
        if self.quiet() && self.connections.iter().any(|c| c.is_up() && !c.unsound) && !self.done() {
            let statuses = self.nodes.each_ref().map(|node| node.replica.status());
            self.spec.breaks(Promise::QuietMeansDone, format!("nothing moves: {statuses:?}"));
        }
    }

    fn said(&mut self, side: Side, said: Said) {
        for (link, frame) in said.frames {
            if self.looking {
                self.told(side, &frame);
            }
            if let Some(at) = self.find(side, link) {
                self.connections[at].send(1 - side, frame);
            }
        }
        for event in said.events {
            match event {
                Event::CloseLink { link, reason } => self.closed(side, link, &reason),
                Event::Halted { fault } => {
                    self.spec.breaks(Promise::NobodyBlamed, format!("a disk that works is blamed: {fault}"));
                }
                Event::Installed { .. } => self.seen.installed = true,
                Event::Durable { .. }
                | Event::Frames { .. }
                | Event::Resume { .. }
                | Event::Verdict { .. }
                | Event::Page { .. }
                | Event::Synced { .. }
                | Event::Done { .. }
                | Event::EpochStarted { .. }
                | Event::MemberLapsed { .. }
                | Event::Compacted { .. }
                | Event::Closed => {}
            }
        }
    }

    fn find(&self, side: Side, link: LinkId) -> Option<usize> {
        self.connections.iter().position(|c| matches!(c.ends[side], End::Up(up) if up == link))
    }

    fn closed(&mut self, side: Side, link: LinkId, reason: &CloseReason) {
        let Some(at) = self.find(side, link) else { return };
        match reason {
            CloseReason::Duplicate => self.seen.replaced = true,
            CloseReason::Fault(_) if self.connections[at].unsound => {}
            CloseReason::Fault(fault) => {
                self.spec.breaks(Promise::NobodyBlamed, format!("{side} blames its peer: {fault}"));
            }
            CloseReason::Storage(fault) => {
                self.spec.breaks(Promise::NobodyBlamed, format!("a disk that works is blamed: {fault}"));
            }
            CloseReason::Idle | CloseReason::Closing => {}
        }
        self.broken(at, side);
    }

    /// What a frame says of its sender's own log.
    fn told(&mut self, side: Side, frame: &[u8]) {
        let tail = self.nodes[side].replica.status().tail;
        let declared = declared(&self.nodes[side].replica, self.bounds.speech);
        let message = decode_message(&frame[8..], &WireLimits::default(), &declared);
        match message.expect("a replica sends what it declared") {
            Message::Ack { watermark } => self.spec.told(side, watermark, tail),
            Message::Own(OwnMessage::Position(position)) => {
                self.spec.told(side, position.tail.version, tail);
            }
            Message::Batch(batch) => self.spec.told(side, batch.to, tail),
            Message::Record(_) | Message::Snapshot(_) | Message::Blob(_) | Message::Own(_) => {}
        }
    }

    /// Whether nothing happens any more unless something goes wrong or somebody dials.
    fn quiet(&self) -> bool {
        self.progress().is_empty()
    }

    fn converged(&self) -> bool {
        let [a, b] = self.nodes.each_ref().map(|node| node.replica.status());
        a.tail == b.tail && a.tail_digest == b.tail_digest
    }

    fn wrote(&self) -> bool {
        self.nodes.iter().any(|node| node.replica.status().tail > Version::ZERO)
    }

    /// Whether a node's verdict says why it does not go on.
    fn stopped(&self, side: Side) -> bool {
        let status = self.nodes[side].replica.status();
        status.links.iter().any(|link| match &link.verdict {
            Some(Verdict::Diverged(_) | Verdict::Unknown { .. }) => true,
            Some(Verdict::Complete { .. } | Verdict::Gap { .. }) | None => false,
        })
    }

    /// Converged; or two nodes wrote, and both say that their histories differ.
    fn done(&self) -> bool {
        let differ = || SIDES.iter().all(|side| self.stopped(*side));
        match self.writers() {
            [true, true] => self.converged() || differ(),
            [true, false] | [false, true] | [false, false] => self.converged(),
        }
    }

    /// Nothing fails any more: everyone learns what is gone, a new connection is made, and everything
    /// arrives. Whether that ends well.
    pub(crate) fn heal(&mut self) -> bool {
        (self.dials, self.cuts, self.crashes, self.frame_faults, self.ticks) = ([0; 2], 0, [0; 2], 0, 0);
        self.script = self.bounds.script.map(<[Step]>::len);
        self.looking = false;
        for _ in 0..3 {
            for at in 0..self.connections.len() {
                for side in SIDES {
                    self.broken(at, side);
                }
            }
            self.act(Action::Dial(1));
            while let Some(action) = self.progress().first().copied() {
                self.act(action);
            }
            if self.done() {
                self.looking = true;
                self.settle(None);
                return self.spec.broken.is_none();
            }
        }
        false
    }

    /// A number that is the same for the same state, and for no other that is met: made of everything
    /// that the replicas hold, the disks, what is on its way and what was promised.
    pub(crate) fn digest(&self) -> u64 {
        let mut digest = Digest(DefaultHasher::new());
        for node in &self.nodes {
            digest.debug(&node.replica);
            for (name, file) in &node.outside.disk.files {
                (name, &file.cache, &file.durable).hash(&mut digest.0);
            }
            node.outside.blobs.stored.keys().collect::<Vec<_>>().hash(&mut digest.0);
            for held in &node.outside.held {
                match held {
                    crate::host::Held::Waiting(command) => digest.debug(command),
                    crate::host::Held::Believed(before) => digest.debug(before),
                }
            }
            node.starts.hash(&mut digest.0);
        }
        for connection in &self.connections {
            (connection.dialer, connection.unsound).hash(&mut digest.0);
            let frames: &[VecDeque<Vec<u8>>; 2] = &connection.inbox;
            frames.hash(&mut digest.0);
            for end in &connection.ends {
                match end {
                    End::Shaking(_) => 0u8.hash(&mut digest.0),
                    End::Up(link) => (1u8, link.slot, link.uses).hash(&mut digest.0),
                    End::Down => 2u8.hash(&mut digest.0),
                }
            }
        }
        (self.script, self.dials, self.cuts, self.crashes, self.frame_faults, self.ticks).hash(&mut digest.0);
        self.spec.hash(&mut digest.0);
        digest.0.finish()
    }
}

/// Hashes what a value prints, without keeping the text.
struct Digest(DefaultHasher);

impl Digest {
    fn debug(&mut self, value: &dyn std::fmt::Debug) {
        use std::fmt::Write as _;
        write!(self, "{value:?}").expect("a hasher takes everything");
    }
}

impl std::fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
