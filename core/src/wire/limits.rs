//! Bounds of messages. The defaults are the reference's.

use crate::limits::{FRAME_PAYLOAD_BYTES_MAX, PIECE_BYTES_MAX};
use crate::record::RecordLimits;

/// Bounds of every message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WireLimits {
    /// Bounds of each record.
    pub record: RecordLimits,
    /// Longest payload of `lifecycle.record`.
    pub record_payload_bytes_max: u32,
    /// Bounds of `lifecycle.repair.*`.
    pub repair: RepairLimits,
    /// Bounds of `blob.*`.
    pub blob: BlobLimits,
}

impl Default for WireLimits {
    fn default() -> Self {
        Self {
            record: RecordLimits::default(),
            record_payload_bytes_max: 128 << 10,
            repair: RepairLimits::default(),
            blob: BlobLimits::default(),
        }
    }
}

/// Bounds of a repair batch and of a snapshot in one frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RepairLimits {
    /// Most records.
    pub records_max: u32,
    /// Most bytes of namespaces and logical keys together.
    pub key_bytes_max: u32,
    /// Most bytes of records as JSON together.
    pub record_json_bytes_max: u32,
    /// Longest payload.
    pub payload_bytes_max: u32,
}

impl Default for RepairLimits {
    fn default() -> Self {
        Self {
            records_max: 128,
            key_bytes_max: 64 << 10,
            record_json_bytes_max: 64 << 10,
            payload_bytes_max: 128 << 10,
        }
    }
}

/// Bounds of blob messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlobLimits {
    /// Longest key.
    pub key_bytes_max: u32,
    /// Most keys in one message.
    pub keys_max: u32,
    /// Longest blob. In base64 it must fit a frame too, so what can be sent is about three quarters
    /// of a frame.
    pub data_bytes_max: u32,
}

impl Default for BlobLimits {
    fn default() -> Self {
        Self { key_bytes_max: 512, keys_max: 4096, data_bytes_max: 4 << 20 }
    }
}

/// Most epochs in `strandline.position`: the last ones.
pub const POSITION_EPOCHS_MAX: u32 = 64;

/// Longest reason in `strandline.stop`.
pub const STOP_REASON_BYTES_MAX: u32 = 64;

/// Longest detail in `strandline.stop`.
pub const STOP_DETAIL_BYTES_MAX: u32 = 1024;

/// Longest payload of Strandline's own messages.
pub const OWN_PAYLOAD_BYTES_MAX: u32 = 512 << 10;

const _: () = assert!(OWN_PAYLOAD_BYTES_MAX <= FRAME_PAYLOAD_BYTES_MAX, "every message fits a frame");
const _: () = assert!(
    PIECE_BYTES_MAX.div_ceil(3) * 4 + 1024 <= OWN_PAYLOAD_BYTES_MAX,
    "a piece in base64 fits a message"
);
