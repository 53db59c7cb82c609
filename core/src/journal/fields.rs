//! Fields of a small file: fixed numbers and bounded byte strings, big endian, read strictly.

use super::command::FileName;
use crate::error::StorageFault;
use alloc::format;
use alloc::vec::Vec;

/// Reads fields one after the other; every error names the file and the offset in the payload.
#[derive(Debug)]
pub struct Fields<'a> {
    file: FileName,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Reads the payload of `file`.
    #[must_use]
    pub const fn new(file: FileName, bytes: &'a [u8]) -> Self {
        Self { file, bytes, at: 0 }
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// If the payload ends before.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], StorageFault> {
        Ok(self.take(N)?.try_into().expect("N bytes were taken"))
    }

    /// The next number of one byte.
    ///
    /// # Errors
    /// If the payload ends before.
    pub fn u8(&mut self) -> Result<u8, StorageFault> {
        self.array::<1>().map(|[b]| b)
    }

    /// The next number of four bytes.
    ///
    /// # Errors
    /// If the payload ends before.
    pub fn u32(&mut self) -> Result<u32, StorageFault> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next number of eight bytes.
    ///
    /// # Errors
    /// If the payload ends before.
    pub fn u64(&mut self) -> Result<u64, StorageFault> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next count (four bytes), at most `max`.
    ///
    /// # Errors
    /// If it is higher, or the payload ends before.
    pub fn count(&mut self, what: &str, max: usize) -> Result<usize, StorageFault> {
        let count = self.u32()? as usize;
        if count > max {
            return Err(self.damaged(format!("expected at most {max} {what}, found {count}")));
        }
        Ok(count)
    }

    /// The next byte string: its length (four bytes), at most `max`, and its bytes.
    ///
    /// # Errors
    /// If it is longer, or the payload ends before.
    pub fn bytes(&mut self, what: &str, max: usize) -> Result<&'a [u8], StorageFault> {
        let len = self.count(what, max)?;
        self.take(len)
    }

    /// The next byte string as text.
    ///
    /// # Errors
    /// As [`Fields::bytes`], or if it is not UTF-8.
    pub fn text(&mut self, what: &str, max: usize) -> Result<&'a str, StorageFault> {
        let bytes = self.bytes(what, max)?;
        core::str::from_utf8(bytes).map_err(|e| self.damaged(format!("expected UTF-8, found {e}")))
    }

    /// Ends the payload.
    ///
    /// # Errors
    /// If bytes are left.
    pub fn end(self) -> Result<(), StorageFault> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => Err(self.damaged(format!("expected the end, found {left} more bytes"))),
        }
    }

    /// A fault of the value just read.
    #[must_use]
    pub fn damaged(&self, detail: impl Into<alloc::string::String>) -> StorageFault {
        StorageFault::damaged(self.file, self.at as u64, detail)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], StorageFault> {
        let left = self.bytes.len() - self.at;
        if left < len {
            return Err(self.damaged(format!("expected {len} bytes, found {left}")));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }
}

/// Appends a byte string as [`Fields::bytes`] reads it.
///
/// # Panics
/// If it is longer than 4 GiB: the caller's limits rule that out.
pub fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("byte strings are below 4 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_bounded_before_they_are_taken() {
        let mut bytes = Vec::new();
        push_bytes(&mut bytes, b"abc");
        let fields = || Fields::new(FileName::Acked, &bytes);
        assert_eq!(fields().text("letters", 3), Ok("abc"));
        assert_eq!(
            fields().bytes("letters", 2).map_err(|e| e.detail),
            Err("expected at most 2 letters, found 3".into())
        );
        assert!(Fields::new(FileName::Acked, &bytes[..6]).bytes("letters", 3).is_err());
        let mut open = fields();
        open.u32().unwrap();
        assert!(open.end().is_err());
    }
}
