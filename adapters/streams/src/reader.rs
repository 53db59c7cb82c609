//! Readers: every reader gets every event, and leaves no trace.

use crate::party::Seated;
use crate::streams::{Stream, Streams};
use futures::Stream as Futures;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use strandline_core::stream::Start;
use strandline_core::stream::client::{Failure, HandleId, Item};
use strandline_core::stream::settings::TakeSettings;

/// Settings of a reader. Defaults: from the newest, all topics, 1000 events per read, 5 s per wait.
#[must_use = "a builder opens its reader by `open`"]
pub struct ReaderBuilder {
    streams: Streams,
    handles: Vec<HandleId>,
    settings: TakeSettings,
}

impl ReaderBuilder {
    pub(crate) fn new(stream: &Stream) -> Self {
        Self { streams: stream.streams.clone(), handles: vec![stream.id], settings: TakeSettings::new() }
    }

    /// Reads another stream of the same backend too.
    pub fn and(mut self, stream: &Stream) -> Self {
        self.handles.push(stream.id);
        self
    }

    /// Shows only events with this topic.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.settings = self.settings.topic(topic);
        self
    }

    /// Shows only events whose topic this regular expression matches.
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.settings = self.settings.pattern(pattern);
        self
    }

    /// Where to begin in each stream.
    pub fn start(mut self, start: Start) -> Self {
        self.settings = self.settings.start(start);
        self
    }

    /// At most so many events per read. The next are read as soon as the last of them is handed out.
    pub fn max_polled(mut self, events: u32) -> Self {
        self.settings = self.settings.max_polled(events);
        self
    }

    /// How long one read waits before it looks whether its streams still live.
    pub fn block(mut self, block: Duration) -> Self {
        self.settings = self.settings.block(block);
        self
    }

    /// Attaches to each stream as it is, making none. Dropped before its end: no reader, and no trace.
    ///
    /// # Errors
    /// `InvalidOption` for settings that cannot be; what attaching was refused with.
    pub async fn open(self) -> Result<Reader, Failure> {
        let taking = self.settings.taking()?;
        let seated =
            Seated::new(self.streams, true, |client, now| client.handle_reader(now, &self.handles, taking));
        seated.ready().await?;
        Ok(Reader { seated })
    }
}

/// A reader of one or several streams, as a [`futures::Stream`]: each event once, in the order of its
/// stream, and a gap where events are missing. It ends with the failure that ended it, or after
/// [`Reader::close`]. An unknown outcome of a read is asked again by itself.
///
/// Cancel safe: dropping a future of `next()` loses nothing. Dropping the reader ends it.
#[must_use = "streams do nothing unless polled"]
pub struct Reader {
    seated: Seated,
}

impl Reader {
    /// Ends it: what was read and not handed out yet is still handed out.
    pub fn close(&self) {
        self.seated.close();
    }

    /// What failed last and is being tried again.
    #[must_use]
    pub fn trouble(&self) -> Option<Failure> {
        self.seated.trouble()
    }
}

impl Futures for Reader {
    type Item = Result<Item, Failure>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().seated.poll_item(cx)
    }
}
