//! Operations of streams on Redis, beside the plain commands they stand for, through the same client and on
//! the same server; the embedded keyspace beside them.

mod caller;
mod server;

use crate::measure::{Better, Row, Scale, medians};
use caller::{Caller, Side, Work};
use server::RedisServer;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use strandline_core::stream::Layout;
use strandline_embedded::{Embedded, EmbeddedOptions};
use tokio::runtime::Runtime;

/// Events that consumers find.
const EVENTS: u64 = 100_000;

/// Connections, and callers on each.
const LOADS: [(&str, usize, usize); 4] = [
    ("1 connection", 1, 1),
    ("8 connections", 8, 1),
    ("64 connections", 64, 1),
    ("1 connection, pipelined", 1, 32),
];

/// Rounds are so much shorter than others, and more.
const SHORTER: u32 = 2;

/// What one round came to.
#[derive(Clone, Debug, Default)]
struct Round {
    /// Events a second.
    rate: f64,
    /// Of the calls, in microseconds.
    us: Vec<f64>,
}

fn quantile(values: &mut [f64], of: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * of) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
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
    Round { rate: events as f64 / start.elapsed().as_secs_f64(), us: all }
}

/// One kind of work at one load: a row of rates, and of latencies where one caller is alone.
fn compare(
    scale: &Scale,
    runtime: &Runtime,
    (work, side): (Work, Side),
    (name, connections, each): (&str, usize, usize),
    server: &RedisServer,
    rows: &mut Vec<Row>,
) {
    // Names of groups are of the row and the round: the plain stream is the same for all.
    let mut number = rows.len() * 1000;
    let mut play = |side: Side, all: &mut Played| {
        number += 1;
        let (played, at_server_us) = runtime.block_on(async {
            let callers = Caller::on_redis(work, side, server, connections, each, number).await;
            let before = server.busy_us(side.commands()).await;
            let played = round(callers, scale.append_time / SHORTER).await;
            (played, server.busy_us(side.commands()).await - before)
        });
        all.rates.push(played.rate);
        all.at_server_us.push(at_server_us / played.us.len() as f64);
        all.us.extend(played.us);
    };
    let (mut ours, mut plain) = (Played::default(), Played::default());
    // Many short rounds in turn: what else the machine does then meets both.
    for _ in 0..scale.rounds * SHORTER as usize + 1 {
        play(side, &mut ours);
        play(Side::Plain, &mut plain);
    }
    let row = |name: String, ours, theirs, unit, better| Row {
        name,
        ours,
        theirs,
        unit,
        beside: work.plain_words(),
        better,
    };
    let words = words(work, side);
    let both = |ours: &mut [f64], plain: &mut [f64], of| (quantile(ours, of), quantile(plain, of));
    let (our_rate, rate) = both(&mut ours.rates, &mut plain.rates, 0.5);
    rows.push(row(format!("{words}, {name}"), our_rate, rate, "events/s", Better::Higher));
    if connections * each == 1 {
        for (at, of) in [("p50", 0.5), ("p99", 0.99)] {
            let (our_us, us) = both(&mut ours.us, &mut plain.us, of);
            rows.push(row(format!("{words}, {name}, {at}"), our_us, us, "us", Better::Lower));
        }
        let (our_us, us) = both(&mut ours.at_server_us, &mut plain.at_server_us, 0.5);
        rows.push(row(format!("{words}, the server's part of it"), our_us, us, "us", Better::Lower));
    }
}

/// All rounds of one side.
#[derive(Default)]
struct Played {
    rates: Vec<f64>,
    /// Of every call.
    us: Vec<f64>,
    /// What the server says that it spent on a call.
    at_server_us: Vec<f64>,
}

fn words(work: Work, side: Side) -> String {
    let words = work.words();
    match (side, work) {
        (Side::Ours(Layout::Tagged), _) => words.into(),
        (Side::Ours(Layout::Pulse), _) => format!("{words} (Pulse)"),
        (Side::Handle(_), Work::Publish | Work::Once) => format!("{words} by a handle"),
        (Side::Handle(_), Work::Consume) => format!("{words} by a consumer"),
        (Side::Plain, _) => unreachable!("it is what ours stands beside"),
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
                let callers = Caller::on_redis(Work::Publish, Side::Plain, server, connections, 1, 0).await;
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
    for work in [Work::Publish, Work::Once, Work::Consume] {
        for layout in [Layout::Tagged, Layout::Pulse] {
            for load in LOADS {
                compare(scale, &runtime, (work, Side::Ours(layout)), load, &server, rows);
            }
        }
    }
    let [alone, ..] = LOADS;
    for work in [Work::Publish, Work::Consume] {
        compare(scale, &runtime, (work, Side::Handle(Layout::Tagged)), alone, &server, rows);
    }
    embedded(scale, &runtime, work, &server, rows)
}
