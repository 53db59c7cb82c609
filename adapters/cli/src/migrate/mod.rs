//! v1 directories on this machine: read without being opened for writing, and written anew.

mod feed;
mod folder;

pub(crate) use feed::bring;
pub(crate) use folder::Folder;
