//! Where choices come from: a seed, or an enumeration of all of them.

/// Something that decides.
pub trait Choose {
    /// A number below `n`; 0 if `n` is 0 or 1.
    fn below(&mut self, n: u64) -> u64;

    /// True once in `n` times.
    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A place in a list of `n`.
    fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).expect("below a usize")
    }
}

/// Numbers that are the same for the same seed everywhere (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

impl Choose for Rng {
    fn below(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        // The high half of the product: no division, and no visible bias for small `n`.
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

/// Every sequence of choices, one after the other: run the same code once for each.
///
/// ```
/// use strandline_sim::rng::{Choose, Odometer};
/// let mut all = Odometer::default();
/// let mut seen = Vec::new();
/// loop {
///     seen.push((all.below(2), all.below(3)));
///     if !all.advance() {
///         break;
///     }
/// }
/// assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Odometer {
    digits: Vec<(u64, u64)>,
    at: usize,
}

impl Odometer {
    /// Goes to the next sequence; false after the last one.
    pub fn advance(&mut self) -> bool {
        self.digits.truncate(self.at);
        self.at = 0;
        while let Some((digit, n)) = self.digits.pop() {
            if digit + 1 < n {
                self.digits.push((digit + 1, n));
                return true;
            }
        }
        false
    }

    /// How many sequences there are if each choice is independent of the others, as far as the last
    /// run saw them.
    #[must_use]
    pub fn sequences(&self) -> u64 {
        self.digits.iter().fold(1, |product: u64, (_, n)| product.saturating_mul(*n))
    }
}

impl Choose for Odometer {
    fn below(&mut self, n: u64) -> u64 {
        if n <= 1 {
            return 0;
        }
        if self.at == self.digits.len() {
            self.digits.push((0, n));
        }
        let (digit, _) = self.digits[self.at];
        self.at += 1;
        digit
    }
}
