//! A publisher whose every event is published exactly once, however often it loses its connection or is
//! started again: the key is part of what it publishes, and the same call is made until it is answered.
//!
//! `cargo run -p strandline-redis --example exactly_once -- redis://127.0.0.1/`

use strandline_redis::{Connect as _, Names};
use strandline_streams::{Event, EventId, Failure, OnceKey, Stream, Streams};

/// Publishes orders by their numbers; how many of them had not been published before.
pub(crate) async fn run(streams: &Streams, orders: std::ops::Range<u32>) -> Result<u32, Failure> {
    let stream = streams.stream("orders").unbounded().handle()?;
    let mut fresh = 0;
    for number in orders {
        let (_, published) = publish(&stream, number).await?;
        fresh += u32::from(published);
    }
    Ok(fresh)
}

/// An unknown outcome is not a "no": asking again gets the first position, or publishes now.
async fn publish(stream: &Stream, number: u32) -> Result<(EventId, bool), Failure> {
    let key = OnceKey::new(format!("order-{number}-created"))?;
    let event = Event::new("created", format!("order {number}"))?;
    loop {
        match stream.add_once(key.clone(), event.clone()).await {
            Err(Failure::Uncertain(_)) => {}
            ended => return ended,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("expected the address of a server")?;
    let streams = Streams::connect(&url, Names::tagged_below("example")?).await?;
    println!("{} of 100 orders were published by this run", run(&streams, 0..100).await?);
    Ok(())
}
