//! Connections: frames in order each way, two ends that learn of the end apart, and the real handshake.

use crate::bounds::{Side, Speech};
use std::collections::VecDeque;
use strandline_core::id::LinkId;
use strandline_core::lifecycle::replica::Replica;
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::handshake::{DialAuth, Handshake, ListenAuth, PeerCredential};
use strandline_core::wire::identity::PeerIdentity;

/// How one end of a connection stands.
pub(crate) enum End {
    /// The handshake goes on.
    Shaking(Option<Handshake>),
    /// A link of the replica.
    Up(LinkId),
    /// It knows that the connection is gone.
    Down,
}

/// One connection.
pub(crate) struct Connection {
    /// Who dialed.
    pub(crate) dialer: Side,
    pub(crate) ends: [End; 2],
    /// Frames on their way to each end.
    pub(crate) inbox: [VecDeque<Vec<u8>>; 2],
    /// A frame came twice, was lost or overtaken, which no connection of ours does.
    pub(crate) unsound: bool,
}

const TOKEN: &str = "the token of both";

fn identity(side: Side) -> PeerIdentity {
    PeerIdentity::parse(["a", "b"][side]).expect("a name")
}

/// What a node declares.
pub(crate) fn declared(replica: &Replica, speech: Speech) -> Capabilities {
    match speech {
        Speech::Native => replica.capabilities(),
        Speech::Reference => Capabilities::new([Capability::Lifecycle, Capability::RepairReconcile])
            .expect("two short capabilities"),
    }
}

impl Connection {
    /// `dialer` dials the other node.
    pub(crate) fn dial(dialer: Side, replicas: [&Replica; 2], speech: Speech) -> Self {
        let listener = 1 - dialer;
        let mut first = Vec::new();
        let dial = DialAuth {
            token: TOKEN.into(),
            identity: Some(identity(dialer)),
            capabilities: declared(replicas[dialer], speech),
            expect: Some(identity(listener)),
        };
        let dial = Handshake::dial(dial, &mut first).expect("a short message");
        let listen = Handshake::listen(ListenAuth {
            identity: Some(identity(listener)),
            capabilities: declared(replicas[listener], speech),
            credentials: vec![PeerCredential::of_token(identity(dialer), TOKEN)],
        });
        let mut ends = [End::Shaking(Some(dial)), End::Shaking(Some(listen))];
        let mut inbox = [VecDeque::new(), VecDeque::from([first])];
        if dialer == 1 {
            ends.reverse();
            inbox.reverse();
        }
        Self { dialer, ends, inbox, unsound: false }
    }

    /// Puts a frame on its way to `to`.
    pub(crate) fn send(&mut self, to: Side, frame: Vec<u8>) {
        if !matches!(self.ends[to], End::Down) {
            self.inbox[to].push_back(frame);
        }
    }

    /// This end knows now that the connection is gone; what was on its way to it is lost.
    pub(crate) fn close(&mut self, side: Side) {
        self.ends[side] = End::Down;
        self.inbox[side].clear();
    }

    pub(crate) fn is_down(&self, side: Side) -> bool {
        matches!(self.ends[side], End::Down)
    }

    /// Whether `side` dialed it and has not given it up, or has a link over it.
    pub(crate) fn occupies(&self, side: Side) -> bool {
        match self.ends[side] {
            End::Shaking(_) => self.dialer == side,
            End::Up(_) => true,
            End::Down => false,
        }
    }

    /// Both ends have a link.
    pub(crate) fn is_up(&self) -> bool {
        self.ends.iter().all(|end| matches!(end, End::Up(_)))
    }
}
