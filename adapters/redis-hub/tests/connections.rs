//! The connections that events come over: which server is asked first, and when they end.

#[path = "support/listening.rs"]
mod listening;
#[expect(dead_code, reason = "no server comes back here")]
mod support;

use futures::future::join_all;
use listening::{GIVE_UP, event, opened, publish};
use std::net::TcpListener;
use std::time::Duration;
use strandline_core::coverage::{HubConfig, HubTimes, TopicName};
use strandline_core::id::Run;
use strandline_hub::{HandleOptions, HubHandle, Start};
use strandline_redis_hub::{HubNames, RedisBackend, RedisOptions};
use support::Server;

fn hub(backend: RedisBackend, times: HubTimes) -> HubHandle {
    let config = HubConfig { times, ..HubConfig::broker() };
    let (hub, driver) = HubHandle::new(config, HandleOptions::default(), backend, Run(1), [1; 32]);
    tokio::spawn(driver.run(tokio::time::sleep));
    hub
}

fn options(answer_ms: u64) -> RedisOptions {
    RedisOptions { answer_ms, ..RedisOptions::new(HubNames::new("test").unwrap()) }
}

/// A server that is a cluster by itself.
async fn cluster() -> Server {
    let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let announced = ["--cluster-announce-ip", "127.0.0.1", "--cluster-port", &bus];
    let server = Server::start_with(&[&["--cluster-enabled", "yes"][..], &announced].concat());
    let mut connection = server.connection();
    redis::cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16_383).exec(&mut connection).unwrap();
    let mut state = || redis::cmd("CLUSTER").arg("INFO").query::<String>(&mut connection).unwrap();
    until("a cluster that is ready", || state().contains("cluster_state:ok")).await;
    server
}

async fn until(what: &str, mut check: impl FnMut() -> bool) {
    let all = async {
        while !check() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(GIVE_UP, all).await.unwrap_or_else(|_| panic!("expected {what} in time"));
}

/// Each topic waits for those before it, and is given up and asked for again meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_server_that_never_answers_keeps_no_topic_dark() {
    let server = cluster().await;
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let urls = [format!("redis://{}/", dead.local_addr().unwrap()), server.url()];
    let backend = RedisBackend::cluster(&urls, &options(1_000)).unwrap();
    let times =
        HubTimes { heartbeat_ms: 1_000, resubscribe_ms: 50, settle_ms: 600_000, ..HubTimes::default() };
    let hub = hub(backend, times);
    let topics: Vec<TopicName> = (0..15).map(|n| TopicName::parse(&format!("t{n}")).unwrap()).collect();
    // There is no position before a subscription is confirmed.
    let all = join_all(topics.iter().map(|topic| hub.position(std::slice::from_ref(topic))));
    let positions = tokio::time::timeout(GIVE_UP, all).await.expect("every topic in time");
    assert!(positions.iter().all(Result::is_ok), "{positions:?}");
    hub.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_hub_leaves_no_connection() {
    let server = Server::start();
    let mut looks = server.connection();
    let mut clients = move || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut looks).unwrap();
        list.lines().count()
    };
    let hub = hub(RedisBackend::new(&server.url(), &options(20_000)).unwrap(), HubTimes::default());
    let topic = listening::topic();
    let mut stream = opened(&hub, &topic, Start::now()).await;
    publish(&hub, &topic, "one", None).await;
    assert_eq!(event(&mut stream).await, "one");
    assert_eq!(clients(), 3, "who looks, commands, and events");
    hub.close();
    drop((stream, hub));
    until("no client but who looks", || clients() == 1).await;
}
