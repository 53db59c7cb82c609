//! Who may link with this node, and whom it calls.

use strandline_core::lifecycle::api::LinkRole;
use strandline_core::lifecycle::standing::Listed;
use strandline_core::wire::admission::Terms;
use strandline_core::wire::handshake::token_sha256;

/// One other node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peer {
    /// The name it authenticates with, and the name that is expected where it is called.
    pub identity: String,
    /// Where it is called, written `host:port`; absent if it only calls us.
    pub address: Option<String>,
    /// The token it proves its name with when it calls us; absent if it never does. Known to it and
    /// to us alone.
    pub token: Option<TokenDigest>,
    /// Which way records may flow. With a peer that names no log it must not be `Both`.
    pub role: LinkRole,
    /// What it must meet besides, whoever called.
    pub terms: Terms,
}

impl Peer {
    /// What the core needs to judge its links again.
    pub(crate) fn listed(&self) -> Listed<'_> {
        let token_sha256 = self.token.as_ref().map(|token| token.0);
        Listed { token_sha256, terms: &self.terms, role: self.role }
    }
}

/// What is kept of a peer's token.
///
/// ```
/// use strandline_net::TokenDigest;
/// let digest = TokenDigest::from("a token");
/// assert_eq!(format!("{digest:?}"), "TokenDigest(..)");
/// ```
#[derive(Clone, Eq, PartialEq)]
pub struct TokenDigest(pub(crate) [u8; 32]);

impl TokenDigest {
    /// The token whose SHA-256 this is.
    #[must_use]
    pub const fn of_sha256(sha256: [u8; 32]) -> Self {
        Self(sha256)
    }
}

impl From<&str> for TokenDigest {
    fn from(token: &str) -> Self {
        Self(token_sha256(token))
    }
}

impl From<String> for TokenDigest {
    fn from(token: String) -> Self {
        Self::from(token.as_str())
    }
}

/// Shows nothing: a short token could be guessed from its digest.
impl std::fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenDigest(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let peer = Peer {
            identity: "b".into(),
            address: None,
            token: Some("secret-token".into()),
            role: LinkRole::Both,
            terms: Terms::default(),
        };
        let shown = format!("{peer:?}");
        assert!(shown.contains("\"b\"") && !shown.contains("secret"), "{shown}");
        assert_eq!(peer.token, Some(TokenDigest::of_sha256(token_sha256("secret-token"))));
    }
}
