//! Preloaded (`LD_PRELOAD`) into a program under test, this library stands between it and the
//! system's calls on files. It records them in a trace, and lets those fail that a rule names.
//! Linux with glibc, 64 bits.
//!
//! | variable | what it says |
//! |---|---|
//! | `STRANDLINE_SHIM_TRACE` | the file that records are appended to; see `trace.rs` for their form. Processes may share it |
//! | `STRANDLINE_SHIM_RULES` | which calls fail; see `rules.rs` |
//! | `STRANDLINE_SHIM_WHILE` | a path: rules count and strike only while it exists |
//!
//! A change is recorded after it was made, a sync before and after, output before it is written. So
//! whatever must come before another thing in the program comes before it in the trace.
//!
//! Calls that change files and are not understood here are recorded as `unknown`, so that a test
//! that judges by the trace fails instead of judging by half of it.

mod file;
mod real;
mod rules;
mod trace;

use file::{Place, Seen};
use libc::{c_char, c_int, c_void, iovec, mode_t, off64_t, size_t, ssize_t};
use real::real;
use rules::{Call, Strike};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Changes of names are made and recorded one at a time, so that the trace has their order.
static NAMES: Mutex<()> = Mutex::new(());

static SYNCS: AtomicU64 = AtomicU64::new(0);

fn fail<T: From<i8>>(errno: c_int) -> T {
    // Safety: the address is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    T::from(-1)
}

/// Writes through `write`, and records what was written at `offset` (`None`: where the file stands).
fn write_at(fd: c_int, bytes: &[u8], offset: Option<off64_t>, write: impl Fn(&[u8]) -> ssize_t) -> ssize_t {
    if fd == libc::STDOUT_FILENO {
        trace::said(bytes);
        return write(bytes);
    }
    let Some(seen) = Seen::regular(fd) else { return write(bytes) };
    // Safety: asks where the file stands.
    let at = offset.unwrap_or_else(|| unsafe { libc::lseek64(fd, 0, libc::SEEK_CUR) });
    let taken = match rules::strike(Call::Write, || file::path_of(fd)) {
        Some(Strike::Fail(errno)) => return fail(errno),
        // Never nothing: that would mean the end of the device.
        Some(Strike::Short) => bytes.len().div_ceil(2),
        None => bytes.len(),
    };
    let count = write(&bytes[..taken]);
    if let Ok(count) = usize::try_from(count) {
        trace::written(seen, at, &bytes[..count]);
    }
    count
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buf: *const c_void, count: size_t) -> ssize_t {
    let real = real!(write: fn(c_int, *const c_void, size_t) -> ssize_t);
    if buf.is_null() {
        // Safety: the caller's.
        return unsafe { real(fd, buf, count) };
    }
    // Safety: the caller gives `count` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(buf.cast(), count) };
    // Safety: a part of what the caller gave.
    write_at(fd, bytes, None, |part| unsafe { real(fd, part.as_ptr().cast(), part.len()) })
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite64(fd: c_int, buf: *const c_void, count: size_t, at: off64_t) -> ssize_t {
    let real = real!(pwrite64: fn(c_int, *const c_void, size_t, off64_t) -> ssize_t);
    if buf.is_null() {
        // Safety: the caller's.
        return unsafe { real(fd, buf, count, at) };
    }
    // Safety: the caller gives `count` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(buf.cast(), count) };
    // Safety: a part of what the caller gave.
    write_at(fd, bytes, Some(at), |part| unsafe { real(fd, part.as_ptr().cast(), part.len(), at) })
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pwrite(fd: c_int, buf: *const c_void, count: size_t, at: off64_t) -> ssize_t {
    // Safety: the same call under its other name.
    unsafe { pwrite64(fd, buf, count, at) }
}

/// Reads through `read`, unless a rule says otherwise. Reads are not recorded.
fn read_at(fd: c_int, count: size_t, read: impl FnOnce(size_t) -> ssize_t) -> ssize_t {
    if Seen::regular(fd).is_none() {
        return read(count);
    }
    match rules::strike(Call::Read, || file::path_of(fd)) {
        Some(Strike::Fail(errno)) => fail(errno),
        Some(Strike::Short) => read(count.div_ceil(2)),
        None => read(count),
    }
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
    let real = real!(read: fn(c_int, *mut c_void, size_t) -> ssize_t);
    // Safety: the caller's, for no more bytes.
    read_at(fd, count, |count| unsafe { real(fd, buf, count) })
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(fd: c_int, buf: *mut c_void, count: size_t, at: off64_t) -> ssize_t {
    let real = real!(pread64: fn(c_int, *mut c_void, size_t, off64_t) -> ssize_t);
    // Safety: the caller's, for no more bytes.
    read_at(fd, count, |count| unsafe { real(fd, buf, count, at) })
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: c_int, buf: *mut c_void, count: size_t, at: off64_t) -> ssize_t {
    // Safety: the same call under its other name.
    unsafe { pread64(fd, buf, count, at) }
}

/// Calls that change a file in a way which nobody here uses: recorded, so that a test notices.
macro_rules! unknown {
    ($($name:ident($fd:ident: c_int $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {$(
        /// # Safety
        /// As the system's own call.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($fd: c_int $(, $arg: $type)*) -> $result {
            if Seen::regular($fd).is_some() {
                trace::unknown(stringify!($name));
            }
            let real = real!($name: fn(c_int $(, $type)*) -> $result);
            // Safety: the caller's.
            unsafe { real($fd $(, $arg)*) }
        }
    )*};
}

unknown! {
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t;
    pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off64_t) -> ssize_t;
    pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off64_t) -> ssize_t;
    pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t;
    fallocate(fd: c_int, mode: c_int, at: off64_t, bytes: off64_t) -> c_int;
    fallocate64(fd: c_int, mode: c_int, at: off64_t, bytes: off64_t) -> c_int;
    posix_fallocate(fd: c_int, at: off64_t, bytes: off64_t) -> c_int;
    posix_fallocate64(fd: c_int, at: off64_t, bytes: off64_t) -> c_int;
    sendfile(to: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t;
    sendfile64(to: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t;
}

fn synced(fd: c_int, call: Call, sync: impl FnOnce() -> c_int) -> c_int {
    let Some(seen) = Seen::any(fd) else { return sync() };
    let number = SYNCS.fetch_add(1, Ordering::Relaxed);
    trace::sync_begins(seen, number);
    let call = if seen.is_folder { Call::SyncFolder } else { call };
    let result = match rules::strike(call, || file::path_of(fd)) {
        Some(Strike::Fail(errno)) => fail(errno),
        Some(Strike::Short) | None => sync(),
    };
    trace::sync_ended(seen, number, result == 0);
    result
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    let real = real!(fsync: fn(c_int) -> c_int);
    // Safety: the caller's.
    synced(fd, Call::Sync, || unsafe { real(fd) })
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    let real = real!(fdatasync: fn(c_int) -> c_int);
    // Safety: the caller's.
    synced(fd, Call::DataSync, || unsafe { real(fd) })
}

fn resized(fd: c_int, bytes: off64_t, resize: impl FnOnce() -> c_int) -> c_int {
    let Some(seen) = Seen::regular(fd) else { return resize() };
    if let Some(Strike::Fail(errno)) = rules::strike(Call::Truncate, || file::path_of(fd)) {
        return fail(errno);
    }
    let result = resize();
    if result == 0 {
        trace::resized(seen, bytes);
    }
    result
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate64(fd: c_int, bytes: off64_t) -> c_int {
    let real = real!(ftruncate64: fn(c_int, off64_t) -> c_int);
    // Safety: the caller's.
    resized(fd, bytes, || unsafe { real(fd, bytes) })
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ftruncate(fd: c_int, bytes: off64_t) -> c_int {
    // Safety: the same call under its other name.
    unsafe { ftruncate64(fd, bytes) }
}

/// Opens through `open`; records a file that is created or emptied by it.
///
/// # Safety
/// `path` is a C string.
unsafe fn opened(folder: c_int, path: *const c_char, flags: c_int, open: impl FnOnce() -> c_int) -> c_int {
    if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return open();
    }
    // Safety: the caller's.
    let path = unsafe { file::bytes_of(path) };
    if let Some(Strike::Fail(errno)) = rules::strike(Call::Open, || path.to_vec()) {
        return fail(errno);
    }
    let _one = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = Place::of(folder, path);
    let was_there = place.as_ref().is_some_and(|place| place.exists(folder, path));
    let fd = open();
    if let (Some(place), Some(seen)) = (place, Seen::regular(fd)) {
        if !was_there {
            trace::created(&place, seen);
        } else if flags & libc::O_TRUNC != 0 {
            trace::resized(seen, 0);
        }
    }
    fd
}

/// # Safety
/// As the system's own call, whose third argument counts only for a file that may be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let real = real!(open64: fn(*const c_char, c_int, mode_t) -> c_int);
    // Safety: the caller's.
    unsafe { opened(libc::AT_FDCWD, path, flags, || real(path, flags, mode)) }
}

/// # Safety
/// As [`open64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // Safety: the same call under its other name.
    unsafe { open64(path, flags, mode) }
}

/// # Safety
/// As [`open64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let real = real!(openat64: fn(c_int, *const c_char, c_int, mode_t) -> c_int);
    // Safety: the caller's.
    unsafe { opened(folder, path, flags, || real(folder, path, flags, mode)) }
}

/// # Safety
/// As [`open64`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // Safety: the same call under its other name.
    unsafe { openat64(folder, path, flags, mode) }
}

/// Makes a change of one name and records it.
///
/// # Safety
/// `path` is a C string.
unsafe fn named(
    call: Call,
    folder: c_int,
    path: *const c_char,
    change: impl FnOnce() -> c_int,
    record: impl FnOnce(&Place),
) -> c_int {
    // Safety: the caller's.
    let path = unsafe { file::bytes_of(path) };
    if let Some(Strike::Fail(errno)) = rules::strike(call, || path.to_vec()) {
        return fail(errno);
    }
    let _one = NAMES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = Place::of(folder, path);
    let result = change();
    if let (0, Some(place)) = (result, place) {
        record(&place);
    }
    result
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdirat(folder: c_int, path: *const c_char, mode: mode_t) -> c_int {
    let real = real!(mkdirat: fn(c_int, *const c_char, mode_t) -> c_int);
    let record = |place: &Place| {
        // Safety: the caller's.
        if let Some(seen) = unsafe { file::at(folder, path) } {
            trace::made(place, seen);
        }
    };
    // Safety: the caller's.
    unsafe { named(Call::Mkdir, folder, path, || real(folder, path, mode), record) }
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // Safety: the same call, from the current folder.
    unsafe { mkdirat(libc::AT_FDCWD, path, mode) }
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    let real = real!(unlinkat: fn(c_int, *const c_char, c_int) -> c_int);
    // Safety: the caller's.
    unsafe { named(Call::Unlink, folder, path, || real(folder, path, flags), trace::removed) }
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // Safety: the same call, from the current folder.
    unsafe { unlinkat(libc::AT_FDCWD, path, 0) }
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // Safety: the same call, from the current folder.
    unsafe { unlinkat(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    from_folder: c_int,
    from: *const c_char,
    folder: c_int,
    path: *const c_char,
) -> c_int {
    let real = real!(renameat: fn(c_int, *const c_char, c_int, *const c_char) -> c_int);
    // Safety: the caller's.
    let source = Place::of(from_folder, unsafe { file::bytes_of(from) });
    let record = |place: &Place| {
        if let Some(source) = &source {
            trace::renamed(source, place);
        }
    };
    // Safety: the caller's.
    unsafe { named(Call::Rename, folder, path, || real(from_folder, from, folder, path), record) }
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, path: *const c_char) -> c_int {
    // Safety: the same call, from the current folder.
    unsafe { renameat(libc::AT_FDCWD, from, libc::AT_FDCWD, path) }
}

/// # Safety
/// As the system's own call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    from_folder: c_int,
    from: *const c_char,
    folder: c_int,
    path: *const c_char,
    flags: c_int,
) -> c_int {
    trace::unknown("linkat");
    let real = real!(linkat: fn(c_int, *const c_char, c_int, *const c_char, c_int) -> c_int);
    // Safety: the caller's.
    unsafe { real(from_folder, from, folder, path, flags) }
}
