//! Numbers that look random and are the same in every run.

pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// A number below `below`.
    pub(crate) fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % below
    }

    /// Whether a thing that happens once in `times` happens now.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
