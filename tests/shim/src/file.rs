//! Which file a call is about.

use libc::{c_char, c_int};
use std::ffi::{CStr, CString};

/// A file or folder: its device and inode.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) is_folder: bool,
}

impl Seen {
    fn from(stat: &libc::stat64) -> Option<Self> {
        let kind = stat.st_mode & libc::S_IFMT;
        let seen = Self { device: stat.st_dev, inode: stat.st_ino, is_folder: kind == libc::S_IFDIR };
        (kind == libc::S_IFREG || kind == libc::S_IFDIR).then_some(seen)
    }

    /// The regular file or folder that is open as `fd`.
    pub(crate) fn any(fd: c_int) -> Option<Self> {
        let mut stat = std::mem::MaybeUninit::uninit();
        // Safety: it fills the whole of `stat` if it answers 0.
        let stat = unsafe {
            if libc::fstat64(fd, stat.as_mut_ptr()) != 0 {
                return None;
            }
            stat.assume_init()
        };
        Self::from(&stat)
    }

    /// The regular file that is open as `fd`.
    pub(crate) fn regular(fd: c_int) -> Option<Self> {
        Self::any(fd).filter(|seen| !seen.is_folder)
    }
}

/// What a path leads to, itself if it is a link.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn at(folder: c_int, path: *const c_char) -> Option<Seen> {
    let mut stat = std::mem::MaybeUninit::uninit();
    // Safety: as above, and the caller's.
    let stat = unsafe {
        if libc::fstatat64(folder, path, stat.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW) != 0 {
            return None;
        }
        stat.assume_init()
    };
    Seen::from(&stat)
}

/// A name in a folder.
pub(crate) struct Place {
    pub(crate) folder: Seen,
    pub(crate) name: Vec<u8>,
}

impl Place {
    /// Where a path leads; `None` if the folder above it is not there.
    pub(crate) fn of(folder: c_int, path: &[u8]) -> Option<Self> {
        let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(0) => (&b"/"[..], &path[1..]),
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b"."[..], path),
        };
        let above = CString::new(above).ok()?;
        let name = name.to_vec();
        // Safety: a C string; with the slash the folder behind a link is meant.
        let linked = CString::new([above.as_bytes(), b"/."].concat()).ok()?;
        let folder = unsafe { at(folder, linked.as_ptr()) }?;
        Some(Self { folder, name })
    }

    /// Whether anything has the path now.
    pub(crate) fn exists(&self, folder: c_int, path: &[u8]) -> bool {
        // Safety: a C string.
        CString::new(path).is_ok_and(|path| unsafe { at(folder, path.as_ptr()) }.is_some())
    }
}

/// # Safety
/// `path` is a C string that outlives what is given.
pub(crate) unsafe fn bytes_of<'a>(path: *const c_char) -> &'a [u8] {
    // Safety: the caller's.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// The path that is open as `fd`; empty if the system does not tell.
pub(crate) fn path_of(fd: c_int) -> Vec<u8> {
    let link = format!("/proc/self/fd/{fd}\0");
    let mut path = vec![0; 4096];
    // Safety: a C string, and a buffer of the length told.
    let count = unsafe { libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
    path.truncate(usize::try_from(count).unwrap_or(0));
    path
}
