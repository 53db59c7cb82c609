//! Bounds and periods of a replica.

use super::checkpoint_header::EPOCH_AUTHORITY_BYTES_MAX;
use crate::journal::limits::{JournalLimits, JournalLimitsError};
use crate::record::RecordLimits;
use crate::wire::limits::WireLimits;

/// Bounds and periods of a replica. The defaults suit a server and the reference's peers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReplicaConfig {
    /// What a record may be.
    pub record: RecordLimits,
    /// What the journal may hold.
    pub journal: JournalLimits,
    /// What messages may hold.
    pub wire: WireLimits,
    /// Most live links.
    pub links_max: u32,
    /// Most bytes of frames that wait on one link before nothing more is planned for it.
    pub link_queue_bytes_max: u64,
    /// Most requests for blob pieces that one link may have open, each way.
    pub blob_requests_max: u32,
    /// Most requests for snapshot pieces that are open at once.
    pub snapshot_requests_max: u32,
    /// How long a source keeps a snapshot whose peer asks for nothing.
    pub snapshot_pin_ms: u64,
    /// How long acknowledgements may wait until they are stored.
    pub acked_save_ms: u64,
    /// How often a standing is sent on an otherwise idle link between Strandline peers.
    pub keepalive_ms: u64,
    /// How long such a link may be silent.
    pub idle_ms: u64,
    /// Most records that may wait for their blobs; beyond them whole batches wait.
    pub blobs_wanted_max: u32,
    /// How long blobs may fail to come without a verdict.
    pub blob_wait_ms: u64,
    /// Most reads of the journal for peers that are out at once, over all links.
    pub plan_reads_max: u32,
    /// Most bytes of the journal that are kept for other peers after they were read for one.
    pub plan_kept_bytes_max: u64,
    /// A member with more bytes of journal than this above what it acknowledged lapses: it holds
    /// compaction up no more, and must be reseeded. Off if absent.
    pub member_lag_bytes_max: Option<u64>,
    /// A member that has not acknowledged for longer than this what was there to acknowledge lapses.
    /// Counted from the start of the run, looked at every `keepalive_ms`. Off if absent.
    pub member_lag_ms_max: Option<u64>,
    /// With so many bytes of journal above the floor it is compacted, once at least half of that may
    /// go. Off if absent.
    pub compact_after_bytes: Option<u64>,
    /// The same, in records above the floor. Off if absent.
    pub compact_after_entries: Option<u64>,
    /// Most distinct keys that one round of compaction holds in memory.
    pub compaction_keys_max: u32,
    /// Most open subscriptions.
    pub subscriptions_max: u32,
    /// Most reads for subscriptions that are under way at once.
    pub subscription_reads_max: u32,
    /// About how many bytes of changes one page holds, and one read for it; a longer batch is read
    /// and handed out alone.
    pub page_bytes_max: u32,
    /// About how many bytes of the latest changes are kept in memory for subscriptions that keep up.
    pub recent_bytes_max: u32,
    /// How long a reset may hold the journal after its cut back from compaction, from its beginning.
    pub reset_hold_ms: u64,
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self {
            record: RecordLimits::default(),
            journal: JournalLimits::default(),
            wire: WireLimits::default(),
            links_max: 1024,
            link_queue_bytes_max: 4 << 20,
            blob_requests_max: 32,
            snapshot_requests_max: 4,
            snapshot_pin_ms: 600_000,
            acked_save_ms: 50,
            keepalive_ms: 15_000,
            idle_ms: 60_000,
            blobs_wanted_max: 65_536,
            blob_wait_ms: 60_000,
            plan_reads_max: 8,
            plan_kept_bytes_max: 8 << 20,
            member_lag_bytes_max: None,
            member_lag_ms_max: None,
            compact_after_bytes: None,
            compact_after_entries: None,
            compaction_keys_max: 262_144,
            subscriptions_max: 256,
            subscription_reads_max: 8,
            page_bytes_max: 256 << 10,
            recent_bytes_max: 4 << 20,
            reset_hold_ms: 60_000,
        }
    }
}

/// Why a configuration cannot work (family: caller).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// The journal's bounds contradict each other.
    #[error(transparent)]
    Journal(#[from] JournalLimitsError),
    /// A bound is zero.
    #[error("{name} is 0, expected at least 1")]
    Zero {
        /// Which one.
        name: &'static str,
    },
    /// A record could be written that no peer could ever be sent.
    #[error(
        "record_bytes_max is {record_bytes_max}, but a repair batch takes records of at most {batch_bytes_max} bytes"
    )]
    RecordExceedsBatch {
        /// The record limit.
        record_bytes_max: u32,
        /// The batch limit.
        batch_bytes_max: u32,
    },
    /// A key could be written that no peer could ever be sent.
    #[error(
        "a key can have {key_bytes} bytes, but a repair batch takes keys of at most {batch_key_bytes_max}"
    )]
    KeyExceedsBatch {
        /// The longest namespace and logical key together.
        key_bytes: u64,
        /// The batch limit.
        batch_key_bytes_max: u32,
    },
    /// A batch from a peer might not fit one batch of the journal.
    #[error(
        "a repair batch can need {repair_bytes} bytes of journal, but batch_bytes_max is {batch_bytes_max} \
         and pending_bytes_max is {pending_bytes_max}"
    )]
    RepairExceedsJournal {
        /// What the bounds of repair batches allow.
        repair_bytes: u64,
        /// The journal's bound of a batch.
        batch_bytes_max: u32,
        /// The journal's bound of what waits.
        pending_bytes_max: u32,
    },
    /// A checkpoint could not name the authorities of its epochs.
    #[error(
        "authority_bytes_max is {authority_bytes_max}, but a checkpoint names authorities of at most {bytes_max} bytes"
    )]
    AuthorityExceedsCheckpoint {
        /// The record limit.
        authority_bytes_max: u32,
        /// What fits the header of a checkpoint.
        bytes_max: u32,
    },
    /// A batch from a peer might have more records than may ever wait in the journal.
    #[error("a repair batch takes {records_max} records, but pending_entries_max is {pending_entries_max}")]
    RepairExceedsPending {
        /// The bound of repair batches.
        records_max: u32,
        /// The journal's bound of what waits.
        pending_entries_max: u32,
    },
    /// A link would be given up before its next sign of life.
    #[error("idle_ms is {idle_ms}, expected more than keepalive_ms, which is {keepalive_ms}")]
    IdleBelowKeepalive {
        /// When a link is given up.
        idle_ms: u64,
        /// When a sign of life is sent.
        keepalive_ms: u64,
    },
}

impl ReplicaConfig {
    /// Checks the bounds against each other.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.journal.validate()?;
        for (name, value) in [
            ("links_max", u64::from(self.links_max)),
            ("link_queue_bytes_max", self.link_queue_bytes_max),
            ("blob_requests_max", u64::from(self.blob_requests_max)),
            ("snapshot_requests_max", u64::from(self.snapshot_requests_max)),
            ("blobs_wanted_max", u64::from(self.blobs_wanted_max)),
            ("plan_reads_max", u64::from(self.plan_reads_max)),
            ("compaction_keys_max", u64::from(self.compaction_keys_max)),
            ("subscription_reads_max", u64::from(self.subscription_reads_max)),
            ("page_bytes_max", u64::from(self.page_bytes_max)),
        ] {
            if value == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        let batch_bytes_max = self.wire.repair.record_json_bytes_max;
        if self.record.record_bytes_max > batch_bytes_max {
            return Err(ConfigError::RecordExceedsBatch {
                record_bytes_max: self.record.record_bytes_max,
                batch_bytes_max,
            });
        }
        let key_bytes =
            u64::from(self.record.namespace_bytes_max) + u64::from(self.record.logical_key_bytes_max);
        let batch_key_bytes_max = self.wire.repair.key_bytes_max;
        if key_bytes > u64::from(batch_key_bytes_max) {
            return Err(ConfigError::KeyExceedsBatch { key_bytes, batch_key_bytes_max });
        }
        let (authority_bytes_max, bytes_max) = (self.record.authority_bytes_max, EPOCH_AUTHORITY_BYTES_MAX);
        if authority_bytes_max > bytes_max {
            return Err(ConfigError::AuthorityExceedsCheckpoint { authority_bytes_max, bytes_max });
        }
        let repair_bytes = self.repair_batch_bytes_max();
        let (batch_bytes_max, pending_bytes_max) =
            (self.journal.batch_bytes_max, self.journal.pending_bytes_max);
        if repair_bytes > u64::from(batch_bytes_max.min(pending_bytes_max)) {
            return Err(ConfigError::RepairExceedsJournal {
                repair_bytes,
                batch_bytes_max,
                pending_bytes_max,
            });
        }
        let (records_max, pending_entries_max) =
            (self.wire.repair.records_max, self.journal.pending_entries_max);
        if records_max > pending_entries_max {
            return Err(ConfigError::RepairExceedsPending { records_max, pending_entries_max });
        }
        if self.idle_ms <= self.keepalive_ms {
            return Err(ConfigError::IdleBelowKeepalive {
                idle_ms: self.idle_ms,
                keepalive_ms: self.keepalive_ms,
            });
        }
        Ok(())
    }

    /// The most journal bytes that the records of one repair batch can need.
    fn repair_batch_bytes_max(&self) -> u64 {
        let repair = &self.wire.repair;
        // Entry head, five lengths, the longer state word, a blob key and a version.
        let fixed = 5 + 5 * 4 + 7 + 32 + 16;
        let per_record = fixed + u64::from(self.record.authority_bytes_max);
        u64::from(repair.records_max) * per_record + u64::from(repair.key_bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_agree() {
        assert_eq!(ReplicaConfig::default().validate(), Ok(()));
    }

    #[test]
    fn zero() {
        let config = ReplicaConfig { links_max: 0, ..ReplicaConfig::default() };
        assert_eq!(config.validate(), Err(ConfigError::Zero { name: "links_max" }));
    }

    #[test]
    fn record_exceeds_batch() {
        let mut config = ReplicaConfig::default();
        config.record.record_bytes_max = 1 << 20;
        assert!(matches!(config.validate(), Err(ConfigError::RecordExceedsBatch { .. })));
    }

    #[test]
    fn key_exceeds_batch() {
        let mut config = ReplicaConfig::default();
        config.wire.repair.key_bytes_max = 512;
        assert!(matches!(config.validate(), Err(ConfigError::KeyExceedsBatch { .. })));
    }

    #[test]
    fn authority_exceeds_checkpoint() {
        let mut config = ReplicaConfig::default();
        config.record.authority_bytes_max = EPOCH_AUTHORITY_BYTES_MAX + 1;
        assert!(matches!(config.validate(), Err(ConfigError::AuthorityExceedsCheckpoint { .. })));
    }

    #[test]
    fn repair_exceeds_journal() {
        let mut config = ReplicaConfig::default();
        config.journal.batch_bytes_max = 4096;
        config.journal.entry_bytes_max = 2048;
        assert!(matches!(config.validate(), Err(ConfigError::RepairExceedsJournal { .. })));
    }

    #[test]
    fn repair_exceeds_pending() {
        let mut config = ReplicaConfig::default();
        config.journal.pending_entries_max = config.wire.repair.records_max;
        assert_eq!(config.validate(), Ok(()));
        config.journal.pending_entries_max = 64;
        let expected = ConfigError::RepairExceedsPending { records_max: 128, pending_entries_max: 64 };
        assert_eq!(config.validate(), Err(expected));
    }

    #[test]
    fn idle_below_keepalive() {
        let config = ReplicaConfig { idle_ms: 10, ..ReplicaConfig::default() };
        assert!(matches!(config.validate(), Err(ConfigError::IdleBelowKeepalive { .. })));
    }
}
