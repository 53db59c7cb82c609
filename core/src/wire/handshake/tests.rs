use super::*;
use crate::wire::admission::{Certificate, CertificateName, CertificateRule, LogRule};
use crate::wire::capability::Capability;
use crate::wire::frame::write_frame;
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

/// A listener that asks a certificate of `node-b` and lets it have log 5.
fn strict(channel: Channel, logs: LogRule) -> Handshake {
    let terms = Terms { certificate: CertificateRule::Named, logs };
    let credential = PeerCredential::of_token(id("node-b"), "token-b");
    let auth = ListenAuth {
        identity: Some(id("node-a")),
        capabilities: capabilities(),
        credentials: vec![PeerCredential { terms, ..credential }],
    };
    Handshake::listen_over(auth, channel)
}

fn certificate(name: &str) -> Channel {
    let names = vec![CertificateName::Dns(name.into())];
    Channel::Tls { certificate: Some(Certificate { sha256: [1; 32], names }) }
}

#[test]
fn a_stolen_token_is_of_no_use_with_another_certificate() {
    let hello = || dial("token-b", Some("node-b"), Some("node-a"));
    let (_, listened) = run(hello(), strict(certificate("node-b"), LogRule::Any));
    assert_eq!(listened.expect("let in").identity().as_str(), "node-b");
    for channel in [certificate("node-c"), Channel::Tls { certificate: None }, Channel::Plain] {
        let (dialed, listened) = run(hello(), strict(channel, LogRule::Any));
        assert!(matches!(listened, Err(HandshakeError::Unmet(_))), "{listened:?}");
        let rejected = AuthError::Rejected { said: "unauthorized".into() };
        assert_eq!(dialed, Err(HandshakeError::Auth(rejected)), "it is not told why");
    }
}

#[test]
fn a_log_that_the_peer_may_not_have() {
    let other = LogRule::Only(vec![LogId([6; 16])]);
    let (_, listened) = run(dial("token-b", None, None), strict(certificate("node-b"), other));
    let (identity, log) = (id("node-b"), Some(LogId([5; 16])));
    let refused = TermsUnmet::Log { identity, log, allowed: 1 };
    assert_eq!(listened, Err(HandshakeError::Unmet(refused)));
}

#[test]
fn a_token_goes_only_to_whom_we_dialed() {
    let terms = Terms { certificate: CertificateRule::Named, logs: LogRule::Any };
    let dial = |channel| {
        let (token, identity) = ("token-b".into(), Some(id("node-b")));
        let auth = DialAuth { token, identity, capabilities: capabilities(), expect: None };
        let mut out = vec![];
        let dialed = Handshake::dial_over(auth, id("node-a"), &terms, &channel, &mut out);
        (dialed.map(drop), out.is_empty())
    };
    assert_eq!(dial(certificate("node-a")), (Ok(()), false));
    let (refused, silent) = dial(certificate("node-c"));
    assert!(matches!(refused, Err(DialRefused::Unmet(TermsUnmet::OtherName { .. }))) && silent);
    let refused = DialRefused::Unmet(TermsUnmet::Plain { identity: id("node-a") });
    assert_eq!(dial(Channel::Plain), (Err(refused), true));
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
