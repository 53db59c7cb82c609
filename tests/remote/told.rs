//! What readers, consumers and handles are told when another server has taken over.

use crate::failover::{pair, standing};
use crate::proxy::Proxy;
use crate::support::{GIVE_UP, PATIENT, event, must, plain, runtime, tagged, wait};
use futures::StreamExt as _;
use std::time::Duration;
use strandline_core::stream::error::CallerError;
use strandline_redis::{Address, Redis};
use strandline_streams::{
    Consumer, Doubt, EventId, Failover, Failure, Item, Reader, Start, Stream, Streams, Survival,
};
use strandline_tests::streams::server::RedisServer;

/// An application: a handle, a reader and a consumer of one stream.
struct Application {
    orders: Stream,
    reader: Reader,
    consumer: Consumer,
}

impl Application {
    async fn start(url: &str) -> Self {
        let redis = Redis::at(Address::one(url).expect("an address"), tagged(), PATIENT).expect("entropy");
        let (streams, driver) = Streams::new(redis).expect("entropy");
        tokio::spawn(driver.run(tokio::time::sleep));
        let orders = streams.stream("orders").handle().expect("a handle");
        orders.open().await.expect("opened");
        let quick = Duration::from_millis(50);
        let reader = orders.reader().start(Start::Oldest).block(quick).open().await.expect("a reader");
        let group = orders.group("mail").start(Start::Oldest).block(quick);
        let consumer = group.consumer("w").await.expect("joined");
        Self { orders, reader, consumer }
    }

    /// Publishes, and sees reader and consumer through to it.
    async fn publish(&mut self) -> EventId {
        let id = self.orders.add(event("x")).await.expect("published");
        for item in self.items().await {
            let Item::Event(delivery) = item else { panic!("{item:?}") };
            assert_eq!(delivery.id, id);
        }
        id
    }

    /// The next item of the reader, and of the consumer.
    async fn items(&mut self) -> [Item; 2] {
        let (reader, consumer) = tokio::join!(item(&mut self.reader), item(&mut self.consumer));
        [reader.expect("an item"), consumer.expect("an item")]
    }
}

async fn item(
    from: &mut (impl futures::Stream<Item = Result<Item, Failure>> + Unpin),
) -> Result<Item, Failure> {
    let next = tokio::time::timeout(2 * GIVE_UP, from.next()).await.expect("something in time");
    next.expect("not the end")
}

/// A master behind a proxy, and its replica.
struct Servers {
    proxy: Proxy,
    master: RedisServer,
    replica: RedisServer,
}

impl Servers {
    fn start() -> Self {
        let ((master, replica), proxy) = (pair(), Proxy::start());
        proxy.lead_to(&format!("127.0.0.1:{}", master.port()));
        Self { proxy, master, replica }
    }

    fn url(&self) -> String {
        format!("redis://{}/", self.proxy.address)
    }

    /// Waits until the replica has all that the master has done by now.
    fn catch_up(&self) {
        let behind = standing(&mut plain(&self.master)).offset;
        let mut replica = plain(&self.replica);
        wait("a replica that has everything", || standing(&mut replica).offset >= behind);
    }

    /// The replica follows nobody from here on, and still belongs to the master's history.
    fn part(&self) {
        must::<()>(&mut plain(&self.replica), &["REPLICAOF", "127.0.0.1", "1"]);
    }

    fn fail_over(&mut self) {
        self.master.kill();
        self.proxy.lead_to(&format!("127.0.0.1:{}", self.replica.port()));
        must::<()>(&mut plain(&self.replica), &["REPLICAOF", "NO", "ONE"]);
        self.proxy.cut();
    }
}

fn failover(survival: Survival, handed_out: EventId, kept: Option<EventId>) -> Item {
    let stream = crate::support::stream("orders");
    Item::Failover(Failover { stream, survival, handed_out, kept })
}

#[test]
fn what_the_heir_has_is_told_as_kept_before_anything_of_it() {
    let mut servers = Servers::start();
    runtime().block_on(async {
        let mut application = Application::start(&servers.url()).await;
        let first = application.publish().await;
        servers.catch_up();
        servers.part();
        servers.fail_over();
        for told in application.items().await {
            assert_eq!(told, failover(Survival::Kept, first, Some(first)));
        }
        assert_eq!(application.orders.survival().await, Survival::Kept);
        application.publish().await;
        let told = application.orders.failover().expect("told by its first answer");
        assert_eq!(Item::Failover(told), failover(Survival::Kept, first, Some(first)));
    });
}

#[test]
fn what_the_heir_lacks_is_told_as_lost_with_what_is_kept() {
    let mut servers = Servers::start();
    runtime().block_on(async {
        let mut application = Application::start(&servers.url()).await;
        let kept = application.publish().await;
        servers.catch_up();
        servers.part();
        let lost = application.publish().await;
        assert_eq!(application.orders.survival().await, Survival::Kept);
        servers.fail_over();
        for told in application.items().await {
            assert_eq!(told, failover(Survival::Lost, lost, Some(kept)));
        }
        assert_eq!(application.orders.survival().await, Survival::Lost);
        assert_eq!(application.orders.snapshot().await.expect("a snapshot").len(), 1);
        application.publish().await;
        let told = application.orders.failover().expect("told by its first answer");
        assert_eq!(Item::Failover(told), failover(Survival::Lost, lost, Some(kept)));
    });
}

#[test]
fn a_server_that_forgot_everything_is_told_as_unknown_before_the_end() {
    let mut server = RedisServer::start(None);
    runtime().block_on(async {
        let mut application = Application::start(&server.url()).await;
        let id = application.publish().await;
        server.restart_with(&[]);
        let unknown = Survival::Unknown { reason: Doubt::OtherHistory };
        for told in application.items().await {
            assert_eq!(told, failover(unknown, id, None));
        }
        let lost = Failure::Refused(CallerError::StreamLost { current: None }.into());
        assert_eq!(item(&mut application.reader).await, Err(lost.clone()));
        assert_eq!(item(&mut application.consumer).await, Err(lost));
        assert_eq!(application.orders.survival().await, unknown);
    });
}
