//! Bytes of unknown length on a stream: chunks of a big-endian length and as many bytes, a length
//! of zero at the end, [`ABORTED`] where the source failed.

use std::io::{self, BufRead, Read, Write};
use strandline_core::limits::PIECE_BYTES_MAX;

/// The length that says that the source failed: what came before is not the whole.
const ABORTED: u32 = u32::MAX;

/// Sends what `from` gives until it ends. Outside: the stream failed; inside: the source did, and
/// the receiver was told.
pub(crate) fn send(from: &mut dyn Read, to: &mut impl Write) -> io::Result<io::Result<()>> {
    let mut buf = vec![0; PIECE_BYTES_MAX as usize];
    loop {
        let read = match from.read(&mut buf) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                to.write_all(&ABORTED.to_be_bytes())?;
                return Ok(Err(error));
            }
        };
        let length = u32::try_from(read).expect("at most PIECE_BYTES_MAX");
        to.write_all(&length.to_be_bytes())?;
        to.write_all(&buf[..read])?;
        if read == 0 {
            to.flush()?;
            return Ok(Ok(()));
        }
    }
}

/// Reads what [`send`] sends, to the end also when it is dropped early: the next line of the stream
/// lies behind it.
pub(crate) struct ChunkReader<'a, R: BufRead> {
    stream: &'a mut R,
    left: u32,
    ended: bool,
}

impl<'a, R: BufRead> ChunkReader<'a, R> {
    pub(crate) const fn new(stream: &'a mut R) -> Self {
        Self { stream, left: 0, ended: false }
    }

    /// Whether the end was read, so that the next line of the stream comes now.
    pub(crate) const fn ended(&self) -> bool {
        self.ended
    }

    /// The stream.
    pub(crate) const fn stream(&self) -> &R {
        self.stream
    }

    /// Reads on to the end without keeping anything. A source that failed is an end as well.
    pub(crate) fn skip(&mut self) -> io::Result<()> {
        let mut buf = [0; 4096];
        while !self.ended {
            match self.read(&mut buf) {
                Ok(_) => {}
                Err(_) if self.ended => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        match u32::from_be_bytes(length) {
            ABORTED => {
                self.ended = true;
                Err(io::Error::other("the other side could not read its source to the end"))
            }
            0 => {
                self.ended = true;
                Ok(())
            }
            length if length <= PIECE_BYTES_MAX => {
                self.left = length;
                Ok(())
            }
            length => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("expected a chunk of at most {PIECE_BYTES_MAX} bytes, found {length}"),
            )),
        }
    }
}

impl<R: BufRead> Read for ChunkReader<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if self.left == 0 && !self.ended {
            self.next_chunk()?;
        }
        if self.ended {
            return Ok(0);
        }
        let most = buf.len().min(self.left as usize);
        let read = self.stream.read(&mut buf[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= u32::try_from(read).expect("at most what was left");
        Ok(read)
    }
}

impl<R: BufRead> Drop for ChunkReader<'_, R> {
    fn drop(&mut self) {
        // A stream that fails here fails the next request too, which reports it.
        let _ = self.skip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(bytes: &[u8]) -> Vec<u8> {
        let mut stream = Vec::new();
        send(&mut &bytes[..], &mut stream).expect("the stream takes all").expect("the source gives all");
        stream
    }

    #[test]
    fn sizes_around_a_chunk_come_out_as_they_went_in() {
        let chunk = PIECE_BYTES_MAX as usize;
        for bytes in [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk] {
            let content = vec![7; bytes];
            let mut stream = sent(&content);
            stream.extend_from_slice(b"next");
            let mut from = &stream[..];
            let mut read = Vec::new();
            ChunkReader::new(&mut from).read_to_end(&mut read).expect("reads");
            assert!(read == content && from == b"next", "{bytes} bytes");
        }
    }

    #[test]
    fn a_stream_that_ends_early_is_no_end_of_the_bytes() {
        let stream = sent(b"bytes");
        for cut in 0..stream.len() {
            let mut from = &stream[..cut];
            let read = ChunkReader::new(&mut from).read_to_end(&mut Vec::new());
            assert_eq!(read.expect_err("cut").kind(), io::ErrorKind::UnexpectedEof, "cut at {cut}");
        }
    }

    #[test]
    fn a_chunk_over_the_limit_is_refused_before_it_is_read() {
        let mut from = &(PIECE_BYTES_MAX + 1).to_be_bytes()[..];
        let read = ChunkReader::new(&mut from).read(&mut [0; 1]);
        assert_eq!(read.expect_err("too long").kind(), io::ErrorKind::InvalidData);
    }
}
