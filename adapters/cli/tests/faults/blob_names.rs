//! A follower whose blob has a name that no sync made durable: what it acknowledged it has, also when
//! the power is cut then, or after its next start.

use crate::disk::{Disk, Survives};
use crate::scratch;
use crate::shim::Shim;
use crate::support::{Replica, wait_until};
use crate::told::{found, text};
use crate::trace::{self, Record};
use std::path::Path;
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::NodeConfig;

const CONTENT: &str = "what a follower is asked to keep";

/// The folder of the only blob of a replica.
fn fan(replica: &Replica) -> String {
    let folders = std::fs::read_dir(replica.dir().join("blobs")).expect("lists");
    let mut names = folders.map(|entry| entry.expect("lists").file_name().into_string().expect("UTF-8"));
    names.find(|name| name.len() == 1).expect("a blob")
}

/// Whether a blob was brought again since a rule struck.
fn brought_again(records: &[Record]) -> bool {
    let after = records.iter().skip_while(|record| !matches!(record, Record::Struck { .. }));
    let upload = |record: &&Record| matches!(record, Record::Create { place, .. } if place.name.len() == 16);
    after.filter(upload).count() > 0
}

/// The power is cut: what the follower calls complete it has.
fn judge(disk: &Disk, acked: &str) {
    let image = scratch();
    disk.cut_power(Survives::Nothing, image.path());
    let opened = BlockingReplica::open(image.path().join("log"), NodeConfig::default());
    let (replica, _) = opened.expect("recovers");
    let status = replica.status().expect("runs");
    assert!(acked == "0.0" || acked == text(status.tail), "{acked} was acknowledged");
    if status.tail.sequence > 0 && status.complete == status.tail {
        let found = found(&replica).expect("has what it calls complete");
        assert_eq!(found["only"].0, CONTENT);
    }
    replica.close().expect("closes");
}

/// Follows what is new in a trace.
fn follow(disk: &mut Disk, trace: &Path, seen: &mut usize) {
    let records = trace::read(trace);
    records[*seen..].iter().for_each(|record| disk.follow(record));
    *seen = records.len();
}

#[test]
fn a_blob_whose_folder_could_not_be_synced_is_not_vouched_for() {
    let mut a = Replica::writer("a");
    a.put("only", CONTENT.as_bytes());
    let fan = fan(&a);
    let tail = a.status()["tail"].as_str().expect("a tail").to_owned();
    let address = a.serve("[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n");
    let failed = format!("sync-folder blobs/{fan} 1 5");
    // Where the name stays too, the next process finds it, as after a kill before the sync.
    for rules in [failed.clone(), format!("{failed}; unlink blobs/{fan} 1+ 5")] {
        follow_and_cut(&a, &address, &rules, &tail);
    }
}

fn follow_and_cut(a: &Replica, address: &str, rules: &str, tail: &str) {
    let mut b = Replica::new();
    let log = a.status()["log"].as_str().expect("a log").to_owned();
    b.done(["init", "--identity", "b", "--follow", "--log", &log]);
    let mut disk = Disk::of(b.home.path());
    let (home, mut seen) = (scratch(), 0);
    let trace = home.path().join("trace");
    let peers = format!("token = \"of b\"\n[[peers]]\nidentity = \"a\"\naddress = \"{address}\"\n");
    // Of a replica that came under this name before, nothing is known any more.
    let acked = || a.status()["links"][0]["acked"].as_str().unwrap_or("0.0").to_owned();
    wait_until("the last follower to be gone", || a.status()["links"][0].is_null());
    b.variables = Shim::tracing(&trace).with_rules(rules).variables();
    b.serve(&peers);
    wait_until("the blob to come again, or its record to be acknowledged", || {
        trace.exists() && (brought_again(&trace::read(&trace)) || acked() == tail)
    });
    let acked_then = acked();
    b.kill();
    follow(&mut disk, &trace, &mut seen);
    judge(&disk, &acked_then);

    // The page cache is as it was. The next process must not take what it finds for durable.
    b.variables = Shim::tracing(&trace).variables();
    b.serve(&peers);
    wait_until("the record to be acknowledged", || acked() == tail);
    b.kill();
    follow(&mut disk, &trace, &mut seen);
    judge(&disk, tail);
}
