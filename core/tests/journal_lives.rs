//! Many lives of one directory: appends, seals, switches, compactions, failed writes and power cuts
//! in any order, each life recovering from what the one before left.

mod common;

use common::disk::{Disk, Torn};
use common::event_log::{Config, DiskHost, EventLog, SMALL};
use common::numbers::Numbers;
use strandline_core::error::StorageAction;
use strandline_core::id::Lsn;
use strandline_core::journal::command::FileName;
use strandline_core::journal::current::Current;
use strandline_core::journal::recovery::Origin;

/// What must be true of a directory, whatever happened to it.
struct Model {
    /// Everything that may be in the journal, from LSN 1 on.
    appended: Vec<Vec<u8>>,
    /// How much of it was acknowledged.
    acknowledged: usize,
    first_segment: u64,
    /// The entries that compaction took away.
    compacted: usize,
    entered: bool,
    /// How many lives came to append something.
    recoveries: usize,
}

impl Model {
    fn config(&self, run: u64) -> Config {
        let origin = if self.entered { Origin::Existing } else { Origin::New };
        Config { limits: SMALL, origin, first_segment: self.first_segment, run }
    }

    /// Takes what a life recovered as the truth, if it may be.
    fn recovered(&mut self, log: &EventLog, what: &str) {
        for (lsn, _, bytes) in &log.entries {
            let place = usize::try_from(*lsn).unwrap() - 1;
            assert_eq!(Some(bytes), self.appended.get(place), "{what}: entry {lsn}");
        }
        let first = log.entries.first().map_or(self.compacted, |(lsn, _, _)| *lsn as usize - 1);
        assert!(first <= self.compacted, "{what}: entries from {first} on, compacted {}", self.compacted);
        let end = log.entries.last().map_or(self.compacted, |(lsn, _, _)| *lsn as usize);
        assert!(end >= self.acknowledged, "{what}: {end} entries, {} acknowledged", self.acknowledged);
        self.appended.truncate(end);
        self.acknowledged = end;
    }
}

fn live(model: &mut Model, mut disk: Disk, run: u64, numbers: &mut Numbers, what: &str) -> Disk {
    disk.failing = None;
    let (mut log, mut host) = (EventLog::open(&model.config(run)), DiskHost::new(disk));
    let tear = numbers.below(200);
    let torn = [Torn::First(tear), Torn::AllBut(tear), Torn::Cached][numbers.below(3)];
    host.crash_at = Some((numbers.below(400), torn));
    host.settle(&mut log);
    if host.crashed {
        model.entered |= host.opened();
        return host.disk;
    }
    assert!(host.refused().is_none(), "{what}: {:?}", host.refused());
    model.recovered(&log, what);
    model.recoveries += 1;
    while !host.crashed && !host.halted() {
        step(model, &mut log, &mut host, numbers);
        if numbers.once_in(3) {
            host.settle(&mut log);
        }
        model.acknowledged = model.acknowledged.max(usize::try_from(host.durable()).unwrap());
        model.entered |= host.opened();
    }
    // A compaction counts from the moment `current` says so, told or not.
    if let Some(current) = host.disk.files.get(&FileName::Current) {
        let current = Current::decode(&current.cache).expect("replaced as one step");
        model.first_segment = model.first_segment.max(current.first_segment.0);
    }
    if host.halted() && numbers.once_in(2) {
        host.disk.power_cut();
    }
    host.disk
}

fn step(model: &mut Model, log: &mut EventLog, host: &mut DiskHost, numbers: &mut Numbers) {
    match numbers.below(12) {
        0 => log.seal(),
        1 => log.switch_segment(),
        2 => compact(model, log, host, numbers),
        3 if numbers.once_in(4) => {
            host.disk.failing = Some([StorageAction::Write, StorageAction::Prepare][numbers.below(2)]);
        }
        _ => {
            let group: Vec<Vec<u8>> =
                (0..=numbers.below(3)).map(|_| vec![numbers.below(256) as u8; numbers.below(45)]).collect();
            let entries: Vec<(u8, &[u8])> = group.iter().map(|bytes| (1, &bytes[..])).collect();
            if log.append(&entries).is_ok() {
                model.appended.extend(group);
            }
        }
    }
}

/// Gives up the durable entries below some point, and the segments only they needed.
fn compact(model: &mut Model, log: &mut EventLog, host: &mut DiskHost, numbers: &mut Numbers) {
    let Some(durable) = log.journal().durable() else { return };
    let below = Lsn::new(1 + numbers.below(durable.get() as usize) as u64).expect("at least 1");
    if log.log().compact_to(below).is_some() {
        model.compacted = model.compacted.max(below.get() as usize - 1);
    }
    host.settle(log);
}

#[test]
fn no_life_loses_what_an_earlier_one_acknowledged() {
    let (mut lives, mut segments) = (0, 0);
    for seed in 0..400 {
        let mut numbers = Numbers(seed);
        let mut model = Model {
            appended: Vec::new(),
            acknowledged: 0,
            first_segment: 1,
            compacted: 0,
            entered: false,
            recoveries: 0,
        };
        let mut disk = Disk::default();
        for run in 1..=8 {
            disk = live(&mut model, disk, run, &mut numbers, &format!("seed {seed}, run {run}"));
        }
        lives += model.recoveries;
        segments += model.first_segment;
    }
    assert!(lives > 2000 && segments > 2000, "{lives} lives recovered, {segments} segments left behind");
}
