//! Blobs that came in part when their link went down: another link goes on where it ended.

use crate::limits::PIECE_BYTES_MAX;
use crate::record::BlobKey;
use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Most blobs that are kept in part.
pub(super) const PARTIALS_MAX: usize = 32;

/// How much of a blob came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Partial {
    /// Its length, as the peer said.
    pub(super) total: u64,
    /// How many bytes of it were handed to the blob store, from its beginning.
    pub(super) received: u64,
}

impl Partial {
    /// Where to go on: at a whole piece, at least one of which is asked for again, so that what comes
    /// next shows whether the store still has the rest.
    pub(super) const fn resume_at(&self) -> u64 {
        let piece = PIECE_BYTES_MAX as u64;
        let whole = self.received / piece * piece;
        if whole >= self.total { whole.saturating_sub(piece) } else { whole }
    }
}

/// The blobs that came in part and that no link fetches at present.
#[derive(Debug, Default)]
pub(super) struct Partials {
    kept: BTreeMap<BlobKey, (Partial, Instant)>,
}

impl Partials {
    /// Keeps what a link leaves behind. The one that must be abandoned for it, if one must.
    #[must_use]
    pub(super) fn keep(&mut self, key: BlobKey, partial: Partial, now: Instant) -> Option<BlobKey> {
        self.kept.insert(key, (partial, now));
        if self.kept.len() <= PARTIALS_MAX {
            return None;
        }
        let oldest = self.kept.iter().min_by_key(|(_, (_, since))| *since).map(|(key, _)| *key);
        oldest.inspect(|key| {
            self.kept.remove(key);
        })
    }

    /// A link goes on with it.
    pub(super) fn take(&mut self, key: BlobKey) -> Option<Partial> {
        self.kept.remove(&key).map(|(partial, _)| partial)
    }

    /// Those that nobody went on with for `keep_ms`: they are forgotten here, and to be abandoned.
    #[must_use]
    pub(super) fn expire(&mut self, now: Instant, keep_ms: u64) -> Vec<BlobKey> {
        let old = |(_, (_, since)): &(&BlobKey, &(Partial, Instant))| since.after_ms(keep_ms) <= now;
        let expired: Vec<BlobKey> = self.kept.iter().filter(old).map(|(key, _)| *key).collect();
        for key in &expired {
            self.kept.remove(key);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = PIECE_BYTES_MAX as u64;

    fn key(n: u8) -> BlobKey {
        BlobKey([n; 32])
    }

    #[test]
    fn goes_on_at_a_whole_piece_and_asks_for_at_least_one() {
        let at = |total, received| Partial { total, received }.resume_at();
        assert_eq!(at(10 * PIECE, 3 * PIECE), 3 * PIECE);
        assert_eq!(at(3 * PIECE, 3 * PIECE), 2 * PIECE, "all came: the last piece again");
        assert_eq!(at(3 * PIECE + 5, 3 * PIECE + 5), 3 * PIECE);
        assert_eq!(at(5, 0), 0);
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many_and_all_go_with_time() {
        let mut partials = Partials::default();
        let partial = Partial { total: 2 * PIECE, received: PIECE };
        for n in 0..PARTIALS_MAX as u8 {
            assert_eq!(partials.keep(key(n), partial, Instant(100 + u64::from(n))), None);
        }
        assert_eq!(partials.keep(key(99), partial, Instant(500)), Some(key(0)));
        assert_eq!((partials.take(key(1)), partials.take(key(1))), (Some(partial), None));
        let before = partials.kept.len();
        assert_eq!(partials.expire(Instant(99), 10), []);
        assert_eq!(partials.expire(Instant(u64::MAX), 10).len(), before);
    }
}
