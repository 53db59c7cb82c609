//! Hubs over a replica on a real directory: restarts, compactions, a feed that falls behind.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

use futures::StreamExt as _;
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use strandline_core::coverage::{
    BufferLimits, CursorCodec, HubConfig, HubLimits, Item, Reason, TopicName, log,
};
use strandline_core::id::{LogId, Run};
use strandline_core::lifecycle::api::MembersChange;
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, Key, Version};
use strandline_file::OpenError;
use strandline_file::node::{Node, NodeConfig, StartError};
use strandline_hub::{Delivery, HandleOptions, HubHandle, Start, Subscription};
use strandline_net::Handle;
use strandline_replica_hub::{HistoryLimits, ReplicaHub, serve};
use strandline_tokio::Tokio;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const LOG: LogId = LogId([5; 16]);
/// Longer than any machine needs.
const GIVE_UP: Duration = Duration::from_secs(60);

fn topic(name: &str) -> TopicName {
    TopicName::parse(name).expect("a topic")
}

fn key(namespace: &str, name: &str) -> Key {
    Key::from_parts(namespace.as_bytes(), name.as_bytes()).expect("short")
}

/// A node that writes a log of two namespaces.
fn create(path: &Path, log: LogId) -> Result<Node> {
    let init = Init {
        log,
        identity: "a".into(),
        namespaces: vec![b"n".to_vec(), b"m".to_vec()],
        authority: Some(AuthorityId::from_text("a")),
    };
    Ok(Node::create(path, init, NodeConfig::default())?.0)
}

/// Opens a directory once those who used the last node have noticed its end.
async fn reopened(path: &Path) -> Result<Node> {
    let opened = async {
        loop {
            match Node::open(path, NodeConfig::default()) {
                Err(StartError::Open(OpenError::InUse(_))) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                opened => return opened,
            }
        }
    };
    Ok(tokio::time::timeout(GIVE_UP, opened).await??.0)
}

/// A node that runs for as long as this value is there.
struct Running {
    handle: Handle,
    _node: Node,
}

impl std::ops::Deref for Running {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

fn run(node: Node) -> Running {
    Running { handle: Handle::new(node.handle().clone(), Tokio::current()), _node: node }
}

async fn hub_of(node: &Handle, events_max: usize) -> Result<ReplicaHub> {
    let buffer = BufferLimits { events_max, ..HubLimits::default().buffer };
    let limits = HubLimits { buffer, ..HubLimits::default() };
    let config = HubConfig { limits, ..HubConfig::minted() };
    let seed = [3; 32];
    Ok(serve(node.clone(), config, HandleOptions::default(), HistoryLimits::default(), Run(1), seed).await?)
}

fn start(hub: ReplicaHub) -> HubHandle {
    tokio::spawn(hub.driver.run(tokio::time::sleep));
    tokio::spawn(hub.feed.run(tokio::time::sleep));
    hub.hub
}

async fn next(stream: &mut Subscription) -> Item {
    let Delivery { item, .. } =
        tokio::time::timeout(GIVE_UP, stream.next()).await.expect("an item in time").expect("an open stream");
    item
}

/// The versions of the next events, with nothing else between them.
async fn events(stream: &mut Subscription, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < count {
        match next(stream).await {
            Item::Event { entry, .. } => found.push(entry.mark.position.to_string()),
            other => panic!("expected an event, found {other:?} after {found:?}"),
        }
    }
    found
}

fn positions(versions: &[Version]) -> Vec<String> {
    versions.iter().map(|version| log::position(*version).to_string()).collect()
}

async fn opened(hub: &HubHandle, start: Start<'_>) -> (Subscription, bool) {
    let mut stream = hub.subscribe(&[topic("n")], start).expect("a stream");
    match next(&mut stream).await {
        Item::Opened(opened) => (stream, opened.resumed),
        other => panic!("expected a beginning, found {other:?}"),
    }
}

/// Why a resume is refused, and the ID that replaces the client's.
async fn refused(hub: &HubHandle, id: &str) -> (Reason, String) {
    let mut stream = hub.subscribe(&[topic("n")], Start::after(id)).expect("a stream");
    loop {
        match next(&mut stream).await {
            Item::SyncRequired { reason, .. } => return (reason, stream.id()),
            Item::Stale { .. } => {}
            other => panic!("expected a refusal, found {other:?}"),
        }
    }
}

async fn write(node: &Handle, namespace: &str, count: usize) -> Result<Vec<Version>> {
    let mut versions = Vec::new();
    for n in 0..count {
        versions.push(node.delete(key(namespace, &format!("k{n}"))).await?);
    }
    Ok(versions)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_outlives_the_process_and_what_the_buffer_lacks_comes_out_of_the_log() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log");
    let node = run(create(&path, LOG)?);
    let before = write(&node, "n", 3).await?;
    let hub = start(hub_of(&node, 4).await?);
    let (mut stream, _) = opened(&hub, Start::now()).await;
    let fresh = stream.id();
    let first = write(&node, "n", 2).await?;
    write(&node, "m", 5).await?;
    assert_eq!(events(&mut stream, 2).await, positions(&first), "only its own topic");
    let id = stream.id();
    // More than the buffer of four holds, and nobody listens.
    drop(stream);
    let second = write(&node, "n", 9).await?;
    let (mut stream, resumed) = opened(&hub, Start::after(&id)).await;
    assert!(resumed);
    assert_eq!(events(&mut stream, 9).await, positions(&second));
    // The cursor of the last version before the hub began is good too.
    let codec = hub.codec().clone();
    let space = log::mark(node.cursor().await?);
    let old =
        codec.write("n", strandline_core::coverage::Mark { position: log::position(before[0]), ..space });
    let (mut stream, resumed) = opened(&hub, Start::after(old.as_str())).await;
    assert!(resumed);
    assert_eq!(events(&mut stream, 2).await, positions(&before[1..]));
    drop(stream);
    node.close().await?;
    drop(node);

    let node = run(reopened(&path).await?);
    let hub = start(hub_of(&node, 4).await?);
    for (id, expected) in [(&id, 9), (&fresh, 11)] {
        let (mut stream, resumed) = opened(&hub, Start::after(id)).await;
        assert!(resumed);
        let found = events(&mut stream, expected).await;
        assert_eq!(found[expected - 9..], positions(&second));
    }
    let (mut stream, _) = opened(&hub, Start::after(&id)).await;
    assert_eq!(events(&mut stream, 9).await, positions(&second));
    let live = write(&node, "n", 1).await?;
    assert_eq!(events(&mut stream, 1).await, positions(&live), "and it goes on live, without a repeat");
    Ok(node.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn below_the_floor_a_resume_is_refused_and_at_the_floor_it_goes_on() -> Result {
    let folder = tempfile::tempdir()?;
    let node = run(create(&folder.path().join("log"), LOG)?);
    let hub = start(hub_of(&node, 0).await?);
    let (mut stream, _) = opened(&hub, Start::now()).await;
    let written = write(&node, "n", 6).await?;
    let mut ids = Vec::new();
    for version in &written {
        assert_eq!(events(&mut stream, 1).await, positions(&[*version]));
        ids.push(stream.id());
    }
    node.members(MembersChange::Clear).await?;
    let floor = node.compact(Some(written[3])).await?.floor;
    assert_eq!(floor, written[3]);
    let (reason, id) = refused(&hub, &ids[2]).await;
    assert_eq!(reason, Reason::BelowFloor);
    assert_eq!(id, ids[5], "the dead cursor is replaced by the position that goes on");
    let (mut stream, resumed) = opened(&hub, Start::after(&ids[3])).await;
    assert!(resumed, "the cut itself is held");
    assert_eq!(events(&mut stream, 2).await, positions(&written[4..]));
    Ok(node.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_the_floor_has_passed_tells_its_subscribers_and_goes_on_at_the_cut() -> Result {
    let folder = tempfile::tempdir()?;
    let node = run(create(&folder.path().join("log"), LOG)?);
    let parts = hub_of(&node, 16).await?;
    let hub = parts.hub.clone();
    let (mut stream, _) = opened(&hub, Start::now()).await;
    // The feed does not run yet, and the log goes on without it.
    let written = write(&node, "n", 4).await?;
    node.members(MembersChange::Clear).await?;
    assert_eq!(node.compact(Some(written[2])).await?.floor, written[2]);
    start(parts);
    let at = loop {
        match next(&mut stream).await {
            Item::SyncRequired { reason, at } => {
                assert_eq!(reason, Reason::Reset);
                break at;
            }
            Item::Stale { .. } => {}
            other => panic!("expected word of the loss, found {other:?}"),
        }
    };
    assert_eq!(at.position, log::position(written[2]), "the cut");
    assert_eq!(events(&mut stream, 1).await, positions(&written[3..]));
    Ok(node.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_log_and_a_version_that_the_log_never_gave_are_refused() -> Result {
    let folder = tempfile::tempdir()?;
    let node = run(create(&folder.path().join("log"), LOG)?);
    let other = run(create(&folder.path().join("other"), LogId([6; 16]))?);
    let hub = start(hub_of(&node, 16).await?);
    let elsewhere = start(hub_of(&other, 16).await?);
    let (mut stream, _) = opened(&hub, Start::now()).await;
    write(&node, "m", 1).await?;
    let written = write(&node, "n", 1).await?;
    assert_eq!(events(&mut stream, 1).await, positions(&written));
    let id = stream.id();
    assert_eq!(refused(&elsewhere, &id).await.0, Reason::OtherIncarnation);
    // A client of a replica that is ahead, or whose history is another one.
    let codec: &CursorCodec = hub.codec();
    let cursor = |version: Version| {
        let mark = log::mark(strandline_core::lifecycle::api::Cursor::new(LOG, version));
        codec.write("n", mark).to_string()
    };
    let ahead = Version::new(written[0].epoch, written[0].sequence + 7);
    assert_eq!(refused(&hub, &cursor(ahead)).await.0, Reason::AheadOfHead);
    node.fence(written[0].epoch + 4).await?;
    let after = write(&node, "n", 1).await?;
    assert_eq!(events(&mut stream, 1).await, positions(&after));
    // It lies between what was fed, so only the log can tell.
    let foreign = Version::new(written[0].epoch + 2, 1);
    assert_eq!(refused(&hub, &cursor(foreign)).await.0, Reason::ForeignPosition);
    node.close().await?;
    Ok(other.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_silent_has_a_position_as_high_as_its_log() -> Result {
    let folder = tempfile::tempdir()?;
    let node = run(create(&folder.path().join("log"), LOG)?);
    let hub = start(hub_of(&node, 16).await?);
    let (mut loud, _) = {
        let mut stream = hub.subscribe(&[topic("m")], Start::now())?;
        let first = next(&mut stream).await;
        (stream, first)
    };
    let written = write(&node, "m", 5).await?;
    events(&mut loud, 5).await;
    // The page was given whole before the hub says so.
    let fed = async {
        loop {
            let (stream, _) = opened(&hub, Start::now()).await;
            let codec = hub.codec().clone();
            let mark = log::mark(strandline_core::lifecycle::api::Cursor::new(LOG, written[4]));
            if stream.id() == codec.write("n", mark).to_string() {
                return stream.id();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let id = tokio::time::timeout(GIVE_UP, fed).await?;
    node.members(MembersChange::Clear).await?;
    node.compact(None).await?;
    let (_, resumed) = opened(&hub, Start::after(&id)).await;
    assert!(resumed, "although nothing of it was ever published, and all before was compacted");
    Ok(node.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_hub_cannot_take_is_told_in_its_place() -> Result {
    let folder = tempfile::tempdir()?;
    let node = run(create(&folder.path().join("log"), LOG)?);
    let limits = HubLimits { event_bytes_max: 300, ..HubLimits::default() };
    let config = HubConfig { limits, ..HubConfig::minted() };
    let (handle, bounds) = (node.handle.clone(), HistoryLimits::default());
    let hub = start(serve(handle, config, HandleOptions::default(), bounds, Run(1), [3; 32]).await?);
    let (mut stream, _) = opened(&hub, Start::now()).await;
    let large = node.delete(key("n", &"k".repeat(400))).await?;
    let at = loop {
        match next(&mut stream).await {
            Item::SyncRequired { reason, at } => {
                assert_eq!(reason, Reason::Missed);
                break at;
            }
            Item::Stale { .. } => {}
            other => panic!("expected word of the loss, found {other:?}"),
        }
    };
    assert_eq!(at.position, log::position(large));
    let after = write(&node, "n", 1).await?;
    assert_eq!(events(&mut stream, 1).await, positions(&after));
    Ok(node.close().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_closes_ends_the_streams_and_takes_no_publishes() -> Result {
    let folder = tempfile::tempdir()?;
    let node = run(create(&folder.path().join("log"), LOG)?);
    let hub = start(hub_of(&node, 16).await?);
    let (mut stream, _) = opened(&hub, Start::now()).await;
    let publish = strandline_core::coverage::Publish::new(b"x");
    assert!(hub.publish(&topic("n"), publish).await.is_err());
    node.close().await?;
    assert_eq!(next(&mut stream).await, Item::Closed);
    Ok(())
}
