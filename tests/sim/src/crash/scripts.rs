//! What is done when the crash comes.

use super::bench::{Bench, Stopped, delete, put};
use crate::blobs::SMALL;
use strandline_core::lifecycle::api::MembersChange;

/// A scripted scenario.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// Its name.
    pub name: &'static str,
    /// The replicas.
    pub(super) identities: &'static [&'static str],
    /// Which of them crashes.
    pub(super) under: usize,
    pub(super) run: fn(&mut Bench) -> Result<(), Stopped>,
}

/// All of them.
pub const SCRIPTS: &[Script] = &[
    Script { name: "first start of a writer", identities: &["a"], under: 0, run: first_start },
    Script { name: "first start of a follower", identities: &["b"], under: 0, run: first_start },
    Script { name: "append", identities: &["a"], under: 0, run: append },
    Script { name: "group commit", identities: &["a"], under: 0, run: group_commit },
    Script { name: "segment change", identities: &["a"], under: 0, run: segment_change },
    Script { name: "sidecar replace", identities: &["a"], under: 0, run: sidecar },
    Script { name: "compaction", identities: &["a"], under: 0, run: compaction },
    Script { name: "snapshot installation", identities: &["a", "b"], under: 1, run: installation },
    Script { name: "blob put", identities: &["a", "b"], under: 1, run: blob_put },
    Script { name: "close", identities: &["a"], under: 0, run: close },
    Script { name: "recovery", identities: &["a"], under: 0, run: recovery },
];

fn first_start(bench: &mut Bench) -> Result<(), Stopped> {
    bench.count();
    bench.start(0)?;
    bench.pass(2000)
}

/// A writer with some records.
fn writer(bench: &mut Bench) -> Result<(), Stopped> {
    bench.start(0)?;
    for i in 0..3 {
        bench.mutate(0, &[put(&format!("k{i}"), i)]);
        bench.settle()?;
    }
    bench.mutate(0, &[delete("k1")]);
    bench.settle()?;
    bench.pass(2000)
}

fn append(bench: &mut Bench) -> Result<(), Stopped> {
    writer(bench)?;
    bench.count();
    bench.mutate(0, &[put("new", 4)]);
    bench.settle()
}

fn group_commit(bench: &mut Bench) -> Result<(), Stopped> {
    writer(bench)?;
    bench.count();
    // The first goes at once; the rest gathers and goes as one batch, groups whole.
    bench.mutate(0, &[put("one", 4)]);
    bench.mutate(0, &[put("two", 5), delete("k0"), put("three", 6)]);
    bench.mutate(0, &[put("four", 7)]);
    bench.settle()?;
    bench.pass(2000)
}

fn segment_change(bench: &mut Bench) -> Result<(), Stopped> {
    writer(bench)?;
    bench.count();
    for i in 0..14 {
        bench.mutate(0, &[put(&format!("a-key-that-takes-some-room-{i}"), i)]);
        bench.settle()?;
    }
    Ok(())
}

fn sidecar(bench: &mut Bench) -> Result<(), Stopped> {
    writer(bench)?;
    bench.count();
    let now = bench.now();
    bench.replica(0).handle_members(now, MembersChange::Add("b".into()));
    bench.settle()?;
    bench.replica(0).handle_members(now, MembersChange::Add("c".into()));
    bench.settle()
}

fn compaction(bench: &mut Bench) -> Result<(), Stopped> {
    writer(bench)?;
    for i in 0..14 {
        bench.mutate(0, &[put(&format!("a-key-that-takes-some-room-{}", i % 5), i)]);
        bench.settle()?;
    }
    let now = bench.now();
    bench.replica(0).handle_members(now, MembersChange::Clear);
    bench.settle()?;
    bench.count();
    for round in 0..2 {
        bench.replica(0).handle_compact(now, None);
        bench.mutate(0, &[put("meanwhile", round)]);
        bench.settle()?;
    }
    Ok(())
}

fn installation(bench: &mut Bench) -> Result<(), Stopped> {
    writer(bench)?;
    let now = bench.now();
    bench.replica(0).handle_members(now, MembersChange::Clear);
    bench.settle()?;
    bench.replica(0).handle_compact(now, None);
    bench.settle()?;
    bench.mutate(0, &[put("behind-the-cut", 9)]);
    bench.settle()?;
    bench.start(1)?;
    bench.count();
    bench.connect()?;
    bench.pass(2000)
}

fn blob_put(bench: &mut Bench) -> Result<(), Stopped> {
    bench.start(0)?;
    bench.mutate(0, &[put("small", 5), put("large", SMALL + 2), put("empty", 0)]);
    bench.settle()?;
    bench.start(1)?;
    bench.count();
    bench.connect()
}

fn close(bench: &mut Bench) -> Result<(), Stopped> {
    writer(bench)?;
    bench.mutate(0, &[put("last", 4)]);
    bench.settle()?;
    bench.count();
    let now = bench.now();
    bench.replica(0).handle_close(now);
    bench.settle()
}

/// A start over an ordinary end; starts over every crash are part of every script.
fn recovery(bench: &mut Bench) -> Result<(), Stopped> {
    compaction(bench)?;
    bench.rigs[0].host.kill();
    bench.start(0)?;
    bench.mutate(0, &[put("after", 3)]);
    bench.settle()
}
