//! A cache before a database, kept right by live topics: every write publishes the key that it changed, and
//! the cache lets go of it. Where something was missed, the cache lets go of everything: it may be empty, and
//! is never wrong.
//!
//! `cargo run -p strandline-hub --example cache_invalidation`

use std::collections::BTreeMap;
use std::error::Error;
use strandline_core::coverage::{BufferLimits, HubConfig, HubLimits, Item, Publish, TopicName};
use strandline_core::id::Run;
use strandline_hub::{HandleOptions, HubHandle, NoBackend, Start, Subscription};

/// Stands for the database: each write tells which key it changed, after it is in.
struct Database {
    rows: BTreeMap<String, u32>,
    changes: TopicName,
    hub: HubHandle,
}

impl Database {
    async fn write(&mut self, key: &str, value: u32) -> Result<(), Box<dyn Error>> {
        self.rows.insert(key.into(), value);
        self.hub.publish(&self.changes, Publish::new(key.as_bytes())).await?;
        Ok(())
    }
}

/// Holds what was read, as long as no change of it was missed.
struct Cache {
    rows: BTreeMap<String, u32>,
    stream: Subscription,
    /// How often it let go of everything.
    emptied: u32,
    hits: u32,
}

impl Cache {
    fn new(hub: &HubHandle, changes: &TopicName) -> Result<Self, Box<dyn Error>> {
        // First it listens, then it reads: no change falls between the two.
        let stream = hub.subscribe(std::slice::from_ref(changes), Start::now())?;
        Ok(Self { rows: BTreeMap::new(), stream, emptied: 0, hits: 0 })
    }

    /// Takes what was told since.
    fn catch_up(&mut self) {
        while let Some(delivery) = self.stream.try_next() {
            match delivery.item {
                Item::Event { entry, .. } => {
                    self.rows.remove(&*String::from_utf8_lossy(&entry.payload));
                }
                // Something changed that nobody can name any more.
                Item::Stale { .. } | Item::SyncRequired { .. } | Item::Closed => {
                    self.rows.clear();
                    self.emptied += 1;
                }
                // The keys of a gap follow.
                Item::Opened(_) | Item::Gap { .. } => {}
            }
        }
    }

    fn get(&mut self, database: &Database, key: &str) -> Option<u32> {
        self.catch_up();
        if let Some(value) = self.rows.get(key) {
            self.hits += 1;
            return Some(*value);
        }
        let value = *database.rows.get(key)?;
        self.rows.insert(key.into(), value);
        Some(value)
    }
}

/// Writes and reads for some rounds; in every tenth the cache sleeps through more changes than are kept for
/// it. Tells how many reads the cache answered, and how often it had to let go of everything.
pub(crate) async fn run(rounds: u32) -> Result<(u32, u32), Box<dyn Error>> {
    let buffer = BufferLimits { events_max: 8, ..HubLimits::default().buffer };
    let limits = HubLimits { buffer, queue_events_max: 8, ..HubLimits::default() };
    let config = HubConfig { limits, ..HubConfig::minted() };
    let (hub, driver) = HubHandle::new(config, HandleOptions::default(), NoBackend, Run(1), [7; 32]);
    tokio::spawn(driver.run(tokio::time::sleep));
    let changes = TopicName::parse("rows.changed")?;
    let mut database = Database { rows: BTreeMap::new(), changes: changes.clone(), hub: hub.clone() };
    let mut cache = Cache::new(&hub, &changes)?;
    for round in 0..rounds {
        let writes = if round % 10 == 9 { 40 } else { 1 };
        for write in 0..writes {
            database.write(&format!("row {}", (round + write) % 5), round * 100 + write).await?;
        }
        for row in 0..5 {
            let key = format!("row {row}");
            let (cached, stored) = (cache.get(&database, &key), database.rows.get(&key).copied());
            if cached != stored {
                return Err(format!("the cache says {cached:?} of {key}, the database {stored:?}").into());
            }
        }
    }
    Ok((cache.hits, cache.emptied))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (hits, emptied) = run(100).await?;
    println!("{hits} reads out of the cache, all of them right; emptied {emptied} times");
    Ok(())
}
