//! Authorities and certificates, made for one test.

use super::Outcome;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use strandline_net::TlsIdentity;

/// Who signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(crate) struct Issued {
    pub(crate) chain: String,
    pub(crate) key: String,
    pub(crate) sha256: [u8; 32],
    serial: Vec<u8>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Outcome<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate of the node called `name`.
    pub(crate) fn issue(&self, name: &str) -> Outcome<Issued> {
        self.sign(CertificateParams::new(vec![name.to_owned()])?)
    }

    /// One that was good until the end of 2001.
    pub(crate) fn issue_expired(&self, name: &str) -> Outcome<Issued> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 12, 31);
        self.sign(params)
    }

    /// The list of what it has revoked, whose time has run out.
    pub(crate) fn revoke(&self, certificates: &[&Issued]) -> Outcome<String> {
        let day = date_time_ymd(2020, 1, 1);
        let revoked = |issued: &&Issued| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&issued.serial),
            revocation_time: day,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: day,
            next_update: date_time_ymd(2020, 2, 1),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: certificates.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(&self.0)?.pem()?)
    }

    fn sign(&self, mut params: CertificateParams) -> Outcome<Issued> {
        use sha2::{Digest, Sha256};
        let key = KeyPair::generate()?;
        let serial = Sha256::digest(key.serialize_der())[1..16].to_vec();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        Ok(Issued { serial, ..Issued::of(&params.signed_by(&key, &self.0)?, &key) })
    }
}

impl Issued {
    /// A certificate that nobody vouches for.
    pub(crate) fn self_signed(name: &str) -> Outcome<Self> {
        let key = KeyPair::generate()?;
        Ok(Self::of(&CertificateParams::new(vec![name.to_owned()])?.self_signed(&key)?, &key))
    }

    fn of(certificate: &rcgen::Certificate, key: &KeyPair) -> Self {
        use sha2::{Digest, Sha256};
        let sha256 = Sha256::digest(certificate.der()).into();
        Self { chain: certificate.pem(), key: key.serialize_pem(), sha256, serial: Vec::new() }
    }

    /// What a node with this certificate shows, who believes those authorities.
    pub(crate) fn tls(&self, believed: &[&Authority]) -> Outcome<Option<TlsIdentity>> {
        let authorities: String = believed.iter().map(|authority| authority.pem()).collect();
        let authorities = (!believed.is_empty()).then_some(authorities.as_bytes());
        Ok(Some(TlsIdentity::from_pem(self.chain.as_bytes(), self.key.as_bytes(), authorities)?))
    }
}
