//! The control protocol: how commands reach the node that serves a directory.
//!
//! A Unix socket `control.sock` (mode 0600) in the directory. One JSON [`message::Request`] a line,
//! answered by one JSON [`message::Answer`] a line, in order. Blobs pass as [`chunks`] behind the line
//! that announces them: the store has one opener, the node.
//!
//! `blob-group` opens a group: lines `{"item":"add"}`, each with chunks behind it and an answer, then
//! `{"item":"commit"}`; another line, or the end of the connection, stores nothing. `blob-read` is
//! answered by a line and chunks.

pub(crate) mod chunks;
pub(crate) mod message;
pub(crate) mod server;
pub(crate) mod socket;

/// The socket's name in the directory.
pub(crate) const SOCKET_NAME: &str = "control.sock";

/// Longest line of either direction.
pub(crate) const LINE_BYTES_MAX: u64 = 16 << 20;
