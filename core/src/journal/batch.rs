//! A batch: what one append writes, and what recovery takes whole or not at all.
//!
//! Header, 48 bytes, big endian: payload length without padding (4), number of entries (4), first
//! LSN (8), durable LSN or 0 (8), durable end: segment (8) and offset (8), payload CRC (4), header
//! CRC (4). Behind it the payload, padded with zeros to a multiple of 8: per entry its length (4),
//! kind (1), bytes. Both are CRC-32 over salt ‖ segment number ‖ offset of the batch ‖ bytes; the
//! header's covers the 44 bytes before it, the payload's covers the padding too.
//!
//! A batch without entries (a *seal*) has the LSN of the entry that would come next.

use super::command::SegmentNumber;
use super::segment::{ALIGN, Position, Salt, array};
use crate::id::Lsn;
use alloc::vec::Vec;
use core::ops::ControlFlow;
use crc32fast::Hasher;

/// Length of a batch header.
pub const HEADER_BYTES: usize = 48;
/// What precedes the bytes of each entry: length and kind.
pub const ENTRY_PREFIX_BYTES: usize = 5;

/// What a batch of this payload occupies on disk.
#[must_use]
pub const fn batch_bytes(payload_bytes: u32) -> u64 {
    HEADER_BYTES as u64 + (payload_bytes as u64).next_multiple_of(ALIGN)
}

/// What a batch says about itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchHeader {
    /// Length of the payload without padding.
    pub payload_bytes: u32,
    /// How many entries it holds.
    pub count: u32,
    /// LSN of the first of them.
    pub first_lsn: Lsn,
    /// The durable LSN when the batch was sealed.
    pub durable: Option<Lsn>,
    /// Where the durable bytes ended when the batch was sealed.
    pub durable_end: Position,
    /// CRC of the padded payload.
    pub payload_crc: u32,
}

impl BatchHeader {
    /// What the batch occupies on disk.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        batch_bytes(self.payload_bytes)
    }

    /// The LSN after the batch.
    #[must_use]
    pub const fn next_lsn(&self) -> Lsn {
        self.first_lsn.plus(self.count as u64)
    }

    /// Reads the header of a batch at `at`. `None` if the bytes are not one: torn, of another
    /// place, segment or life, or zeros.
    #[must_use]
    pub fn decode(bytes: &[u8; HEADER_BYTES], salt: Salt, at: Position) -> Option<Self> {
        let first_lsn = Lsn::new(u64::from_be_bytes(array(bytes, 8)))?;
        if header_crc(salt, at, &array(bytes, 0)) != u32::from_be_bytes(array(bytes, 44)) {
            return None;
        }
        Some(Self {
            payload_bytes: u32::from_be_bytes(array(bytes, 0)),
            count: u32::from_be_bytes(array(bytes, 4)),
            first_lsn,
            durable: Lsn::new(u64::from_be_bytes(array(bytes, 16))),
            durable_end: Position {
                segment: SegmentNumber(u64::from_be_bytes(array(bytes, 24))),
                offset: u64::from_be_bytes(array(bytes, 32)),
            },
            payload_crc: u32::from_be_bytes(array(bytes, 40)),
        })
    }

    /// Whether the padded payload is what was written.
    #[must_use]
    pub fn verifies(&self, padded: &[u8], salt: Salt, at: Position) -> bool {
        payload_crc(salt, at, padded) == self.payload_crc
    }
}

/// Where a batch lies, as both checksums start.
fn place(salt: Salt, at: Position) -> [u8; 24] {
    let mut place = [0; 24];
    place[..8].copy_from_slice(&salt.0);
    place[8..16].copy_from_slice(&at.segment.0.to_be_bytes());
    place[16..].copy_from_slice(&at.offset.to_be_bytes());
    place
}

/// The checksum of a header, in one pass: it is most of the work for a small batch.
fn header_crc(salt: Salt, at: Position, header: &[u8; HEADER_BYTES - 4]) -> u32 {
    let mut bytes = [0; 24 + HEADER_BYTES - 4];
    bytes[..24].copy_from_slice(&place(salt, at));
    bytes[24..].copy_from_slice(header);
    crc32fast::hash(&bytes)
}

fn payload_crc(salt: Salt, at: Position, padded: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&place(salt, at));
    hasher.update(padded);
    hasher.finalize()
}

/// Appends one entry to the payload of a batch.
///
/// # Panics
/// If the entry is longer than 4 GiB: limits rule that out.
pub fn push_entry(buf: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("entries are below 4 GiB");
    buf.extend_from_slice(&len.to_be_bytes());
    buf.push(kind);
    buf.extend_from_slice(bytes);
}

/// What [`seal`] puts in the header beside lengths and checksums.
#[derive(Clone, Copy, Debug)]
pub struct Sealing {
    /// Salt of the segment.
    pub salt: Salt,
    /// Where the batch will lie.
    pub at: Position,
    /// LSN of its first entry.
    pub first_lsn: Lsn,
    /// How many entries it has.
    pub count: u32,
    /// The durable LSN.
    pub durable: Option<Lsn>,
    /// Where the durable bytes end.
    pub durable_end: Position,
}

/// Completes `buf`, 48 reserved bytes and a payload (or nothing at all, for no entries), to the
/// bytes of a batch: pads it and fills in the header.
///
/// # Panics
/// If `buf` is longer than 4 GiB: limits rule that out.
pub fn seal(buf: &mut Vec<u8>, sealing: &Sealing) -> BatchHeader {
    buf.resize(buf.len().max(HEADER_BYTES), 0);
    let payload_bytes = u32::try_from(buf.len() - HEADER_BYTES).expect("batches are below 4 GiB");
    buf.resize(buf.len().next_multiple_of(ALIGN as usize), 0);
    let Sealing { salt, at, first_lsn, count, durable, durable_end } = *sealing;
    let payload_crc = payload_crc(salt, at, &buf[HEADER_BYTES..]);
    buf[..4].copy_from_slice(&payload_bytes.to_be_bytes());
    buf[4..8].copy_from_slice(&count.to_be_bytes());
    buf[8..16].copy_from_slice(&first_lsn.get().to_be_bytes());
    buf[16..24].copy_from_slice(&durable.map_or(0, Lsn::get).to_be_bytes());
    buf[24..32].copy_from_slice(&durable_end.segment.0.to_be_bytes());
    buf[32..40].copy_from_slice(&durable_end.offset.to_be_bytes());
    buf[40..44].copy_from_slice(&payload_crc.to_be_bytes());
    let header_crc = header_crc(salt, at, &array(buf, 0));
    buf[44..48].copy_from_slice(&header_crc.to_be_bytes());
    BatchHeader { payload_bytes, count, first_lsn, durable, durable_end, payload_crc }
}

/// A payload whose checksum is right and whose entries are not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Malformed {
    /// Bytes from the start of the payload.
    pub at: usize,
}

/// Visits the entries of an unpadded payload with the offset of each in it, until `visit` breaks.
///
/// # Errors
/// Where the bytes stop being entries, or their number is not `count`.
pub fn entries<B>(
    payload: &[u8],
    count: u32,
    mut visit: impl FnMut(usize, u8, &[u8]) -> ControlFlow<B>,
) -> Result<ControlFlow<B>, Malformed> {
    let mut at = 0;
    for _ in 0..count {
        let prefix = payload.get(at..at + ENTRY_PREFIX_BYTES).ok_or(Malformed { at })?;
        let len = u32::from_be_bytes(array(prefix, 0)) as usize;
        let start = at + ENTRY_PREFIX_BYTES;
        let bytes = start.checked_add(len).and_then(|end| payload.get(start..end)).ok_or(Malformed { at })?;
        if let ControlFlow::Break(value) = visit(at, prefix[4], bytes) {
            return Ok(ControlFlow::Break(value));
        }
        at = start + len;
    }
    if at == payload.len() { Ok(ControlFlow::Continue(())) } else { Err(Malformed { at }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const AT: Position = Position { segment: SegmentNumber(2), offset: 64 };
    const SALT: Salt = Salt([3; 8]);

    fn batch() -> (Vec<u8>, BatchHeader) {
        let mut buf = vec![0; HEADER_BYTES];
        push_entry(&mut buf, 1, b"one");
        push_entry(&mut buf, 2, b"");
        let header = seal(
            &mut buf,
            &Sealing { salt: SALT, at: AT, first_lsn: Lsn::FIRST, count: 2, durable: None, durable_end: AT },
        );
        (buf, header)
    }

    fn decode(bytes: &[u8], salt: Salt, at: Position) -> Option<BatchHeader> {
        let header = BatchHeader::decode(bytes[..HEADER_BYTES].try_into().unwrap(), salt, at)?;
        header.verifies(&bytes[HEADER_BYTES..], salt, at).then_some(header)
    }

    #[test]
    fn a_batch_round_trips() {
        let (bytes, header) = batch();
        assert_eq!(bytes.len() as u64, header.bytes());
        assert_eq!(decode(&bytes, SALT, AT), Some(header));
        let mut seen = Vec::new();
        let payload = &bytes[HEADER_BYTES..][..header.payload_bytes as usize];
        let end = entries(payload, header.count, |at, kind, bytes| {
            seen.push((at, kind, bytes.to_vec()));
            ControlFlow::<()>::Continue(())
        });
        assert_eq!(end, Ok(ControlFlow::Continue(())));
        assert_eq!(seen, [(0, 1, b"one".to_vec()), (8, 2, Vec::new())]);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (bytes, _) = batch();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad, SALT, AT), None, "bit {bit}");
        }
    }

    #[test]
    fn another_salt_segment_or_offset_does_not_verify() {
        let (bytes, _) = batch();
        assert_eq!(decode(&bytes, Salt([4; 8]), AT), None);
        assert_eq!(decode(&bytes, SALT, Position { segment: SegmentNumber(1), ..AT }), None);
        assert_eq!(decode(&bytes, SALT, Position { offset: 72, ..AT }), None);
    }

    #[test]
    fn entries_must_fill_the_payload() {
        let mut buf = Vec::new();
        push_entry(&mut buf, 1, b"one");
        let go = |_: usize, _: u8, _: &[u8]| ControlFlow::<()>::Continue(());
        assert_eq!(entries(&buf, 2, go), Err(Malformed { at: 8 }));
        assert_eq!(entries(&buf, 0, go), Err(Malformed { at: 0 }));
        assert_eq!(entries(&buf[..7], 1, go), Err(Malformed { at: 0 }));
        buf[..4].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(entries(&buf, 1, go), Err(Malformed { at: 0 }));
    }
}
