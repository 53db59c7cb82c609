//! Values derived from the bytes of entropy the host hands in once per start.

use sha2::{Digest, Sha256};

/// 32 bytes from the host's source of randomness (or from a simulator's seed).
///
/// Values are derived under a label, so that adding a use never changes another one.
///
/// ```
/// use strandline_core::seed::Seed;
/// let seed = Seed::new([7; 32]);
/// assert_eq!(seed.bytes::<8>("salt", 1), seed.bytes::<8>("salt", 1));
/// assert_ne!(seed.bytes::<8>("salt", 1), seed.bytes::<8>("salt", 2));
/// ```
#[derive(Clone, Debug)]
pub struct Seed([u8; 32]);

impl Seed {
    /// Wraps the host's bytes. They must differ between starts of a real host.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// `N` bytes (32 at most) named by `label` and `number`.
    #[must_use]
    pub fn bytes<const N: usize>(&self, label: &str, number: u64) -> [u8; N] {
        const { assert!(N <= 32, "one SHA-256 gives 32 bytes") };
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(number.to_be_bytes());
        hash.update(label.as_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        core::array::from_fn(|i| digest[i])
    }

    /// A number named by `label` and `number`.
    #[must_use]
    pub fn number(&self, label: &str, number: u64) -> u64 {
        u64::from_be_bytes(self.bytes(label, number))
    }
}
