//! Subscriptions to a node on a real directory: each change once, over restarts and compactions.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{
    Change, Cursor, CursorReason, MembersChange, Mutation, Page, Served, SubscriptionEnd,
};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, Key, State, Version};
use strandline_core::verdict::Verdict;
use strandline_file::blocking::{BlockingReplica, BlockingSubscription};
use strandline_file::node::{NodeConfig, SubscribeFailed};

type Result = std::result::Result<(), Box<dyn Error>>;

const LOG: LogId = LogId([5; 16]);
/// Longer than any machine needs.
const GIVE_UP: Duration = Duration::from_secs(60);

fn create(path: &Path, config: NodeConfig) -> std::result::Result<BlockingReplica, Box<dyn Error>> {
    let init = Init {
        log: LOG,
        identity: "a".into(),
        namespaces: vec![b"n".to_vec()],
        authority: Some(AuthorityId::from_text("a")),
    };
    Ok(BlockingReplica::create(path, init, config)?.0)
}

fn key(name: &str) -> Key {
    Key::from_parts(b"n", name.as_bytes()).expect("short")
}

fn page(subscription: &mut BlockingSubscription) -> Page {
    subscription.next_within(GIVE_UP).expect("a page comes")
}

/// Follows up to `tail`: the versions given, and where they came from.
fn follow(subscription: &mut BlockingSubscription, tail: Version) -> (Vec<Version>, Vec<Served>) {
    let (mut given, mut from) = (Vec::new(), Vec::new());
    while given.last() != Some(&tail) {
        let Page::Changes { records, served, .. } = page(subscription) else { panic!("changes follow") };
        given.extend(records.iter().map(|record| record.version));
        from.push(served);
    }
    (given, from)
}

#[test]
fn changes_come_from_the_journal_then_live_and_the_cursor_outlives_the_node() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log");
    let replica = create(&path, NodeConfig::default())?;
    let mut written = Vec::new();
    for n in 0..40 {
        written.push(replica.delete(key(&format!("k{n}")))?);
    }
    replica.close()?;
    let (replica, _) = BlockingReplica::open(&path, NodeConfig::default())?;
    let mut subscription = replica.subscribe(Cursor::new(LOG, Version::ZERO))?;
    assert!(subscription.verdict().is_complete());
    let (given, from) = follow(&mut subscription, written[39]);
    assert_eq!((given, from[0]), (written.clone(), Served::Journal));
    assert_eq!(subscription.next_within(Duration::from_millis(20)), None, "there is nothing more");
    let live = replica.put(key("live"), &b"bytes"[..])?;
    assert_eq!(follow(&mut subscription, live), (vec![live], vec![Served::Memory]));
    let cursor = replica.cursor()?;
    replica.close()?;
    assert_eq!(page(&mut subscription), Page::Ended(SubscriptionEnd::Closing));

    let (replica, _) = BlockingReplica::open(&path, NodeConfig::default())?;
    let after = replica.delete(key("after"))?;
    let mut subscription = replica.subscribe(cursor)?;
    assert_eq!(follow(&mut subscription, after).0, [after]);
    Ok(replica.close()?)
}

#[test]
fn below_the_floor_a_reset_is_the_state_and_what_came_after() -> Result {
    let folder = tempfile::tempdir()?;
    let replica = create(&folder.path().join("log"), NodeConfig::default())?;
    let mut expected = BTreeMap::new();
    for n in 0..2000 {
        let key = key(&format!("k{n:05}"));
        let put = Change::Put { blob: strandline_core::record::BlobKey([1; 32]) };
        let change = if n % 3 == 0 { Change::Delete } else { put };
        replica.write_batch(vec![Mutation { key: key.clone(), change, if_version: None }])?;
        if n % 3 != 0 {
            expected.insert(key, ());
        }
    }
    replica.members(MembersChange::Clear)?;
    let floor = replica.compact(None)?.floor;
    let from = Version::new(1, 1);
    let mut subscription = replica.subscribe(Cursor::new(LOG, from))?;
    let reason = CursorReason::BelowFloor;
    assert_eq!(*subscription.verdict(), Verdict::Gap { from, to: floor, reason });
    let after = replica.delete(key("k00001"))?;
    subscription.reset();
    assert_eq!(page(&mut subscription), Page::ResetBegin { cut: floor });
    let mut state = BTreeMap::new();
    loop {
        match page(&mut subscription) {
            Page::State { records } => {
                assert!(records.iter().all(|record| matches!(record.state, State::Present { .. })));
                state.extend(records.into_iter().map(|record| (record.key, ())));
            }
            Page::ResetEnd { cut, keys } => {
                assert_eq!((cut, keys), (floor, state.len() as u64));
                break;
            }
            other @ (Page::Changes { .. } | Page::Lost(_) | Page::ResetBegin { .. } | Page::Ended(_)) => {
                panic!("in a reset came {other:?}")
            }
        }
    }
    assert_eq!(state, expected);
    assert_eq!(follow(&mut subscription, after).0, [after]);
    Ok(replica.close()?)
}

#[test]
fn a_dropped_subscription_is_over_and_makes_room() -> Result {
    let folder = tempfile::tempdir()?;
    let mut config = NodeConfig::default();
    config.replica.subscriptions_max = 1;
    let replica = create(&folder.path().join("log"), config)?;
    let cursor = replica.cursor()?;
    let first = replica.subscribe(cursor)?;
    assert!(matches!(replica.subscribe(cursor), Err(SubscribeFailed::Refused(_))));
    drop(first);
    assert!(replica.subscribe(cursor)?.verdict().is_complete());
    Ok(replica.close()?)
}

#[test]
fn a_closed_node_opens_no_subscription_and_says_so() -> Result {
    let folder = tempfile::tempdir()?;
    let replica = create(&folder.path().join("log"), NodeConfig::default())?;
    let (handle, cursor) = (replica.handle().clone(), replica.cursor()?);
    replica.close()?;
    let (tx, rx) = std::sync::mpsc::channel();
    handle.subscribe(cursor, |_| {}, move |opened| drop(tx.send(opened.map(drop))));
    assert!(rx.recv_timeout(GIVE_UP)?.is_err());
    Ok(())
}
