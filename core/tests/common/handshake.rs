//! Authenticates two replicas to each other: a real handshake over no wire.

use strandline_core::lifecycle::replica::Replica;
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::handshake::{
    Authenticated, DialAuth, Handshake, ListenAuth, PeerCredential, Progress,
};
use strandline_core::wire::identity::PeerIdentity;

fn identity(replica: &Replica) -> PeerIdentity {
    PeerIdentity::parse(&replica.status().identity).expect("a peer's name")
}

/// What `a` and `b` then know of each other; `a` dials.
pub(crate) fn authenticate(a: &Replica, b: &Replica) -> (Authenticated, Authenticated) {
    authenticate_with(a, b, &a.capabilities(), &b.capabilities())
}

/// As [`authenticate`], with capabilities of the caller's.
pub(crate) fn authenticate_with(
    a: &Replica,
    b: &Replica,
    of_a: &Capabilities,
    of_b: &Capabilities,
) -> (Authenticated, Authenticated) {
    let mut to_b = Vec::new();
    let dial = DialAuth {
        token: "secret".into(),
        identity: Some(identity(a)),
        capabilities: of_a.clone(),
        expect: Some(identity(b)),
    };
    let dialer = Handshake::dial(dial, &mut to_b).expect("small");
    let listener = Handshake::listen(ListenAuth {
        identity: Some(identity(b)),
        capabilities: of_b.clone(),
        credentials: vec![PeerCredential::of_token(identity(a), "secret")],
    });
    let mut to_a = Vec::new();
    let Ok(Progress::Done { peer: for_b, .. }) = listener.handle_received(&to_b, &mut to_a) else {
        panic!("the listener takes the dialer")
    };
    let Ok(Progress::Done { peer: for_a, .. }) = dialer.handle_received(&to_a, &mut Vec::new()) else {
        panic!("the dialer takes the listener")
    };
    (for_a, for_b)
}

/// What a peer of the reference declares.
pub(crate) fn reference() -> Capabilities {
    Capabilities::new([Capability::Lifecycle, Capability::RepairReconcile]).expect("two")
}
