//! Whether a link that stands may go on standing when the list of peers has changed.

use super::api::LinkRole;
use crate::id::LogId;
use crate::wire::admission::{Channel, Terms, TermsUnmet, same_digest};
use crate::wire::identity::PeerIdentity;

/// What a peer was let in with. Kept beside its link, and judged against every new list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admitted {
    /// Who it is.
    pub identity: PeerIdentity,
    /// What it showed.
    pub proof: Proof,
    /// What its connection goes through.
    pub channel: Channel,
    /// Which way records flow.
    pub role: LinkRole,
}

/// What a peer showed to be let in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Proof {
    /// It called, with the token that has this SHA-256.
    Token([u8; 32]),
    /// We called, and it answered: it showed nothing but its certificate, if it has one.
    Answered,
}

/// What the list of peers says of one now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed<'a> {
    /// SHA-256 of the token that it calls us with; absent if it may not call.
    pub token_sha256: Option<[u8; 32]>,
    /// What it must meet besides.
    pub terms: &'a Terms,
    /// Which way records may flow.
    pub role: LinkRole,
}

/// Why a link must end.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Revoked {
    /// The peer is not listed any more.
    #[error("peer {identity} is not in the list of peers any more")]
    Unlisted {
        /// Who.
        identity: PeerIdentity,
    },
    /// The token that it called with is not its token any more.
    #[error("the token that peer {identity} called with is not its token any more")]
    Token {
        /// Who.
        identity: PeerIdentity,
    },
    /// It does not meet what is asked of it now.
    #[error(transparent)]
    Unmet(TermsUnmet),
    /// The link was made for another direction.
    #[error("peer {identity} is linked as {found:?}, expected {expected:?} from now on")]
    Role {
        /// Who.
        identity: PeerIdentity,
        /// What the list says now.
        expected: LinkRole,
        /// What the link was made for.
        found: LinkRole,
    },
}

impl Admitted {
    /// Judges a link that carries `log`, by what the list says of its peer now. A certificate that was
    /// good when it was shown stays good: links outlive the certificates they began with, and new ones
    /// are asked at the next connection.
    ///
    /// ```
    /// use strandline_core::lifecycle::api::LinkRole;
    /// use strandline_core::lifecycle::standing::{Admitted, Listed, Proof};
    /// use strandline_core::wire::admission::{Channel, Terms};
    /// use strandline_core::wire::identity::PeerIdentity;
    /// let identity = PeerIdentity::parse("b")?;
    /// let role = LinkRole::Both;
    /// let link = Admitted { identity, proof: Proof::Token([1; 32]), channel: Channel::Plain, role };
    /// let terms = Terms::default();
    /// let listed = Listed { token_sha256: Some([1; 32]), terms: &terms, role };
    /// assert!(link.judge(Some(&listed), None).is_ok());
    /// assert!(link.judge(None, None).is_err(), "it was taken off the list");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Why it must end.
    pub fn judge(&self, listed: Option<&Listed<'_>>, log: Option<LogId>) -> Result<(), Revoked> {
        let identity = || self.identity.clone();
        let Some(Listed { token_sha256, terms, role }) = listed else {
            return Err(Revoked::Unlisted { identity: identity() });
        };
        let proven = match (&self.proof, token_sha256) {
            (Proof::Answered, None | Some(_)) => true,
            (Proof::Token(_), None) => false,
            (Proof::Token(shown), Some(expected)) => same_digest(shown, expected),
        };
        if !proven {
            return Err(Revoked::Token { identity: identity() });
        }
        terms.judge(&self.identity, &self.channel, log).map_err(Revoked::Unmet)?;
        if *role != self.role {
            return Err(Revoked::Role { identity: identity(), expected: *role, found: self.role });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::admission::{CertificateRule, LogRule};
    use alloc::vec;

    const TOKEN: [u8; 32] = [1; 32];

    fn id() -> PeerIdentity {
        PeerIdentity::parse("b").expect("valid")
    }

    fn link(proof: Proof) -> Admitted {
        Admitted { identity: id(), proof, channel: Channel::Plain, role: LinkRole::Both }
    }

    fn listed(token_sha256: Option<[u8; 32]>, terms: &Terms) -> Listed<'_> {
        Listed { token_sha256, terms, role: LinkRole::Both }
    }

    #[test]
    fn unlisted_ends_however_it_was_made() {
        for proof in [Proof::Token(TOKEN), Proof::Answered] {
            assert_eq!(link(proof).judge(None, None), Err(Revoked::Unlisted { identity: id() }));
        }
    }

    #[test]
    fn answered_stays_whatever_the_token_is() {
        let terms = Terms::default();
        for token in [None, Some([2; 32])] {
            assert_eq!(link(Proof::Answered).judge(Some(&listed(token, &terms)), None), Ok(()));
        }
    }

    #[test]
    fn token_stays_while_it_is_the_peers_token() {
        let terms = Terms::default();
        assert_eq!(link(Proof::Token(TOKEN)).judge(Some(&listed(Some(TOKEN), &terms)), None), Ok(()));
    }

    #[test]
    fn token_revoked_or_replaced_ends() {
        let terms = Terms::default();
        for token in [None, Some([2; 32])] {
            let judged = link(Proof::Token(TOKEN)).judge(Some(&listed(token, &terms)), None);
            assert_eq!(judged, Err(Revoked::Token { identity: id() }));
        }
    }

    #[test]
    fn unmet_terms_end() {
        let terms = Terms { certificate: CertificateRule::Named, logs: LogRule::Any };
        let judged = link(Proof::Answered).judge(Some(&listed(None, &terms)), None);
        assert_eq!(judged, Err(Revoked::Unmet(TermsUnmet::Plain { identity: id() })));
        let terms = Terms { certificate: CertificateRule::NotAsked, logs: LogRule::Only(vec![]) };
        let log = Some(LogId([3; 16]));
        let judged = link(Proof::Answered).judge(Some(&listed(None, &terms)), log);
        assert_eq!(judged, Err(Revoked::Unmet(TermsUnmet::Log { identity: id(), log, allowed: 0 })));
    }

    #[test]
    fn role_changed_ends() {
        let terms = Terms::default();
        let listed = Listed { role: LinkRole::Source, ..listed(None, &terms) };
        let (expected, found) = (LinkRole::Source, LinkRole::Both);
        let revoked = Revoked::Role { identity: id(), expected, found };
        assert_eq!(link(Proof::Answered).judge(Some(&listed), None), Err(revoked));
    }
}
