//! Calls of the system that fail, one by one and in every place where the files are written: nothing
//! acknowledged is lost, what was refused did not happen, and the next process goes on, also when the
//! power is cut after the fault, or after that process has written more.

use crate::client::{Work, judge, run, short};
use crate::disk::Disk;
use crate::power_loss::Cuts;
use crate::told::Told;
use crate::trace::Record;
use crate::{scratch, soak};
use std::collections::BTreeMap;

/// A fault.
struct Case {
    name: &'static str,
    /// With `{}` where the number of the call goes.
    rules: &'static str,
    numbers: &'static [u64],
    /// Whether a caller must be told of it: a retry, or a spare that is made again, hides the others.
    told: bool,
}

const EINTR: &str = "a call that a signal interrupts is made again";

const CASES: &[Case] = &[
    Case {
        name: "failed sync of an append",
        rules: "datasync segment- {} 5",
        numbers: &[1, 2, 9, 24],
        told: true,
    },
    Case {
        name: "failed write of an append",
        rules: "write log/segment- {} 5",
        numbers: &[2, 30],
        told: true,
    },
    Case {
        name: "short write of an append, then no room",
        rules: "write log/segment- {} short; write log/segment- {+1}+ 28",
        numbers: &[2, 11, 25],
        told: true,
    },
    Case { name: "short writes that go on", rules: "write * {}+ short", numbers: &[1], told: false },
    Case {
        name: EINTR,
        rules: "write * {} 4; sync * {} 4; datasync * {} 4; open * {} 4",
        numbers: &[1, 12],
        told: false,
    },
    Case { name: "no room from then on", rules: "write * {}+ 28", numbers: &[1, 30, 60, 90], told: true },
    Case {
        name: "failed sync of a new segment",
        rules: "sync segment- {} 5",
        numbers: &[1, 2, 3],
        told: false,
    },
    Case {
        name: "failed syncs of all new segments",
        rules: "sync segment- {}+ 5",
        numbers: &[2],
        told: true,
    },
    Case { name: "failed write of a blob", rules: "write uploads/ {} 28", numbers: &[1, 20], told: true },
    Case { name: "failed sync of a blob", rules: "sync uploads/ {} 5", numbers: &[1, 20], told: true },
    Case { name: "failed rename", rules: "rename * {} 5", numbers: &[1, 3, 5, 9, 30], told: false },
    Case {
        name: "failed sync of a folder",
        rules: "sync-folder * {} 5",
        numbers: &[1, 3, 5, 8, 14, 30],
        told: false,
    },
    Case { name: "failed open", rules: "open * {} 24", numbers: &[2, 6, 15], told: false },
    Case { name: "failed mkdir", rules: "mkdir * {} 28", numbers: &[2, 4, 9], told: false },
    Case { name: "failed removal", rules: "unlink * {}+ 5", numbers: &[1], told: false },
    Case { name: "failed sidecar", rules: "write tmp- {} 28", numbers: &[2, 3, 5], told: false },
    Case { name: "failed checkpoint", rules: "write checkpoint {} 28", numbers: &[1], told: false },
    Case { name: "failed sync of a checkpoint", rules: "sync checkpoint {} 5", numbers: &[1], told: false },
];

fn rules(case: &Case, number: u64) -> String {
    case.rules.replace("{}", &number.to_string()).replace("{+1}", &(number + 1).to_string())
}

/// How often each rule struck.
fn struck(records: &[Record]) -> BTreeMap<String, u64> {
    let mut struck = BTreeMap::new();
    for record in records {
        if let Record::Struck { rule } = record {
            *struck.entry(rule.clone()).or_default() += 1;
        }
    }
    struck
}

#[test]
fn whatever_call_fails_nothing_acknowledged_is_lost_and_the_next_process_goes_on() {
    let (mut count, mut uncertain, mut refused, mut faults) = (0, 0, 0, 0);
    for case in CASES {
        for number in case.numbers {
            let rules = rules(case, *number);
            let said = format!("{} ({rules})", case.name);
            let home = scratch();
            let root = home.path().join("root");
            std::fs::create_dir(&root).expect("creates");
            let log = root.join("log");
            let mut cuts = Cuts::new(Disk::of(&root), Told::default(), 100 + number);
            let check = |image: &std::path::Path, told: &Told| {
                judge(&image.join("log"), short(), told).map_err(|why| format!("{said}: {why}"))
            };
            let spoilt = run(&log, Work::Steps { run: 1, steps: 24 }, &rules);
            let struck = struck(&spoilt.records);
            assert_eq!(struck.len(), rules.split(';').count(), "{said}: found only {struck:?}");
            faults += struck.values().sum::<u64>();
            let points = if soak() { 2_000 } else { 10 };
            cuts.follow(&spoilt.records, points, check);
            let told = cuts.told.uncertain + cuts.told.refused > 0 || !spoilt.closed;
            assert!(told || !case.told, "{said}: nobody was told");
            if case.name == EINTR {
                assert!(!told && spoilt.closed, "{said}: {}", spoilt.complaints);
            }
            // The page cache is as it was: what the failed sync left in it must not be believed.
            let next = run(&log, Work::Steps { run: 2, steps: 8 }, "");
            assert!(next.closed, "{said}: {}", next.complaints);
            cuts.follow(&next.records, points, check);
            let left = scratch();
            cuts.disk.cut_power(crate::disk::Survives::Nothing, left.path());
            check(left.path(), &cuts.told).unwrap_or_else(|why| panic!("after all: {why}"));
            judge(&log, short(), &cuts.told).unwrap_or_else(|why| panic!("{said}: {why}"));
            count += cuts.count;
            (uncertain, refused) = (uncertain + cuts.told.uncertain, refused + cuts.told.refused);
        }
    }
    println!("{faults} calls failed, {uncertain} uncertain, {refused} refused, {count} power cuts");
}
