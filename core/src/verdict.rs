//! The one answer to "I have everything up to here: what came after?"

/// What can be vouched for, with the evidence for it.
///
/// `C` is the protocol's cursor, `V` how far a completeness was verified, `R` its closed set of
/// reasons (they become metric labels), `D` the evidence of a divergence.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub enum Verdict<C, V, R, D> {
    /// Everything after the cursor, up to `through`, is held: replay it. Nothing to replay means
    /// that the asker is caught up.
    Complete {
        /// The last position vouched for.
        through: C,
        /// How the common history was verified.
        verified: V,
    },
    /// The asker is behind what is kept.
    Gap {
        /// The asker's position.
        from: C,
        /// The lowest position that can still be vouched for.
        to: C,
        /// Why what lies between is gone.
        reason: R,
    },
    /// It cannot be told.
    Unknown {
        /// Why not.
        reason: R,
    },
    /// The asker's history is not a prefix of ours.
    Diverged(D),
}

impl<C, V, R, D> Verdict<C, V, R, D> {
    /// Whether a replay may follow.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        match self {
            Self::Complete { .. } => true,
            Self::Gap { .. } | Self::Unknown { .. } | Self::Diverged(_) => false,
        }
    }
}
