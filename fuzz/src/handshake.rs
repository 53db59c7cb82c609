//! The handshake: its messages, and the machine that reads them.

use serde_json::Value;
use std::fmt::Debug;
use std::mem::{Discriminant, discriminant};
use strandline_core::wire::admission::{
    Certificate, CertificateName, CertificateRule, Channel, LogRule, Terms,
};
use strandline_core::wire::auth::{AUTH_PAYLOAD_BYTES_MAX, Auth, AuthError, AuthOk};
use strandline_core::wire::capability::Capabilities;
use strandline_core::wire::frame::{FrameError, HEADER_BYTES, write_frame};
use strandline_core::wire::handshake::{
    Authenticated, DialAuth, Handshake, HandshakeError, ListenAuth, PeerCredential, Progress,
};
use strandline_core::wire::identity::PeerIdentity;

/// What is accepted says to another parser what it says to us, and encodes to a message that decodes
/// to the same.
///
/// A handshake message may have fields that we ignore, and what is ignored is not judged: there another
/// parser may find a number out of its range. Only then may it refuse the payload.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    let (auth, ok) = (Auth::decode(data), AuthOk::decode(data));
    assert!(auth.is_err() || ok.is_err(), "a question that is an answer");
    if let Ok(auth) = &auth {
        agrees(data, "peer.auth", &auth.token, auth.identity.as_ref());
        round_trip(auth, Auth::decode, |auth, out| auth.encode(out).is_ok());
    }
    if let Ok(ok) = &ok {
        agrees(data, "peer.auth.ok", "", ok.identity.as_ref());
        round_trip(ok, AuthOk::decode, |ok, out| ok.encode(out).is_ok());
    }
    machines(data, &auth, &ok);
    before_authentication(data);
    auth.is_ok() || ok.is_ok()
}

const IDENTITY: &str = "node-b";
const TOKEN: &str = "secret";

/// Both sides decide alike however the peer's bytes are split, keep what follows its message, and let
/// nobody in who did not send the token (listener) or an answer (dialer).
fn machines(payload: &[u8], auth: &Result<Auth, AuthError>, ok: &Result<AuthOk, AuthError>) {
    let mut stream = Vec::new();
    if write_frame(payload, &mut stream).is_err() {
        return;
    }
    stream.extend_from_slice(b"what follows");
    for side in [listener, dialer] {
        let (whole, answer) = run(side(), &stream, stream.len());
        for piece in [1, 7] {
            assert_eq!(run(side(), &stream, piece), (whole.clone(), answer.clone()), "in pieces of {piece}");
        }
        let Ok(Some((dialed, identity, rest))) = whole else { continue };
        assert_eq!(rest, b"what follows");
        if dialed {
            assert!(ok.is_ok(), "an answer that is none was taken");
        } else {
            assert_eq!(auth.as_ref().map(|auth| auth.token.as_str()), Ok(TOKEN));
            assert_eq!(identity, IDENTITY);
        }
    }
}

/// Whatever comes before authentication, as it comes: it is decided within one message of the longest
/// kind, alike however it is split; nobody gets in who shows another certificate than its own.
fn before_authentication(stream: &[u8]) {
    let message_bytes_max = AUTH_PAYLOAD_BYTES_MAX as usize + HEADER_BYTES;
    for side in [listener, dialer] {
        let (whole, answer) = run(side(), stream, stream.len().max(1));
        for piece in [1, 5] {
            let (split, answer_of_split) = run(side(), stream, piece);
            assert_eq!((decision(split), &answer_of_split), (decision(whole.clone()), &answer), "of {piece}");
        }
        assert!(
            stream.len() < message_bytes_max || whole != Ok(None),
            "undecided after {} bytes, the longest message has {message_bytes_max}",
            stream.len()
        );
        assert!(answer.len() <= message_bytes_max, "an answer of {} bytes", answer.len());
    }
    let anyone = run(listener(), stream, stream.len().max(1)).0;
    let names = vec![CertificateName::Dns("node-c".into()), CertificateName::Dns("*".into())];
    let other = Channel::Tls { certificate: Some(Certificate { sha256: [1; 32], names }) };
    for channel in [Channel::Plain, Channel::Tls { certificate: None }, other] {
        let (outcome, _) = run(strict(channel), stream, stream.len().max(1));
        assert!(!matches!(outcome, Ok(Some(_))), "let in without its certificate");
    }
    let names = vec![CertificateName::Dns(IDENTITY.into())];
    let own = Channel::Tls { certificate: Some(Certificate { sha256: [1; 32], names }) };
    assert_eq!(
        run(strict(own), stream, stream.len().max(1)).0,
        anyone,
        "its own certificate changes nothing"
    );
}

/// An outcome without what an error shows of the bytes.
type Decision = Result<Option<(bool, String, Vec<u8>)>, Discriminant<HandshakeError>>;

/// What is told of bytes that are no frame depends on how many of them were there.
fn decision(outcome: Outcome) -> Decision {
    outcome.map_err(|error| discriminant(&error))
}

/// A listener that lets a peer in only with a certificate that names it.
fn strict(channel: Channel) -> Handshake {
    let terms = Terms { certificate: CertificateRule::Named, logs: LogRule::Any };
    let credential = PeerCredential::of_token(identity(IDENTITY), TOKEN);
    let auth = ListenAuth {
        identity: Some(identity("node-a")),
        capabilities: Capabilities::default(),
        credentials: vec![PeerCredential { terms, ..credential }],
    };
    Handshake::listen_over(auth, channel)
}

fn identity(text: &str) -> PeerIdentity {
    PeerIdentity::parse(text).expect("an identity")
}

fn listener() -> Handshake {
    Handshake::listen(ListenAuth {
        identity: Some(identity("node-a")),
        capabilities: Capabilities::default(),
        credentials: vec![PeerCredential::of_token(identity(IDENTITY), TOKEN)],
    })
}

fn dialer() -> Handshake {
    let auth =
        DialAuth { token: TOKEN.into(), identity: None, capabilities: Capabilities::default(), expect: None };
    Handshake::dial(auth, &mut Vec::new()).expect("a short message")
}

/// Whether we dialed, who the peer is, and what followed; `None` if its message never came whole.
type Outcome = Result<Option<(bool, String, Vec<u8>)>, HandshakeError>;

/// Hands in `stream` in pieces and returns the outcome with what was answered.
fn run(mut handshake: Handshake, stream: &[u8], piece: usize) -> (Outcome, Vec<u8>) {
    let mut answer = Vec::new();
    let mut read = 0;
    for bytes in stream.chunks(piece) {
        read += bytes.len();
        match handshake.handle_received(bytes, &mut answer) {
            Ok(Progress::More(next)) => handshake = next,
            Ok(Progress::Done { peer, mut rest }) => {
                rest.extend_from_slice(&stream[read..]);
                return (Ok(Some(settled(&peer, rest))), answer);
            }
            // How much of a wrong magic is shown depends on how much of it had arrived.
            Err(HandshakeError::Frame(FrameError::BadMagic { .. })) => {
                return (Err(HandshakeError::Frame(FrameError::BadMagic { found: [0; 4] })), answer);
            }
            Err(error) => return (Err(error), answer),
        }
    }
    (Ok(None), answer)
}

fn settled(peer: &Authenticated, rest: Vec<u8>) -> (bool, String, Vec<u8>) {
    (peer.dialed(), peer.identity().as_str().to_owned(), rest)
}

fn agrees(data: &[u8], kind: &str, token: &str, identity: Option<&PeerIdentity>) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    assert_eq!(value["type"], kind);
    assert_eq!(value["version"], "streamhive/1");
    if kind == "peer.auth" {
        assert_eq!(value["token"].as_str().unwrap_or(""), token);
    }
    assert_eq!(value["identity"].as_str(), identity.map(PeerIdentity::as_str));
}

fn round_trip<M: Debug + PartialEq>(
    message: &M,
    decode: impl Fn(&[u8]) -> Result<M, AuthError>,
    encode: impl Fn(&M, &mut Vec<u8>) -> bool,
) {
    let mut encoded = Vec::new();
    if !encode(message, &mut encoded) {
        // A token of characters that we escape can outgrow the limit it came in under.
        assert!(encoded.is_empty(), "a refused message leaves nothing behind");
        return;
    }
    serde_json::from_slice::<Value>(&encoded).expect("what we encode is JSON");
    assert_eq!(decode(&encoded).as_ref(), Ok(message));
}
