//! Directory trees that are entered name by name, never through a symlink.

pub(crate) mod beneath;
pub(crate) mod path;
pub(crate) mod place;
pub(crate) mod scan;
