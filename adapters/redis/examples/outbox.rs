//! An outbox: a database writes an order and the row that announces it in one transaction; a relay
//! publishes rows and deletes them. A relay that dies between the two publishes nothing twice, because the
//! row's number is the key of its publication.
//!
//! `cargo run -p strandline-redis --example outbox -- redis://127.0.0.1/`

use std::collections::BTreeMap;
use strandline_redis::{Connect as _, Names};
use strandline_streams::{Event, Failure, OnceKey, Stream, Streams};

/// The table; with a real database a `SELECT … ORDER BY id` and a `DELETE`.
#[derive(Default)]
pub(crate) struct Outbox {
    rows: BTreeMap<u64, String>,
    last: u64,
}

impl Outbox {
    /// What the transaction of an order inserts beside the order.
    pub(crate) fn insert(&mut self, announcement: &str) {
        self.last += 1;
        self.rows.insert(self.last, announcement.into());
    }

    /// How many rows wait.
    pub(crate) fn waiting(&self) -> usize {
        self.rows.len()
    }
}

/// Relays all rows. `dies_before_delete` is the row whose relay dies at the worst moment.
pub(crate) async fn relay(
    stream: &Stream,
    outbox: &mut Outbox,
    dies_before_delete: Option<u64>,
) -> Result<u32, Failure> {
    let mut published = 0;
    while let Some((id, text)) = outbox.rows.first_key_value() {
        let (id, event) = (*id, Event::new("announced", text.as_bytes())?);
        let (_, now) = stream.add_once(OnceKey::new(format!("outbox-{id}"))?, event).await?;
        published += u32::from(now);
        if dies_before_delete == Some(id) {
            break;
        }
        outbox.rows.remove(&id);
    }
    Ok(published)
}

/// Two relays, the first of which dies: how many events each published.
pub(crate) async fn run(streams: &Streams) -> Result<(u32, u32), Failure> {
    let stream = streams.stream("announcements").unbounded().handle()?;
    let mut outbox = Outbox::default();
    for text in ["one", "two", "three"] {
        outbox.insert(text);
    }
    let first = relay(&stream, &mut outbox, Some(2)).await?;
    let second = relay(&stream, &mut outbox, None).await?;
    assert_eq!(outbox.waiting(), 0);
    Ok((first, second))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("expected the address of a server")?;
    let streams = Streams::connect(&url, Names::tagged_below("example")?).await?;
    let (first, second) = run(&streams).await?;
    println!("the relay that died published {first}, the one after it {second}");
    Ok(())
}
