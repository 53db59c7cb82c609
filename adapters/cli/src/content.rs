//! Bytes on their way past, hashed as they go.

use crate::exit::Failure;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use strandline_core::limits::PIECE_BYTES_MAX;
use strandline_core::record::BlobKey;

/// Which side of a copy failed: what a person can do about it differs.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// Where the bytes come from.
    Source(io::Error),
    /// Where they go.
    Target(io::Error),
}

/// Opens a file that was given with the command line.
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    let failed = |error| Failure::usage(format!("cannot open {}: {error}", path.display()));
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(Failure::usage(format!("expected a file, found the directory {}", path.display())));
    }
    Ok(file)
}

/// Copies to the end through a buffer of [`PIECE_BYTES_MAX`]; what the bytes hash to and how many
/// they are.
pub(crate) fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<(BlobKey, u64), CopyError> {
    let mut hash = Sha256::new();
    let mut buf = vec![0; PIECE_BYTES_MAX as usize];
    let mut bytes = 0;
    loop {
        let read = match from.read(&mut buf) {
            Ok(0) => return Ok((BlobKey(hash.finalize().into()), bytes)),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Source(error)),
        };
        hash.update(&buf[..read]);
        to.write_all(&buf[..read]).map_err(CopyError::Target)?;
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

    #[test]
    fn the_side_that_failed_is_told() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        }
        assert!(matches!(copy(&mut Broken, &mut Vec::new()), Err(CopyError::Source(_))));
        assert!(matches!(copy(&mut &b"abc"[..], &mut &mut [0; 1][..]), Err(CopyError::Target(_))));
    }
}
