//! Whose keys a server is used with.

use strandline_core::stream::error::CallerError;
use strandline_core::stream::layout::TaggedKeys;
use strandline_core::stream::name::Tag;
use strandline_core::stream::{Layout, StreamName};

/// The layout, and for the Tagged one the prefix of its keys and what decides their slot.
#[derive(Clone, Debug)]
pub enum Names {
    /// Ours.
    Tagged {
        /// What every key begins with.
        prefix: StreamName,
        /// One slot for all streams; `None` gives each stream its own.
        tag: Option<Tag>,
    },
    /// The reference's, which has no prefix and no tags.
    Pulse,
}

impl Names {
    /// Our layout below `prefix`, each stream in a slot of its own.
    ///
    /// # Errors
    /// `InvalidOption` for a prefix that is no name.
    pub fn tagged_below(prefix: &str) -> Result<Self, CallerError> {
        Ok(Self::Tagged { prefix: StreamName::new(prefix)?, tag: None })
    }

    /// The layout.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        match self {
            Self::Tagged { .. } => Layout::Tagged,
            Self::Pulse => Layout::Pulse,
        }
    }

    /// The keys of a stream in the Tagged layout.
    ///
    /// # Panics
    /// In the Pulse layout, which has other keys.
    #[must_use]
    pub fn tagged(&self, stream: &StreamName) -> TaggedKeys {
        match self {
            Self::Tagged { prefix, tag } => {
                let tag = tag.clone().unwrap_or_else(|| Tag::new(stream.clone()));
                TaggedKeys::new(prefix, &tag, stream)
            }
            Self::Pulse => panic!("the Pulse layout has no tagged keys"),
        }
    }
}
