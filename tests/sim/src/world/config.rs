//! The bounds that simulated replicas get.

use crate::plan::Profile;
use crate::rng::{Choose, Rng};
use strandline_core::lifecycle::config::ReplicaConfig;

/// Bounds for one node: near their least, or some times as large. What is said on the wire has the
/// same bounds for all; `shared` decides it.
pub(super) fn of(profile: &Profile, node: usize, shared: &mut Rng, rng: &mut Rng) -> ReplicaConfig {
    let mut config = ReplicaConfig::default();
    let scale: u32 = if profile.tiny { 1 } else { 8 };
    config.record.authority_bytes_max = 16;
    config.record.namespace_bytes_max = 8;
    config.record.logical_key_bytes_max = 64;
    config.record.record_bytes_max = 1024;
    config.wire.record = config.record;
    let records = 2 + u32::try_from(shared.below(u64::from(8 * scale))).expect("small");
    config.wire.repair.records_max = records;
    config.wire.repair.key_bytes_max = 72 * records;
    config.wire.repair.record_json_bytes_max = 1024 * scale;
    config.journal.entry_bytes_max = 512;
    config.journal.batch_bytes_max = 2048 * scale;
    config.journal.pending_bytes_max = 4096 * scale;
    config.journal.pending_entries_max = 32 * scale;
    config.journal.segment_bytes = u64::from(4096 * scale);
    config.journal.read_bytes_max = [64, 512, 1 << 20][rng.index(3)];
    // Only the writer's journal may fill up: a follower has nobody to wait for.
    if node == 0 {
        config.journal.journal_bytes_max = profile.journal_bytes_max;
        config.member_lag_bytes_max = profile.member_lag_bytes_max;
        config.compact_after_entries = profile.compact_after_entries;
    }
    config.blob_requests_max = 1 + u32::try_from(shared.below(8)).expect("small");
    config.snapshot_requests_max = 1 + u32::try_from(shared.below(4)).expect("small");
    config.link_queue_bytes_max = 1 << (10 + rng.index(8));
    config.compaction_keys_max =
        if profile.tiny { 1 + u32::try_from(rng.below(4)).expect("small") } else { 4096 };
    config.snapshot_pin_ms = 30_000;
    debug_assert_eq!(config.validate(), Ok(()));
    config
}
