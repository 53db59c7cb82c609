//! TLS on both sides of a link.
//!
//! Version 1.3 only, no resumption: each connection shows its certificate, so that a certificate or an
//! authority taken away is of no use for the next one. Who the certificate stands for is decided in the
//! core; here it is verified.

mod verify;

use crate::connection::{Connection, Metered};
use futures::{AsyncRead, AsyncWrite};
use futures_rustls::pki_types::pem::PemObject;
use futures_rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use futures_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use rustls::client::Resumption;
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use strandline_core::wire::admission::{Certificate, CertificateName, Channel};
use verify::PeerVerifier;

/// So that a certificate of ours is of no use with another protocol, nor another's with ours.
const PROTOCOL: &[u8] = b"strandline/1";

/// Most names of a certificate that are looked at.
const NAMES_MAX: usize = 64;

/// What this node shows, and whom it believes.
pub struct TlsIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    authorities: Vec<CertificateDer<'static>>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
}

/// Why there is no TLS: the caller's mistake. No message repeats what a file holds.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// A text is no PEM, or holds another thing.
    #[error("expected {expected} in PEM form, found {found}")]
    Pem {
        /// What was expected.
        expected: &'static str,
        /// What is wrong with it.
        found: String,
    },
    /// Certificate, key and authorities do not make a configuration.
    #[error("expected a certificate with its own key, and authorities that can be read, found: {0}")]
    Unusable(String),
}

impl TlsIdentity {
    /// Takes the certificate of this node with those between it and its authority, its key, and the
    /// certificates of the authorities that vouch for peers; all as PEM. Without authorities only
    /// certificates that are pinned for a peer are believed.
    ///
    /// # Errors
    /// A text is not what it should be.
    pub fn from_pem(chain: &[u8], key: &[u8], authorities: Option<&[u8]>) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| pem("one private key", &e))?;
        Ok(Self {
            chain: certificates("the node's certificate", chain)?,
            key,
            authorities: match authorities {
                Some(text) => certificates("at least one authority's certificate", text)?,
                None => Vec::new(),
            },
            revoked: Vec::new(),
        })
    }

    /// Believes nothing any more that these lists of the authorities name, as PEM. A list counts also when
    /// its time has run out; an authority without a list has revoked nothing. Pins stand above them.
    ///
    /// # Errors
    /// The text is not what it should be.
    pub fn with_revoked(mut self, lists: &[u8]) -> Result<Self, TlsError> {
        let expected = "at least one list of revoked certificates";
        let found = CertificateRevocationListDer::pem_slice_iter(lists).collect::<Result<Vec<_>, _>>();
        self.revoked = found.map_err(|e| pem(expected, &e))?;
        if self.revoked.is_empty() {
            return Err(TlsError::Pem { expected, found: "none".into() });
        }
        Ok(self)
    }
}

/// Shows no key.
impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (chain, authorities) = (self.chain.len(), self.authorities.len());
        f.debug_struct("TlsIdentity")
            .field("chain", &chain)
            .field("authorities", &authorities)
            .finish_non_exhaustive()
    }
}

fn certificates(expected: &'static str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|e| pem(expected, &e))?;
    if found.is_empty() {
        return Err(TlsError::Pem { expected, found: "no certificate".into() });
    }
    Ok(found)
}

/// The parser's own text can quote a line, and a line may be of a key.
fn pem(expected: &'static str, error: &futures_rustls::pki_types::pem::Error) -> TlsError {
    use futures_rustls::pki_types::pem::Error;
    let found = if matches!(error, Error::NoItemsFound) { "none" } else { "what cannot be read" };
    TlsError::Pem { expected, found: found.into() }
}

/// Whether who calls us must show a certificate for the connection to come about at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Callers {
    MustShow,
    MayShow,
}

/// Both sides, ready for use.
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    pins: BTreeSet<[u8; 32]>,
}

impl Tls {
    /// Believes who the authorities vouch for, and certificates with these digests.
    pub(crate) fn new(
        identity: TlsIdentity,
        pins: BTreeSet<[u8; 32]>,
        callers: Callers,
    ) -> Result<Self, TlsError> {
        let TlsIdentity { chain, key, authorities, revoked } = identity;
        let unusable = |error: rustls::Error| TlsError::Unusable(error.to_string());
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(unusable)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = PeerVerifier::new(roots, &revoked, pins.clone(), callers, &provider)?;
        let verifier = Arc::new(verifier);
        let versions = [&rustls::version::TLS13];
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(unusable)?
            .with_client_cert_verifier(Arc::clone(&verifier) as _)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(chain, key)
            .map_err(unusable)?;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.resumption = Resumption::disabled();
        // It would tell everybody on the way whom we call.
        client.enable_sni = false;
        let (acceptor, connector) = (Arc::new(server).into(), Arc::new(client).into());
        Ok(Self { acceptor, connector, pins })
    }

    /// As the side that was called.
    pub(crate) async fn accept<C>(&self, connection: Metered<C>) -> io::Result<Connection<C>>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        let tls = self.acceptor.accept(connection).await?;
        Ok(Connection::Tls(Box::new(TlsStream::Server(tls))))
    }

    /// As the side that calls.
    pub(crate) async fn connect<C>(&self, connection: Metered<C>) -> io::Result<Connection<C>>
    where
        C: AsyncRead + AsyncWrite + Unpin,
    {
        // Neither sent nor looked at: whom the certificate must name is the core's to say.
        let nobody = ServerName::try_from("peer.invalid").expect("a name");
        let tls = self.connector.connect(nobody, connection).await?;
        Ok(Connection::Tls(Box::new(TlsStream::Client(tls))))
    }

    /// What the other end showed.
    pub(crate) fn channel<C>(&self, connection: &Connection<C>) -> Channel {
        let Connection::Tls(tls) = connection else { return Channel::Plain };
        let (_, session) = tls.get_ref();
        let shown = session.peer_certificates().and_then(<[_]>::first);
        Channel::Tls { certificate: shown.map(|shown| self.describe(shown)) }
    }

    fn describe(&self, shown: &CertificateDer<'_>) -> Certificate {
        let sha256 = Sha256::digest(shown).into();
        // Who is believed for a pin may have written any name into the certificate: it stands for the
        // peer that it is pinned for, and names nobody.
        let names = if self.pins.contains(&sha256) { Vec::new() } else { names(shown) };
        Certificate { sha256, names }
    }
}

fn names(certificate: &CertificateDer<'_>) -> Vec<CertificateName> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
    let dns = parsed.valid_dns_names().map(|name| CertificateName::Dns(name.to_owned()));
    let uris = parsed.valid_uri_names().map(|name| CertificateName::Uri(name.to_owned()));
    dns.chain(uris).take(NAMES_MAX).collect()
}

#[cfg(test)]
mod tests;
