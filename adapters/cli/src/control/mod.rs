//! The control protocol: how commands reach the node that serves a directory.
//!
//! A Unix socket `control.sock` (mode 0600) in the directory. One JSON [`message::Request`] a line,
//! answered by one JSON [`message::Answer`] a line, in order. Blobs do not pass through it: the
//! store is content-addressed, so a command writes and reads it beside the running node.

pub(crate) mod message;
pub(crate) mod server;
pub(crate) mod socket;

/// The socket's name in the directory.
pub(crate) const SOCKET_NAME: &str = "control.sock";

/// Longest line of either direction.
pub(crate) const LINE_BYTES_MAX: u64 = 16 << 20;
