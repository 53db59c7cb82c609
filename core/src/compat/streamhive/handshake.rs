//! The reference's judgement of handshake messages: one shared token, and a list of identities that
//! may come in. Our own listener knows each peer's token instead.

use super::{ReferenceNames, Rule};
use crate::error::{Classified, Family};
use crate::wire::auth::{Auth, AuthError, AuthOk};
use crate::wire::capability::CapabilityError;
use crate::wire::identity::PeerIdentity;
use crate::wire::json_read::{json_object, read_object};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Why the reference does not let a dialer in, or a dialer does not stay.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AdmissionError {
    /// It is not the message expected.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// Another token.
    #[error("peer sent another token")]
    Token,
    /// Nobody on the list.
    #[error("peer {} is not on the list of identities", shown(.identity))]
    NotAllowed {
        /// Who it said it is.
        identity: Option<PeerIdentity>,
    },
}

fn shown(identity: &Option<PeerIdentity>) -> &str {
    identity.as_ref().map_or("without an identity", PeerIdentity::as_str)
}

impl AdmissionError {
    /// The rule under which the reference answers otherwise, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Auth(error) => error.refusal().map(Rule::Refusal),
            Self::Token | Self::NotAllowed { .. } => None,
        }
    }
}

impl Classified for AdmissionError {
    const FAMILY: Family = Family::Peer;
}

impl ReferenceNames for AdmissionError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::Auth(error) => return error.reference_names(),
            Self::Token => "p2p.ErrPeerAuthRejected",
            Self::NotAllowed { .. } => "p2p.ErrPeerAuthIdentityNotAllowed",
        }]
    }
}

impl ReferenceNames for AuthError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::PayloadTooLarge { .. } => "p2p.ErrPeerAuthPayloadTooLarge",
            Self::Malformed(_) | Self::Type { .. } | Self::Version { .. } => "p2p.ErrPeerAuthFailed",
            Self::IdentityInvalid(_) => "p2p.ErrPeerAuthIdentityInvalid",
            Self::Rejected { .. } => "p2p.ErrPeerAuthRejected",
            Self::Capabilities(error) => match error {
                CapabilityError::TooMany { .. } => "p2p.ErrPeerAuthCapabilitiesTooMany",
                CapabilityError::TooLarge { .. } => "p2p.ErrPeerAuthCapabilityTooLarge",
                CapabilityError::TooLargeTogether { .. } => "p2p.ErrPeerAuthCapabilitiesTooLarge",
                CapabilityError::Invalid { .. } => "p2p.ErrPeerAuthCapabilityInvalid",
                CapabilityError::Duplicate { .. } => "p2p.ErrPeerAuthCapabilityDuplicate",
                // Capabilities the reference does not know and ignores.
                CapabilityError::Ambiguous { .. } => return Vec::new(),
            },
        }]
    }
}

/// Judges a dialer's message. An empty list lets everybody in who has the token.
///
/// # Errors
/// It is not such a message, carries another token, or names nobody on the list, in this order.
pub fn admit(payload: &[u8], token: &[u8], allowed: &[impl AsRef<str>]) -> Result<Auth, AdmissionError> {
    let auth = Auth::decode(payload).map_err(|error| type_first(error, payload, &["peer.auth"]))?;
    if auth.token.as_bytes() != token {
        return Err(AdmissionError::Token);
    }
    let identity = auth.identity.as_ref().map(PeerIdentity::as_str);
    if !allowed.is_empty() && !allowed.iter().any(|allowed| Some(allowed.as_ref()) == identity) {
        return Err(AdmissionError::NotAllowed { identity: auth.identity });
    }
    Ok(auth)
}

/// Judges a listener's answer.
///
/// # Errors
/// It is no acceptance.
pub fn accept(payload: &[u8]) -> Result<AuthOk, AdmissionError> {
    let answers = ["peer.auth.ok", "peer.auth.reject"];
    Ok(AuthOk::decode(payload).map_err(|error| type_first(error, payload, &answers))?)
}

json_object! {
    struct Head<'de> = "a handshake message" skip unknown {
        kind: Cow<'de, str> = always "type",
    }
}

/// Too many capabilities are noticed while reading, before the type is judged; the reference judges
/// the type first.
fn type_first(error: AuthError, payload: &[u8], expected: &[&'static str]) -> AuthError {
    let AuthError::Capabilities(CapabilityError::TooMany { .. }) = error else {
        return error;
    };
    match read_object::<Head<'_>>(payload, u32::MAX) {
        Ok(head) if !expected.contains(&&*head.kind) => {
            AuthError::Type { expected: expected[0], found: head.kind.chars().take(64).collect() }
        }
        Ok(_) | Err(_) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    const DIAL: &[u8] = br#"{"type":"peer.auth","version":"streamhive/1","token":"t","identity":"node-b"}"#;

    #[test]
    fn token_comes_before_the_list() {
        assert!(admit(DIAL, b"t", &["node-a", "node-b"]).is_ok());
        assert!(admit(DIAL, b"t", &[""; 0]).is_ok());
        assert_eq!(admit(DIAL, b"T", &["node-a"]), Err(AdmissionError::Token));
        assert!(matches!(admit(DIAL, b"t", &["node-a"]), Err(AdmissionError::NotAllowed { .. })));
    }

    #[test]
    fn another_type_comes_before_too_many_capabilities() {
        let list = (0..17).map(|i| format!("\"c{i}\"")).collect::<Vec<_>>().join(",");
        let payload = format!(r#"{{"type":"peer.auth","version":"streamhive/1","capabilities":[{list}]}}"#);
        let refused = accept(payload.as_bytes()).unwrap_err();
        assert!(matches!(refused, AdmissionError::Auth(AuthError::Type { .. })));
        let refused = admit(payload.as_bytes(), b"", &[""; 0]).unwrap_err();
        assert_eq!(refused.reference_names(), ["p2p.ErrPeerAuthCapabilitiesTooMany"]);
    }
}
