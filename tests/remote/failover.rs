//! A replica takes over, with and without the end of what its master had done; a server forgets.

use crate::support::{
    PATIENT, add, ask, command, handle, must, op, payloads, plain, remote, runtime, stream, told, wait,
};
use redis::Connection;
use strandline_core::stream::error::CallerError;
use strandline_core::stream::failover::{Doubt, Standing, Survival, Vouched};
use strandline_core::stream::{Handle, Outcome, StreamError, Verb};
use strandline_redis::Remote;
use strandline_tests::streams::server::RedisServer;

/// A master with a replica that has caught up once.
pub(crate) fn pair() -> (RedisServer, RedisServer) {
    let master = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let port = master.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let mut asked = plain(&replica);
    wait("a replica whose link is up", || {
        must::<String>(&mut asked, &["INFO", "replication"]).contains("master_link_status:up")
    });
    (master, replica)
}

pub(crate) fn standing(server: &mut Connection) -> Standing {
    let info: String = must(server, &["INFO", "replication"]);
    Standing::parse(&info).unwrap_or_else(|| panic!("expected the fields of a standing, found {info}"))
}

async fn publish(remote: &Remote, handle: &mut Handle, payload: &str) -> Vouched {
    let (outcome, vouched) = remote.apply_vouched(&op(handle, add(payload))).await;
    told(handle, &add(payload), outcome);
    vouched.expect("a master says where it stands")
}

pub(crate) fn caught_up(replica: &mut Connection, noted: &Vouched) {
    wait("a replica that has what was noted", || standing(replica).offset >= noted.offset);
}

#[test]
fn what_the_replica_had_is_kept_when_it_takes_over() {
    let (mut master, replica) = pair();
    runtime().block_on(async {
        let mut orders = handle("orders");
        let noted = publish(&remote(&master, PATIENT), &mut orders, "a").await;
        let mut promoted = plain(&replica);
        caught_up(&mut promoted, &noted);
        let heir = remote(&replica, PATIENT);
        let following = Survival::Unknown { reason: Doubt::NotMaster };
        assert_eq!(heir.survival(&stream("orders"), Some(&noted)).await, following);
        master.kill();
        must::<()>(&mut promoted, &["REPLICAOF", "NO", "ONE"]);
        assert_eq!(heir.survival(&stream("orders"), Some(&noted)).await, Survival::Kept);
        assert_eq!(payloads(&heir, &mut orders).await, ["a"]);
    });
}

#[test]
fn the_end_that_the_replica_lacked_is_lost_and_what_came_before_is_kept() {
    let (mut master, replica) = pair();
    runtime().block_on(async {
        let first = remote(&master, PATIENT);
        let mut orders = handle("orders");
        let kept = publish(&first, &mut orders, "kept").await;
        let mut promoted = plain(&replica);
        caught_up(&mut promoted, &kept);
        // From here on it follows nobody, and still belongs to the master's history.
        must::<()>(&mut promoted, &["REPLICAOF", "127.0.0.1", "1"]);
        let lost = publish(&first, &mut orders, "lost").await;
        assert_eq!(first.survival(&stream("orders"), Some(&lost)).await, Survival::Kept);
        master.kill();
        must::<()>(&mut promoted, &["REPLICAOF", "NO", "ONE"]);

        let heir = remote(&replica, PATIENT);
        assert_eq!(heir.survival(&stream("orders"), Some(&kept)).await, Survival::Kept);
        assert_eq!(heir.survival(&stream("orders"), Some(&lost)).await, Survival::Lost);
        let other = publish(&heir, &mut orders, "other").await;
        assert_eq!(payloads(&heir, &mut orders).await, ["kept", "other"]);
        assert_eq!(heir.survival(&stream("orders"), Some(&other)).await, Survival::Kept);
        assert_eq!(heir.survival(&stream("orders"), Some(&lost)).await, Survival::Lost, "whatever follows");
        let nothing = Survival::Unknown { reason: Doubt::NothingNoted };
        assert_eq!(heir.survival(&stream("orders"), None).await, nothing);
    });
}

#[test]
fn a_server_that_comes_back_empty_vouches_for_nothing_before() {
    let mut server = RedisServer::start(None);
    runtime().block_on(async {
        let remote = remote(&server, PATIENT);
        let mut orders = handle("orders");
        let noted = publish(&remote, &mut orders, "a").await;
        assert_eq!(remote.survival(&stream("orders"), Some(&noted)).await, Survival::Kept);
        server.kill();
        server.restart_with(&[]);
        // The first question finds the connection gone.
        let gone = Survival::Unknown { reason: Doubt::Unanswered };
        assert_eq!(remote.survival(&stream("orders"), Some(&noted)).await, gone);
        let other = Survival::Unknown { reason: Doubt::OtherHistory };
        assert_eq!(remote.survival(&stream("orders"), Some(&noted)).await, other);
        let outcome = remote.apply(&op(&orders, Verb::Snapshot)).await;
        let lost = StreamError::from(CallerError::StreamLost { current: None });
        assert!(matches!(&outcome, Outcome::Answered { result: Err(e), .. } if *e == lost), "{outcome:?}");
    });
}

#[test]
fn a_server_that_comes_back_from_an_older_file_lost_what_came_after_it() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = directory.path().to_str().expect("text");
    // A replica makes the master count its offset.
    let mut server = RedisServer::start_with(&["--dir", path, "--repl-diskless-sync-delay", "0"]);
    let port = server.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    let mut asked = plain(&replica);
    wait("a replica whose link is up", || {
        must::<String>(&mut asked, &["INFO", "replication"]).contains("master_link_status:up")
    });
    runtime().block_on(async {
        let remote = remote(&server, PATIENT);
        let mut orders = handle("orders");
        let kept = publish(&remote, &mut orders, "kept").await;
        // The replica's first copy may still be on its way out.
        wait("a save", || command(&["SAVE"]).query::<()>(&mut plain(&server)).is_ok());
        let lost = publish(&remote, &mut orders, "lost").await;
        server.restart_with(&[]);
        // The first question finds the connection gone.
        let gone = Survival::Unknown { reason: Doubt::Unanswered };
        assert_eq!(remote.survival(&stream("orders"), Some(&kept)).await, gone);
        assert_eq!(remote.survival(&stream("orders"), Some(&kept)).await, Survival::Kept);
        assert_eq!(remote.survival(&stream("orders"), Some(&lost)).await, Survival::Lost);
        assert_eq!(payloads(&remote, &mut orders).await, ["kept"]);
    });
}

/// A master that is told to follow keeps its connections: an answer over them is noted for nobody.
#[test]
fn nothing_is_noted_at_a_server_that_only_follows() {
    let (master, replica) = pair();
    runtime().block_on(async {
        let mut orders = handle("orders");
        let noted = publish(&remote(&master, PATIENT), &mut orders, "a").await;
        caught_up(&mut plain(&replica), &noted);
        let (outcome, vouched) = remote(&replica, PATIENT).apply_vouched(&op(&orders, Verb::Snapshot)).await;
        told(&mut orders, &Verb::Snapshot, outcome);
        assert_eq!(vouched, None);
    });
}

#[test]
fn replicas_are_waited_for_over_the_connection_that_wrote() {
    let (master, replica) = pair();
    runtime().block_on(async {
        let remote = remote(&master, PATIENT);
        let mut orders = handle("orders");
        let (outcome, replicas) = remote.apply_replicated(&op(&orders, add("a")), 1, 10_000).await;
        told(&mut orders, &add("a"), outcome);
        assert_eq!(replicas, Some(1));
        let mut follower = plain(&replica);
        command(&["REPLICAOF", "127.0.0.1", "1"]).exec(&mut follower).expect("follows nobody");
        wait("a master without replicas", || {
            must::<String>(&mut plain(&master), &["INFO", "replication"]).contains("connected_slaves:0")
        });
        let (outcome, replicas) = remote.apply_replicated(&op(&orders, add("b")), 1, 50).await;
        told(&mut orders, &add("b"), outcome);
        assert_eq!(replicas, Some(0), "done, and on no replica");
        assert_eq!(payloads(&remote, &mut orders).await, ["a", "b"]);
        let told = ask(&remote, &mut orders, Verb::Destroy).await;
        assert_eq!(told, strandline_core::stream::reply::Told::Destroyed { now: true });
    });
}
