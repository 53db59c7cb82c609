//! What a reader and a consumer have in common: a seat at the machine, and a mailbox.

use crate::shared::{Mailbox, Shared};
use crate::streams::Streams;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use strandline_core::stream::client::{End, Failure, Item, PartyId, StreamClient};
use strandline_core::time::Now;

/// A seat, left when dropped.
pub(crate) struct Seated {
    streams: Streams,
    pub(crate) party: PartyId,
    reads_ahead: bool,
    done: bool,
}

/// What a look into the mailbox found.
enum Look {
    Item(Item),
    /// An item with none behind it so far.
    Last(Item),
    Ended(End),
    Empty,
}

impl Seated {
    pub(crate) fn new(
        streams: Streams,
        reads_ahead: bool,
        make: impl FnOnce(&mut StreamClient, Now) -> PartyId,
    ) -> Self {
        let party = streams.alive.0.seat(make);
        Self { streams, party, reads_ahead, done: false }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.streams.alive.0
    }

    /// Waits until it is attached to all its streams.
    pub(crate) async fn ready(&self) -> Result<(), Failure> {
        poll_fn(|cx| {
            let looked = self.mailbox(|mailbox| match &mailbox.end {
                _ if mailbox.ready => Poll::Ready(Ok(())),
                Some(End::Failed(failure)) => Poll::Ready(Err(failure.clone())),
                Some(End::Closed) => Poll::Ready(Err(Failure::Closed)),
                None => {
                    mailbox.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            });
            looked.unwrap_or(Poll::Ready(Err(Failure::Closed)))
        })
        .await
    }

    pub(crate) fn mailbox<T>(&self, act: impl FnOnce(&mut Mailbox) -> T) -> Option<T> {
        self.shared().with_mailbox(self.party, act)
    }

    pub(crate) fn close(&self) {
        self.shared().turn(|state, now| state.client.handle_close(now, self.party));
    }

    pub(crate) fn trouble(&self) -> Option<Failure> {
        self.mailbox(|mailbox| mailbox.trouble.clone()).flatten()
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) -> End {
        poll_fn(|cx| {
            let looked = self.mailbox(|mailbox| match &mailbox.end {
                Some(end) => Poll::Ready(end.clone()),
                None => {
                    mailbox.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            });
            looked.unwrap_or(Poll::Ready(End::Closed))
        })
        .await
    }

    pub(crate) fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Item, Failure>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let look = self.mailbox(|mailbox| match (mailbox.items.pop_front(), &mailbox.end) {
            (Some(item), None) if mailbox.items.is_empty() => Look::Last(item),
            (Some(item), _) => Look::Item(item),
            (None, Some(end)) => Look::Ended(end.clone()),
            (None, None) => {
                mailbox.waker = Some(cx.waker().clone());
                Look::Empty
            }
        });
        match look {
            Some(Look::Item(item)) => Poll::Ready(Some(Ok(item))),
            Some(Look::Last(item)) => {
                // What follows comes while this one is worked on.
                if self.reads_ahead {
                    self.want();
                }
                Poll::Ready(Some(Ok(item)))
            }
            Some(Look::Ended(End::Failed(failure))) => {
                self.done = true;
                Poll::Ready(Some(Err(failure)))
            }
            Some(Look::Ended(End::Closed)) | None => {
                self.done = true;
                Poll::Ready(None)
            }
            Some(Look::Empty) => {
                self.want();
                Poll::Pending
            }
        }
    }

    fn want(&self) {
        self.shared().turn(|state, now| state.client.handle_want(now, self.party));
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.shared().unseat(self.party);
    }
}
