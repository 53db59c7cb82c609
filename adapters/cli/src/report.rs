//! How a replica stands, as data: what `status --json` prints and the control protocol carries.

mod blobs;

pub(crate) use blobs::{CollectedReport, ScrubbedReport};

use crate::text::{Bytes, KeyText, VersionText};
use serde::{Deserialize, Serialize};
use strandline_core::id::hex;
use strandline_core::lifecycle::api::{
    Change, Compacted, Entry, Fenced, Lag, LinkRole, LinkStatus, MemberStatus, MembersChange, Mutation,
    PairVerdict, Status, SubscriptionStatus, Verified,
};
use strandline_core::record::{AuthorityId, BlobKey, State};
use strandline_core::verdict::Verdict;

/// A replica.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct StatusReport {
    pub(crate) log: String,
    pub(crate) identity: String,
    pub(crate) incarnation: String,
    pub(crate) namespaces: Vec<Bytes>,
    /// The authority identity if this replica writes the log; absent for a follower.
    pub(crate) authority: Option<String>,
    /// The latest epoch known here.
    pub(crate) epoch: u64,
    /// Why this replica, which wrote the log, must be fenced before it may go on.
    pub(crate) fenced: Option<String>,
    pub(crate) submitted: VersionText,
    pub(crate) tail: VersionText,
    pub(crate) tail_digest: String,
    pub(crate) floor: VersionText,
    pub(crate) entries: u64,
    pub(crate) journal_bytes: u64,
    pub(crate) present: u64,
    pub(crate) tombstones: u64,
    /// Up to where every key has its blob here.
    pub(crate) complete: VersionText,
    /// Keys whose blob is awaited from a peer.
    pub(crate) blobs_wanted: u64,
    pub(crate) members_configured: bool,
    pub(crate) members: Vec<MemberReport>,
    /// Up to where the journal may be compacted now; absent if nowhere.
    pub(crate) compactable: Option<VersionText>,
    /// Who or what keeps compaction from going on to the tail.
    pub(crate) blocked_by: Option<String>,
    pub(crate) links: Vec<LinkReport>,
    pub(crate) subscriptions: Vec<SubscriptionReport>,
    /// Whether a snapshot is being installed.
    pub(crate) installing: bool,
    /// Whether the journal is being compacted.
    pub(crate) compacting: bool,
    /// The fault that stopped the journal.
    pub(crate) halted: Option<String>,
}

/// A member of the set that compaction waits for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct MemberReport {
    pub(crate) identity: String,
    pub(crate) state: String,
    pub(crate) incarnation: Option<String>,
    pub(crate) acked: VersionText,
    /// Up to where it has the blobs as well.
    pub(crate) complete: VersionText,
    /// Where compaction counts it; absent if it holds nothing up.
    pub(crate) counts_at: Option<VersionText>,
    /// Journal entries that it lacks; absent below the floor.
    pub(crate) lag_entries: Option<u64>,
    pub(crate) lag_bytes: u64,
    pub(crate) lag_ms: u64,
}

/// How far someone is behind the durable tail.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct LagReport {
    /// Journal entries that are missing; absent below the floor.
    pub(crate) lag_entries: Option<u64>,
    /// For how long the first of them has been durable here; absent if nothing of this run is missing.
    pub(crate) lag_ms: Option<u64>,
}

impl From<Lag> for LagReport {
    fn from(lag: Lag) -> Self {
        Self { lag_entries: lag.entries, lag_ms: lag.age_ms }
    }
}

/// A subscription.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct SubscriptionReport {
    pub(crate) id: u64,
    pub(crate) state: String,
    pub(crate) at: VersionText,
    pub(crate) lag_entries: Option<u64>,
}

impl From<&SubscriptionStatus> for SubscriptionReport {
    fn from(subscription: &SubscriptionStatus) -> Self {
        Self {
            id: subscription.id.0,
            state: subscription.state.to_owned(),
            at: VersionText(subscription.at),
            lag_entries: subscription.behind,
        }
    }
}

/// An epoch that was taken.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct FencedReport {
    pub(crate) epoch: u64,
    pub(crate) authority: String,
    pub(crate) previous_end: VersionText,
}

impl From<Fenced> for FencedReport {
    fn from(fenced: Fenced) -> Self {
        Self {
            epoch: fenced.epoch,
            authority: fenced.authority.to_string(),
            previous_end: VersionText(fenced.previous_end),
        }
    }
}

/// A link to a peer.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct LinkReport {
    pub(crate) identity: String,
    pub(crate) incarnation: Option<String>,
    pub(crate) role: String,
    pub(crate) state: String,
    pub(crate) acked: VersionText,
    #[serde(flatten)]
    pub(crate) lag: LagReport,
    /// Where the peer said it stands.
    pub(crate) peer_tail: Option<VersionText>,
    pub(crate) verdict: Option<String>,
    /// Whether the verdict ended repair on this link.
    pub(crate) stopped: bool,
    /// Why the peer is not repaired over this link; absent if it is, or has everything.
    pub(crate) not_repaired: Option<String>,
}

impl From<&Status> for StatusReport {
    fn from(status: &Status) -> Self {
        Self {
            log: status.log.to_string(),
            identity: status.identity.clone(),
            incarnation: status.incarnation.to_string(),
            namespaces: status.namespaces.iter().cloned().map(Bytes).collect(),
            authority: status.authority.clone(),
            epoch: status.epoch,
            fenced: status.fenced.clone(),
            submitted: VersionText(status.submitted),
            tail: VersionText(status.tail),
            tail_digest: hex(&status.tail_digest),
            floor: VersionText(status.floor),
            entries: status.entries,
            journal_bytes: status.journal_bytes,
            present: status.present,
            tombstones: status.tombstones,
            complete: VersionText(status.complete),
            blobs_wanted: status.blobs_wanted,
            members_configured: status.members_configured,
            members: status.members.iter().map(MemberReport::from).collect(),
            compactable: status.compactable.map(VersionText),
            blocked_by: status.blocked_by.clone(),
            links: status.links.iter().map(LinkReport::from).collect(),
            subscriptions: status.subscriptions.iter().map(SubscriptionReport::from).collect(),
            installing: status.installing,
            compacting: status.compacting,
            halted: status.halted.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&MemberStatus> for MemberReport {
    fn from(member: &MemberStatus) -> Self {
        Self {
            identity: member.identity.clone(),
            state: member.state.to_owned(),
            incarnation: member.incarnation.map(|i| i.to_string()),
            acked: VersionText(member.acked),
            complete: VersionText(member.complete),
            counts_at: member.counts_at.map(VersionText),
            lag_entries: member.lag_entries,
            lag_bytes: member.lag_bytes,
            lag_ms: member.lag_ms,
        }
    }
}

impl From<&LinkStatus> for LinkReport {
    fn from(link: &LinkStatus) -> Self {
        Self {
            identity: link.identity.clone(),
            incarnation: link.incarnation.map(|i| i.to_string()),
            role: match link.role {
                LinkRole::Both => "both",
                LinkRole::Source => "source",
                LinkRole::Receiver => "receiver",
            }
            .to_owned(),
            state: link.state.to_owned(),
            acked: VersionText(link.acked),
            lag: link.lag.into(),
            peer_tail: link.peer_tail.map(VersionText),
            stopped: matches!(&link.verdict, Some(Verdict::Unknown { .. } | Verdict::Diverged(_))),
            verdict: link.verdict.as_ref().map(verdict_text),
            not_repaired: not_repaired(link),
        }
    }
}

/// Why a peer is not repaired over a link, from its verdict and the link's state.
fn not_repaired(link: &LinkStatus) -> Option<String> {
    match &link.verdict {
        Some(Verdict::Complete { .. }) => None,
        Some(Verdict::Gap { .. }) if link.state != "stopped" => None,
        Some(verdict @ (Verdict::Gap { .. } | Verdict::Unknown { .. } | Verdict::Diverged(_))) => {
            Some(verdict_text(verdict))
        }
        None if link.role == LinkRole::Receiver => Some("this link only receives".into()),
        None => Some(format!("not judged yet: {}", link.state)),
    }
}

impl LinkReport {
    /// The verdict, if it ended repair on this link.
    pub(crate) fn stopped(&self) -> Option<&str> {
        self.verdict.as_deref().filter(|_| self.stopped)
    }
}

/// A verdict with its evidence, on one line.
fn verdict_text(verdict: &PairVerdict) -> String {
    match verdict {
        Verdict::Complete { through, verified: Verified::Digest } => {
            format!("complete through {through}, digests agree")
        }
        Verdict::Complete { through, verified: Verified::VersionOnly } => {
            format!("complete through {through}, by version only")
        }
        Verdict::Gap { from, to, reason } => format!("gap from {from} to {to}: {reason}"),
        Verdict::Unknown { reason } => format!("unknown: {reason}"),
        Verdict::Diverged(divergence) => format!("diverged: {divergence}"),
    }
}

/// SHA-256 of a blob as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BlobText(pub(crate) BlobKey);

impl Serialize for BlobText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for BlobText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        strandline_core::id::unhex(&text)
            .map(|bytes| Self(BlobKey(bytes)))
            .ok_or_else(|| serde::de::Error::custom("expected 64 lower-case hexadecimal digits"))
    }
}

/// What a key is: `blob` absent for a tombstone.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct EntryReport {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) blob: Option<BlobText>,
    pub(crate) version: VersionText,
    pub(crate) authority: String,
}

impl From<&Entry> for EntryReport {
    fn from(entry: &Entry) -> Self {
        Self {
            blob: match entry.state {
                State::Present { blob } => Some(BlobText(blob)),
                State::Deleted => None,
            },
            version: VersionText(entry.version),
            authority: entry.authority.as_str().to_owned(),
        }
    }
}

impl EntryReport {
    pub(crate) fn to_entry(&self) -> Entry {
        Entry {
            state: match self.blob {
                Some(BlobText(blob)) => State::Present { blob },
                None => State::Deleted,
            },
            version: self.version.0,
            authority: AuthorityId::from_text(&self.authority),
        }
    }
}

/// A mutation: `blob` absent for a delete.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct MutationText {
    #[serde(flatten)]
    pub(crate) key: KeyText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) blob: Option<BlobText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) if_version: Option<VersionText>,
}

impl From<&Mutation> for MutationText {
    fn from(mutation: &Mutation) -> Self {
        Self {
            key: KeyText::from(&mutation.key),
            blob: match mutation.change {
                Change::Put { blob } => Some(BlobText(blob)),
                Change::Delete => None,
            },
            if_version: mutation.if_version.map(VersionText),
        }
    }
}

impl MutationText {
    pub(crate) fn to_mutation(&self) -> Result<Mutation, String> {
        Ok(Mutation {
            key: self.key.to_key()?,
            change: match self.blob {
                Some(BlobText(blob)) => Change::Put { blob },
                None => Change::Delete,
            },
            if_version: self.if_version.map(|v| v.0),
        })
    }
}

/// What a compaction achieved.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct CompactedReport {
    pub(crate) floor: VersionText,
    pub(crate) records: u64,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) entries_dropped: u64,
    pub(crate) tombstones_dropped: u64,
}

impl From<Compacted> for CompactedReport {
    fn from(done: Compacted) -> Self {
        Self {
            floor: VersionText(done.floor),
            records: done.records,
            checkpoint_bytes: done.checkpoint_bytes,
            entries_dropped: done.entries_dropped,
            tombstones_dropped: done.tombstones_dropped,
        }
    }
}

impl From<CompactedReport> for Compacted {
    fn from(done: CompactedReport) -> Self {
        Self {
            floor: done.floor.0,
            records: done.records,
            checkpoint_bytes: done.checkpoint_bytes,
            entries_dropped: done.entries_dropped,
            tombstones_dropped: done.tombstones_dropped,
        }
    }
}

/// A change of the members.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MembersText {
    Add(String),
    Remove(String),
    Clear,
}

impl From<&MembersChange> for MembersText {
    fn from(change: &MembersChange) -> Self {
        match change {
            MembersChange::Add(id) => Self::Add(id.clone()),
            MembersChange::Remove(id) => Self::Remove(id.clone()),
            MembersChange::Clear => Self::Clear,
        }
    }
}

impl From<MembersText> for MembersChange {
    fn from(change: MembersText) -> Self {
        match change {
            MembersText::Add(id) => Self::Add(id),
            MembersText::Remove(id) => Self::Remove(id),
            MembersText::Clear => Self::Clear,
        }
    }
}
