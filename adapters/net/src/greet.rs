//! Brings a new connection through TLS and the handshake, in bounded time and bytes.

use crate::access::Rules;
use crate::config::ms;
use crate::connection::{Allowance, Connection, Metered};
use crate::network::Context;
use crate::peers::Peer;
use crate::runtime::{Runtime, within};
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use std::io;
use std::sync::Arc;
use strandline_core::lifecycle::standing::{Admitted, Proof};
use strandline_core::wire::admission::Channel;
use strandline_core::wire::handshake::{Authenticated, DialRefused, Handshake, HandshakeError, Progress};
use strandline_core::wire::identity::PeerIdentity;

/// Read from a connection at once during the handshake.
const CHUNK_BYTES: usize = 4 << 10;

/// A connection that is through the handshake.
pub(crate) struct Greeted<C> {
    pub(crate) connection: Connection<C>,
    pub(crate) peer: Authenticated,
    /// What it was let in with.
    pub(crate) admitted: Admitted,
    /// What came behind the handshake.
    pub(crate) early: Vec<u8>,
}

/// Why a connection did not get through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GreetError {
    #[error("connection failed in the handshake: {0}")]
    Connection(io::Error),
    #[error("no TLS: {0}")]
    Tls(rustls::Error),
    #[error("expected the handshake to end within {ms_max} ms")]
    Late { ms_max: u64 },
    #[error("expected authentication within {bytes_max} bytes, found more")]
    Bytes { bytes_max: u64 },
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Dial(#[from] DialRefused),
}

/// The error of a connection, or what TLS found wrong with what came over it.
impl From<io::Error> for GreetError {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => Self::Tls(tls.clone()),
            None => Self::Connection(error),
        }
    }
}

/// Introduces us to `peer`, whom we called.
pub(crate) async fn greet_as_dialer<R: Runtime, N>(
    context: &Context<R, N>,
    rules: &Rules,
    peer: &Peer,
    connection: R::Connection,
) -> Result<Greeted<R::Connection>, GreetError> {
    let greeting = |metered| async move {
        let (mut connection, channel) = match &rules.tls {
            Some(tls) => with_channel(tls.connect(metered).await?, rules),
            None => (Connection::Plain(metered), Channel::Plain),
        };
        let mut hello = Vec::new();
        let expect = PeerIdentity::parse(&peer.identity).expect("judged with the rules");
        let handshake = Handshake::dial_over(rules.dial.clone(), expect, &peer.terms, &channel, &mut hello)?;
        let (authenticated, early) = exchange(&mut connection, handshake, hello).await?;
        Ok(greeted(connection, authenticated, peer, Proof::Answered, channel, early))
    };
    in_bounds(context, connection, greeting).await
}

/// Lets a peer that called us introduce itself.
pub(crate) async fn greet_as_listener<R: Runtime, N>(
    context: &Context<R, N>,
    rules: &Rules,
    connection: R::Connection,
) -> Result<Greeted<R::Connection>, GreetError> {
    let greeting = |metered| async move {
        let (mut connection, channel) = match &rules.tls {
            Some(tls) => with_channel(tls.accept(metered).await?, rules),
            None => (Connection::Plain(metered), Channel::Plain),
        };
        let handshake = Handshake::listen_over(rules.listen.clone(), channel.clone());
        let (authenticated, early) = exchange(&mut connection, handshake, Vec::new()).await?;
        let peer = rules.peers.get(authenticated.identity().as_str());
        let peer = peer.expect("credentials are made of listed peers");
        let token = peer.token.as_ref().expect("it was let in by its token");
        let proof = Proof::Token(token.0);
        Ok(greeted(connection, authenticated, peer, proof, channel, early))
    };
    in_bounds(context, connection, greeting).await
}

fn with_channel<C>(connection: Connection<C>, rules: &Rules) -> (Connection<C>, Channel) {
    let channel = rules.tls.as_ref().map_or(Channel::Plain, |tls| tls.channel(&connection));
    (connection, channel)
}

fn greeted<C>(
    connection: Connection<C>,
    authenticated: Authenticated,
    peer: &Peer,
    proof: Proof,
    channel: Channel,
    early: Vec<u8>,
) -> Greeted<C> {
    let identity = authenticated.identity().clone();
    let admitted = Admitted { identity, proof, channel, role: peer.role };
    Greeted { connection, peer: authenticated, admitted, early }
}

/// Runs a greeting within `handshake_ms` and `handshake_bytes_max`.
async fn in_bounds<R: Runtime, N, F>(
    context: &Context<R, N>,
    connection: R::Connection,
    greeting: impl FnOnce(Metered<R::Connection>) -> F,
) -> Result<Greeted<R::Connection>, GreetError>
where
    F: Future<Output = Result<Greeted<R::Connection>, GreetError>>,
{
    let (ms_max, bytes_max) = (context.config.handshake_ms, context.config.handshake_bytes_max);
    let allowance = Allowance::new(bytes_max);
    let metered = Metered::new(connection, allowance.clone(), Arc::clone(&context.counters));
    let greeted = within(&context.runtime, ms(ms_max), greeting(metered)).await;
    let greeted = greeted.unwrap_or(Err(GreetError::Late { ms_max }));
    if allowance.is_exceeded() {
        return Err(GreetError::Bytes { bytes_max });
    }
    allowance.lift();
    greeted
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
