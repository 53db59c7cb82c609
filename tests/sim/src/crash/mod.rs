//! Crashes at every effect boundary of scripted scenarios: what recovery then gives is the state
//! before or the state after, never a third.

mod bench;
mod scripts;

pub use scripts::{SCRIPTS, Script};

use crate::blobs::BlobStore;
use crate::fault::{Counts, Fault};
use crate::fs::{Fs, PAGE, Tearing};
use crate::rng::{Choose, Odometer, Rng};
use bench::{Bench, Rig, Shown, Stopped, recover, shown};
use strandline_core::record::State;
use strandline_core::time::{Instant, Now, WallTime};

/// Up to so many undecided pages and entries every set of them is tried.
const UNDECIDED_MAX: usize = 8;
/// Beyond that, so many are sampled.
const SAMPLES: u64 = 500;
/// Up to so many dirty pages a page is torn at every byte.
const TORN_EVERYWHERE_MAX: usize = 2;
/// Where it is torn otherwise.
const TORN_AT: [usize; 14] = [1, 7, 8, 9, 63, 64, 65, 111, 112, 113, 255, 256, 257, 511];

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Visited {
    /// Effect boundaries.
    pub boundaries: u64,
    /// States of the disk that were recovered from.
    pub states: u64,
    /// Among them, crashes of the recovery from one.
    pub nested: u64,
}

/// Always the first choice, or always the last.
struct Always {
    last: bool,
}

impl Choose for Always {
    fn below(&mut self, n: u64) -> u64 {
        if self.last { n.saturating_sub(1) } else { 0 }
    }
}

/// The world at a crash: what may be found afterwards.
struct Crash<'a> {
    script: &'a Script,
    identity: &'static str,
    fs: &'a Fs,
    blobs: &'a BlobStore,
    /// What was shown last, and what would have been shown next.
    allowed: &'a [Shown],
    /// Nothing had been vouched for yet.
    nothing: bool,
}

fn now() -> Now {
    Now { mono: Instant(9_000_000_000), wall: WallTime(9_000) }
}

fn rig(identity: &'static str, fs: Fs, blobs: BlobStore) -> Rig {
    let mut rig = Rig::new(identity);
    rig.host.fs = fs;
    rig.host.blobs = blobs;
    rig
}

impl Crash<'_> {
    /// Recovers from one state of the disk; says what is shown then, and what the disk is.
    fn recovered(&self, fs: Fs, blobs: &BlobStore) -> Result<(Shown, Rig), String> {
        let name = self.script.name;
        let mut rig = rig(self.identity, fs, blobs.clone());
        let Ok(recovered) = recover(&mut rig, now(), || Ok(())) else { unreachable!("nothing stops it") };
        let replica = recovered.map_err(|error| format!("{name}: {error}"))?;
        let found = shown(&replica);
        self.judge(&found, &rig.host.blobs)?;
        Ok((found, rig))
    }

    fn judge(&self, found: &Shown, blobs: &BlobStore) -> Result<(), String> {
        let name = self.script.name;
        let empty = self.nothing && found.version.is_zero();
        let tail = self.allowed.iter().find(|shown| shown.tail == found.tail);
        let whole = tail.is_some_and(|shown| shown.present == found.present);
        let floor = self.allowed.iter().any(|shown| shown.floor == found.floor);
        let members = self.allowed.iter().any(|shown| shown.members == found.members);
        if !(empty || (whole && floor && members)) {
            return Err(format!("{name}: expected one of {:?}, found {found:?}", self.allowed));
        }
        for (state, version) in found.present.values() {
            if let State::Present { blob } = state
                && !blobs.holds(blob)
            {
                return Err(format!("{name}: {version} is there, its blob is not"));
            }
        }
        Ok(())
    }

    /// Recovers, then loses power: what was recovered must have been durable.
    fn twice(&self, fs: Fs, blobs: &BlobStore, seed: u64) -> Result<(), String> {
        let (first, mut rig) = self.recovered(fs, blobs)?;
        rig.host.fs.power_cut(&mut Rng::new(seed), Tearing::Anywhere, &mut Counts::default());
        let blobs = rig.host.blobs.clone();
        let (second, _) = self.recovered(rig.host.fs, &blobs)?;
        if first != second {
            let name = self.script.name;
            return Err(format!("{name}: recovered {first:?}, and after a power cut {second:?}"));
        }
        Ok(())
    }

    /// Every state that a crash here may leave.
    fn explore(&self, visited: &mut Visited) -> Result<(), String> {
        visited.boundaries += 1;
        let mut counts = Counts::default();
        let mut blobs = self.blobs.clone();
        blobs.crash(&mut Always { last: true }, &mut counts);
        visited.states += 1;
        self.twice(self.fs.clone(), &blobs, visited.states)?;
        if self.fs.undecided() <= UNDECIDED_MAX {
            let mut all = Odometer::default();
            loop {
                self.cut(&mut all, Tearing::Never, visited)?;
                if !all.advance() {
                    break;
                }
            }
        } else {
            let mut rng = Rng::new(visited.states);
            for _ in 0..SAMPLES {
                self.cut(&mut rng, Tearing::Anywhere, visited)?;
            }
        }
        let dirty = self.fs.dirty();
        for page in &dirty {
            let bytes: Vec<usize> =
                if dirty.len() <= TORN_EVERYWHERE_MAX { (1..PAGE).collect() } else { TORN_AT.to_vec() };
            for byte in bytes {
                for (first, last) in [(true, true), (true, false), (false, true), (false, false)] {
                    self.cut(&mut Always { last }, Tearing::At(*page, byte, first), visited)?;
                }
            }
        }
        Ok(())
    }

    fn cut(&self, choose: &mut dyn Choose, tearing: Tearing, visited: &mut Visited) -> Result<(), String> {
        let (mut fs, mut counts) = (self.fs.clone(), Counts::default());
        let mut blobs = self.blobs.clone();
        fs.power_cut(choose, tearing, &mut counts);
        blobs.crash(choose, &mut counts);
        visited.states += 1;
        // Some of them crash once more, at every effect of their recovery.
        if visited.states.is_multiple_of(97) {
            self.nested(&fs, &blobs, visited)?;
        }
        self.twice(fs, &blobs, visited.states)
    }

    fn nested(&self, fs: &Fs, blobs: &BlobStore, visited: &mut Visited) -> Result<(), String> {
        for fuse in 0.. {
            let mut rig = rig(self.identity, fs.clone(), blobs.clone());
            let mut left = fuse;
            let stopped = recover(&mut rig, now(), || {
                left = if left == 0 { return Err(Stopped) } else { left - 1 };
                Ok(())
            });
            if stopped.is_ok() {
                break;
            }
            for seed in 0..8 {
                let mut crashed = rig.host.fs.clone();
                crashed.power_cut(&mut Rng::new(seed), Tearing::Anywhere, &mut Counts::default());
                visited.nested += 1;
                self.twice(crashed, blobs, seed)?;
            }
            visited.nested += 1;
            self.twice(rig.host.fs.clone(), blobs, fuse)?;
        }
        Ok(())
    }
}

/// Crashes a script at every effect boundary.
///
/// # Errors
/// The first state that recovers to something else than the state before or after.
pub fn enumerate(script: &Script) -> Result<Visited, String> {
    let mut whole = Bench::new(script.identities, script.under, None);
    if (script.run)(&mut whole).is_err() {
        unreachable!("nothing stops it");
    }
    let seen = whole.done();
    let mut visited = Visited::default();
    for fuse in 0.. {
        let mut bench = Bench::new(script.identities, script.under, Some(fuse));
        if (script.run)(&mut bench).is_ok() {
            break;
        }
        // What was shown before the crash is vouched for; what comes next may have happened.
        let vouched = bench.seen.len();
        let allowed = &seen[vouched.saturating_sub(1)..];
        let host = &bench.rigs[script.under].host;
        let crash = Crash {
            script,
            identity: script.identities[script.under],
            fs: &host.fs,
            blobs: &host.blobs,
            allowed,
            nothing: vouched == 0,
        };
        crash.explore(&mut visited).map_err(|text| format!("before effect {fuse}: {text}"))?;
    }
    Ok(visited)
}

/// A sync that fails, a recovery by the same process, then a power cut: what recovery showed must
/// still be there, whichever pages the failed sync took to the disk.
///
/// # Errors
/// The first history that does not hold.
pub fn failed_sync() -> Result<u64, String> {
    let script = Script { name: "failed sync", identities: &["a"], under: 0, run: |_| Ok(()) };
    let mut states = 0;
    for seed in 0..64 {
        let mut bench = Bench::new(&["a"], 0, None);
        let mut run = || {
            bench.start(0)?;
            bench.mutate(0, &[bench::put("kept", 1)]);
            bench.settle()?;
            let before = shown(bench.replica(0));
            bench.rigs[0].host.reseed(seed);
            bench.rigs[0].host.armed.once.insert(Fault::FailedSync);
            bench.mutate(0, &[bench::put("uncertain", 2)]);
            bench.settle()?;
            Ok::<_, Stopped>(before)
        };
        let Ok(before) = run() else { unreachable!("nothing stops it") };
        let host = &mut bench.rigs[0].host;
        host.kill();
        let (fs, blobs) = (host.fs.clone(), host.blobs.clone());
        let mut rig = rig("a", fs, blobs.clone());
        let Ok(Ok(replica)) = recover(&mut rig, now(), || Ok(())) else {
            return Err(format!("seed {seed}: the same process does not recover"));
        };
        let after = shown(&replica);
        if !after.present.contains_key(&bench::key("kept")) {
            return Err(format!("seed {seed}: what was durable before is gone"));
        }
        let allowed = [before, after];
        for cut in 0..8 {
            let mut fs = rig.host.fs.clone();
            fs.evict(&mut Rng::new(cut));
            fs.power_cut(&mut Rng::new(cut), Tearing::Anywhere, &mut Counts::default());
            let crash = Crash {
                script: &script,
                identity: "a",
                fs: &rig.host.fs,
                blobs: &blobs,
                allowed: &allowed[1..],
                nothing: false,
            };
            crash.recovered(fs, &blobs).map_err(|text| format!("seed {seed}, cut {cut}: {text}"))?;
            states += 1;
        }
    }
    Ok(states)
}
