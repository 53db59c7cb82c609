//! What the tests run on: connections in memory, and a node that does what a test wants.

use crate::access::{Access, Rules};
use crate::config::NetConfig;
use crate::door::Door;
use crate::gate::Gate;
use crate::network::Context;
use crate::peers::Peer;
use crate::runtime::Runtime;
use crate::session::LinkHost;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::channel::oneshot;
use futures::future::{BoxFuture, FutureExt, ready};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{CloseReason, LinkRefused, LinkRole};
use strandline_core::machine::Sent;
use strandline_core::seed::Seed;
use strandline_core::wire::admission::Terms;
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::handshake::{
    Authenticated, DialAuth, Handshake, ListenAuth, PeerCredential, Progress,
};
use strandline_core::wire::identity::PeerIdentity;
use strandline_file::node::LinkSink;
use tokio::io::DuplexStream;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

/// Bytes that one connection in memory holds in each direction.
pub(crate) const PIPE_BYTES: usize = 8 << 10;

/// Both ends of a connection.
pub(crate) fn pipe() -> (Compat<DuplexStream>, Compat<DuplexStream>) {
    let (one, other) = tokio::io::duplex(PIPE_BYTES);
    (one.compat(), other.compat())
}

type Arrived = io::Result<(Compat<DuplexStream>, SocketAddr)>;

/// Tasks and time of tokio, connections in memory.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    listeners: Arc<Mutex<BTreeMap<String, UnboundedSender<Arrived>>>>,
    calls: Arc<AtomicUsize>,
}

impl Memory {
    /// How often somebody was called.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Runtime for Memory {
    type Connection = Compat<DuplexStream>;
    type Incoming = UnboundedReceiver<Arrived>;

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(tokio::task::spawn_blocking(work));
    }
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(time).boxed()
    }
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Self::Connection>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = pipe();
        let from = SocketAddr::from(([10, 0, 0, 1], 1));
        let listeners = self.listeners.lock().expect("no panic");
        let taken = listeners.get(address).is_some_and(|to| to.unbounded_send(Ok((theirs, from))).is_ok());
        ready(if taken { Ok(ours) } else { Err(io::ErrorKind::ConnectionRefused.into()) }).boxed()
    }
    fn listen(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<(Self::Incoming, SocketAddr)>> {
        let (tx, rx) = unbounded();
        self.listeners.lock().expect("no panic").insert(address.to_string(), tx);
        ready(Ok((rx, address))).boxed()
    }
}

/// A node that notes what a session tells it.
#[derive(Clone, Default)]
pub(crate) struct FakeNode(Arc<Mutex<Told>>);

/// What a [`FakeNode`] was told, and what it does.
#[derive(Default)]
pub(crate) struct Told {
    /// Keep `done` callbacks instead of calling them.
    pub(crate) hold: bool,
    /// Keep the answer to a link that comes up.
    pub(crate) hold_up: bool,
    /// Refuse links.
    pub(crate) refuse: Option<LinkRefused>,
    pub(crate) held: Vec<Box<dyn FnOnce() + Send>>,
    pub(crate) sinks: Vec<Box<dyn LinkSink>>,
    pub(crate) received: Vec<u8>,
    pub(crate) ups: u32,
    pub(crate) readies: u32,
    pub(crate) downs: u32,
}

impl FakeNode {
    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().expect("no panic")
    }

    /// Sends a frame on the newest link.
    pub(crate) fn send(&self, frame: &[u8]) -> Sent {
        self.told().sinks.last_mut().expect("a link").send(frame)
    }

    /// Closes the newest link.
    pub(crate) fn close(&self, reason: &CloseReason) {
        self.told().sinks.last_mut().expect("a link").close(reason);
    }

    /// Waits until the node was told something.
    pub(crate) async fn until(&self, told: impl Fn(&Told) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(20), async {
            while !told(&self.told()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        waited.await.expect("it is told in time");
    }
}

impl LinkHost for FakeNode {
    fn link_up(
        &self,
        _peer: Authenticated,
        _role: LinkRole,
        sink: Box<dyn LinkSink>,
        reply: impl FnOnce(Result<LinkId, LinkRefused>) + Send + 'static,
    ) {
        let mut told = self.told();
        if let Some(refused) = &told.refuse {
            return reply(Err(refused.clone()));
        }
        told.ups += 1;
        told.sinks.push(sink);
        let link = LinkId { slot: 0, uses: told.ups };
        if told.hold_up {
            told.held.push(Box::new(move || reply(Ok(link))));
        } else {
            reply(Ok(link));
        }
    }
    fn received(&self, _link: LinkId, bytes: Vec<u8>, done: impl FnOnce() + Send + 'static) {
        let mut told = self.told();
        told.received.extend_from_slice(&bytes);
        if told.hold {
            told.held.push(Box::new(done));
        } else {
            done();
        }
    }
    fn link_ready(&self, _link: LinkId) {
        self.told().readies += 1;
    }
    fn link_down(&self, _link: LinkId) {
        self.told().downs += 1;
    }
}

/// A network of `name` around a fake node: it knows `b`, whose token is `token-of-b`, and calls
/// others with `token`.
pub(crate) fn context(
    runtime: &Memory,
    name: &str,
    token: &str,
    config: NetConfig,
) -> Arc<Context<Memory, FakeNode>> {
    Arc::new(Context {
        runtime: runtime.clone(),
        node: FakeNode::default(),
        door: Door::new(rules(name, token, "token-of-b")),
        gate: gate(&config),
        counters: Arc::default(),
        seed: Seed::new([4; 32]),
        config,
    })
}

/// What `name` knows: `b` by the token given, and its own token.
pub(crate) fn rules(name: &str, token: &str, token_of_b: &str) -> (Rules, oneshot::Sender<Infallible>) {
    let peer = |identity: &str, address: Option<&str>| Peer {
        identity: identity.into(),
        address: address.map(str::to_owned),
        token: Some(token_of_b.into()),
        role: LinkRole::Both,
        terms: Terms::default(),
    };
    let peers = vec![peer("b", None), Peer { token: None, ..peer("a", Some(CALLED)) }];
    let access = Access { token: token.into(), peers, tls: None, plaintext: true };
    Rules::new(name, &capabilities(), access).expect("valid")
}

/// Where `a` is called.
pub(crate) const CALLED: &str = "10.0.0.9:1";

pub(crate) fn gate(config: &NetConfig) -> Gate {
    Gate::new(config.gate())
}

/// What two nodes can do.
fn capabilities() -> Capabilities {
    Capabilities::new([Capability::Lifecycle]).expect("one of ours")
}

pub(crate) fn identity(text: &str) -> PeerIdentity {
    PeerIdentity::parse(text).expect("valid")
}

/// What `b` says first when it calls.
pub(crate) fn hello(token: &str) -> Vec<u8> {
    let auth = DialAuth {
        token: token.into(),
        identity: Some(identity("b")),
        capabilities: capabilities(),
        expect: None,
    };
    let mut hello = Vec::new();
    Handshake::dial(auth, &mut hello).expect("short");
    hello
}

/// A peer as a handshake leaves it.
pub(crate) fn authenticated() -> Authenticated {
    let listener = Handshake::listen(ListenAuth {
        identity: Some(identity("a")),
        capabilities: capabilities(),
        credentials: vec![PeerCredential::of_token(identity("b"), "token")],
    });
    match listener.handle_received(&hello("token"), &mut Vec::new()).expect("let in") {
        Progress::Done { peer, .. } => peer,
        Progress::More(_) => panic!("the whole message was there"),
    }
}
