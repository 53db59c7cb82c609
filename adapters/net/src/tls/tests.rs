use super::*;
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

fn issuer() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, key()).expect("an authority")
}

fn named(names: &[&str], uris: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("ASCII")));
    params.subject_alt_names.extend(uris);
    params
}

fn refused(chain: &str, key: &str, authorities: Option<&str>) -> TlsError {
    let identity = TlsIdentity::from_pem(chain.as_bytes(), key.as_bytes(), authorities.map(str::as_bytes));
    let made = identity.and_then(|identity| Tls::new(identity, BTreeSet::new(), Callers::MustShow));
    made.map(drop).expect_err("refused")
}

#[test]
fn a_text_that_is_something_else_is_refused_and_not_repeated() {
    let (own, authority) = (key(), issuer());
    let certificate = named(&["a"], &[]).self_signed(&own).expect("signed").pem();
    let (private, broken) = (own.serialize_pem(), "-----BEGIN PRIVATE KEY-----\nsecret\n");
    for (chain, key) in
        [("", &*private), (&*private, &*private), (&*certificate, ""), (&*certificate, broken)]
    {
        let error = refused(chain, key, Some(&authority.pem()));
        assert!(matches!(error, TlsError::Pem { .. }), "{error}");
        assert!(!error.to_string().contains("secret"));
    }
    assert!(matches!(refused(&certificate, &private, Some("no PEM")), TlsError::Pem { .. }));
    for lists in ["", "no PEM", &*certificate] {
        let identity = TlsIdentity::from_pem(certificate.as_bytes(), private.as_bytes(), None).expect("PEM");
        let error = identity.with_revoked(lists.as_bytes()).expect_err("no list");
        assert!(matches!(error, TlsError::Pem { .. }), "{error}");
    }
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let certificate = named(&["a"], &[]).self_signed(&key()).expect("signed").pem();
    let error = refused(&certificate, &key().serialize_pem(), None);
    assert!(matches!(error, TlsError::Unusable(_)), "{error}");
}

#[test]
fn whole_names_are_read_and_a_pinned_certificate_names_nobody() {
    let own = key();
    let signed = named(&["b", "*.example"], &["strandline:b%2F1"]).self_signed(&own).expect("signed");
    let sha256: [u8; 32] = Sha256::digest(signed.der()).into();
    let describe = |pins: BTreeSet<[u8; 32]>| {
        let (chain, key) = (signed.pem(), own.serialize_pem());
        let identity = TlsIdentity::from_pem(chain.as_bytes(), key.as_bytes(), None).expect("PEM");
        Tls::new(identity, pins, Callers::MayShow).expect("usable").describe(signed.der())
    };
    let dns = |name: &str| CertificateName::Dns(name.into());
    let names = vec![dns("b"), CertificateName::Uri("strandline:b%2F1".into())];
    assert_eq!(describe(BTreeSet::new()), Certificate { sha256, names });
    assert_eq!(describe(BTreeSet::from([sha256])), Certificate { sha256, names: vec![] });
}
