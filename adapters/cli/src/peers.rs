//! The peers file: who may link with this node, whom it calls, the tokens, and TLS.
//!
//! ```toml
//! token = "what this node proves its name with when it calls others"
//!
//! [tls]                        # absent: no TLS
//! certificate = "node.pem"     # and those between it and its authority
//! key = "node.key"
//! authorities = "ca.pem"       # who vouches for peers; absent: only pinned certificates are believed
//! revoked = "crl.pem"          # what the authorities have revoked; absent: nothing
//!
//! [[peers]]
//! identity = "b"
//! address = "b.example:7401"   # absent: it only calls us
//! token = "what b proves its name with when it calls us"   # absent: it never does
//! token_sha256 = "..."         # instead of `token`: its SHA-256 in hexadecimal digits
//! role = "both"                # or "source": we only send, or "receiver": we only receive
//! certificate = "named"        # or "none", or a list of SHA-256s of which its certificate must have one
//! logs = ["..."]               # which logs it may have; absent: any that this node serves
//! ```
//!
//! Paths are relative to the file.

use crate::exit::Failure;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use strandline_core::id::LogId;

/// Longest file read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The file.
#[derive(Clone, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeersFile {
    /// What this node proves its name with when it calls others.
    #[serde(default)]
    pub(crate) token: String,
    /// TLS, on every link.
    pub(crate) tls: Option<TlsEntry>,
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
    /// Instead of the token: its SHA-256.
    pub(crate) token_sha256: Option<Sha256Text>,
    /// Which way records may flow.
    #[serde(default)]
    pub(crate) role: Role,
    /// Which certificate it must show; with TLS one that names it, if nothing is said.
    pub(crate) certificate: Option<CertificateEntry>,
    /// Which logs it may have; absent: any.
    pub(crate) logs: Option<Vec<LogText>>,
}

/// Where the files of TLS are.
#[derive(Clone, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsEntry {
    /// The node's certificate, and those between it and its authority.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// The certificates of those who vouch for peers.
    pub(crate) authorities: Option<PathBuf>,
    /// The lists of what those have revoked.
    pub(crate) revoked: Option<PathBuf>,
}

/// Which certificate a peer must show.
#[derive(Clone, Deserialize, Eq, PartialEq)]
#[serde(untagged)]
pub(crate) enum CertificateEntry {
    /// By a word.
    Word(CertificateWord),
    /// One of these.
    Pinned(Vec<Sha256Text>),
}

/// What a word says of a certificate.
#[derive(Clone, Copy, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CertificateWord {
    /// It must name the peer.
    Named,
    /// None is asked.
    None,
}

/// 64 hexadecimal digits.
#[derive(Clone, Copy, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub(crate) struct Sha256Text(pub(crate) [u8; 32]);

impl TryFrom<String> for Sha256Text {
    type Error = &'static str;

    /// The text is not repeated: it may be a token in the wrong place. Colons between the bytes, as
    /// other programs print them, and upper case are allowed.
    fn try_from(text: String) -> Result<Self, Self::Error> {
        let expected = "expected a SHA-256 of 64 hexadecimal digits";
        let digits = text.replace(':', "").to_ascii_lowercase();
        let mut bytes = [0; 32];
        if digits.len() != 64 || !digits.is_ascii() {
            return Err(expected);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| expected)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| expected)?;
        }
        Ok(Self(bytes))
    }
}

/// A log's name.
#[derive(Clone, Copy, Deserialize, Eq, PartialEq)]
#[serde(try_from = "String")]
pub(crate) struct LogText(pub(crate) LogId);

impl TryFrom<String> for LogText {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        LogId::parse(&text).map(Self).ok_or("expected a log of 32 lower-case hexadecimal digits")
    }
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
            if peer.token.is_some() && peer.token_sha256.is_some() {
                return Err(format!(
                    "peer {name:?} has a token and the SHA-256 of one: expected one of the two"
                ));
            }
            if peer.address.is_none() && peer.token.is_none() && peer.token_sha256.is_none() {
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
    fn tls_certificates_digests_and_logs_are_read() {
        let digest = "AB:".repeat(31) + "ab";
        let file = PeersFile::parse(&format!(
            "[tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\n[[peers]]\nidentity = \"b\"\n\
             token_sha256 = \"{digest}\"\ncertificate = [\"{digest}\"]\nlogs = [\"{}\"]\n\
             [[peers]]\nidentity = \"c\"\ntoken = \"1\"\ncertificate = \"none\"\n",
            "0c".repeat(16),
        ));
        let file = file.map_err(|why| why + " was not expected").expect("is read");
        let digest = Sha256Text([0xab; 32]);
        assert!(file.tls.is_some_and(|tls| tls.key == Path::new("a.key") && tls.authorities.is_none()));
        assert!(file.peers[0].token_sha256 == Some(digest));
        assert!(file.peers[0].certificate == Some(CertificateEntry::Pinned(vec![digest])));
        assert!(file.peers[0].logs == Some(vec![LogText(LogId([0x0c; 16]))]));
        assert!(file.peers[1].certificate == Some(CertificateEntry::Word(CertificateWord::None)));
    }

    #[test]
    fn a_token_in_the_place_of_a_digest_is_not_repeated() {
        let text = "[[peers]]\nidentity = \"b\"\ntoken_sha256 = \"secret\"\n";
        let error = PeersFile::parse(text).map(|_| ()).expect_err("no digest");
        assert!(error.starts_with("line ") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn what_could_never_link_is_refused() {
        for text in [
            "[[peers]]\nidentity = \"b\"\n",
            "[[peers]]\nidentity = \"b\"\naddress = \"b:1\"\n",
            "[[peers]]\nidentity = \"b\"\ntoken = \"1\"\n[[peers]]\nidentity = \"b\"\ntoken = \"2\"\n",
            "tokens = \"misspelt\"\n",
            "[[peers]]\nidentity = \"b\"\ntoken = \"1\"\nrole = \"writer\"\n",
            "[[peers]]\nidentity = \"b\"\ntoken = \"1\"\ncertificate = \"any\"\n",
            "[[peers]]\nidentity = \"b\"\ntoken = \"1\"\ncertificate = [\"12\"]\n",
            "[[peers]]\nidentity = \"b\"\ntoken = \"1\"\nlogs = [\"x\"]\n",
            "[[peers]]\nidentity = \"b\"\ntoken_sha256 = \"12\"\n",
            "[tls]\ncertificate = \"a.pem\"\n",
        ] {
            assert!(PeersFile::parse(text).is_err(), "{text}");
        }
    }
}
