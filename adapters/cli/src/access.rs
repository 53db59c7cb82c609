//! What the peers file makes of a node: read at its start, and again at each reload.

use crate::exit::Failure;
use crate::peers::{CertificateEntry, CertificateWord, LogText, PeerEntry, PeersFile, Role, Sha256Text};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline_core::lifecycle::api::LinkRole;
use strandline_core::wire::admission::{CertificateRule, LogRule, Terms};
use strandline_net::{Access, NetworkError, Peer, Runtime, Steer, TlsIdentity, TokenDigest};

/// Longest file of certificates or a key.
const PEM_BYTES_MAX: u64 = 1 << 20;

/// Where the access of a node comes from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The peers file.
    pub(crate) peers: PathBuf,
    /// Whether other machines may be reached without TLS.
    pub(crate) plaintext: bool,
}

impl Source {
    /// Reads the peers file, and the files of TLS it names.
    pub(crate) fn read(&self) -> Result<Access, Failure> {
        let PeersFile { token, tls, peers } = PeersFile::read(&self.peers)?;
        let folder = self.peers.parent().unwrap_or(Path::new(""));
        let certified = tls.is_some();
        let tls = match tls {
            Some(entry) => {
                let chain = read(&folder.join(&entry.certificate))?;
                let key = read(&folder.join(&entry.key))?;
                let authorities = entry.authorities.map(|path| read(&folder.join(path))).transpose()?;
                let lists = entry.revoked.map(|path| read(&folder.join(path))).transpose()?;
                let identity = TlsIdentity::from_pem(&chain, &key, authorities.as_deref());
                let identity = match lists {
                    Some(lists) => identity.and_then(|identity| identity.with_revoked(&lists)),
                    None => identity,
                };
                Some(identity.map_err(|e| self.unusable(&e.to_string()))?)
            }
            None => None,
        };
        let peers = peers.into_iter().map(|entry| peer(entry, certified)).collect();
        Ok(Access { token, peers, tls, plaintext: self.plaintext })
    }

    /// What a person is told of a peers file that the network does not take.
    pub(crate) fn unusable(&self, why: &str) -> Failure {
        Failure::usage(format!("cannot use the peers file {}: {why}", self.peers.display()))
            .advise("`strandline serve --help` shows its form, and `--plaintext`")
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |e: std::io::Error| Failure::usage(format!("cannot read {}: {e}", path.display()));
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > PEM_BYTES_MAX {
        let found = format!("expected at most {PEM_BYTES_MAX} bytes, found {length}");
        return Err(Failure::usage(format!("cannot use {}: {found}", path.display())));
    }
    fs::read(path).map_err(failed)
}

fn peer(entry: PeerEntry, certified: bool) -> Peer {
    let PeerEntry { identity, address, token, token_sha256, role, certificate, logs } = entry;
    let digest = token_sha256.map(|Sha256Text(sha256)| TokenDigest::of_sha256(sha256));
    let certificate = match certificate {
        Some(CertificateEntry::Word(CertificateWord::Named)) => CertificateRule::Named,
        Some(CertificateEntry::Word(CertificateWord::None)) => CertificateRule::NotAsked,
        Some(CertificateEntry::Pinned(pins)) => {
            CertificateRule::Pinned(pins.into_iter().map(|Sha256Text(pin)| pin).collect())
        }
        None if certified => CertificateRule::Named,
        None => CertificateRule::NotAsked,
    };
    let logs = match logs {
        Some(logs) => LogRule::Only(logs.into_iter().map(|LogText(log)| log).collect()),
        None => LogRule::Any,
    };
    Peer {
        identity,
        address,
        token: token.map(TokenDigest::from).or(digest),
        role: match role {
            Role::Both => LinkRole::Both,
            Role::Source => LinkRole::Source,
            Role::Receiver => LinkRole::Receiver,
        },
        terms: Terms { certificate, logs },
    }
}

/// What a reload changed at once.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct ReloadReport {
    /// Links that ended, as they are not allowed any more.
    pub(crate) links_ended: usize,
    /// Peers that are called and were not.
    pub(crate) peers_called: usize,
}

/// Reads the access of the running node anew.
#[derive(Clone)]
pub(crate) struct Reload(Arc<dyn Fn() -> Result<ReloadReport, Failure> + Send + Sync>);

impl Reload {
    /// Of the node whose network `steer` steers.
    pub(crate) fn new<R: Runtime>(source: Source, steer: Steer<R>) -> Self {
        Self(Arc::new(move || match steer.replace(source.read()?) {
            Ok(done) => Ok(ReloadReport { links_ended: done.links_ended, peers_called: done.peers_called }),
            Err(NetworkError::Access(error)) => Err(source.unusable(&error.to_string())),
            Err(error @ (NetworkError::Node(_) | NetworkError::Listen { .. })) => {
                Err(Failure::refused(error.to_string()))
            }
        }))
    }

    /// Puts what the files say now in force, or, where they cannot be used, changes nothing.
    pub(crate) fn now(&self) -> Result<ReloadReport, Failure> {
        (self.0)()
    }
}
