//! The trace. Each record is a line of words, and behind it the bytes that it announces last.
//!
//! | record | what happened |
//! |---|---|
//! | `write FILE OFFSET BYTES` | these bytes were written |
//! | `zeros FILE OFFSET BYTES` | so many zeros were written; no bytes follow |
//! | `resize FILE BYTES` | the file has this length now |
//! | `sync-begin FILE NUMBER`, `sync-end FILE NUMBER ok\|failed\|interrupted` | a sync; the number is the process's and its own |
//! | `create FOLDER NAME FILE`, `mkdir FOLDER NAME FILE` | a new file, a new folder |
//! | `rename FOLDER NAME FOLDER NAME`, `unlink FOLDER NAME` | a name changed |
//! | `say BYTES` | these bytes are about to be written to standard output |
//! | `struck BYTES` | a rule, given by these bytes, struck |
//! | `unknown BYTES` | a call of this name, which the trace does not cover |
//!
//! `FILE` and `FOLDER` are `DEVICE:INODE`, `NAME` is in hexadecimal digits.

use crate::file::{Place, Seen};
use std::fmt::{self, Write};
use std::sync::OnceLock;

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.folder)?;
        self.name.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The trace, open for appending; `None` if nobody wants one.
fn trace() -> Option<libc::c_int> {
    static TRACE: OnceLock<Option<libc::c_int>> = OnceLock::new();
    *TRACE.get_or_init(|| {
        let path = std::ffi::CString::new(std::env::var("STRANDLINE_SHIM_TRACE").ok()?).ok()?;
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
        // Safety: a C string. Not through `open`, which is ours.
        let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600) };
        match libc::c_int::try_from(fd) {
            Ok(fd) if fd >= 0 => Some(fd),
            // A trace that is wanted and cannot be had must not look like one of nothing.
            _ => std::process::abort(),
        }
    })
}

fn record(line: fmt::Arguments<'_>, bytes: &[u8]) {
    let Some(fd) = trace() else { return };
    let mut text = String::new();
    if text.write_fmt(line).is_err() {
        std::process::abort();
    }
    text.push('\n');
    let mut record = text.into_bytes();
    record.extend_from_slice(bytes);
    // One call: what other threads and processes append does not come between. The error that the
    // program is about to look at stays.
    // Safety: readable bytes; the address is this thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let count = libc::syscall(libc::SYS_write, fd, record.as_ptr(), record.len());
        if usize::try_from(count) != Ok(record.len()) {
            std::process::abort();
        }
        *libc::__errno_location() = errno;
    }
}

pub(crate) fn written(file: Seen, at: i64, bytes: &[u8]) {
    if bytes.iter().all(|byte| *byte == 0) {
        record(format_args!("zeros {file} {at} {}", bytes.len()), b"");
    } else {
        record(format_args!("write {file} {at} {}", bytes.len()), bytes);
    }
}

pub(crate) fn resized(file: Seen, bytes: i64) {
    record(format_args!("resize {file} {bytes}"), b"");
}

pub(crate) fn sync_begins(file: Seen, number: u64) {
    record(format_args!("sync-begin {file} {}.{number}", std::process::id()), b"");
}

pub(crate) fn sync_ended(file: Seen, number: u64, ok: bool) {
    // Safety: the address is this thread's own.
    let interrupted = !ok && unsafe { *libc::__errno_location() } == libc::EINTR;
    let ended = match (ok, interrupted) {
        (true, _) => "ok",
        (false, true) => "interrupted",
        (false, false) => "failed",
    };
    record(format_args!("sync-end {file} {}.{number} {ended}", std::process::id()), b"");
}

pub(crate) fn created(place: &Place, file: Seen) {
    record(format_args!("create {place} {file}"), b"");
}

pub(crate) fn made(place: &Place, folder: Seen) {
    record(format_args!("mkdir {place} {folder}"), b"");
}

pub(crate) fn renamed(from: &Place, to: &Place) {
    record(format_args!("rename {from} {to}"), b"");
}

pub(crate) fn removed(place: &Place) {
    record(format_args!("unlink {place}"), b"");
}

pub(crate) fn said(bytes: &[u8]) {
    record(format_args!("say {}", bytes.len()), bytes);
}

pub(crate) fn struck(rule: &str) {
    record(format_args!("struck {}", rule.len()), rule.as_bytes());
}

pub(crate) fn unknown(call: &str) {
    record(format_args!("unknown {}", call.len()), call.as_bytes());
}
