//! Who is at the other end: the only way to an [`Authenticated`].

use super::admission::{Channel, Terms, TermsUnmet, same_digest};
use super::auth::{AUTH_PAYLOAD_BYTES_MAX, Auth, AuthError, AuthOk, AuthTooLarge, encode_reject};
use super::capability::Capabilities;
use super::frame::{FrameDecoder, FrameError, OpenFrame};
use super::identity::PeerIdentity;
use crate::error::{Classified, Family};
use crate::id::{Incarnation, LogId};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use sha2::{Digest as _, Sha256};

/// Who dials, and whom it expects.
#[derive(Clone)]
pub struct DialAuth {
    /// The secret that the listener knows the SHA-256 of. Never empty.
    pub token: String,
    /// Who we are.
    pub identity: Option<PeerIdentity>,
    /// What we can do, which log and incarnation we serve.
    pub capabilities: Capabilities,
    /// Whom we dialed, if that is configured.
    pub expect: Option<PeerIdentity>,
}

/// Who listens, and whom it lets in.
#[derive(Clone, Debug)]
pub struct ListenAuth {
    /// Who we are.
    pub identity: Option<PeerIdentity>,
    /// What we can do, which log and incarnation we serve.
    pub capabilities: Capabilities,
    /// Who may come in.
    pub credentials: Vec<PeerCredential>,
}

/// A peer that may come in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PeerCredential {
    /// Its identity.
    pub identity: PeerIdentity,
    /// SHA-256 of its token.
    pub token_sha256: [u8; 32],
    /// What it must meet besides.
    pub terms: Terms,
}

impl PeerCredential {
    /// The credential of a peer with this token, of which nothing else is asked.
    #[must_use]
    pub fn of_token(identity: PeerIdentity, token: &str) -> Self {
        Self { identity, token_sha256: token_sha256(token), terms: Terms::default() }
    }
}

/// What a listener keeps of a token.
#[must_use]
pub fn token_sha256(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// A peer whose identity is settled. Only a [`Handshake`] makes one, and a link takes it by value, so
/// that there is no link without authentication.
#[derive(Debug, Eq, PartialEq)]
pub struct Authenticated {
    identity: PeerIdentity,
    capabilities: Capabilities,
    dialed: bool,
}

impl Authenticated {
    /// Who the peer is.
    #[must_use]
    pub const fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// The incarnation of its data, if it declared one: a Strandline peer does.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.capabilities.incarnation()
    }

    /// The log the connection carries, if it declared one: a Strandline peer does.
    #[must_use]
    pub fn log(&self) -> Option<LogId> {
        self.capabilities.log()
    }

    /// What it declared.
    #[must_use]
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Whether we dialed it.
    #[must_use]
    pub const fn dialed(&self) -> bool {
        self.dialed
    }
}

/// Why a handshake failed: the peer's fault. The connection is closed once what was written is sent.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HandshakeError {
    /// What arrived is no frame.
    #[error("handshake: {0}")]
    Frame(FrameError),
    /// What arrived is not the message expected.
    #[error(transparent)]
    Auth(AuthError),
    /// The listener knows no peer with this identity and token.
    #[error("peer {} is not in the list of peers with the token it sent", Named(.identity))]
    Unauthorized {
        /// Who it said it is.
        identity: Option<PeerIdentity>,
    },
    /// The peer has the right token and does not meet what else is asked of it.
    #[error(transparent)]
    Unmet(TermsUnmet),
    /// The dialer expected another peer.
    #[error("peer says it is {found}, expected {expected}")]
    IdentityUnexpected {
        /// Whom we dialed.
        expected: PeerIdentity,
        /// Who answered.
        found: PeerIdentity,
    },
    /// The listener named no identity and none was configured.
    #[error("peer named no identity and none is configured for its address, expected one of the two")]
    IdentityUnknown,
}

impl Classified for HandshakeError {
    const FAMILY: Family = Family::Peer;
}

/// Why a dialer says nothing: its token would go to somebody who may not have it, or does not fit.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DialRefused {
    /// Whoever answered does not meet what is asked of the peer that was dialed: the peer's fault.
    #[error(transparent)]
    Unmet(TermsUnmet),
    /// The token is too long: ours.
    #[error(transparent)]
    TooLarge(AuthTooLarge),
}

struct Named<'a>(&'a Option<PeerIdentity>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(identity) => identity.fmt(f),
            None => f.write_str("without an identity"),
        }
    }
}

/// A handshake in progress.
///
/// ```
/// use strandline_core::wire::capability::{Capabilities, Capability};
/// use strandline_core::wire::handshake::{DialAuth, Handshake, ListenAuth, PeerCredential, Progress};
/// use strandline_core::wire::identity::PeerIdentity;
/// let (a, b) = (PeerIdentity::parse("node-a")?, PeerIdentity::parse("node-b")?);
/// let capabilities = Capabilities::new([Capability::Lifecycle])?;
///
/// let (mut to_listener, mut to_dialer) = (Vec::new(), Vec::new());
/// let dialer = Handshake::dial(
///     DialAuth {
///         token: "secret".into(),
///         identity: Some(b.clone()),
///         capabilities: capabilities.clone(),
///         expect: Some(a.clone()),
///     },
///     &mut to_listener,
/// )?;
/// let listener = Handshake::listen(ListenAuth {
///     identity: Some(a),
///     capabilities,
///     credentials: vec![PeerCredential::of_token(b.clone(), "secret")],
/// });
///
/// let Progress::Done { peer, .. } = listener.handle_received(&to_listener, &mut to_dialer)? else {
///     panic!("the whole message was there")
/// };
/// assert_eq!((peer.identity(), peer.dialed()), (&b, false));
/// let Progress::Done { peer, rest } = dialer.handle_received(&to_dialer, &mut Vec::new())? else {
///     panic!("the whole message was there")
/// };
/// assert_eq!((peer.identity().as_str(), peer.dialed()), ("node-a", true));
/// assert!(rest.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Handshake {
    side: Side,
    decoder: FrameDecoder,
}

#[derive(Debug)]
enum Side {
    Dialer { expect: Option<PeerIdentity> },
    Listener { auth: ListenAuth, channel: Channel },
}

/// Where a handshake stands.
#[derive(Debug)]
#[must_use]
pub enum Progress {
    /// The peer's message has not arrived whole.
    More(Handshake),
    /// The peer is known.
    Done {
        /// Who it is.
        peer: Authenticated,
        /// Bytes that arrived after its message: the start of the frames that follow.
        rest: Vec<u8>,
    },
}

impl Handshake {
    /// Starts as the side that dialed: appends the first frame to `out`.
    ///
    /// # Errors
    /// The message is too long; `out` is unchanged.
    pub fn dial(auth: DialAuth, out: &mut Vec<u8>) -> Result<Self, AuthTooLarge> {
        let DialAuth { token, identity, capabilities, expect } = auth;
        let message = Auth { token, identity, capabilities };
        framed(out, |out| message.encode(out))?;
        Ok(Self::of(Side::Dialer { expect }))
    }

    /// Starts as the side that dialed `expect` through `channel`: only if who answered there meets the
    /// `terms` is the token appended to `out`.
    ///
    /// # Errors
    /// It does not, or the message is too long; `out` is unchanged.
    pub fn dial_over(
        auth: DialAuth,
        expect: PeerIdentity,
        terms: &Terms,
        channel: &Channel,
        out: &mut Vec<u8>,
    ) -> Result<Self, DialRefused> {
        terms.judge(&expect, channel, auth.capabilities.log()).map_err(DialRefused::Unmet)?;
        let auth = DialAuth { expect: Some(expect), ..auth };
        Self::dial(auth, out).map_err(DialRefused::TooLarge)
    }

    /// Starts as the side that was dialed, over a plain connection: it speaks second.
    #[must_use]
    pub fn listen(auth: ListenAuth) -> Self {
        Self::listen_over(auth, Channel::Plain)
    }

    /// Starts as the side that was dialed through `channel`: it speaks second.
    #[must_use]
    pub fn listen_over(auth: ListenAuth, channel: Channel) -> Self {
        Self::of(Side::Listener { auth, channel })
    }

    fn of(side: Side) -> Self {
        Self { side, decoder: FrameDecoder::new(AUTH_PAYLOAD_BYTES_MAX) }
    }

    /// Takes bytes of the peer, split anywhere, and appends to `out` what is to be sent, an error's
    /// rejection included.
    ///
    /// # Errors
    /// The peer is not let in, or does not let us in; see [`HandshakeError`].
    pub fn handle_received(mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Progress, HandshakeError> {
        // What is not taken follows a whole frame: the decoder has room for the largest one.
        let taken = self.decoder.push(bytes);
        let Some(payload) = self.decoder.next_frame().map_err(HandshakeError::Frame)? else {
            return Ok(Progress::More(self));
        };
        let peer = match &self.side {
            Side::Dialer { expect } => judge_answer(payload, expect.as_ref())?,
            Side::Listener { auth, channel } => answer(payload, auth, channel, out)?,
        };
        let mut rest = self.decoder.into_rest();
        rest.extend_from_slice(&bytes[taken..]);
        Ok(Progress::Done { peer, rest })
    }
}

/// The dialer's decision: whom it dialed and who answered.
fn judge_answer(payload: &[u8], expect: Option<&PeerIdentity>) -> Result<Authenticated, HandshakeError> {
    let AuthOk { identity: found, capabilities } = AuthOk::decode(payload).map_err(HandshakeError::Auth)?;
    let identity = match (expect, found) {
        (Some(expected), Some(found)) if *expected != found => {
            return Err(HandshakeError::IdentityUnexpected { expected: expected.clone(), found });
        }
        (Some(_), Some(found)) | (None, Some(found)) => found,
        (Some(expected), None) => expected.clone(),
        (None, None) => return Err(HandshakeError::IdentityUnknown),
    };
    Ok(Authenticated { identity, capabilities, dialed: true })
}

/// The listener's decision, and its answer.
fn answer(
    payload: &[u8],
    auth: &ListenAuth,
    channel: &Channel,
    out: &mut Vec<u8>,
) -> Result<Authenticated, HandshakeError> {
    let judged = Auth::decode(payload).map_err(HandshakeError::Auth).and_then(|peer| {
        let Some(PeerCredential { identity, terms, .. }) = judge_token(&auth.credentials, &peer) else {
            return Err(HandshakeError::Unauthorized { identity: peer.identity });
        };
        terms.judge(identity, channel, auth.capabilities.log()).map_err(HandshakeError::Unmet)?;
        Ok((identity.clone(), peer.capabilities))
    });
    let written = framed(out, |out| match &judged {
        Ok(_) => {
            let (identity, capabilities) = (auth.identity.clone(), auth.capabilities.clone());
            AuthOk { identity, capabilities }.encode(out)
        }
        Err(_) => {
            encode_reject(out);
            Ok(())
        }
    });
    written.expect("identity and capabilities are bounded far below the limit");
    let (identity, capabilities) = judged?;
    Ok(Authenticated { identity, capabilities, dialed: false })
}

/// Who has this token and, if it named one, this identity. A peer that named none is known by its
/// token alone, if only one has it. Every credential is compared in full, so that the time taken does
/// not tell how much of a token was right.
fn judge_token<'a>(credentials: &'a [PeerCredential], peer: &Auth) -> Option<&'a PeerCredential> {
    let digest = token_sha256(&peer.token);
    let mut found: Option<&PeerCredential> = None;
    let mut ambiguous = false;
    for credential in credentials {
        let named = peer.identity.as_ref().is_none_or(|identity| *identity == credential.identity);
        if same_digest(&credential.token_sha256, &digest) & named {
            ambiguous |= found.is_some_and(|other| other.identity != credential.identity);
            found = Some(credential);
        }
    }
    if peer.token.is_empty() || ambiguous { None } else { found }
}

fn framed(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), AuthTooLarge>,
) -> Result<(), AuthTooLarge> {
    let frame = OpenFrame::begin(out);
    if let Err(error) = write(out) {
        frame.abandon(out);
        return Err(error);
    }
    frame.close(AUTH_PAYLOAD_BYTES_MAX, out).expect("the message is within the same limit");
    Ok(())
}

impl fmt::Debug for DialAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialAuth")
            .field("token", &"(secret)")
            .field("identity", &self.identity)
            .field("capabilities", &self.capabilities)
            .field("expect", &self.expect)
            .finish()
    }
}

#[cfg(test)]
mod tests;
