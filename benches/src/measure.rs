//! Rounds that take turns, medians, ratios.

use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Rounds of each row.
    pub(crate) rounds: usize,
    /// How long one round of appends lasts.
    pub(crate) append_time: Duration,
    /// How long one round of a computation lasts, about.
    pub(crate) compute_time: Duration,
    /// What sizes are divided by.
    pub(crate) divisor: u64,
}

impl Scale {
    /// The full scale, or a short one if `BENCH_QUICK` is set.
    pub(crate) fn from_environment() -> Self {
        if std::env::var_os("BENCH_QUICK").is_some() {
            let short = Duration::from_millis(10);
            Self { rounds: 1, append_time: short, compute_time: short, divisor: 16 }
        } else {
            let (append_time, compute_time) = (Duration::from_millis(400), Duration::from_millis(100));
            Self { rounds: 5, append_time, compute_time, divisor: 1 }
        }
    }
}

/// Which of two values is better.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Better {
    Higher,
    Lower,
}

/// One line of the result.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    pub(crate) unit: &'static str,
    pub(crate) beside: &'static str,
    pub(crate) better: Better,
}

impl Row {
    /// 1 or more: ours is as good or better.
    pub(crate) fn ratio(&self) -> f64 {
        match self.better {
            Better::Higher => self.ours / self.theirs,
            Better::Lower => self.theirs / self.ours,
        }
    }
}

/// Runs each of `sides` once a round, in turn; their medians.
pub(crate) fn medians<const N: usize>(rounds: usize, mut sides: [&mut dyn FnMut() -> f64; N]) -> [f64; N] {
    let mut values: [Vec<f64>; N] = std::array::from_fn(|_| Vec::with_capacity(rounds));
    for _ in 0..rounds {
        for (side, values) in sides.iter_mut().zip(&mut values) {
            values.push(side());
        }
    }
    values.map(|mut values| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    })
}

/// Nanoseconds that one of the `items` of a call to `work` takes, over calls that last about `time`.
pub(crate) fn ns_per_item(time: Duration, items: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut calls = 0u32;
    while calls == 0 || start.elapsed() < time {
        work();
        calls += 1;
    }
    start.elapsed().as_secs_f64() * 1e9 / (f64::from(calls) * items as f64)
}

/// A short name for large counts.
pub(crate) fn thousands(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..1_000_000 => format!("{}k", count / 1000),
        1_000_000.. => format!("{}M", count / 1_000_000),
    }
}
