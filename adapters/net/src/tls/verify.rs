//! Which certificates are believed: those an authority vouches for, and those that are pinned.

use super::{Callers, TlsError};
use futures_rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, OwnedCertRevocationList, RevocationCheckDepth,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};

/// Verifies peers, whoever called. Whom a certificate names is not looked at here.
///
/// A pinned certificate is believed whatever its dates and issuer say: its key was checked by a person.
/// That its holder has the key is proven by the handshake, as for every other one.
#[derive(Debug)]
pub(super) struct PeerVerifier {
    roots: Arc<RootCertStore>,
    revoked: Vec<CertRevocationList<'static>>,
    pins: BTreeSet<[u8; 32]>,
    callers: Callers,
    algorithms: WebPkiSupportedAlgorithms,
    /// Absent without authorities.
    of_callers: Option<Arc<dyn ClientCertVerifier>>,
}

impl PeerVerifier {
    pub(super) fn new(
        roots: RootCertStore,
        revoked: &[CertificateRevocationListDer<'static>],
        pins: BTreeSet<[u8; 32]>,
        callers: Callers,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let roots = Arc::new(roots);
        let of_callers = if roots.is_empty() {
            None
        } else {
            let build = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider));
            Some(build.build().map_err(|e| TlsError::Unusable(e.to_string()))?)
        };
        let algorithms = provider.signature_verification_algorithms;
        let list = |der: &CertificateRevocationListDer<'static>| {
            let owned = OwnedCertRevocationList::from_der(der);
            owned.map(CertRevocationList::from).map_err(|e| TlsError::Unusable(e.to_string()))
        };
        let revoked = revoked.iter().map(list).collect::<Result<_, _>>()?;
        Ok(Self { roots, revoked, pins, callers, algorithms, of_callers })
    }

    /// Whether no authority has revoked the certificate, or one between it and the authority.
    fn judge_revoked(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), Error> {
        let lists: Vec<&CertRevocationList<'_>> = self.revoked.iter().collect();
        let Ok(revocation) = RevocationOptionsBuilder::new(&lists) else { return Ok(()) };
        let revocation = revocation
            .with_depth(RevocationCheckDepth::Chain)
            .with_status_policy(UnknownStatusPolicy::Allow)
            .build();
        let (algorithms, roots) = (self.algorithms.all, &self.roots.roots);
        let refused = |error: webpki::Error| {
            Error::InvalidCertificate(if error == webpki::Error::CertRevoked {
                CertificateError::Revoked
            } else {
                CertificateError::Other(OtherError(Arc::new(error)))
            })
        };
        let parsed = EndEntityCert::try_from(end_entity).map_err(refused)?;
        parsed
            .verify_for_usage(algorithms, roots, intermediates, now, usage, Some(revocation), None)
            .map(drop)
            .map_err(refused)
    }

    fn is_pinned(&self, certificate: &CertificateDer<'_>) -> bool {
        self.pins.contains(<[u8; 32]>::from(Sha256::digest(certificate)).as_slice())
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.is_pinned(end_entity) {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
            self.judge_revoked(end_entity, intermediates, now, KeyUsage::server_auth())?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn client_auth_mandatory(&self) -> bool {
        match self.callers {
            Callers::MustShow => true,
            Callers::MayShow => false,
        }
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Hints would keep a caller from showing a certificate that is pinned, and tell strangers whom
        // we believe.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.is_pinned(end_entity) {
            return Ok(ClientCertVerified::assertion());
        }
        match &self.of_callers {
            Some(of_callers) => {
                let verified = of_callers.verify_client_cert(end_entity, intermediates, now)?;
                self.judge_revoked(end_entity, intermediates, now, KeyUsage::client_auth())?;
                Ok(verified)
            }
            None => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
