//! Cuts a failing run down to few operations.

use crate::plan::Plan;
use crate::run::run;

/// Most runs that are tried.
const TRIES_MAX: u32 = 600;

/// The places of the operations that are left when no more can be left out: the run still fails in
/// the same way.
#[must_use]
pub fn shrink(plan: &Plan, kind: &'static str) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..plan.ops.len()).collect();
    let mut tries = 0;
    let mut fails = |kept: &[usize]| {
        tries += 1;
        tries <= TRIES_MAX && run(&plan.keep(kept), false).violation.is_some_and(|v| v.kind == kind)
    };
    let mut chunk = kept.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + chunk).min(kept.len()));
            if fails(&fewer) {
                kept = fewer;
            } else {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    kept
}
