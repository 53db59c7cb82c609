//! The peers file: who may link with this node, whom it calls, and the tokens.
//!
//! ```toml
//! token = "what this node proves its name with when it calls others"
//!
//! [[peers]]
//! identity = "b"
//! address = "b.example:7401"   # absent: it only calls us
//! token = "what b proves its name with when it calls us"   # absent: it never does
//! role = "both"                # or "source": we only send, or "receiver": we only receive
//! ```

use crate::exit::Failure;
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// Longest file read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The file.
#[derive(Clone, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeersFile {
    /// What this node proves its name with when it calls others.
    #[serde(default)]
    pub(crate) token: String,
    /// The others.
    #[serde(default)]
    pub(crate) peers: Vec<PeerEntry>,
}

/// One other node.
#[derive(Clone, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerEntry {
    /// Its name.
    pub(crate) identity: String,
    /// Where it is called.
    pub(crate) address: Option<String>,
    /// What it proves its name with when it calls us.
    pub(crate) token: Option<String>,
    /// Which way records may flow.
    #[serde(default)]
    pub(crate) role: Role,
}

/// Which way records may flow between this node and a peer.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// Both ways; who is behind is repaired.
    #[default]
    Both,
    /// This node sends.
    Source,
    /// This node receives.
    Receiver,
}

impl PeersFile {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let refused = |why: String| {
            Failure::usage(format!("cannot use the peers file {}: {why}", path.display()))
                .advise("`strandline serve --help` shows its form")
        };
        let length = fs::metadata(path).map_err(|e| refused(e.to_string()))?.len();
        if length > FILE_BYTES_MAX {
            return Err(refused(format!("expected at most {FILE_BYTES_MAX} bytes, found {length}")));
        }
        let text = fs::read_to_string(path).map_err(|e| refused(e.to_string()))?;
        Self::parse(&text).map_err(refused)
    }

    fn parse(text: &str) -> Result<Self, String> {
        // The parser's own text quotes the line, and a line may hold a token.
        let file: Self = toml::from_str(text).map_err(|e| {
            let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            format!("line {}: {}", before.matches('\n').count() + 1, e.message())
        })?;
        for (i, peer) in file.peers.iter().enumerate() {
            let name = &peer.identity;
            if file.peers[..i].iter().any(|other| other.identity == *name) {
                return Err(format!("peer {name:?} is named twice"));
            }
            if peer.address.is_none() && peer.token.is_none() {
                return Err(format!("peer {name:?} has neither an address to call nor a token to accept"));
            }
            if peer.address.is_some() && file.token.is_empty() {
                return Err(format!("peer {name:?} is to be called, and this node has no token of its own"));
            }
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_form_is_read() {
        let file = PeersFile::parse(
            "token = \"ours\"\n[[peers]]\nidentity = \"b\"\naddress = \"b.example:7401\"\n\
             [[peers]]\nidentity = \"c\"\ntoken = \"theirs\"\nrole = \"source\"\n",
        )
        .map_err(|why| why + " was not expected");
        let file = file.expect("is read");
        assert_eq!((file.token.as_str(), file.peers.len()), ("ours", 2));
        assert_eq!((file.peers[0].role, file.peers[0].token.as_deref()), (Role::Both, None));
        assert_eq!((file.peers[1].role, file.peers[1].token.as_deref()), (Role::Source, Some("theirs")));
    }

    #[test]
    fn an_error_names_the_line_and_tells_no_secret() {
        let error = PeersFile::parse("# ours\ntoken = \"very secret\n").map(|_| ()).expect_err("no end");
        assert!(error.starts_with("line 2: ") && !error.contains("secret"), "{error}");
        let error =
            PeersFile::parse("token = \"secret\"\ntokens = \"secret\"\n").map(|_| ()).expect_err("unknown");
        assert!(error.starts_with("line 2: ") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn what_could_never_link_is_refused() {
        for text in [
            "[[peers]]\nidentity = \"b\"\n",
            "[[peers]]\nidentity = \"b\"\naddress = \"b:1\"\n",
            "[[peers]]\nidentity = \"b\"\ntoken = \"1\"\n[[peers]]\nidentity = \"b\"\ntoken = \"2\"\n",
            "tokens = \"misspelt\"\n",
            "[[peers]]\nidentity = \"b\"\ntoken = \"1\"\nrole = \"writer\"\n",
        ] {
            assert!(PeersFile::parse(text).is_err(), "{text}");
        }
    }
}
