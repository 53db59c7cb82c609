//! Subscriptions to a node's changes as a stream.

use crate::handle::Handle;
use futures::Stream;
use futures::channel::{mpsc, oneshot};
use std::pin::Pin;
use std::task::{Context, Poll};
use strandline_core::lifecycle::api::{Cursor, CursorVerdict, Page, SubscriptionEnd};
use strandline_file::node::{NodeSubscription, SubscribeFailed};

/// The changes after a cursor, page by page: a stream that ends after [`Page::Ended`]. Dropping it
/// ends the subscription.
///
/// The next page is asked for when the stream is polled, so what is not polled costs nothing and is
/// never waited for. A page that was asked for is kept while nobody polls: dropping a future of
/// `next()` loses nothing.
#[derive(Debug)]
#[must_use = "a subscription that is dropped is over"]
pub struct Subscription {
    node: NodeSubscription,
    incoming: mpsc::UnboundedReceiver<Page>,
    asked: bool,
    over: bool,
}

impl Subscription {
    /// What was vouched for when it was opened. Unless it is `Complete`, no page comes before
    /// [`Subscription::reset`].
    pub const fn verdict(&self) -> &CursorVerdict {
        self.node.verdict()
    }

    /// Begins anew with the state of the key space: the pages that follow are `ResetBegin`, the state,
    /// `ResetEnd` and every change after the cut. A page that was made before may still come first.
    pub fn reset(&self) {
        self.node.reset();
    }
}

impl Stream for Subscription {
    type Item = Page;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Page>> {
        if self.over {
            return Poll::Ready(None);
        }
        if !std::mem::replace(&mut self.asked, true) {
            self.node.want();
        }
        // At most one page waits: each was asked for.
        let Poll::Ready(page) = Pin::new(&mut self.incoming).poll_next(cx) else { return Poll::Pending };
        // The node ended without a word: it closed or was lost.
        let page = page.unwrap_or(Page::Ended(SubscriptionEnd::Closing));
        self.asked = false;
        self.over = matches!(page, Page::Ended(_));
        Poll::Ready(Some(page))
    }
}

impl Handle {
    /// Subscribes to the changes after `cursor`.
    ///
    /// Dropped: a subscription that was opened meanwhile is ended again.
    ///
    /// # Errors
    /// [`SubscribeFailed`] says who refused it.
    pub async fn subscribe(&self, cursor: Cursor) -> Result<Subscription, SubscribeFailed> {
        let (tx, rx) = oneshot::channel();
        let (pages, incoming) = mpsc::unbounded();
        let call = move |page| drop(pages.unbounded_send(page));
        self.node().subscribe(cursor, call, move |opened| drop(tx.send(opened)));
        let node = rx.await.expect("the node answers every call")?;
        Ok(Subscription { node, incoming, asked: false, over: false })
    }

    /// What can be vouched for to who has everything up to `cursor`.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// The node cannot be asked.
    pub async fn judge(&self, cursor: Cursor) -> Result<CursorVerdict, strandline_file::node::Unavailable> {
        self.read(move |replica| replica.judge(cursor)).await
    }

    /// The cursor of who has everything that is durable now.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// The node cannot be asked.
    pub async fn cursor(&self) -> Result<Cursor, strandline_file::node::Unavailable> {
        self.read(strandline_core::lifecycle::replica::Replica::cursor).await
    }
}
