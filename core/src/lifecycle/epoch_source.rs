//! Epochs that do not come from a person: a lease says who writes, and its fence token is the epoch.

/// Where an epoch comes from, if not from a person: a lease, whose fence token grows with each
/// holder. Whoever holds it writes; a token is never given twice.
///
/// ```
/// use strandline_core::lifecycle::epoch_source::EpochSource;
/// struct Lease { token: u64 }
/// impl EpochSource for Lease {
///     type Error = core::convert::Infallible;
///     fn epoch(&mut self) -> Result<Option<u64>, Self::Error> { Ok(Some(self.token)) }
/// }
/// assert_eq!(Lease { token: 7 }.epoch(), Ok(Some(7)));
/// ```
pub trait EpochSource {
    /// Why it cannot be asked.
    type Error;
    /// The epoch that the holder of the right has; `None` while this replica does not hold it.
    ///
    /// # Errors
    /// It cannot be told: nothing may be taken then.
    fn epoch(&mut self) -> Result<Option<u64>, Self::Error>;
}

/// What an epoch that a source gave means for a replica.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EpochStep {
    /// This replica does not hold the right: it goes on as it is. Whoever takes the right fences it.
    NotHeld,
    /// It holds the right in a new epoch: take it.
    Take(u64),
    /// It writes in this epoch.
    Held,
    /// The epoch is over, or another one's: nothing may be taken with it. A source that gives one is
    /// behind, as one is whose lease has run out unnoticed.
    Over {
        /// The highest epoch known here or at peers.
        known: u64,
    },
}

impl EpochStep {
    /// The table: what was `given`, the highest epoch `known` here and at peers, and the one in which this
    /// replica may `write`, if it may.
    #[must_use]
    pub const fn judge(given: Option<u64>, known: u64, writes: Option<u64>) -> Self {
        match (given, writes) {
            (None, _) => Self::NotHeld,
            (Some(given), _) if given > known => Self::Take(given),
            (Some(given), Some(writes)) if given == writes => Self::Held,
            (Some(_), _) => Self::Over { known },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_held() {
        assert_eq!(EpochStep::judge(None, 3, Some(3)), EpochStep::NotHeld);
    }

    #[test]
    fn take() {
        assert_eq!(EpochStep::judge(Some(4), 3, Some(3)), EpochStep::Take(4));
        assert_eq!(EpochStep::judge(Some(9), 3, None), EpochStep::Take(9));
    }

    #[test]
    fn held() {
        assert_eq!(EpochStep::judge(Some(3), 3, Some(3)), EpochStep::Held);
    }

    #[test]
    fn an_epoch_that_is_over_takes_nothing() {
        assert_eq!(EpochStep::judge(Some(3), 3, None), EpochStep::Over { known: 3 });
        assert_eq!(EpochStep::judge(Some(2), 3, Some(3)), EpochStep::Over { known: 3 });
    }
}
