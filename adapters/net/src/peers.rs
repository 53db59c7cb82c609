//! Who may link with this node, and whom it calls.

use strandline_core::lifecycle::api::LinkRole;

/// One other node.
#[derive(Clone, Eq, PartialEq)]
pub struct Peer {
    /// The name it authenticates with, and the name that is expected where it is called.
    pub identity: String,
    /// Where it is called, written `host:port`; absent if it only calls us.
    pub address: Option<String>,
    /// The token it proves its name with when it calls us; absent if it never does. Known to it and
    /// to us alone.
    pub token: Option<String>,
    /// Which way records may flow. With a peer that names no log it must not be `Both`.
    pub role: LinkRole,
}

/// Shows everything but the token.
impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer")
            .field("identity", &self.identity)
            .field("address", &self.address)
            .field("role", &self.role)
            .finish_non_exhaustive()
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
        };
        let shown = format!("{peer:?}");
        assert!(shown.contains("\"b\"") && !shown.contains("secret"), "{shown}");
    }
}
