//! Bounds shared by every protocol. Each protocol's own bounds live beside its values and are
//! asserted against these.

/// Longest piece of a blob or of a snapshot that passes through memory at once.
pub const PIECE_BYTES_MAX: u32 = 256 << 10;

/// Longest payload of one frame.
pub const FRAME_PAYLOAD_BYTES_MAX: u32 = 4 << 20;

const _: () =
    assert!(PIECE_BYTES_MAX / 3 * 4 + 1024 < FRAME_PAYLOAD_BYTES_MAX, "a piece in base64 fits a frame");
