//! Who is at the other end: the only way to an [`Authenticated`].

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
}

impl PeerCredential {
    /// The credential of a peer with this token.
    #[must_use]
    pub fn of_token(identity: PeerIdentity, token: &str) -> Self {
        Self { identity, token_sha256: Sha256::digest(token.as_bytes()).into() }
    }
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
#[non_exhaustive]
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
    Listener(ListenAuth),
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

    /// Starts as the side that was dialed: it speaks second.
    #[must_use]
    pub fn listen(auth: ListenAuth) -> Self {
        Self::of(Side::Listener(auth))
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
            Side::Listener(auth) => answer(payload, auth, out)?,
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
fn answer(payload: &[u8], auth: &ListenAuth, out: &mut Vec<u8>) -> Result<Authenticated, HandshakeError> {
    let judged = Auth::decode(payload).map_err(HandshakeError::Auth).and_then(|peer| {
        match judge_token(&auth.credentials, &peer) {
            Some(identity) => Ok((identity.clone(), peer.capabilities)),
            None => Err(HandshakeError::Unauthorized { identity: peer.identity }),
        }
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
fn judge_token<'a>(credentials: &'a [PeerCredential], peer: &Auth) -> Option<&'a PeerIdentity> {
    let digest: [u8; 32] = Sha256::digest(peer.token.as_bytes()).into();
    let mut found: Option<&PeerIdentity> = None;
    let mut ambiguous = false;
    for credential in credentials {
        let named = peer.identity.as_ref().is_none_or(|identity| *identity == credential.identity);
        if same_digest(&credential.token_sha256, &digest) & named {
            ambiguous |= found.is_some_and(|identity| *identity != credential.identity);
            found = Some(&credential.identity);
        }
    }
    if peer.token.is_empty() || ambiguous { None } else { found }
}

fn same_digest(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
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
mod tests {
    use super::super::capability::Capability;
    use super::super::frame::write_frame;
    use super::*;
    use alloc::vec;

    fn id(text: &str) -> PeerIdentity {
        PeerIdentity::parse(text).expect("valid")
    }

    fn capabilities() -> Capabilities {
        let incarnation = Incarnation { counter: 3, nonce: [4; 8] };
        Capabilities::new([
            Capability::Lifecycle,
            Capability::Log(LogId([5; 16])),
            Capability::Incarnation(incarnation),
        ])
        .expect("one log, one incarnation")
    }

    fn dial(token: &str, identity: Option<&str>, expect: Option<&str>) -> (Handshake, Vec<u8>) {
        let mut out = vec![];
        let auth = DialAuth {
            token: token.into(),
            identity: identity.map(id),
            capabilities: capabilities(),
            expect: expect.map(id),
        };
        (Handshake::dial(auth, &mut out).expect("short"), out)
    }

    fn listen(identity: Option<&str>) -> Handshake {
        Handshake::listen(ListenAuth {
            identity: identity.map(id),
            capabilities: capabilities(),
            credentials: vec![
                PeerCredential::of_token(id("node-b"), "token-b"),
                PeerCredential::of_token(id("node-c"), "token-c"),
                PeerCredential::of_token(id("node-d"), "token-c"),
            ],
        })
    }

    fn done(progress: Result<Progress, HandshakeError>) -> Result<(Authenticated, Vec<u8>), HandshakeError> {
        match progress? {
            Progress::Done { peer, rest } => Ok((peer, rest)),
            Progress::More(_) => panic!("the whole message was there"),
        }
    }

    /// Runs a dialer against a listener; both results.
    fn run(
        (dialer, hello): (Handshake, Vec<u8>),
        listener: Handshake,
    ) -> (Result<Authenticated, HandshakeError>, Result<Authenticated, HandshakeError>) {
        let mut reply = vec![];
        let listened = done(listener.handle_received(&hello, &mut reply)).map(|(peer, _)| peer);
        let mut silent = vec![];
        let dialed = done(dialer.handle_received(&reply, &mut silent)).map(|(peer, _)| peer);
        assert!(silent.is_empty());
        (dialed, listened)
    }

    fn unauthorized(dial: (Handshake, Vec<u8>), identity: Option<&str>) {
        let (dialed, listened) = run(dial, listen(Some("node-a")));
        assert_eq!(listened, Err(HandshakeError::Unauthorized { identity: identity.map(id) }));
        let rejected = AuthError::Rejected { said: "unauthorized".into() };
        assert_eq!(dialed, Err(HandshakeError::Auth(rejected)));
    }

    #[test]
    fn both_sides_learn_identity_log_incarnation_and_capabilities() {
        let (dialed, listened) = run(dial("token-b", Some("node-b"), Some("node-a")), listen(Some("node-a")));
        for (peer, name, we_dialed) in [(dialed, "node-a", true), (listened, "node-b", false)] {
            let peer = peer.expect("let in");
            assert_eq!(peer.identity().as_str(), name);
            assert_eq!(peer.dialed(), we_dialed);
            assert_eq!(peer.log(), Some(LogId([5; 16])));
            assert_eq!(peer.incarnation(), Some(Incarnation { counter: 3, nonce: [4; 8] }));
            assert_eq!(*peer.capabilities(), capabilities());
        }
    }

    #[test]
    fn bytes_split_anywhere_and_what_follows_is_handed_back() {
        let (_, mut hello) = dial("token-b", Some("node-b"), None);
        let message = hello.len();
        write_frame(b"next", &mut hello).expect("short");
        for cut in 0..hello.len() {
            let mut out = vec![];
            let (first, second) = hello.split_at(cut);
            let (peer, rest) = match listen(None).handle_received(first, &mut out).expect("well-formed") {
                Progress::More(listener) => {
                    assert!(cut < message && out.is_empty());
                    done(listener.handle_received(second, &mut out)).expect("let in")
                }
                Progress::Done { peer, mut rest } => {
                    assert!(cut >= message);
                    rest.extend_from_slice(second);
                    (peer, rest)
                }
            };
            assert_eq!(peer.identity().as_str(), "node-b");
            assert_eq!(rest, hello[message..], "cut at {cut}");
        }
    }

    #[test]
    fn a_long_tail_in_one_piece_is_handed_back_whole() {
        let (_, mut hello) = dial("token-b", Some("node-b"), None);
        let message = hello.len();
        hello.resize(message + 100_000, 7);
        let (_, rest) = done(listen(None).handle_received(&hello, &mut vec![])).expect("let in");
        assert_eq!(rest, hello[message..]);
    }

    #[test]
    fn wrong_token() {
        unauthorized(dial("token-c", Some("node-b"), None), Some("node-b"));
    }

    #[test]
    fn empty_token() {
        unauthorized(dial("", Some("node-b"), None), Some("node-b"));
    }

    #[test]
    fn unknown_identity() {
        unauthorized(dial("token-b", Some("node-x"), None), Some("node-x"));
    }

    #[test]
    fn no_identity_with_a_token_of_one_peer() {
        let (dialed, listened) = run(dial("token-b", None, None), listen(Some("node-a")));
        assert!(dialed.is_ok());
        assert_eq!(listened.expect("let in").identity().as_str(), "node-b");
    }

    #[test]
    fn no_identity_with_a_token_of_two_peers() {
        unauthorized(dial("token-c", None, None), None);
    }

    #[test]
    fn another_listener_than_expected() {
        let (dialed, _) = run(dial("token-b", Some("node-b"), Some("node-z")), listen(Some("node-a")));
        let (expected, found) = (id("node-z"), id("node-a"));
        assert_eq!(dialed, Err(HandshakeError::IdentityUnexpected { expected, found }));
    }

    #[test]
    fn a_listener_without_identity_is_whom_we_dialed() {
        let (dialed, _) = run(dial("token-b", Some("node-b"), Some("node-a")), listen(None));
        assert_eq!(dialed.expect("let in").identity().as_str(), "node-a");
    }

    #[test]
    fn a_listener_without_identity_that_nobody_expects() {
        let (dialed, _) = run(dial("token-b", Some("node-b"), None), listen(None));
        assert_eq!(dialed, Err(HandshakeError::IdentityUnknown));
    }

    #[test]
    fn a_malformed_message_is_rejected_and_a_broken_frame_is_not_answered() {
        let mut hello = vec![];
        write_frame(b"{}", &mut hello).expect("short");
        let mut out = vec![];
        let refused = done(listen(None).handle_received(&hello, &mut out));
        assert!(matches!(refused, Err(HandshakeError::Auth(AuthError::Malformed(_)))));
        assert!(!out.is_empty());
        let mut out = vec![];
        let refused = done(listen(None).handle_received(b"GET / HTTP/1.1\r\n", &mut out));
        assert!(matches!(refused, Err(HandshakeError::Frame(FrameError::BadMagic { .. }))));
        assert!(out.is_empty());
    }

    #[test]
    fn an_oversized_message_is_refused_by_its_length() {
        let refused = done(listen(None).handle_received(b"SHV1\0\0\x10\x01", &mut vec![]));
        let error = FrameError::TooLarge { bytes: 4097, bytes_max: 4096 };
        assert_eq!(refused, Err(HandshakeError::Frame(error)));
    }
}
