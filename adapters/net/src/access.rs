//! Who this node is to others, who may link with it, and what is asked of them.

use crate::peers::Peer;
use crate::tls::{Callers, Tls, TlsError, TlsIdentity};
use futures::channel::oneshot;
use futures::future::{FutureExt, Shared};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use strandline_core::id::LogId;
use strandline_core::wire::admission::CertificateRule;
use strandline_core::wire::capability::Capabilities;
use strandline_core::wire::handshake::{DialAuth, ListenAuth, PeerCredential};
use strandline_core::wire::identity::{IdentityError, PeerIdentity};

/// Who this node is to others, who may link with it, and whom it calls. It can be replaced as a whole
/// while the network runs.
#[derive(Default)]
pub struct Access {
    /// What this node proves its name with when it calls others.
    pub token: String,
    /// Who may link with this node, and whom it calls.
    pub peers: Vec<Peer>,
    /// TLS, on every link; absent: on none.
    pub tls: Option<TlsIdentity>,
    /// Without TLS, other machines may be listened to and called all the same: whoever is on the way can
    /// then read tokens and records, and change them.
    pub plaintext: bool,
}

/// Shows no token.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("peers", &self.peers)
            .field("tls", &self.tls)
            .field("plaintext", &self.plaintext)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// Judges it as a network that starts with it would, which only then could say so: for who must not
    /// begin what needs a network. Where to listen is not part of it, nor this node's name.
    ///
    /// # Errors
    /// What [`Network::start`](crate::Network::start) would refuse it with.
    pub fn judge(self) -> Result<(), AccessError> {
        Judged::new(self.peers, self.tls, self.plaintext).map(drop)
    }
}

/// Why nobody can be let in so: the caller's mistake.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AccessError {
    /// This node's name, or a peer's, is none.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Two peers have one name.
    #[error("peer {identity:?} is named twice: expected each identity once")]
    PeerTwice {
        /// The name.
        identity: String,
    },
    /// There can be no TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A peer must show a certificate, and there is no TLS.
    #[error("peer {identity:?} must show a certificate: expected TLS, found none configured")]
    CertificateWithoutTls {
        /// The peer.
        identity: String,
    },
    /// Another machine would be reached without TLS.
    #[error(
        "{address} is not of this machine alone, and there is no TLS: whoever is on the way could read the \
         tokens and records. Expected TLS, an address of loopback, or that plaintext is allowed in so many words"
    )]
    Plaintext {
        /// Where this node would listen, or whom it would call.
        address: String,
    },
}

/// An [`Access`] as the tasks use it. Never changed, only replaced.
pub(crate) struct Rules {
    pub(crate) dial: DialAuth,
    pub(crate) listen: ListenAuth,
    pub(crate) peers: BTreeMap<String, Peer>,
    pub(crate) tls: Option<Tls>,
    pub(crate) plaintext: bool,
    /// Ends when other rules have taken the place of these.
    pub(crate) superseded: Shared<oneshot::Receiver<Infallible>>,
}

impl Rules {
    /// The rules of the replica called `name`, which declares `capabilities`, and what tells that they
    /// are superseded, by being dropped.
    pub(crate) fn new(
        name: &str,
        capabilities: &Capabilities,
        access: Access,
    ) -> Result<(Self, oneshot::Sender<Infallible>), AccessError> {
        let Access { token, peers, tls, plaintext } = access;
        let identity = Some(PeerIdentity::parse(name)?);
        let Judged { credentials, peers, tls } = Judged::new(peers, tls, plaintext)?;
        let (tell, superseded) = oneshot::channel();
        let capabilities = || capabilities.clone();
        let listen = ListenAuth { identity: identity.clone(), capabilities: capabilities(), credentials };
        let dial = DialAuth { token, identity, capabilities: capabilities(), expect: None };
        let superseded = superseded.shared();
        Ok((Self { dial, listen, peers, tls, plaintext, superseded }, tell))
    }

    /// The log that every connection carries.
    pub(crate) fn log(&self) -> Option<LogId> {
        self.listen.capabilities.log()
    }

    /// The peer of this name, and where it is called, if it is.
    pub(crate) fn called(&self, identity: &str) -> Option<(&Peer, &str)> {
        let peer = self.peers.get(identity)?;
        Some((peer, peer.address.as_deref()?))
    }

    /// Judges an address to listen on.
    pub(crate) fn judge_listen(&self, address: SocketAddr) -> Result<(), AccessError> {
        if self.tls.is_some() || self.plaintext || address.ip().to_canonical().is_loopback() {
            return Ok(());
        }
        Err(AccessError::Plaintext { address: address.to_string() })
    }
}

/// Peers that can be let in and called together.
struct Judged {
    credentials: Vec<PeerCredential>,
    peers: BTreeMap<String, Peer>,
    tls: Option<Tls>,
}

impl Judged {
    fn new(peers: Vec<Peer>, tls: Option<TlsIdentity>, plaintext: bool) -> Result<Self, AccessError> {
        let mut credentials = Vec::new();
        let mut by_identity = BTreeMap::new();
        for peer in peers {
            let name = PeerIdentity::parse(&peer.identity)?;
            if let Some(token) = &peer.token {
                let (token_sha256, terms) = (token.0, peer.terms.clone());
                credentials.push(PeerCredential { identity: name, token_sha256, terms });
            }
            if let Some(twice) = by_identity.insert(peer.identity.clone(), peer) {
                return Err(AccessError::PeerTwice { identity: twice.identity });
            }
        }
        let tls = match tls {
            Some(identity) => Some(tls_for(identity, &by_identity)?),
            None => None,
        };
        if tls.is_none() {
            by_identity.values().try_for_each(|peer| judge_plaintext(peer, plaintext))?;
        }
        Ok(Self { credentials, peers: by_identity, tls })
    }
}

/// Judges a peer where there is no TLS.
fn judge_plaintext(peer: &Peer, allowed: bool) -> Result<(), AccessError> {
    if peer.terms.certificate != CertificateRule::NotAsked {
        return Err(AccessError::CertificateWithoutTls { identity: peer.identity.clone() });
    }
    match &peer.address {
        Some(address) if !allowed && !is_loopback(address) => {
            Err(AccessError::Plaintext { address: address.clone() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether `host:port` can only be this machine. A name is not looked up: it may mean another one
/// tomorrow.
fn is_loopback(address: &str) -> bool {
    let Some((host, _)) = address.rsplit_once(':') else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn tls_for(identity: TlsIdentity, peers: &BTreeMap<String, Peer>) -> Result<Tls, TlsError> {
    let mut pins = std::collections::BTreeSet::new();
    let mut callers = Callers::MustShow;
    for peer in peers.values() {
        match &peer.terms.certificate {
            CertificateRule::Pinned(pinned) => pins.extend(pinned.iter().copied()),
            CertificateRule::Named => {}
            CertificateRule::NotAsked => callers = Callers::MayShow,
        }
    }
    Tls::new(identity, pins, callers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_core::lifecycle::api::LinkRole;
    use strandline_core::wire::admission::{LogRule, Terms};

    fn peer(identity: &str, address: Option<&str>) -> Peer {
        Peer {
            identity: identity.into(),
            address: address.map(str::to_owned),
            token: Some("its token".into()),
            role: LinkRole::Both,
            terms: Terms::default(),
        }
    }

    fn rules(peers: Vec<Peer>, plaintext: bool) -> Result<Rules, AccessError> {
        let access = Access { token: "ours".into(), peers, tls: None, plaintext };
        Rules::new("a", &Capabilities::default(), access).map(|(rules, _)| rules)
    }

    fn refused(peers: Vec<Peer>, plaintext: bool) -> AccessError {
        rules(peers, plaintext).map(drop).expect_err("refused")
    }

    #[test]
    fn a_peer_named_twice_and_a_name_that_is_none_are_refused() {
        let twice = refused(vec![peer("b", None), peer("b", None)], false);
        assert_eq!(twice, AccessError::PeerTwice { identity: "b".into() });
        assert!(matches!(refused(vec![peer("b c", None)], false), AccessError::Identity(_)));
    }

    #[test]
    fn a_certificate_needs_tls() {
        let terms = Terms { certificate: CertificateRule::Named, logs: LogRule::Any };
        let error = refused(vec![Peer { terms, ..peer("b", None) }], true);
        assert_eq!(error, AccessError::CertificateWithoutTls { identity: "b".into() });
    }

    #[test]
    fn without_tls_only_this_machine_is_listened_to_and_called() {
        let listen = |address: &str, plaintext| {
            let rules = rules(vec![], plaintext).expect("no peers");
            rules.judge_listen(address.parse().expect("an address"))
        };
        for own in ["127.0.0.1:0", "127.8.8.8:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(listen(own, false), Ok(()), "{own}");
        }
        for other in ["0.0.0.0:0", "[::]:1", "10.0.0.1:1", "[2001:db8::1]:1"] {
            let error = AccessError::Plaintext { address: other.into() };
            assert_eq!((listen(other, false), listen(other, true)), (Err(error), Ok(())));
        }
        for own in ["localhost:1", "127.0.0.1:1", "[::1]:1"] {
            assert!(rules(vec![peer("b", Some(own))], false).is_ok(), "{own}");
        }
        for other in ["b.example:1", "10.0.0.1:1", "localhost.example:1", "127.0.0.1.example:1", "x"] {
            let error = AccessError::Plaintext { address: other.into() };
            assert_eq!(refused(vec![peer("b", Some(other))], false), error);
            assert!(rules(vec![peer("b", Some(other))], true).is_ok(), "{other}");
        }
    }

    #[test]
    fn an_access_is_judged_before_there_is_a_network() {
        let judged = |address, plaintext| {
            let peers = vec![peer("b", Some(address))];
            Access { token: "ours".into(), peers, tls: None, plaintext }.judge()
        };
        let refused = judged("192.0.2.1:1", false);
        assert!(matches!(refused, Err(AccessError::Plaintext { .. })), "{refused:?}");
        assert_eq!((judged("192.0.2.1:1", true), judged("127.0.0.1:1", false)), (Ok(()), Ok(())));
    }

    #[test]
    fn no_secret_is_shown() {
        let access = Access { token: "very secret".into(), ..Access::default() };
        assert!(!format!("{access:?}").contains("secret"));
    }
}
