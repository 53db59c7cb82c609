//! SHV1 frames: the magic `SHV1`, the payload's length as be32, the payload.

use crate::error::{Classified, Family};
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;
use alloc::vec::Vec;

/// What every frame starts with.
pub const MAGIC: [u8; 4] = *b"SHV1";

/// Length of magic and length field.
pub const HEADER_BYTES: usize = 8;

/// What an idle stream's buffer keeps, so that one large frame does not cost memory for ever.
const IDLE_BYTES_MAX: usize = 64 << 10;

/// Why bytes are not a frame: the peer's fault.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The stream is not at the start of a frame, or not one of frames.
    #[error("frame starts with {found:02x?}, expected {MAGIC:02x?} (\"SHV1\")")]
    BadMagic {
        /// The four bytes found; those that had not arrived are zero.
        found: [u8; 4],
    },
    /// The length field exceeds the limit. Nothing was allocated for it.
    #[error("frame claims {bytes} bytes of payload, expected at most {bytes_max}")]
    TooLarge {
        /// What the length field says.
        bytes: u32,
        /// The limit.
        bytes_max: u32,
    },
    /// The stream ended inside a frame.
    #[error("stream ended after {bytes} of a frame's {bytes_expected} bytes")]
    Truncated {
        /// How many bytes of the frame arrived.
        bytes: usize,
        /// How many it needs, as far as its header arrived.
        bytes_expected: usize,
    },
}

impl Classified for FrameError {
    const FAMILY: Family = Family::Peer;
}

/// A payload of ours that fits no frame: our caller's mistake.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("payload has {bytes} bytes, a frame holds at most {bytes_max}")]
pub struct PayloadTooLarge {
    /// What was found.
    pub bytes: usize,
    /// The limit.
    pub bytes_max: u32,
}

impl Classified for PayloadTooLarge {
    const FAMILY: Family = Family::Caller;
}

/// A frame whose payload is still being written behind its header.
#[derive(Debug)]
#[must_use = "a frame that is not closed has no length"]
pub struct OpenFrame {
    start: usize,
}

impl OpenFrame {
    /// Appends a header to `out`; the payload is appended by the caller.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        Self { start }
    }

    /// Fills in the length of what was appended since.
    ///
    /// # Errors
    /// It is more than `bytes_max`; `out` is then as it was before the frame.
    pub fn close(self, bytes_max: u32, out: &mut Vec<u8>) -> Result<(), PayloadTooLarge> {
        let bytes = out.len() - self.start - HEADER_BYTES;
        match u32::try_from(bytes) {
            Ok(length) if length <= bytes_max => {
                out[self.start + 4..self.start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
                Ok(())
            }
            Ok(_) | Err(_) => {
                out.truncate(self.start);
                Err(PayloadTooLarge { bytes, bytes_max })
            }
        }
    }

    /// Takes the header and what was appended since back out.
    pub fn abandon(self, out: &mut Vec<u8>) {
        out.truncate(self.start);
    }
}

/// Appends one frame.
///
/// # Errors
/// The payload is longer than [`FRAME_PAYLOAD_BYTES_MAX`]; `out` is unchanged.
pub fn write_frame(payload: &[u8], out: &mut Vec<u8>) -> Result<(), PayloadTooLarge> {
    let frame = OpenFrame::begin(out);
    out.extend_from_slice(payload);
    frame.close(FRAME_PAYLOAD_BYTES_MAX, out)
}

/// Cuts a stream of bytes, arriving in pieces of any size, into payloads.
///
/// What waits in it is never more than one frame of the largest size allowed (its memory twice that),
/// and it never allocates for bytes that did not arrive. After an error the stream has no frame boundaries any more: every later call
/// returns the same error.
///
/// ```
/// use strandline_core::wire::frame::{FrameDecoder, write_frame};
/// let mut stream = Vec::new();
/// write_frame(b"one", &mut stream)?;
/// write_frame(b"two", &mut stream)?;
///
/// let mut decoder = FrameDecoder::default();
/// let mut payloads = Vec::new();
/// let mut rest = &stream[..];
/// while !rest.is_empty() {
///     rest = &rest[decoder.push(rest)..];
///     while let Some(payload) = decoder.next_frame().expect("well-formed") {
///         payloads.push(payload.to_vec());
///     }
/// }
/// assert_eq!(payloads, [b"one", b"two"]);
/// # Ok::<(), strandline_core::wire::frame::PayloadTooLarge>(())
/// ```
#[derive(Debug)]
pub struct FrameDecoder {
    payload_bytes_max: u32,
    buffer: Vec<u8>,
    /// Where the first frame not yet handed out starts.
    start: usize,
    failed: Option<FrameError>,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::new(FRAME_PAYLOAD_BYTES_MAX)
    }
}

impl FrameDecoder {
    /// A decoder at the start of a stream whose payloads are at most `payload_bytes_max` long.
    #[must_use]
    pub fn new(payload_bytes_max: u32) -> Self {
        Self { payload_bytes_max, buffer: Vec::new(), start: 0, failed: None }
    }

    /// Takes the next bytes of the stream and returns how many it took: fewer than all only if it
    /// holds a whole frame of the largest size, so that after [`FrameDecoder::next_frame`] it takes
    /// more. After an error it takes all and keeps none.
    #[must_use = "bytes not taken must be pushed again"]
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        if self.failed.is_some() {
            return bytes.len();
        }
        self.reclaim();
        let held = self.buffer.len() - self.start;
        let room = (HEADER_BYTES + self.payload_bytes_max as usize).saturating_sub(held);
        let taken = bytes.len().min(room);
        self.buffer.extend_from_slice(&bytes[..taken]);
        taken
    }

    /// Gives back what was handed out, moving what is left only when it is the smaller part: a caller
    /// that takes one small frame for each push must not pay for all that waits behind it.
    fn reclaim(&mut self) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(IDLE_BYTES_MAX);
            self.start = 0;
        } else if self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
    }

    /// The next payload that arrived whole; `None` if it takes more bytes.
    ///
    /// # Errors
    /// What arrived is no frame of ours; see [`FrameError`].
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        match self.frame_bytes() {
            Ok(Some(bytes)) if self.buffer.len() - self.start >= bytes => {
                let payload = self.start + HEADER_BYTES..self.start + bytes;
                self.start = payload.end;
                Ok(Some(&self.buffer[payload]))
            }
            Ok(_) => Ok(None),
            Err(error) => {
                self.failed = Some(error);
                self.buffer = Vec::new();
                self.start = 0;
                Err(error)
            }
        }
    }

    /// Judges the end of the stream.
    ///
    /// # Errors
    /// It ended inside a frame, or had failed before.
    pub fn finish(&self) -> Result<(), FrameError> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let bytes = self.buffer.len() - self.start;
        let bytes_expected = self.frame_bytes()?.unwrap_or(HEADER_BYTES);
        if bytes == 0 || bytes >= bytes_expected {
            return Ok(());
        }
        Err(FrameError::Truncated { bytes, bytes_expected })
    }

    /// What arrived and was not handed out: the bytes of another protocol that follows this one.
    #[must_use]
    pub fn into_rest(mut self) -> Vec<u8> {
        self.buffer.drain(..self.start);
        self.buffer
    }

    /// Length of the frame at `start`, once its header has arrived.
    fn frame_bytes(&self) -> Result<Option<usize>, FrameError> {
        let bytes = &self.buffer[self.start..];
        let arrived = bytes.len().min(MAGIC.len());
        if bytes[..arrived] != MAGIC[..arrived] {
            let mut found = [0; 4];
            found[..arrived].copy_from_slice(&bytes[..arrived]);
            return Err(FrameError::BadMagic { found });
        }
        let Some(length) = bytes.get(MAGIC.len()..HEADER_BYTES) else { return Ok(None) };
        let length = u32::from_be_bytes(length.try_into().expect("four bytes"));
        if length > self.payload_bytes_max {
            return Err(FrameError::TooLarge { bytes: length, bytes_max: self.payload_bytes_max });
        }
        Ok(Some(HEADER_BYTES + length as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Pushes `stream` in pieces of `piece` bytes and collects payloads up to the first error.
    fn read(stream: &[u8], max: u32, piece: usize) -> (Vec<Vec<u8>>, Result<(), FrameError>) {
        let mut decoder = FrameDecoder::new(max);
        let mut payloads = vec![];
        for mut bytes in stream.chunks(piece) {
            while !bytes.is_empty() {
                bytes = &bytes[decoder.push(bytes)..];
                loop {
                    match decoder.next_frame() {
                        Ok(Some(payload)) => payloads.push(payload.to_vec()),
                        Ok(None) => break,
                        Err(error) => return (payloads, Err(error)),
                    }
                }
            }
        }
        (payloads, decoder.finish())
    }

    fn framed(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![];
        for payload in payloads {
            write_frame(payload, &mut out).expect("fits");
        }
        out
    }

    #[test]
    fn frames_split_anywhere_come_out_whole() {
        let stream = framed(&[b"batch", b"", b"ack"]);
        for piece in 1..=stream.len() {
            let (payloads, end) = read(&stream, 5, piece);
            assert_eq!(payloads, [&b"batch"[..], b"", b"ack"], "pieces of {piece}");
            assert_eq!(end, Ok(()));
        }
    }

    #[test]
    fn bad_magic_is_refused_at_its_first_wrong_byte() {
        assert_eq!(read(b"SHX", 9, 1).1, Err(FrameError::BadMagic { found: *b"SHX\0" }));
        assert_eq!(read(b"shv1\0\0\0\x01x", 9, 9).1, Err(FrameError::BadMagic { found: *b"shv1" }));
    }

    #[test]
    fn a_claimed_length_above_the_limit_is_refused_before_its_payload() {
        for claimed in [6, u32::MAX] {
            let mut stream = MAGIC.to_vec();
            stream.extend_from_slice(&claimed.to_be_bytes());
            assert_eq!(read(&stream, 5, 8).1, Err(FrameError::TooLarge { bytes: claimed, bytes_max: 5 }));
        }
    }

    #[test]
    fn an_end_inside_a_frame_is_told_with_what_was_expected() {
        for (stream, bytes_expected) in
            [(&b"SH"[..], 8), (b"SHV1\0\0\0", 8), (b"SHV1\0\0\0\x05", 13), (b"SHV1\0\0\0\x05hel", 13)]
        {
            let end = read(stream, 9, 99).1;
            assert_eq!(end, Err(FrameError::Truncated { bytes: stream.len(), bytes_expected }));
        }
    }

    #[test]
    fn after_an_error_nothing_is_read_and_nothing_kept() {
        let mut decoder = FrameDecoder::new(9);
        assert_eq!(decoder.push(b"X"), 1);
        let error = FrameError::BadMagic { found: *b"X\0\0\0" };
        assert_eq!(decoder.next_frame(), Err(error));
        assert_eq!(decoder.push(&framed(&[b"good"])), 12);
        assert_eq!(decoder.next_frame(), Err(error));
        assert_eq!(decoder.finish(), Err(error));
        assert!(decoder.into_rest().is_empty());
    }

    #[test]
    fn the_buffer_holds_one_frame_of_the_largest_size() {
        let mut decoder = FrameDecoder::new(4);
        let stream = framed(&[b"four", b"more"]);
        assert_eq!(decoder.push(&stream), 12);
        assert_eq!(decoder.push(&stream[12..]), 0);
        assert_eq!(decoder.next_frame(), Ok(Some(&b"four"[..])));
        assert_eq!(decoder.push(&stream[12..]), 12);
    }

    #[test]
    fn taking_one_frame_for_each_push_keeps_the_bound_and_the_order() {
        let payloads: Vec<_> = (0..200u8).map(|i| vec![i; usize::from(i % 7)]).collect();
        let stream = framed(&payloads.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut decoder = FrameDecoder::new(64);
        let mut rest = &stream[..];
        let mut taken = vec![];
        while taken.len() < payloads.len() {
            rest = &rest[decoder.push(rest)..];
            assert!(decoder.buffer.len() <= 2 * (HEADER_BYTES + 64));
            taken.extend(decoder.next_frame().expect("well-formed").map(<[u8]>::to_vec));
        }
        assert_eq!(taken, payloads);
    }

    #[test]
    fn an_idle_decoder_keeps_little_memory() {
        let mut decoder = FrameDecoder::default();
        assert_eq!(decoder.push(&framed(&[&[0; 1 << 20]])), (1 << 20) + HEADER_BYTES);
        assert!(decoder.next_frame().is_ok_and(|frame| frame.is_some()));
        assert_eq!(decoder.push(b""), 0);
        assert!(decoder.buffer.capacity() <= IDLE_BYTES_MAX);
    }

    #[test]
    fn what_follows_the_last_frame_taken_is_handed_back() {
        let mut decoder = FrameDecoder::new(99);
        assert_eq!(decoder.push(&framed(&[b"one", b"two"])), 22);
        assert_eq!(decoder.next_frame(), Ok(Some(&b"one"[..])));
        assert_eq!(decoder.into_rest(), framed(&[b"two"]));
    }

    #[test]
    fn an_oversized_payload_leaves_the_output_as_it_was() {
        let mut out = b"before".to_vec();
        let frame = OpenFrame::begin(&mut out);
        out.extend_from_slice(b"12345");
        assert_eq!(frame.close(4, &mut out), Err(PayloadTooLarge { bytes: 5, bytes_max: 4 }));
        assert_eq!(out, b"before");
    }
}
