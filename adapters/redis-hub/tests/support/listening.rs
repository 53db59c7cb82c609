//! Who publishes and listens in these tests.

use futures::StreamExt as _;
use std::time::Duration;
use strandline_core::coverage::{Item, Outcome, Publish, TopicName};
use strandline_hub::{Delivery, HubHandle, Start, Subscription};

/// Long enough on any machine; nothing is asserted about time.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(120);

pub(crate) fn topic() -> TopicName {
    TopicName::parse("orders").unwrap()
}

pub(crate) async fn next(stream: &mut Subscription) -> Item {
    let Delivery { item, .. } =
        tokio::time::timeout(GIVE_UP, stream.next()).await.expect("an item in time").expect("an open stream");
    item
}

/// The payload of the next event, whatever notices stand before it.
pub(crate) async fn event(stream: &mut Subscription) -> String {
    loop {
        if let Item::Event { entry, .. } = next(stream).await {
            return String::from_utf8(entry.payload.to_vec()).unwrap();
        }
    }
}

pub(crate) async fn opened(hub: &HubHandle, topic: &TopicName, start: Start<'_>) -> Subscription {
    let mut stream = hub.subscribe(std::slice::from_ref(topic), start).unwrap();
    assert!(matches!(next(&mut stream).await, Item::Opened(_)));
    stream
}

pub(crate) async fn publish(hub: &HubHandle, topic: &TopicName, text: &str, token: Option<&str>) -> Outcome {
    hub.publish(topic, Publish { token, ..Publish::new(text.as_bytes()) }).await.unwrap()
}
