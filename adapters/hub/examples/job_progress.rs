//! The progress of a job, watched by somebody who loses the connection again and again: who comes late sees
//! where it stands, and who comes back misses no step.
//!
//! `cargo run -p strandline-hub --example job_progress`

use futures::StreamExt as _;
use std::error::Error;
use strandline_core::coverage::{From, Item, Publish, TopicName};
use strandline_core::id::Run;
use strandline_hub::{HubHandle, Start, Subscription};

/// A job of so many steps; it tells each, and its end by another kind.
async fn work(hub: &HubHandle, job: &TopicName, steps: u32) -> Result<(), Box<dyn Error>> {
    for step in 1..=steps {
        let kind = if step == steps { "done" } else { "progress" };
        hub.publish(job, Publish { kind, ..Publish::new(step.to_string().as_bytes()) }).await?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

fn listen(hub: &HubHandle, job: &TopicName, start: Start<'_>) -> Result<Subscription, Box<dyn Error>> {
    Ok(hub.subscribe(std::slice::from_ref(job), start)?)
}

/// Watches to the end; after every third step the connection breaks. The steps it was shown, in order.
async fn watch(hub: &HubHandle, job: &TopicName) -> Result<Vec<u32>, Box<dyn Error>> {
    // The state of a job is its last event, so that is where everybody begins.
    let latest = Start { fresh: From::Last, ..Start::now() };
    let mut stream = listen(hub, job, latest)?;
    let mut shown = Vec::new();
    while let Some(delivery) = stream.next().await {
        match delivery.item {
            Item::Event { entry, .. } => {
                shown.push(std::str::from_utf8(&entry.payload)?.parse()?);
                if &*entry.kind == "done" {
                    break;
                }
                if shown.len() % 3 == 0 {
                    let id = stream.id();
                    stream = listen(hub, job, Start::after(&id))?;
                }
            }
            // What was missed cannot be given: the last step says it all.
            Item::SyncRequired { .. } => stream = listen(hub, job, latest)?,
            Item::Opened(_) | Item::Gap { .. } | Item::Stale { .. } => {}
            Item::Closed => return Err("expected the end of the job, found the end of the hub".into()),
        }
    }
    Ok(shown)
}

/// A job, one who watches from its start, and one who comes when it is done: what each was shown.
pub(crate) async fn run(steps: u32) -> Result<[Vec<u32>; 2], Box<dyn Error>> {
    let (hub, driver) = HubHandle::in_process(Run(1), [7; 32]);
    tokio::spawn(driver.run(tokio::time::sleep));
    let job = TopicName::parse("job.42")?;
    let (shown, worked) = futures::join!(watch(&hub, &job), work(&hub, &job, steps));
    worked?;
    Ok([shown?, watch(&hub, &job).await?])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let [early, late] = run(20).await?;
    println!("from the start: {early:?}\nwhen it was done: {late:?}");
    Ok(())
}
