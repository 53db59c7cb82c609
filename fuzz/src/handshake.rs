//! The messages of the handshake.

use serde_json::Value;
use std::fmt::Debug;
use strandline_core::wire::auth::{Auth, AuthError, AuthOk};
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
    auth.is_ok() || ok.is_ok()
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
