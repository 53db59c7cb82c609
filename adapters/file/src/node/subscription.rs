//! Subscriptions to a node's changes, answered by callbacks.

use super::api::Unavailable;
use super::handle::NodeHandle;
use super::owner::{Input, SubscriptionInput};
use super::reply::{Permit, Reply};
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use strandline_core::lifecycle::api::{Cursor, CursorVerdict, Page, SubscribeRefused, SubscriptionId};
use strandline_core::lifecycle::replica::Replica;

/// Why a subscription was not opened.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubscribeFailed {
    /// The node could not take the call.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The replica refused it.
    #[error(transparent)]
    Refused(#[from] SubscribeRefused),
}

/// Takes the pages of one subscription. Called on the owner's thread: it must never block.
pub(crate) type PageCall = Box<dyn FnMut(Page) + Send>;

/// How the opening of a subscription ended.
pub(crate) type Opened = Result<(SubscriptionId, CursorVerdict), SubscribeRefused>;

/// An open subscription of a node. Dropping it ends it.
///
/// A page comes for each [`NodeSubscription::want`], as soon as there is one: who asks for no more
/// than it can hold is never given more, and is never waited for.
pub struct NodeSubscription {
    // Not a handle: one would keep the blob store locked after the node has closed.
    inputs: Sender<Input<Replica>>,
    id: SubscriptionId,
    verdict: CursorVerdict,
}

impl NodeSubscription {
    /// What was vouched for when it was opened. Unless it is `Complete`, no page comes before
    /// [`NodeSubscription::reset`].
    pub const fn verdict(&self) -> &CursorVerdict {
        &self.verdict
    }

    /// Asks for the next page. Asking again before it came adds nothing.
    pub fn want(&self) {
        self.send(SubscriptionInput::Want(self.id));
    }

    /// Begins anew with the state of the key space. A page that was made before may still come first.
    pub fn reset(&self) {
        self.send(SubscriptionInput::Reset(self.id));
    }

    /// A node that has ended takes it no more, and has nothing to do for it.
    fn send(&self, input: SubscriptionInput) {
        drop(self.inputs.send(Input::Subscription(input)));
    }
}

impl Drop for NodeSubscription {
    fn drop(&mut self) {
        self.send(SubscriptionInput::End(self.id));
    }
}

impl std::fmt::Debug for NodeSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeSubscription").field("id", &self.id).finish_non_exhaustive()
    }
}

impl NodeHandle {
    /// Subscribes to the changes after `cursor`. Each page goes to `call`, on the node's own thread;
    /// it is dropped after the last one. Counts as one call under way for as long.
    pub fn subscribe(
        &self,
        cursor: Cursor,
        call: impl FnMut(Page) + Send + 'static,
        reply: impl FnOnce(Result<NodeSubscription, SubscribeFailed>) + Send + 'static,
    ) {
        let permit = match self.permit() {
            Ok(permit) => permit,
            Err(busy) => return reply(Err(busy.into())),
        };
        let inputs = self.inputs();
        let lost = || Err(SubscribeRefused::Closing);
        // Who no longer waits for the answer drops the subscription, and that ends it.
        let reply = Reply::new(
            move |opened: Opened| {
                let opened = opened.map(|(id, verdict)| NodeSubscription { inputs, id, verdict });
                reply(opened.map_err(Into::into));
            },
            lost,
        );
        self.open_subscription(cursor, Box::new(call), permit, reply);
    }
}

/// Who takes the pages of the subscriptions of a root.
#[derive(Default)]
pub(crate) struct Subscribers {
    by_id: BTreeMap<SubscriptionId, (PageCall, Permit)>,
}

impl Subscribers {
    pub(crate) fn insert(&mut self, id: SubscriptionId, call: PageCall, permit: Permit) {
        self.by_id.insert(id, (call, permit));
    }

    pub(crate) fn remove(&mut self, id: SubscriptionId) {
        self.by_id.remove(&id);
    }

    pub(crate) fn page(&mut self, id: SubscriptionId, page: Page) {
        let ended = matches!(page, Page::Ended(_));
        if let Some((call, _)) = self.by_id.get_mut(&id) {
            call(page);
        }
        if ended {
            self.remove(id);
        }
    }
}
