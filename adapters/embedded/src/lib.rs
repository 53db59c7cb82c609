//! Streams without a server: the keyspace of [`strandline_core::stream::embedded`] in this process, in
//! memory or durable in a directory. A [`strandline_streams::Backend`]: `strandline_streams::Streams`
//! stands on it as on a server.
//!
//! ```
//! use strandline_core::stream::op::{Condition, Nonce};
//! use strandline_core::stream::{Event, Handle, Layout, Outcome, StreamName, Verb, Wanted};
//! use strandline_embedded::{Embedded, EmbeddedOptions};
//!
//! # futures::executor::block_on(async {
//! let parent = tempfile::tempdir()?;
//! let path = parent.path().join("streams");
//! let (embedded, _) = Embedded::open(&path, EmbeddedOptions::default())?;
//! let handle = Handle::new(StreamName::new("orders")?, Wanted::default(), Layout::Tagged)?;
//! let event = Event::new("created", "one")?;
//! let op = handle.op(Verb::Add { event, condition: Condition::Always }, Nonce([7; 16]));
//! let Outcome::Answered { result, .. } = embedded.apply(op).await else { panic!("the disk works") };
//! result?;
//! embedded.close()?;
//!
//! let (embedded, opened) = Embedded::open(&path, EmbeddedOptions::default())?;
//! assert_eq!(opened.entries, 1, "what was answered is durable");
//! # embedded.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

mod handle;
mod open;
mod shared;
mod waits;

pub use handle::{Embedded, EmbeddedStatus};
pub use open::{EmbeddedOptions, OpenFailed};
