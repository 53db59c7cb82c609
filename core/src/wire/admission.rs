//! What a peer must show besides its token, and which logs it may have.
//!
//! A token says who a peer claims to be; a certificate shows that it holds a key. An adapter verifies the
//! certificate's chain, or that it is pinned; whether it is the certificate of *this* identity is decided
//! here, so that a stolen token is of no use to the holder of another certificate.

use super::identity::PeerIdentity;
use crate::error::{Classified, Family};
use crate::id::LogId;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};
use subtle::ConstantTimeEq as _;

/// Scheme of the URI that names an identity in a certificate. Our own: an identity need not be a DNS
/// name.
pub const URI_SCHEME: &str = "strandline:";

/// A certificate whose key the other end has proven to hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Certificate {
    /// SHA-256 of its DER bytes.
    pub sha256: [u8; 32],
    /// Its subject's alternative names.
    pub names: Vec<CertificateName>,
}

/// A name in a certificate.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CertificateName {
    /// A DNS name. It is the identity itself, letter for letter; a wildcard stands for nothing.
    Dns(String),
    /// A URI. It is [`URI_SCHEME`] and the identity, where every byte but letters, digits, `-`, `.`, `_`
    /// and `~` is written as `%` and two upper-case hexadecimal digits.
    Uri(String),
}

impl CertificateName {
    fn is_of(&self, identity: &PeerIdentity) -> bool {
        match self {
            Self::Dns(name) => name == identity.as_str(),
            Self::Uri(uri) => *uri == uri_of(identity),
        }
    }
}

/// The URI that names an identity in a certificate.
///
/// ```
/// use strandline_core::wire::{admission::uri_of, identity::PeerIdentity};
/// assert_eq!(uri_of(&PeerIdentity::parse("node/a")?), "strandline:node%2Fa");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn uri_of(identity: &PeerIdentity) -> String {
    let mut uri = String::from(URI_SCHEME);
    for byte in identity.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            write!(uri, "%{byte:02X}").expect("a string takes all");
        }
    }
    uri
}

/// What the bytes of a connection go through.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Channel {
    /// Nothing: whoever is on the way can read and change them.
    Plain,
    /// TLS. The other end showed a certificate that was verified, or none.
    Tls {
        /// The certificate, if it showed one.
        certificate: Option<Certificate>,
    },
}

/// Which certificate a peer must show.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum CertificateRule {
    /// None: its token is enough, and the channel may be plain.
    #[default]
    NotAsked,
    /// One that names its identity.
    Named,
    /// One of these, by the SHA-256 of its DER bytes, whatever it names. Several, so that the next one
    /// can be pinned before it is used.
    Pinned(Vec<[u8; 32]>),
}

/// Which logs a peer may have. A log is admitted or refused whole, never in part.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum LogRule {
    /// Any that this node serves.
    #[default]
    Any,
    /// These.
    Only(Vec<LogId>),
}

/// What a peer must meet besides its token. The default asks nothing more.
///
/// ```
/// use strandline_core::wire::admission::{Certificate, CertificateName, CertificateRule, Channel, Terms};
/// use strandline_core::wire::identity::PeerIdentity;
/// let terms = Terms { certificate: CertificateRule::Named, ..Terms::default() };
/// let certificate = Certificate { sha256: [1; 32], names: vec![CertificateName::Dns("node-b".into())] };
/// let channel = Channel::Tls { certificate: Some(certificate) };
/// assert!(terms.judge(&PeerIdentity::parse("node-b")?, &channel, None).is_ok());
/// assert!(terms.judge(&PeerIdentity::parse("node-c")?, &channel, None).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Terms {
    /// Which certificate it must show.
    pub certificate: CertificateRule,
    /// Which logs it may have.
    pub logs: LogRule,
}

/// Why a peer is not let in, though it may have the right token: its fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TermsUnmet {
    /// The connection is not encrypted.
    #[error("peer {identity} must show a certificate, expected TLS, found a plain connection")]
    Plain {
        /// Who it says it is.
        identity: PeerIdentity,
    },
    /// It showed no certificate.
    #[error("peer {identity} must show a certificate, found none")]
    NoCertificate {
        /// Who it says it is.
        identity: PeerIdentity,
    },
    /// Its certificate is that of another.
    #[error("peer {identity} showed a certificate of {found}, expected one that names {identity}")]
    OtherName {
        /// Who it says it is.
        identity: PeerIdentity,
        /// Whom the certificate names; at most eight names of it.
        found: Names,
    },
    /// Its certificate is not one that is pinned for it.
    #[error("peer {identity} showed the certificate {}, expected one of the {pinned} pinned for it", Hex(.found))]
    NotPinned {
        /// Who it says it is.
        identity: PeerIdentity,
        /// SHA-256 of the certificate.
        found: [u8; 32],
        /// How many are pinned for it.
        pinned: usize,
    },
    /// It may not have this log.
    #[error("peer {identity} may not have {}, expected one of the {allowed} logs it may have", Log(.log))]
    Log {
        /// Who it is.
        identity: PeerIdentity,
        /// The log that the connection would carry.
        log: Option<LogId>,
        /// How many logs it may have.
        allowed: usize,
    },
}

impl Classified for TermsUnmet {
    const FAMILY: Family = Family::Peer;
}

impl Terms {
    /// Judges a peer that says it is `identity`, on a connection that carries `log` through `channel`.
    ///
    /// # Errors
    /// What it does not meet.
    pub fn judge(
        &self,
        identity: &PeerIdentity,
        channel: &Channel,
        log: Option<LogId>,
    ) -> Result<(), TermsUnmet> {
        judge_certificate(&self.certificate, identity, channel)?;
        judge_log(&self.logs, identity, log)
    }
}

fn judge_certificate(
    rule: &CertificateRule,
    identity: &PeerIdentity,
    channel: &Channel,
) -> Result<(), TermsUnmet> {
    let identity = || identity.clone();
    match (rule, channel) {
        (CertificateRule::NotAsked, Channel::Plain | Channel::Tls { .. }) => Ok(()),
        (CertificateRule::Named | CertificateRule::Pinned(_), Channel::Plain) => {
            Err(TermsUnmet::Plain { identity: identity() })
        }
        (CertificateRule::Named | CertificateRule::Pinned(_), Channel::Tls { certificate: None }) => {
            Err(TermsUnmet::NoCertificate { identity: identity() })
        }
        (CertificateRule::Named, Channel::Tls { certificate: Some(shown) }) => {
            if shown.names.iter().any(|name| name.is_of(&identity())) {
                Ok(())
            } else {
                Err(TermsUnmet::OtherName { identity: identity(), found: Names::of(&shown.names) })
            }
        }
        (CertificateRule::Pinned(pins), Channel::Tls { certificate: Some(shown) }) => {
            if pins.iter().any(|pin| same_digest(pin, &shown.sha256)) {
                Ok(())
            } else {
                Err(TermsUnmet::NotPinned { identity: identity(), found: shown.sha256, pinned: pins.len() })
            }
        }
    }
}

fn judge_log(rule: &LogRule, identity: &PeerIdentity, log: Option<LogId>) -> Result<(), TermsUnmet> {
    match rule {
        LogRule::Any => Ok(()),
        LogRule::Only(allowed) if log.is_some_and(|log| allowed.contains(&log)) => Ok(()),
        LogRule::Only(allowed) => {
            Err(TermsUnmet::Log { identity: identity.clone(), log, allowed: allowed.len() })
        }
    }
}

/// Whether two digests are equal. The time taken does not depend on where they differ.
pub(crate) fn same_digest(a: &[u8; 32], b: &[u8; 32]) -> bool {
    a.ct_eq(b).into()
}

/// Names of a certificate, for a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Names(Vec<CertificateName>);

/// Names that a message repeats.
const NAMES_SHOWN_MAX: usize = 8;

impl Names {
    fn of(names: &[CertificateName]) -> Self {
        Self(names.iter().take(NAMES_SHOWN_MAX).cloned().collect())
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nobody");
        }
        for (i, name) in self.0.iter().enumerate() {
            let (CertificateName::Dns(text) | CertificateName::Uri(text)) = name;
            write!(f, "{}{text:?}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

struct Hex<'a>(&'a [u8; 32]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

struct Log<'a>(&'a Option<LogId>);

impl fmt::Display for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(log) => write!(f, "log {log}"),
            None => f.write_str("a log without a name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    const LOG: LogId = LogId([5; 16]);

    fn id(text: &str) -> PeerIdentity {
        PeerIdentity::parse(text).expect("valid")
    }

    fn shown(names: Vec<CertificateName>) -> Channel {
        Channel::Tls { certificate: Some(Certificate { sha256: [7; 32], names }) }
    }

    fn dns(name: &str) -> Vec<CertificateName> {
        vec![CertificateName::Dns(name.into())]
    }

    fn uri(name: &str) -> Vec<CertificateName> {
        vec![CertificateName::Uri(name.into())]
    }

    fn judge(certificate: CertificateRule, identity: &str, channel: &Channel) -> Result<(), TermsUnmet> {
        Terms { certificate, logs: LogRule::Any }.judge(&id(identity), channel, Some(LOG))
    }

    #[test]
    fn not_asked_takes_any_channel() {
        for channel in [Channel::Plain, Channel::Tls { certificate: None }, shown(dns("another"))] {
            assert_eq!(judge(CertificateRule::NotAsked, "b", &channel), Ok(()));
        }
    }

    #[test]
    fn named_or_pinned_refuses_a_plain_channel() {
        for rule in [CertificateRule::Named, CertificateRule::Pinned(vec![[7; 32]])] {
            let identity = id("b");
            assert_eq!(judge(rule, "b", &Channel::Plain), Err(TermsUnmet::Plain { identity }));
        }
    }

    #[test]
    fn named_or_pinned_refuses_no_certificate() {
        let channel = Channel::Tls { certificate: None };
        for rule in [CertificateRule::Named, CertificateRule::Pinned(vec![[7; 32]])] {
            let identity = id("b");
            assert_eq!(judge(rule, "b", &channel), Err(TermsUnmet::NoCertificate { identity }));
        }
    }

    #[test]
    fn named_takes_the_identity_as_dns_name_or_uri() {
        assert_eq!(judge(CertificateRule::Named, "node-b", &shown(dns("node-b"))), Ok(()));
        assert_eq!(judge(CertificateRule::Named, "node-b", &shown(uri("strandline:node-b"))), Ok(()));
        assert_eq!(judge(CertificateRule::Named, "b@x/1", &shown(uri("strandline:b%40x%2F1"))), Ok(()));
    }

    #[test]
    fn named_refuses_another_name_a_part_of_one_and_a_wildcard() {
        let others = [
            vec![],
            dns("node-c"),
            dns("NODE-B"),
            dns("*"),
            dns("node-b.example"),
            dns("strandline:node-b"),
            uri("node-b"),
            uri("https:node-b"),
        ];
        for names in others {
            let refused = judge(CertificateRule::Named, "node-b", &shown(names)).expect_err("another");
            assert!(matches!(refused, TermsUnmet::OtherName { .. }), "{refused}");
        }
        let refused = judge(CertificateRule::Named, "b", &shown(dns("c"))).expect_err("another");
        let said = "peer b showed a certificate of \"c\", expected one that names b";
        assert_eq!(refused.to_string(), said);
    }

    #[test]
    fn pinned_takes_one_of_the_pins_whatever_it_names() {
        let rule = CertificateRule::Pinned(vec![[1; 32], [7; 32]]);
        assert_eq!(judge(rule, "b", &shown(dns("c"))), Ok(()));
    }

    #[test]
    fn pinned_refuses_every_other_one() {
        let refused = judge(CertificateRule::Pinned(vec![[1; 32]]), "b", &shown(dns("b")));
        let (identity, found) = (id("b"), [7; 32]);
        assert_eq!(refused, Err(TermsUnmet::NotPinned { identity, found, pinned: 1 }));
    }

    #[test]
    fn any_log_is_any_and_only_is_only() {
        let judge = |logs, log| {
            let terms = Terms { certificate: CertificateRule::NotAsked, logs };
            terms.judge(&id("b"), &Channel::Plain, log)
        };
        let refused = |log| Err(TermsUnmet::Log { identity: id("b"), log, allowed: 1 });
        assert_eq!(judge(LogRule::Any, None), Ok(()));
        assert_eq!(judge(LogRule::Only(vec![LOG]), Some(LOG)), Ok(()));
        let other = Some(LogId([6; 16]));
        assert_eq!(judge(LogRule::Only(vec![LOG]), other), refused(other));
        assert_eq!(judge(LogRule::Only(vec![LOG]), None), refused(None));
    }
}
