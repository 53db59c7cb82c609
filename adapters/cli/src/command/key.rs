//! The arguments that name a key.

use crate::exit::Failure;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use strandline_core::record::{Key, RecordLimits};

/// The namespace of keys where none is named.
const NAMESPACE: &str = "files";

/// Which namespace.
#[derive(Args, Debug)]
pub(crate) struct NamespaceArg {
    /// The namespace of the keys.
    #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
    namespace: OsString,
}

impl NamespaceArg {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.namespace.as_bytes()
    }
}

/// Which key.
#[derive(Args, Debug)]
pub(crate) struct KeyArg {
    /// The key.
    key: OsString,
    #[command(flatten)]
    namespace: NamespaceArg,
}

impl KeyArg {
    pub(crate) fn key(&self) -> Result<Key, Failure> {
        key(self.namespace.bytes(), self.key.as_bytes())
    }
}

/// Judges a key.
pub(crate) fn key(namespace: &[u8], logical_key: &[u8]) -> Result<Key, Failure> {
    Ok(RecordLimits::default().key(namespace, logical_key)?)
}
