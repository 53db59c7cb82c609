//! Binding and reaching the socket in a directory, also where its path is too long for a socket.

use super::SOCKET_NAME;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Longest path handed to the system: the address has room for 104 bytes (macOS) with its end.
const PATH_BYTES_MAX: usize = 100;

/// A path short enough for a socket, valid as long as this value lives.
struct Short {
    path: PathBuf,
    _dir: Option<fs::File>,
}

fn short(dir: &Path, name: &str) -> io::Result<Short> {
    let path = dir.join(name);
    if path.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
        Ok(Short { path, _dir: None })
    } else {
        through_fd(dir, name)
    }
}

#[cfg(target_os = "linux")]
fn through_fd(dir: &Path, name: &str) -> io::Result<Short> {
    use std::os::fd::AsRawFd;
    let dir = fs::File::open(dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()));
    Ok(Short { path, _dir: Some(dir) })
}

#[cfg(not(target_os = "linux"))]
fn through_fd(dir: &Path, name: &str) -> io::Result<Short> {
    let found = dir.join(name).as_os_str().as_bytes().len();
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("the socket's path has {found} bytes: at most {PATH_BYTES_MAX} here; use a shorter --dir"),
    ))
}

/// Listens on the directory's socket, mode 0600 from the moment it has its name. Replaces what has
/// that name: the caller holds the directory's lock, so nobody listens there.
pub(crate) fn bind(dir: &Path) -> io::Result<UnixListener> {
    let fresh_name = format!("{SOCKET_NAME}.new");
    let fresh = dir.join(&fresh_name);
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(short(dir, &fresh_name)?.path)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
    fs::rename(&fresh, dir.join(SOCKET_NAME))?;
    Ok(listener)
}

/// Reaches the node that serves the directory; `None` if none does.
pub(crate) fn connect(dir: &Path) -> io::Result<Option<UnixStream>> {
    match UnixStream::connect(short(dir, SOCKET_NAME)?.path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("is there").permissions().mode() & 0o777
    }

    #[test]
    fn a_stale_socket_is_nobody_and_is_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(connect(dir.path()).expect("no socket").is_none());
        drop(bind(dir.path()).expect("binds"));
        assert!(connect(dir.path()).expect("a stale socket").is_none());
        let _listener = bind(dir.path()).expect("binds again");
        assert!(connect(dir.path()).expect("reaches").is_some());
        assert_eq!(mode(&dir.path().join(SOCKET_NAME)), 0o600);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_path_too_long_for_a_socket_is_reached() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("d".repeat(120)).join("e".repeat(120));
        fs::create_dir_all(&dir).expect("creates");
        let _listener = bind(&dir).expect("binds");
        assert!(connect(&dir).expect("reaches").is_some());
    }
}
