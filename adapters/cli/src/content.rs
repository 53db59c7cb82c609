//! Bytes on their way past, hashed as they go.

use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use strandline_core::limits::PIECE_BYTES_MAX;
use strandline_core::record::BlobKey;

/// Copies to the end through a buffer of [`PIECE_BYTES_MAX`]; what the bytes hash to and how many
/// they are.
pub(crate) fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<(BlobKey, u64)> {
    let mut hash = Sha256::new();
    let mut buf = vec![0; PIECE_BYTES_MAX as usize];
    let mut bytes = 0;
    loop {
        let read = match from.read(&mut buf) {
            Ok(0) => return Ok((BlobKey(hash.finalize().into()), bytes)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&buf[..read]);
        to.write_all(&buf[..read])?;
        bytes += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_blobs_name() {
        let mut to = Vec::new();
        let (key, bytes) = copy(&mut &b"abc"[..], &mut to).expect("copies");
        assert_eq!((bytes, &to[..]), (3, &b"abc"[..]));
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(key.to_string(), known);
    }
}
