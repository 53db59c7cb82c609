//! A pool of workers that share a stream of jobs. A job that fails is given back and tried again later; one
//! that fails too often becomes a dead letter; what a killed worker left is taken over by the others.
//!
//! `cargo run -p strandline-redis --example worker_pool -- redis://127.0.0.1/`

use futures::StreamExt as _;
use std::time::Duration;
use strandline_redis::{Connect as _, Names};
use strandline_streams::{Delivery, Event, EventId, Failure, Item, Start, Stream, Streams};

/// Publishes `jobs`, lets `workers` do them, and tells how many were done and how many are dead letters.
pub(crate) async fn run(streams: &Streams, jobs: u32, workers: u32) -> Result<(u32, usize), Failure> {
    let stream = streams.stream("jobs").max_len(10_000).handle()?;
    for number in 0..jobs {
        stream.add(Event::new("resize", number.to_string())?).await?;
    }
    let pool: Vec<_> = (0..workers).map(|_| tokio::spawn(work(stream.clone()))).collect();
    let mut done = 0;
    for worker in pool {
        done += worker.await.expect("a worker does not panic")?;
    }
    Ok((done, stream.dead_letters(EventId::ZERO, 1000).await?.len()))
}

/// Works until nothing has come for a while.
async fn work(stream: Stream) -> Result<u32, Failure> {
    let group = stream.group("resizers").start(Start::Oldest).deliveries_max(3).max_polled(10);
    let mut consumer = group.lease(Duration::from_millis(100)).consumer("resizer").await?;
    let mut done = 0;
    while let Ok(Some(item)) = tokio::time::timeout(Duration::from_secs(1), consumer.next()).await {
        match item? {
            Item::Event(job) if resize(&job) => {
                consumer.ack(&job).await?;
                done += 1;
            }
            Item::Event(job) => {
                consumer.nack(&job, Duration::from_millis(20)).await?;
            }
            Item::Gap(gap) => eprintln!("jobs are missing: {gap:?}"),
            Item::Failover(failover) => eprintln!("another server: {failover:?}"),
        }
    }
    // What was read and not done goes back at once.
    consumer.close().await?;
    Ok(done)
}

/// The job itself; here every tenth cannot be done.
fn resize(job: &Delivery) -> bool {
    !job.event.payload().ends_with(b"9")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("expected the address of a server")?;
    let streams = Streams::connect(&url, Names::tagged_below("example")?).await?;
    let (done, dead) = run(&streams, 100, 4).await?;
    println!("{done} jobs done, {dead} given up");
    Ok(())
}
