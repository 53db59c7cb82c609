//! What the network did, in numbers.

use crate::gate::{Gate, Turned};
use crate::greet::GreetError;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_core::wire::admission::TermsUnmet;
use strandline_core::wire::handshake::{DialRefused, HandshakeError};

/// Why a connection came to no link. A closed set: it becomes a metric label.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Refusal {
    /// In the handshake when a newer connection needed its place.
    Displaced,
    /// The handshake took longer than `handshake_ms`.
    Late,
    /// More than `handshake_bytes_max` bytes came before authentication.
    Bytes,
    /// The connection ended or failed in the handshake.
    Lost,
    /// No TLS, or a certificate that no authority of ours vouches for, or none.
    Tls,
    /// What came is no handshake, or the peer refused ours.
    Protocol,
    /// No peer has this name and token.
    Token,
    /// The certificate is not that of the peer.
    Certificate,
    /// The peer may not have this log.
    Log,
    /// The list of peers changed during the handshake, and has no place for it any more.
    Revoked,
    /// Too many links in all.
    Links,
    /// Too many links with its address.
    LinksOfAddress,
}

impl Refusal {
    /// All of them, in the order of [`NetStatus::refused`].
    pub const ALL: [Self; 12] = [
        Self::Displaced,
        Self::Late,
        Self::Bytes,
        Self::Lost,
        Self::Tls,
        Self::Protocol,
        Self::Token,
        Self::Certificate,
        Self::Log,
        Self::Revoked,
        Self::Links,
        Self::LinksOfAddress,
    ];

    /// As a metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Displaced => "displaced",
            Self::Late => "late",
            Self::Bytes => "bytes",
            Self::Lost => "lost",
            Self::Tls => "tls",
            Self::Protocol => "protocol",
            Self::Token => "token",
            Self::Certificate => "certificate",
            Self::Log => "log",
            Self::Revoked => "revoked",
            Self::Links => "links",
            Self::LinksOfAddress => "links-of-address",
        }
    }
}

impl From<Turned> for Refusal {
    fn from(turned: Turned) -> Self {
        match turned {
            Turned::All { .. } => Self::Links,
            Turned::Address { .. } => Self::LinksOfAddress,
        }
    }
}

impl From<&GreetError> for Refusal {
    fn from(error: &GreetError) -> Self {
        match error {
            GreetError::Connection(_) => Self::Lost,
            GreetError::Late { .. } => Self::Late,
            GreetError::Bytes { .. } => Self::Bytes,
            GreetError::Tls(_) => Self::Tls,
            GreetError::Handshake(error) => Self::from(error),
            GreetError::Dial(DialRefused::TooLarge(_)) => Self::Protocol,
            GreetError::Dial(DialRefused::Unmet(unmet)) => Self::from(unmet),
        }
    }
}

impl From<&HandshakeError> for Refusal {
    fn from(error: &HandshakeError) -> Self {
        match error {
            HandshakeError::Frame(_)
            | HandshakeError::Auth(_)
            | HandshakeError::IdentityUnexpected { .. }
            | HandshakeError::IdentityUnknown => Self::Protocol,
            HandshakeError::Unauthorized { .. } => Self::Token,
            HandshakeError::Unmet(unmet) => Self::from(unmet),
        }
    }
}

impl From<&TermsUnmet> for Refusal {
    fn from(unmet: &TermsUnmet) -> Self {
        match unmet {
            TermsUnmet::Plain { .. }
            | TermsUnmet::NoCertificate { .. }
            | TermsUnmet::OtherName { .. }
            | TermsUnmet::NotPinned { .. } => Self::Certificate,
            TermsUnmet::Log { .. } => Self::Log,
        }
    }
}

/// How the network stands: plain numbers, counted since its start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NetStatus {
    /// Connections in the handshake now, of those that called us.
    pub handshakes_open: u64,
    /// Links now, of those that called us.
    pub links_open: u64,
    /// Connections that called us.
    pub accepted: u64,
    /// Connections that we made.
    pub called: u64,
    /// Connections that became links, whoever called.
    pub linked: u64,
    /// Connections that became none, by reason, whoever called.
    pub refused: Vec<(Refusal, u64)>,
    /// Links ended because the list of peers changed.
    pub revoked: u64,
    /// Frames handed over for peers.
    pub frames_out: u64,
    /// Bytes read, those of TLS included.
    pub bytes_in: u64,
    /// Bytes written, those of TLS included.
    pub bytes_out: u64,
}

impl NetStatus {
    /// How many connections became no link for this reason.
    #[must_use]
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused.iter().find(|(of, _)| *of == reason).map_or(0, |(_, count)| *count)
    }
}

/// Counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted: Count,
    pub(crate) called: Count,
    pub(crate) linked: Count,
    pub(crate) revoked: Count,
    pub(crate) frames_out: Count,
    pub(crate) bytes_in: Count,
    pub(crate) bytes_out: Count,
    refused: [Count; 12],
}

/// One number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn refused(&self, reason: Refusal) {
        self.refused[reason as usize].add(1);
    }

    pub(crate) fn status(&self, gate: &Gate) -> NetStatus {
        let (handshakes, links) = gate.open();
        NetStatus {
            handshakes_open: handshakes as u64,
            links_open: links as u64,
            accepted: self.accepted.get(),
            called: self.called.get(),
            linked: self.linked.get(),
            refused: Refusal::ALL.map(|reason| (reason, self.refused[reason as usize].get())).to_vec(),
            revoked: self.revoked.get(),
            frames_out: self.frames_out.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place_and_label() {
        for (place, reason) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
        let labels: std::collections::BTreeSet<_> = Refusal::ALL.iter().map(|r| r.label()).collect();
        assert_eq!(labels.len(), Refusal::ALL.len());
    }
}
