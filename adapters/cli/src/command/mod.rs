//! The commands, one file each.

pub(crate) mod backup;
pub(crate) mod compact;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod fence;
pub(crate) mod gc;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod list;
pub(crate) mod members;
pub(crate) mod migrate;
pub(crate) mod put;
pub(crate) mod reload;
pub(crate) mod reseed;
pub(crate) mod scrub;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod stream;
pub(crate) mod verify;
pub(crate) mod watch;
