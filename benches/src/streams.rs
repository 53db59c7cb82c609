//! Operations of streams on Redis, beside the plain commands they stand for, through the same client and on
//! the same server; the embedded keyspace beside them.

mod caller;
mod server;

use crate::measure::{Better, Row, Scale, medians};
use caller::{Caller, Work};
use server::RedisServer;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use strandline_embedded::{Embedded, EmbeddedOptions};
use tokio::runtime::Runtime;

/// Events that consumers find.
const EVENTS: u64 = 200_000;

/// Connections, and callers on each.
const LOADS: [(&str, usize, usize); 4] = [
    ("1 connection", 1, 1),
    ("8 connections", 8, 1),
    ("64 connections", 64, 1),
    ("1 connection, pipelined", 1, 32),
];

/// What one round came to.
#[derive(Clone, Debug, Default)]
struct Round {
    /// Events a second.
    rate: f64,
    /// Of the calls, in microseconds, sorted.
    us: Vec<f64>,
}

impl Round {
    fn quantile(&self, of: f64) -> f64 {
        let at = (self.us.len() as f64 * of) as usize;
        self.us.get(at.min(self.us.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// Lets every caller call until time is up.
async fn round(callers: Vec<Caller>, time: Duration) -> Round {
    let start = Instant::now();
    let tasks: Vec<_> = callers
        .into_iter()
        .map(|mut caller| {
            tokio::spawn(async move {
                let (mut events, mut us) = (0, Vec::new());
                while start.elapsed() < time {
                    let call = Instant::now();
                    events += caller.call().await;
                    us.push(call.elapsed().as_secs_f64() * 1e6);
                }
                (events, us)
            })
        })
        .collect();
    let (mut events, mut all) = (0, Vec::new());
    for task in tasks {
        let (of_task, us) = task.await.expect("no caller panics");
        events += of_task;
        all.extend(us);
    }
    let rate = events as f64 / start.elapsed().as_secs_f64();
    all.sort_by(f64::total_cmp);
    Round { rate, us: all }
}

/// One kind of work at one load: rows of rates, and of latencies where one caller is alone.
fn compare(
    scale: &Scale,
    runtime: &Runtime,
    work: Work,
    (name, connections, each): (&str, usize, usize),
    server: &RedisServer,
    rows: &mut Vec<Row>,
) {
    let (mut ours, mut plain) = (Round::default(), Round::default());
    let mut number = 0;
    let mut side = |is_ours: bool, last: &mut Round| {
        number += 1;
        *last = runtime.block_on(async {
            let callers = Caller::on_redis(work, is_ours, server, connections, each, number).await;
            round(callers, scale.append_time).await
        });
        last.rate
    };
    let cell = std::cell::RefCell::new(&mut side);
    let [our_rate, plain_rate] = medians(
        scale.rounds,
        [&mut || cell.borrow_mut()(true, &mut ours), &mut || cell.borrow_mut()(false, &mut plain)],
    );
    let row = |name: String, ours, theirs, unit, better| Row {
        name,
        ours,
        theirs,
        unit,
        beside: work.plain_words(),
        better,
    };
    rows.push(row(format!("{}, {name}", work.words()), our_rate, plain_rate, "events/s", Better::Higher));
    if connections * each == 1 {
        for (quantile, of) in [("p50", 0.5), ("p99", 0.99)] {
            let name = format!("{}, {name}, {quantile}", work.words());
            rows.push(row(name, ours.quantile(of), plain.quantile(of), "us", Better::Lower));
        }
    }
}

/// The keyspace of this process, with and without a disk, beside a server that syncs nothing.
fn embedded(
    scale: &Scale,
    runtime: &Runtime,
    work: &Path,
    server: &RedisServer,
    rows: &mut Vec<Row>,
) -> Result<(), Box<dyn Error>> {
    let (durable, _) = Embedded::open(work.join("embedded"), EmbeddedOptions::default())?;
    let memory = Embedded::in_memory();
    for (name, connections, callers) in [("1 caller", 1, 1), ("64 callers", 64, 64)] {
        let on = |embedded: &Embedded| {
            runtime.block_on(round(Caller::on_embedded(embedded, callers), scale.append_time)).rate
        };
        let plain = || {
            runtime.block_on(async {
                let callers = Caller::on_redis(Work::Publish, false, server, connections, 1, 0).await;
                round(callers, scale.append_time).await.rate
            })
        };
        let [in_memory, on_disk, theirs] =
            medians(scale.rounds, [&mut || on(&memory), &mut || on(&durable), &mut || plain()]);
        for (kind, ours) in [("in memory", in_memory), ("durable", on_disk)] {
            let (name, unit) = (format!("publish, embedded {kind}, {name}"), "events/s");
            rows.push(Row {
                name,
                ours,
                theirs,
                unit,
                beside: "XADD, nothing synced",
                better: Better::Higher,
            });
        }
    }
    Ok(durable.close()?)
}

/// All rows.
pub(crate) fn rows(scale: &Scale, work: &Path, rows: &mut Vec<Row>) -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = RedisServer::start(work)?;
    runtime.block_on(caller::fill(&server, EVENTS / scale.divisor))?;
    for kind in [Work::Publish, Work::Once, Work::Consume] {
        for load in LOADS {
            compare(scale, &runtime, kind, load, &server, rows);
        }
    }
    embedded(scale, &runtime, work, &server, rows)
}
