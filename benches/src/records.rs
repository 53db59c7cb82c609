//! What is measured on: records as a small file tree has them, and opaque payloads.

use strandline_core::record::{AuthorityId, BlobKey, Key, Record, State, Version};

/// Length of an opaque payload.
pub(crate) const PAYLOAD_BYTES: usize = 256;

/// The record with this sequence, from 1 on.
pub(crate) fn record(sequence: u64) -> Record {
    let mixed = sequence.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let path = format!("builds/{mixed:016x}/artifacts/part-{:04}.bin", sequence % 10_000);
    let mut blob = [0; 32];
    for (at, piece) in blob.chunks_exact_mut(8).enumerate() {
        piece.copy_from_slice(&mixed.rotate_left(at as u32 * 13).to_be_bytes());
    }
    Record {
        key: Key::from_parts(b"tenant-0001/artifacts", path.as_bytes()).expect("short"),
        state: if sequence.is_multiple_of(8) {
            State::Deleted
        } else {
            State::Present { blob: BlobKey(blob) }
        },
        version: Version::new(1, sequence),
        authority: AuthorityId::from_text("authority-eu-west-1a-0001"),
    }
}

/// The payload with this number; no two are alike.
pub(crate) fn payload(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(PAYLOAD_BYTES);
    while bytes.len() < PAYLOAD_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes
}
