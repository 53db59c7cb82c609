//! The three messages of the handshake. They ignore unknown fields, as the reference does, and are
//! strict in everything else.

use super::capability::{CAPABILITIES_MAX, Capabilities, CapabilityError};
use super::identity::{IdentityError, PeerIdentity};
use super::json_read::{Filled, JsonFault, JsonFaultKind, List, Refusal, json_object, read_object};
use super::json_write::{write_list, write_string};
use crate::error::{Classified, Family};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Longest payload of a handshake message. From the reference.
pub const AUTH_PAYLOAD_BYTES_MAX: u32 = 4096;

/// The version of the handshake.
pub const AUTH_VERSION: &str = "streamhive/1";

const AUTH: &str = "peer.auth";
const AUTH_OK: &str = "peer.auth.ok";
const AUTH_REJECT: &str = "peer.auth.reject";

/// The only reason a rejection carries: one that said more would tell a stranger what to try next.
const UNAUTHORIZED: &str = "unauthorized";

/// `peer.auth`: who the dialer says it is.
#[derive(Clone, Eq, PartialEq)]
pub struct Auth {
    /// The secret that proves it; empty if there was none.
    pub token: String,
    /// The dialer's identity, if it named one.
    pub identity: Option<PeerIdentity>,
    /// What it declares.
    pub capabilities: Capabilities,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth")
            .field("token", &"(secret)")
            .field("identity", &self.identity)
            .field("capabilities", &self.capabilities)
            .finish()
    }
}

/// `peer.auth.ok`: who the listener says it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuthOk {
    /// The listener's identity, if it named one.
    pub identity: Option<PeerIdentity>,
    /// What it declares.
    pub capabilities: Capabilities,
}

/// Why a payload is no handshake message, or not the one that opens the link: the peer's fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The payload is too long to be looked at.
    #[error("handshake payload has {bytes} bytes, expected at most {AUTH_PAYLOAD_BYTES_MAX}")]
    PayloadTooLarge {
        /// What was found.
        bytes: usize,
    },
    /// The payload is not the JSON of a handshake message.
    #[error("malformed handshake message: {0}")]
    Malformed(JsonFault),
    /// A message of another type.
    #[error("handshake message is of type {found:?}, expected {expected}")]
    Type {
        /// What was expected.
        expected: &'static str,
        /// The type found, at most 64 characters of it.
        found: String,
    },
    /// Another version of the handshake.
    #[error("handshake version is {found:?}, expected {AUTH_VERSION:?}")]
    Version {
        /// The version found, at most 64 characters of it.
        found: String,
    },
    /// The identity is none.
    #[error("handshake: {0}")]
    IdentityInvalid(IdentityError),
    /// The capabilities are none.
    #[error("handshake: {0}")]
    Capabilities(CapabilityError),
    /// The listener rejected us.
    #[error("peer rejected our token or identity: it said {said:?}")]
    Rejected {
        /// Its words, at most 64 characters of them.
        said: String,
    },
}

impl AuthError {
    /// The leniency refused, if the reference may have accepted the payload.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Malformed(fault) => fault.refusal,
            Self::PayloadTooLarge { .. }
            | Self::Type { .. }
            | Self::Version { .. }
            | Self::IdentityInvalid(_)
            | Self::Capabilities(_)
            | Self::Rejected { .. } => None,
        }
    }
}

impl Classified for AuthError {
    const FAMILY: Family = Family::Peer;
}

/// A handshake message of ours is too long: our caller's mistake.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("handshake message has {bytes} bytes, expected at most {AUTH_PAYLOAD_BYTES_MAX}: shorten the token")]
pub struct AuthTooLarge {
    /// What was found.
    pub bytes: usize,
}

impl Classified for AuthTooLarge {
    const FAMILY: Family = Family::Caller;
}

impl Auth {
    /// Appends the payload.
    ///
    /// # Errors
    /// It is too long; `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), AuthTooLarge> {
        within_payload(out, |out| {
            write_head(AUTH, out);
            if !self.token.is_empty() {
                out.extend_from_slice(br#","token":"#);
                write_string(&self.token, out);
            }
            write_who(self.identity.as_ref(), &self.capabilities, out);
        })
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// In order: too long, malformed, of another type or version, identity, capabilities.
    pub fn decode(payload: &[u8]) -> Result<Self, AuthError> {
        let object = read(payload)?;
        if object.kind != AUTH {
            return Err(AuthError::Type { expected: AUTH, found: cut(&object.kind) });
        }
        let (identity, capabilities) = object.who()?;
        Ok(Self { token: object.token.0.into_owned(), identity, capabilities })
    }
}

impl AuthOk {
    /// Appends the payload.
    ///
    /// # Errors
    /// Never in practice: identity and capabilities are bounded far below the limit. `out` is
    /// unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), AuthTooLarge> {
        within_payload(out, |out| {
            write_head(AUTH_OK, out);
            write_who(self.identity.as_ref(), &self.capabilities, out);
        })
    }

    /// Reads the listener's answer.
    ///
    /// # Errors
    /// As [`Auth::decode`]; [`AuthError::Rejected`] if the answer is a rejection.
    pub fn decode(payload: &[u8]) -> Result<Self, AuthError> {
        let object = read(payload)?;
        match &*object.kind {
            AUTH_OK => {
                let (identity, capabilities) = object.who()?;
                Ok(Self { identity, capabilities })
            }
            AUTH_REJECT => {
                object.check_version()?;
                Err(AuthError::Rejected { said: cut(&object.error.0) })
            }
            _ => Err(AuthError::Type { expected: "peer.auth.ok or .reject", found: cut(&object.kind) }),
        }
    }
}

/// Appends the payload of `peer.auth.reject`.
pub fn encode_reject(out: &mut Vec<u8>) {
    write_head(AUTH_REJECT, out);
    out.extend_from_slice(br#","error":"#);
    write_string(UNAUTHORIZED, out);
    out.push(b'}');
}

json_object! {
    struct AuthObject<'de> = "a handshake message" skip unknown {
        kind: Cow<'de, str> = always "type",
        version: Cow<'de, str> = always "version",
        token: Filled<Cow<'de, str>> = unless_empty "token",
        identity: Filled<Cow<'de, str>> = unless_empty "identity",
        error: Filled<Cow<'de, str>> = unless_empty "error",
        capabilities: Filled<List<Cow<'de, str>>> = unless_empty "capabilities",
    }
}

impl AuthObject<'_> {
    fn check_version(&self) -> Result<(), AuthError> {
        if self.version == AUTH_VERSION {
            return Ok(());
        }
        Err(AuthError::Version { found: cut(&self.version) })
    }

    fn who(&self) -> Result<(Option<PeerIdentity>, Capabilities), AuthError> {
        self.check_version()?;
        let identity = match &*self.identity.0 {
            "" => None,
            text => Some(PeerIdentity::parse(text).map_err(AuthError::IdentityInvalid)?),
        };
        let declared = self.capabilities.0.0.iter().map(AsRef::as_ref);
        Ok((identity, Capabilities::parse(declared).map_err(AuthError::Capabilities)?))
    }
}

fn read(payload: &[u8]) -> Result<AuthObject<'_>, AuthError> {
    if payload.len() > AUTH_PAYLOAD_BYTES_MAX as usize {
        return Err(AuthError::PayloadTooLarge { bytes: payload.len() });
    }
    let list_max = u32::try_from(CAPABILITIES_MAX).expect("small");
    read_object(payload, list_max).map_err(|fault| match fault.kind {
        JsonFaultKind::TooMany { .. } => {
            AuthError::Capabilities(CapabilityError::TooMany { count: CAPABILITIES_MAX + 1 })
        }
        JsonFaultKind::Malformed | JsonFaultKind::Trailing => AuthError::Malformed(fault),
    })
}

fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

fn write_head(kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"type":"#);
    write_string(kind, out);
    out.extend_from_slice(br#","version":"#);
    write_string(AUTH_VERSION, out);
}

fn write_who(identity: Option<&PeerIdentity>, capabilities: &Capabilities, out: &mut Vec<u8>) {
    if let Some(identity) = identity {
        out.extend_from_slice(br#","identity":"#);
        write_string(identity.as_str(), out);
    }
    let texts = capabilities.texts();
    if !texts.is_empty() {
        out.extend_from_slice(br#","capabilities":"#);
        write_list(&texts, out, |text, out| write_string(text, out));
    }
    out.push(b'}');
}

fn within_payload(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), AuthTooLarge> {
    let start = out.len();
    write(out);
    let bytes = out.len() - start;
    if bytes > AUTH_PAYLOAD_BYTES_MAX as usize {
        out.truncate(start);
        return Err(AuthTooLarge { bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::capability::Capability;
    use super::*;
    use alloc::format;
    use alloc::vec;

    fn auth() -> Auth {
        Auth {
            token: "se<cret".into(),
            identity: Some(PeerIdentity::parse("node-b").expect("valid")),
            capabilities: Capabilities::new([Capability::Lifecycle, Capability::RepairReconcile])
                .expect("no log, no incarnation"),
        }
    }

    fn text(write: impl FnOnce(&mut Vec<u8>) -> Result<(), AuthTooLarge>) -> String {
        let mut out = vec![];
        write(&mut out).expect("fits");
        String::from_utf8(out).expect("JSON")
    }

    const PLAIN: &str = r#"{"type":"peer.auth","version":"streamhive/1","token":"t"}"#;
    const OK: &str = r#"{"type":"peer.auth.ok","version":"streamhive/1"}"#;

    #[test]
    fn written_as_the_reference_does_and_read_back() {
        let payload = text(|out| auth().encode(out));
        assert_eq!(
            payload,
            r#"{"type":"peer.auth","version":"streamhive/1","token":"se\u003ccret","identity":"node-b","capabilities":["lifecycle.repair-reconcile.v1","lifecycle.v1"]}"#
        );
        assert_eq!(Auth::decode(payload.as_bytes()), Ok(auth()));

        let ok = AuthOk { identity: None, capabilities: Capabilities::default() };
        assert_eq!(text(|out| ok.encode(out)), OK);
        assert_eq!(AuthOk::decode(OK.as_bytes()), Ok(ok));

        let mut out = vec![];
        encode_reject(&mut out);
        assert_eq!(out, br#"{"type":"peer.auth.reject","version":"streamhive/1","error":"unauthorized"}"#);
        assert_eq!(AuthOk::decode(&out), Err(AuthError::Rejected { said: "unauthorized".into() }));
    }

    #[test]
    fn unknown_fields_are_ignored_however_deep() {
        let deep = format!(r#"{{"x":{}{},{}"#, "[".repeat(1000), "]".repeat(1000), &PLAIN[1..]);
        assert_eq!(Auth::decode(deep.as_bytes()), Auth::decode(PLAIN.as_bytes()));
    }

    #[test]
    fn everything_else_is_strict() {
        for (from, to, refusal) in [
            (r#""type""#, r#""TYPE""#, Refusal::FoldedCase),
            (r#""t"}"#, r#""t","token":"t"}"#, Refusal::DuplicateName),
            (r#""t"}"#, r#""t","capabilities":null}"#, Refusal::Null),
            (r#""t"}"#, r#""t","capabilities":[]}"#, Refusal::EmptyForAbsent),
            (r#""t"}"#, r#""t","identity":""}"#, Refusal::EmptyForAbsent),
            (r#""t"}"#, r#""\ud800"}"#, Refusal::LoneSurrogate),
            (r#""version":"streamhive/1","#, "", Refusal::AbsentField),
        ] {
            let payload = PLAIN.replace(from, to);
            let refused = Auth::decode(payload.as_bytes()).expect_err(&payload);
            assert_eq!(refused.refusal(), Some(refusal), "{payload}");
        }
        for payload in ["", "x", "[]", r#"{"type":1}"#] {
            let refused = Auth::decode(payload.as_bytes()).expect_err(payload);
            assert!(matches!(refused, AuthError::Malformed(JsonFault { refusal: None, .. })), "{payload}");
        }
    }

    #[test]
    fn payload_too_large() {
        let mut payload = PLAIN.as_bytes().to_vec();
        payload.resize(4096, b' ');
        assert!(Auth::decode(&payload).is_ok());
        payload.push(b' ');
        assert_eq!(Auth::decode(&payload), Err(AuthError::PayloadTooLarge { bytes: 4097 }));
        let long = Auth { token: "t".repeat(4096), ..auth() };
        let mut out = vec![1];
        assert!(long.encode(&mut out).is_err());
        assert_eq!(out, [1]);
    }

    #[test]
    fn another_type_or_version() {
        assert!(matches!(Auth::decode(OK.as_bytes()), Err(AuthError::Type { .. })));
        assert!(matches!(AuthOk::decode(PLAIN.as_bytes()), Err(AuthError::Type { .. })));
        for kind in ["peer.auth", "peer.auth.ok", "peer.auth.reject"] {
            let payload = format!(r#"{{"type":"{kind}","version":"streamhive/2"}}"#);
            let refused = if kind == "peer.auth" {
                Auth::decode(payload.as_bytes()).map(|_| ())
            } else {
                AuthOk::decode(payload.as_bytes()).map(|_| ())
            };
            assert_eq!(refused, Err(AuthError::Version { found: "streamhive/2".into() }), "{kind}");
        }
    }

    #[test]
    fn identity_and_capabilities_are_judged() {
        let payload = PLAIN.replace(r#""t"}"#, r#""t","identity":"a b"}"#);
        assert!(matches!(Auth::decode(payload.as_bytes()), Err(AuthError::IdentityInvalid(_))));
        let payload = OK.replace("1\"}", r#"1","capabilities":["a b"]}"#);
        assert!(matches!(AuthOk::decode(payload.as_bytes()), Err(AuthError::Capabilities(_))));
        let list: Vec<_> = (0..17).map(|i| format!("\"c{i}\"")).collect();
        let payload = OK.replace("1\"}", &format!(r#"1","capabilities":[{}]}}"#, list.join(",")));
        let refused = AuthOk::decode(payload.as_bytes());
        assert_eq!(refused, Err(AuthError::Capabilities(CapabilityError::TooMany { count: 17 })));
    }

    #[test]
    fn a_token_is_not_shown() {
        assert!(!format!("{:?}", auth()).contains("cret\""));
    }
}
