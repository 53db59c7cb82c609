//! Frames cut out of a stream that arrives in pieces of any size.

use strandline_core::wire::frame::{FrameDecoder, FrameError, HEADER_BYTES, MAGIC, write_frame};

/// However a stream is split, the decoder agrees with a reading of it as a whole, and what it hands
/// out encodes to the bytes it came from. The first byte chooses the limit, the second the split, and
/// the rest is the stream.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    let [limit, piece, stream @ ..] = data else { return false };
    let payload_bytes_max = u32::from(*limit) * 16;
    let whole = read_whole(stream, payload_bytes_max);
    for piece in [usize::from(*piece) + 1, 1, stream.len().max(1)] {
        let split = read_split(stream, payload_bytes_max, piece);
        assert_eq!(split.payloads, whole.payloads, "in pieces of {piece}");
        match (split.end, whole.end) {
            // How much of a wrong magic is shown depends on how much of it had arrived.
            (Err(FrameError::BadMagic { .. }), Err(FrameError::BadMagic { .. })) => {}
            (split, whole) => assert_eq!(split, whole, "in pieces of {piece}"),
        }
    }

    let mut encoded = Vec::new();
    for payload in &whole.payloads {
        write_frame(payload, &mut encoded).expect("what was read fits a frame");
    }
    assert!(stream.starts_with(&encoded), "a frame has one encoding");
    whole.end.is_ok() && !whole.payloads.is_empty()
}

struct Reading {
    payloads: Vec<Vec<u8>>,
    end: Result<(), FrameError>,
}

/// The format, read from a stream that lies there complete.
fn read_whole(stream: &[u8], bytes_max: u32) -> Reading {
    let mut payloads = Vec::new();
    let mut rest = stream;
    let end = loop {
        if rest.is_empty() {
            break Ok(());
        }
        let bytes = rest.len();
        if !MAGIC.iter().zip(rest).all(|(expected, found)| expected == found) {
            break Err(FrameError::BadMagic { found: [0; 4] });
        }
        let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            break Err(FrameError::Truncated { bytes, bytes_expected: HEADER_BYTES });
        };
        let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        if length > bytes_max {
            break Err(FrameError::TooLarge { bytes: length, bytes_max });
        }
        let Some((payload, behind)) = behind.split_at_checked(length as usize) else {
            break Err(FrameError::Truncated { bytes, bytes_expected: HEADER_BYTES + length as usize });
        };
        payloads.push(payload.to_vec());
        rest = behind;
    };
    Reading { payloads, end }
}

fn read_split(stream: &[u8], bytes_max: u32, piece: usize) -> Reading {
    let mut decoder = FrameDecoder::new(bytes_max);
    let mut payloads = Vec::new();
    for mut bytes in stream.chunks(piece) {
        while !bytes.is_empty() {
            let taken = decoder.push(bytes);
            bytes = &bytes[taken..];
            let mut handed_out = false;
            loop {
                match decoder.next_frame() {
                    Ok(Some(payload)) => payloads.push(payload.to_vec()),
                    Ok(None) => break,
                    Err(error) => {
                        assert_eq!(decoder.push(b"SHV1\0\0\0\0"), HEADER_BYTES, "a failed decoder takes all");
                        assert_eq!(decoder.next_frame(), Err(error), "a failed decoder stays failed");
                        return Reading { payloads, end: Err(error) };
                    }
                }
                handed_out = true;
            }
            assert!(taken > 0 || handed_out, "the decoder neither takes bytes nor hands out frames");
        }
    }
    let end = decoder.finish();
    let out: usize = payloads.iter().map(|payload| HEADER_BYTES + payload.len()).sum();
    assert_eq!(decoder.into_rest(), &stream[out..], "what was not handed out is kept");
    Reading { payloads, end }
}
