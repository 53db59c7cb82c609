//! Brings a new connection through the handshake, in bounded time and bytes.

use crate::config::ms;
use crate::network::Context;
use crate::peers::Peer;
use crate::runtime::{Runtime, within};
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use std::io;
use strandline_core::lifecycle::api::{LinkRole, Status};
use strandline_core::wire::handshake::{Authenticated, Handshake, HandshakeError};

/// How this node introduces itself.
pub(crate) struct Introduction {
    identity: String,
    token: String,
}

impl Introduction {
    pub(crate) fn of(status: &Status, token: String) -> Self {
        Self { identity: status.identity.clone(), token }
    }
}

/// A connection that is through the handshake.
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
    #[error("expected the handshake within {ms_max} ms")]
    Late { ms_max: u64 },
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("expected peer {expected:?} at this address, found {found:?}")]
    OtherPeer { expected: String, found: String },
    #[error("peer {identity:?} is authenticated and not configured")]
    NotConfigured { identity: String },
}

/// Introduces us to `peer`, whom we called.
pub(crate) async fn greet_as_dialer<R: Runtime, N>(
    context: &Context<R, N>,
    peer: &Peer,
    mut connection: R::Connection,
) -> Result<Greeted<R::Connection>, GreetError> {
    let us = &context.introduction;
    let handshake = Handshake::dialer(&us.identity, &us.token);
    let (authenticated, early) = in_time(context, &mut connection, handshake).await?;
    Ok(Greeted { connection, peer: authenticated, role: peer.role, early })
}

/// Lets a peer that called us introduce itself.
pub(crate) async fn greet_as_listener<R: Runtime, N>(
    context: &Context<R, N>,
    mut connection: R::Connection,
) -> Result<Greeted<R::Connection>, GreetError> {
    let handshake = Handshake::listener(&context.introduction.identity);
    let (authenticated, early) = in_time(context, &mut connection, handshake).await?;
    let identity = authenticated.identity();
    match context.peers.iter().find(|peer| peer.identity == identity) {
        Some(peer) => Ok(Greeted { connection, role: peer.role, peer: authenticated, early }),
        None => Err(GreetError::NotConfigured { identity: identity.to_owned() }),
    }
}

async fn in_time<R: Runtime, N>(
    context: &Context<R, N>,
    connection: &mut R::Connection,
    handshake: Handshake,
) -> Result<(Authenticated, Vec<u8>), GreetError> {
    let ms_max = context.config.handshake_ms;
    let exchanged = within(&context.runtime, ms(ms_max), exchange(connection, handshake)).await;
    exchanged.ok_or(GreetError::Late { ms_max })?
}

/// Carries bytes until the handshake has ended, and what it still has to say is out.
async fn exchange(
    connection: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut handshake: Handshake,
) -> Result<(Authenticated, Vec<u8>), GreetError> {
    let mut chunk = [0; 4 << 10];
    loop {
        while let Some(bytes) = handshake.poll_send() {
            connection.write_all(&bytes).await?;
            connection.flush().await?;
        }
        let bytes = connection.read(&mut chunk).await?;
        if bytes == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        if let Some(done) = handshake.handle_received(&chunk[..bytes])? {
            return Ok(done);
        }
    }
}
