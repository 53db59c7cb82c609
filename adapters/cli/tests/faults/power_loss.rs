//! The power is cut at any moment of a real run: the files are laid out as a disk could hold them
//! then, the real recovery opens them, and everything that clients had been told by then must hold.

use crate::client::{Work, judge, run, short};
use crate::disk::{Dice, Disk, Survives};
use crate::told::Told;
use crate::trace::Record;
use crate::{scratch, soak};

/// Follows records, and cuts the power after some of them.
pub(crate) struct Cuts {
    pub(crate) disk: Disk,
    pub(crate) told: Told,
    dice: Dice,
    pub(crate) count: u64,
}

impl Cuts {
    pub(crate) fn new(disk: Disk, told: Told, seed: u64) -> Self {
        Self { disk, told, dice: Dice(seed), count: 0 }
    }

    /// Follows the records, and cuts after about `points` of them, each in two ways. What is left
    /// goes to `check` with the number of the record.
    ///
    /// # Panics
    /// If a check fails.
    pub(crate) fn follow(
        &mut self,
        records: &[Record],
        points: u64,
        mut check: impl FnMut(&std::path::Path, &Told) -> Result<(), String>,
    ) {
        for (number, record) in records.iter().enumerate() {
            self.disk.follow(record);
            if let Record::Say { bytes } = record {
                self.told.hear(bytes);
            }
            if self.dice.below(records.len().max(1) as u64) >= points {
                continue;
            }
            for survives in [Survives::Nothing, Survives::Some(self.dice.below(u64::MAX))] {
                let image = scratch();
                self.disk.cut_power(survives, image.path());
                if let Err(why) = check(image.path(), &self.told) {
                    let kept = image.keep();
                    let record: String = format!("{record:?}").chars().take(160).collect();
                    panic!(
                        "cut after record {number} of {} ({record}), {survives:?} survives: {why}; see {}",
                        records.len(),
                        kept.display()
                    );
                }
                self.count += 1;
            }
        }
    }
}

#[test]
fn whatever_a_power_cut_leaves_holds_all_that_was_acknowledged() {
    let home = scratch();
    let root = home.path().join("root");
    std::fs::create_dir(&root).expect("creates");
    let mut cuts = Cuts::new(Disk::of(&root), Told::default(), 1);
    let ran = run(&root.join("log"), Work::Steps { run: 0, steps: 50 }, "");
    assert!(ran.closed, "{}", ran.complaints);
    // The first start has few records and many ways to go wrong.
    let (start, rest) = ran.records.split_at(100);
    let check = |image: &std::path::Path, told: &Told| judge(&image.join("log"), short(), told);
    cuts.follow(start, 100, check);
    cuts.follow(rest, if soak() { 20_000 } else { 500 }, check);
    let _ = std::fs::remove_file(root.join("log.trace"));
    cuts.disk.assert_is(&root);
    println!(
        "{} records, {} power cuts, {} acknowledged",
        ran.records.len(),
        cuts.count,
        cuts.told.acknowledged
    );
    assert!(cuts.count > 600 && cuts.told.acknowledged > 300, "too few to prove anything");
}

#[test]
fn a_power_cut_during_recovery_from_a_kill_or_a_power_cut_leads_to_the_same_state() {
    let home = scratch();
    let root = home.path().join("root");
    std::fs::create_dir(&root).expect("creates");
    let mut disk = Disk::of(&root);
    let mut told = Told::default();
    let ran = run(&root.join("log"), Work::Steps { run: 0, steps: 25 }, "");
    let (mut dice, mut recoveries, mut count) = (Dice(2), 0, 0);
    let points = if soak() { 400 } else { 14 };
    for record in &ran.records {
        disk.follow(record);
        if let Record::Say { bytes } = record {
            told.hear(bytes);
        }
        if !told.opened || dice.below(ran.records.len() as u64) >= points {
            continue;
        }
        recoveries += 1;
        let again = scratch();
        // A killed process leaves its page cache: recovery finds what no sync has made durable.
        let second = if recoveries % 2 == 0 {
            disk.killed(again.path())
        } else {
            disk.cut_power(Survives::Some(dice.below(u64::MAX)), again.path());
            Disk::of(again.path())
        };
        let recovered = run(&again.path().join("log"), Work::Open, "");
        assert!(recovered.closed, "{}", recovered.complaints);
        let mut cuts = Cuts::new(second, told.clone(), recoveries);
        cuts.follow(&recovered.records, 15, |image, told| judge(&image.join("log"), short(), told));
        count += cuts.count;
    }
    println!("{recoveries} recoveries, {count} power cuts in them");
    assert!(recoveries >= 5 && count >= 50, "too few to prove anything");
}
