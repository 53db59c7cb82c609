//! Brings a new connection through the handshake, in bounded time. The handshake itself bounds the
//! bytes.

use crate::config::ms;
use crate::network::Context;
use crate::peers::Peer;
use crate::runtime::{Runtime, within};
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use std::io;
use strandline_core::lifecycle::api::LinkRole;
use strandline_core::wire::auth::AuthTooLarge;
use strandline_core::wire::capability::Capabilities;
use strandline_core::wire::handshake::{
    Authenticated, DialAuth, Handshake, HandshakeError, ListenAuth, PeerCredential, Progress,
};
use strandline_core::wire::identity::{IdentityError, PeerIdentity};

/// Read from a connection at once during the handshake.
const CHUNK_BYTES: usize = 4 << 10;

/// How this node introduces itself, and whom it lets in.
#[derive(Debug)]
pub(crate) struct Introduction {
    dial: DialAuth,
    listen: ListenAuth,
}

/// Why a node cannot introduce itself: the caller's mistake.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IntroductionError {
    /// This node's name, or a peer's, is none.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

impl Introduction {
    /// Introduces the replica called `name`, which declares `capabilities`, with `token` to those we
    /// call.
    pub(crate) fn new(
        name: &str,
        capabilities: Capabilities,
        token: String,
        peers: &[Peer],
    ) -> Result<Self, IntroductionError> {
        let identity = Some(PeerIdentity::parse(name)?);
        let mut credentials = Vec::new();
        for peer in peers {
            let name = PeerIdentity::parse(&peer.identity)?;
            if let Some(token) = &peer.token {
                credentials.push(PeerCredential::of_token(name, token));
            }
        }
        let listen =
            ListenAuth { identity: identity.clone(), capabilities: capabilities.clone(), credentials };
        Ok(Self { dial: DialAuth { token, identity, capabilities, expect: None }, listen })
    }

    fn to(&self, peer: &Peer) -> DialAuth {
        // Judged when the introduction was made.
        DialAuth { expect: PeerIdentity::parse(&peer.identity).ok(), ..self.dial.clone() }
    }
}

/// A connection that is through the handshake.
#[derive(Debug)]
pub(crate) struct Greeted<C> {
    pub(crate) connection: C,
    pub(crate) peer: Authenticated,
    pub(crate) role: LinkRole,
    /// What came behind the handshake.
    pub(crate) early: Vec<u8>,
}

/// Why a connection did not get through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetError {
    #[error("connection failed in the handshake: {0}")]
    Connection(#[from] io::Error),
    #[error("expected the handshake to end within {ms_max} ms")]
    Late { ms_max: u64 },
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Token(#[from] AuthTooLarge),
    #[error("peer {identity} is authenticated, and expected among the configured peers")]
    NotConfigured { identity: PeerIdentity },
}

/// Introduces us to `peer`, whom we called.
pub(crate) async fn greet_as_dialer<R: Runtime, N>(
    context: &Context<R, N>,
    peer: &Peer,
    mut connection: R::Connection,
) -> Result<Greeted<R::Connection>, GreetError> {
    let mut hello = Vec::new();
    let handshake = Handshake::dial(context.introduction.to(peer), &mut hello)?;
    let (authenticated, early) = in_time(context, &mut connection, handshake, hello).await?;
    Ok(Greeted { connection, peer: authenticated, role: peer.role, early })
}

/// Lets a peer that called us introduce itself.
pub(crate) async fn greet_as_listener<R: Runtime, N>(
    context: &Context<R, N>,
    mut connection: R::Connection,
) -> Result<Greeted<R::Connection>, GreetError> {
    let handshake = Handshake::listen(context.introduction.listen.clone());
    let (authenticated, early) = in_time(context, &mut connection, handshake, Vec::new()).await?;
    let identity = authenticated.identity();
    match context.peers.iter().find(|peer| peer.identity == identity.as_str()) {
        Some(peer) => Ok(Greeted { connection, role: peer.role, peer: authenticated, early }),
        None => Err(GreetError::NotConfigured { identity: identity.clone() }),
    }
}

async fn in_time<R: Runtime, N>(
    context: &Context<R, N>,
    connection: &mut R::Connection,
    handshake: Handshake,
    hello: Vec<u8>,
) -> Result<(Authenticated, Vec<u8>), GreetError> {
    let ms_max = context.config.handshake_ms;
    let exchanged = within(&context.runtime, ms(ms_max), exchange(connection, handshake, hello)).await;
    exchanged.ok_or(GreetError::Late { ms_max })?
}

/// Carries bytes until the handshake has ended, and what it had to say is out, a rejection too.
async fn exchange(
    connection: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut handshake: Handshake,
    mut out: Vec<u8>,
) -> Result<(Authenticated, Vec<u8>), GreetError> {
    let mut chunk = [0; CHUNK_BYTES];
    loop {
        say(connection, &mut out).await?;
        let bytes = connection.read(&mut chunk).await?;
        if bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        match handshake.handle_received(&chunk[..bytes], &mut out) {
            Ok(Progress::More(on)) => handshake = on,
            Ok(Progress::Done { peer, rest }) => {
                say(connection, &mut out).await?;
                return Ok((peer, rest));
            }
            Err(error) => {
                // The peer may be gone already; it has failed either way.
                let _ = say(connection, &mut out).await;
                let _ = connection.close().await;
                return Err(error.into());
            }
        }
    }
}

async fn say(connection: &mut (impl AsyncWrite + Unpin), out: &mut Vec<u8>) -> io::Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    connection.write_all(out).await?;
    out.clear();
    connection.flush().await
}
