//! Connections that end, servers that are silent, and servers that answer that they will not now.

use crate::support::{
    PATIENT, SHORT, add, add_once, ask, command, handle, must, op, payloads, plain, remote, remote_by,
    runtime, tagged, told, wait,
};
use std::net::TcpListener;
use std::time::Duration;
use strandline_core::stream::reply::{Told, Uncertain};
use strandline_core::stream::unready::{Again, Unready};
use strandline_core::stream::{Outcome, ServerFault, StreamError, Verb};
use strandline_redis::{Address, Bounds, Remote};
use strandline_tests::streams::server::RedisServer;

fn fault(outcome: Outcome) -> ServerFault {
    match outcome {
        Outcome::Answered { result: Err(StreamError::Server(fault)), .. } => fault,
        Outcome::Answered { .. } | Outcome::Uncertain(_) => panic!("expected a fault, found {outcome:?}"),
    }
}

fn unready(outcome: Outcome) -> Unready {
    let fault = fault(outcome);
    let ServerFault::Unready { why, .. } = fault else {
        panic!("expected a server that does not do it now, found {fault:?}")
    };
    why
}

#[test]
fn a_server_that_was_started_anew_is_reached_anew() {
    let mut server = RedisServer::start(None);
    runtime().block_on(async {
        let remote = remote(&server, PATIENT);
        let mut orders = handle("orders");
        ask(&remote, &mut orders, add("a")).await;
        server.restart_with(&[]);
        // What was sent over the connection that ended may have been done, for all we know.
        let lost = op(&orders, add("b"));
        assert_eq!(remote.apply(&lost).await, Outcome::Uncertain(Uncertain::new(lost)));
        let mut fresh = handle("orders");
        ask(&remote, &mut fresh, add("c")).await;
        assert_eq!(payloads(&remote, &mut fresh).await, ["c"]);
    });
}

#[test]
fn what_could_not_be_sent_is_not_uncertain() {
    let mut server = RedisServer::start(None);
    server.kill();
    runtime().block_on(async {
        let absent = remote(&server, SHORT);
        let error = fault(absent.apply(&op(&handle("orders"), add("a"))).await);
        assert!(matches!(error, ServerFault::NotSent { .. }), "{error:?}");
        assert_eq!(error.again(), Again::Soon);
        assert!(absent.reach().await.is_err());
    });
}

/// It takes connections and says nothing, not even to a greeting.
#[test]
fn a_silent_server_was_sent_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("redis://{}/", listener.local_addr().expect("an address"));
    runtime().block_on(async {
        let silent = remote_by(Address::one(&url).expect("an address"), tagged(), SHORT);
        let error = fault(silent.apply(&op(&handle("orders"), add("a"))).await);
        assert!(matches!(error, ServerFault::NotSent { .. }), "{error:?}");
    });
}

#[test]
fn a_server_that_falls_silent_leaves_what_was_sent_uncertain() {
    let server = RedisServer::start(None);
    runtime().block_on(async {
        let mut orders = handle("orders");
        let bounds = Bounds { answer_ms_max: 1_000, ..SHORT };
        let remote = remote(&server, bounds);
        wait("an answer in time", || runtime_answers(&server));
        let first = add_once("k");
        let outcome = remote.apply(&op(&orders, first.clone())).await;
        told(&mut orders, &first, outcome);
        must::<()>(&mut plain(&server), &["CLIENT", "PAUSE", "3000", "ALL"]);
        let again = op(&orders, add_once("l"));
        let outcome = remote.apply(&again).await;
        assert_eq!(outcome, Outcome::Uncertain(Uncertain::new(again.clone())));
        // The same key again finds what the first time did, however it ended.
        let patient = crate::support::remote(&server, PATIENT);
        let told = ask(&patient, &mut orders, again.verb).await;
        assert!(matches!(told, Told::AddedOnce { .. }));
        assert_eq!(payloads(&patient, &mut orders).await, ["k", "l"]);
    });
}

/// Whoever connects anew may take as long as its own operation; one that was asked before is told in its time.
#[test]
fn nobody_who_was_asked_before_waits_for_who_connects_anew() {
    let server = RedisServer::start(None);
    let ends = std::cell::RefCell::new(Vec::new());
    runtime().block_on(async {
        let orders = handle("orders");
        let remote = remote(&server, Bounds { answer_ms_max: 2_000, ..SHORT });
        wait("an answer in time", || runtime_answers(&server));
        remote.reach().await.expect("a connection");
        // From now on it takes connections and answers nothing.
        let stopped =
            std::process::Command::new("kill").args(["-STOP", &server.process().to_string()]).status();
        assert!(stopped.expect("kill on the path").success());
        let ask = async |name: &str| {
            let outcome = remote.apply(&op(&orders, add(name))).await;
            ends.borrow_mut().push(name.to_string());
            outcome
        };
        let later = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            ask("asked before").await
        };
        let twice = async { (ask("first").await, ask("connects anew").await) };
        let (later, (first, anew)) = tokio::join!(later, twice);
        assert!(matches!((later, first), (Outcome::Uncertain(_), Outcome::Uncertain(_))));
        assert!(matches!(fault(anew), ServerFault::NotSent { .. }));
    });
    let place = |name: &str| ends.borrow().iter().position(|end| end == name).expect("it ended");
    assert!(place("asked before") < place("connects anew"), "{:?}", ends.borrow());
}

fn runtime_answers(server: &RedisServer) -> bool {
    must::<String>(&mut plain(server), &["PING"]) == "PONG"
}

#[test]
fn scripts_that_were_forgotten_are_sent_again() {
    let server = RedisServer::start(None);
    runtime().block_on(async {
        let remote = remote(&server, PATIENT);
        let mut orders = handle("orders");
        for (at, payload) in ["a", "b", "c"].into_iter().enumerate() {
            must::<()>(&mut plain(&server), &["SCRIPT", "FLUSH"]);
            let (outcome, vouched) = remote.apply_vouched(&op(&orders, add(payload))).await;
            told(&mut orders, &add(payload), outcome);
            assert!(vouched.is_some(), "event {at}");
        }
        assert_eq!(payloads(&remote, &mut orders).await, ["a", "b", "c"], "each once");
    });
}

/// Operations that meet while there is no connection make one, not one each.
#[test]
fn many_at_once_share_one_connection() {
    let server = RedisServer::start(None);
    runtime().block_on(async {
        let remote = remote(&server, PATIENT);
        let mut orders = handle("orders");
        ask(&remote, &mut orders, Verb::Open).await;
        let op = op(&orders, add("x"));
        for outcome in futures::future::join_all((0..50).map(|_| remote.apply(&op))).await {
            assert!(matches!(outcome, Outcome::Answered { result: Ok(_), .. }), "{outcome:?}");
        }
        let clients: String = must(&mut plain(&server), &["CLIENT", "LIST"]);
        assert_eq!(clients.lines().count(), 2, "ours and the one that asks: {clients}");
    });
}

/// Each refusal is made by a real server.
#[test]
fn a_server_that_will_not_now_says_so_by_type() {
    let server = RedisServer::start(None);
    let mut admin = plain(&server);
    let mut set = |name: &str, value: &str| must::<()>(&mut admin, &["CONFIG", "SET", name, value]);
    runtime().block_on(async {
        let remote = remote(&server, PATIENT);
        let mut orders = handle("orders");
        ask(&remote, &mut orders, add("a")).await;
        let op = op(&orders, add("b"));

        set("maxmemory", "1");
        assert_eq!(unready(remote.apply(&op).await), Unready::OutOfMemory);
        set("maxmemory", "0");

        set("min-replicas-to-write", "1");
        assert_eq!(unready(remote.apply(&op).await), Unready::TooFewReplicas);
        set("min-replicas-to-write", "0");
        assert_eq!(payloads(&remote, &mut orders).await, ["a"], "none of them did a thing");
    });
}

#[test]
fn a_replica_says_that_it_takes_no_writes() {
    let master = RedisServer::start(None);
    let port = master.port().to_string();
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &port]);
    runtime().block_on(async {
        let mut asked = plain(&replica);
        wait("a replica whose link is up", || {
            must::<String>(&mut asked, &["INFO", "replication"]).contains("master_link_status:up")
        });
        let error = fault(remote(&replica, SHORT).apply(&op(&handle("orders"), add("a"))).await);
        assert_eq!(error.again(), Again::Elsewhere);
        assert!(matches!(error, ServerFault::Unready { why: Unready::ReadOnly, .. }), "{error:?}");

        must::<()>(&mut asked, &["CONFIG", "SET", "replica-serve-stale-data", "no"]);
        must::<()>(&mut asked, &["REPLICAOF", "127.0.0.1", "1"]);
        let outcome = remote(&replica, SHORT).apply(&op(&handle("orders"), add("a"))).await;
        assert_eq!(unready(outcome), Unready::MasterDown);
    });
}

/// It is asked again until it has loaded, and the operation is done once.
#[test]
fn a_server_that_loads_is_waited_for() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = directory.path().to_str().expect("text");
    let mut server = RedisServer::start_with(&["--dir", path]);
    runtime().block_on(async {
        let mut orders = handle("orders");
        ask(&remote(&server, PATIENT), &mut orders, add("a")).await;
        let fill = "for i=1,3000 do redis.call('SET', 'k'..i, 'v') end";
        command(&["EVAL", fill, "0"]).exec(&mut plain(&server)).expect("filled");
        must::<()>(&mut plain(&server), &["SAVE"]);
        // It takes its time for each key, and looks at its connections now and then.
        server.restart_with(&["--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"]);
        let hurried = remote(&server, Bounds { answer_ms_max: 50, ..SHORT });
        let early = fault(hurried.apply(&op(&orders, Verb::Snapshot)).await);
        assert!(matches!(
            early,
            ServerFault::Unready { why: Unready::Loading, .. } | ServerFault::NotSent { .. }
        ));
        let patient = remote(&server, PATIENT);
        ask(&patient, &mut orders, add("b")).await;
        assert_eq!(payloads(&patient, &mut orders).await, ["a", "b"]);
    });
}

/// A script that does not end: others are told that the server is busy, and are asked again.
#[test]
fn a_busy_server_is_waited_for() {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "1"]);
    let mut blocker = plain(&server);
    runtime().block_on(async {
        let mut orders = handle("orders");
        let remote = remote(&server, PATIENT);
        ask(&remote, &mut orders, add("a")).await;
        let looping = std::thread::spawn(move || {
            command(&["EVAL", "while true do end", "0"]).query::<redis::Value>(&mut blocker)
        });
        let mut killer = plain_when_busy(&server);
        let freed = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            must::<()>(&mut killer, &["SCRIPT", "KILL"]);
        });
        ask(&remote, &mut orders, add("b")).await;
        freed.join().expect("killed");
        assert!(looping.join().expect("ended").is_err(), "the script was killed");
        assert_eq!(payloads(&remote, &mut orders).await, ["a", "b"]);
    });
}

/// A connection made before the script began, once the server answers that it is busy.
fn plain_when_busy(server: &RedisServer) -> redis::Connection {
    let info = redis::Client::open(server.url()).expect("an address");
    let mut connection = None;
    wait("a server that is busy", || {
        if connection.is_none() {
            connection = info.get_connection().ok();
        }
        let Some(asked) = &mut connection else { return false };
        let pong: redis::RedisResult<String> = command(&["PING"]).query(asked);
        pong.is_err_and(|error| error.code() == Some("BUSY"))
    });
    connection.expect("a connection")
}

#[test]
fn a_wrong_password_is_told_at_once() {
    let server = RedisServer::start_with(&["--requirepass", "right"]);
    runtime().block_on(async {
        for (url, word) in [("redis://:wrong@", "WRONGPASS"), ("redis://", "NOAUTH")] {
            let url = format!("{url}127.0.0.1:{}/", server.port());
            let remote: Remote = remote_by(Address::one(&url).expect("an address"), tagged(), PATIENT);
            let error = fault(remote.apply(&op(&handle("orders"), add("a"))).await);
            assert_eq!(error.again(), Again::Never);
            let ServerFault::NotPermitted { word: found, .. } = &error else { panic!("{error:?}") };
            assert_eq!(found, word);
        }
    });
}
