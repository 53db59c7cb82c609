//! `strandline stream` as real processes: in a directory, and on a server of this test's own.

mod stream_support;
mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;
use stream_support::RedisServer;
use support::Ended;

/// Where the streams of a test are.
struct Place {
    home: tempfile::TempDir,
    server: Option<RedisServer>,
}

impl Place {
    fn directory() -> Self {
        Self { home: tempfile::tempdir().expect("a directory"), server: None }
    }

    fn server() -> Self {
        Self { server: Some(RedisServer::start()), ..Self::directory() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
        command.env_remove("STRANDLINE_DIR").env_remove("STRANDLINE_REDIS_URL").stdin(Stdio::null());
        command.arg("stream").args(args);
        match &self.server {
            Some(server) => command.arg("--redis").arg(server.url()),
            None => command.arg("--dir").arg(self.home.path().join("streams")),
        };
        command
    }

    fn plain(&self, args: &[&str]) -> Ended {
        self.command(args).output().expect("runs").into()
    }

    fn run(&self, args: &[&str]) -> Ended {
        self.command(args).arg("--json").output().expect("runs").into()
    }

    fn done(&self, args: &[&str]) -> Vec<Value> {
        let ended = self.run(args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        ended.lines()
    }

    fn payload(&self, bytes: &str) -> String {
        let path = self.home.path().join(format!("payload-{bytes}"));
        std::fs::write(&path, bytes).expect("writes");
        path.to_str().expect("text").to_owned()
    }
}

fn failed(ended: &Ended, code: i32, says: &str) {
    assert_eq!(ended.code, code, "{}", ended.stderr);
    assert!(ended.stderr.contains(says), "expected {says:?} in {}", ended.stderr);
    assert!(ended.stdout.is_empty(), "a failure prints no result");
}

/// Every command with its JSON, from the making of a stream to its end.
fn tour(place: &Place) {
    let (one, two) = (place.payload("one"), place.payload("two"));
    let [first] = &place.done(&["add", "orders", "created", &one, "--topic", "eu", "--max-len", "5"])[..]
    else {
        panic!("one line")
    };
    assert_eq!((&first["published"], &first["generation"]), (&json!(true), &json!(1)));
    let id = first["id"].as_str().expect("an ID").to_owned();

    let once = ["add-once", "orders", "created", &two, "--key", "k"];
    let (new, again) = (place.done(&once).pop().unwrap(), place.done(&once).pop().unwrap());
    assert_eq!((&new["published"], &again["published"]), (&json!(true), &json!(false)));
    assert_eq!(new["id"], again["id"]);
    let conflict = place.run(&["add-once", "orders", "created", &one, "--key", "k"]);
    failed(&conflict, 1, "other content");

    failed(&place.run(&["add", "orders", "created", &one, "--after", &id]), 1, "condition does not hold");

    let snapshot = place.done(&["snapshot", "orders"]);
    assert_eq!(snapshot[0], json!({"id": id, "name": "created", "topic": "eu", "payload": "one"}));
    assert_eq!((snapshot.len(), &snapshot[1]["payload"]), (2, &json!("two")));
    assert_eq!(place.done(&["tail", "orders"]), snapshot);
    assert_eq!(place.done(&["tail", "orders", "--from", &id]), snapshot[1..]);
    assert_eq!(place.done(&["tail", "orders", "--topic", "eu"]), snapshot[..1]);
    assert_eq!(place.done(&["tail", "orders", "--max", "1"]), snapshot[..1]);

    let left = place.done(&["consume", "orders", "mail", "--max", "1", "--no-ack"]);
    assert_eq!(left, snapshot[..1]);
    let [group] = &place.done(&["groups", "orders"])[..] else { panic!("one group") };
    assert_eq!((&group["group"], &group["pending"]), (&json!("mail"), &json!(1)));
    assert_eq!(group["contract"], json!(["all", "", "0", "0", "20000"]));
    assert_eq!((&group["lag"], &group["oldest"]["deliveries"]), (&json!(1), &json!(1)));
    assert_eq!(group["oldest"]["id"], snapshot[0]["id"]);
    let claimed = place.done(&["consume", "orders", "mail", "--claim-idle-ms", "0", "--consumer", "w2"]);
    assert_eq!(claimed, snapshot, "what was left pending, then the rest");
    let [group] = &place.done(&["groups", "orders"])[..] else { panic!("one group") };
    assert_eq!((&group["pending"], &group["cursor"]), (&json!(0), &snapshot[1]["id"]));
    assert_eq!((&group["lag"], &group["oldest"]), (&json!(0), &Value::Null));
    assert_eq!(place.done(&["consume", "orders", "mail"]), Vec::<Value>::new());

    let explained = place.done(&["explain", "orders", "--after", &id]).pop().unwrap();
    assert_eq!((&explained["state"], &explained["verdict"]), (&json!("active"), &json!("complete")));
    assert!(explained["contract"].as_str().expect("text").contains("max=5"), "{explained}");
    for n in 0..6 {
        place.done(&["add", "orders", "created", &place.payload(&format!("{n}"))]);
    }
    let explained = place.done(&["explain", "orders", "--after", &id]).pop().unwrap();
    assert_eq!((&explained["verdict"], &explained["reason"]), (&json!("gap"), &json!("not retained")));
    assert_eq!((&explained["kept"], &explained["published"]), (&json!(5), &json!(8)));
    let ahead = place.done(&["explain", "orders", "--after", "99999999999999-0"]).pop().unwrap();
    assert_eq!((&ahead["verdict"], &ahead["reason"]), (&json!("unknown"), &json!("ahead")));

    assert_eq!(place.done(&["destroy", "orders"]), [json!({"generation": 1})]);
    failed(&place.run(&["snapshot", "orders"]), 1, "destroyed");
    let explained = place.done(&["explain", "orders"]).pop().unwrap();
    assert_eq!((&explained["state"], &explained["generation"]), (&json!("destroyed"), &json!(1)));
    let anew = place.done(&["add", "orders", "created", &one]).pop().unwrap();
    assert_eq!(anew["generation"], json!(2));
    assert_eq!(place.done(&["snapshot", "orders"]).len(), 1);

    // As a person sees it.
    for (args, shows) in [
        (&["snapshot", "orders"][..], "created - one"),
        (&["groups", "orders"], "lag"),
        (&["explain", "orders"], "active"),
        (&["destroy", "orders"], "generation 2 is over"),
    ] {
        let ended = place.plain(args);
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.code == 0 && text.contains(shows), "{args:?}: {text} {}", ended.stderr);
    }
}

/// A server that evicts loses streams without a word: whoever asks is warned.
#[test]
fn a_server_that_may_evict_streams_is_warned_of() {
    let mut place = Place::server();
    let one = place.payload("one");
    place.done(&["add", "orders", "created", &one]);
    let explained = place.run(&["explain", "orders"]);
    assert_eq!((explained.code, explained.lines()[0].get("warning")), (0, None), "{}", explained.stderr);
    let arguments = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    place.server = Some(RedisServer::start_with(&arguments));
    place.done(&["add", "orders", "created", &one]);
    let warning = place.done(&["explain", "orders"])[0]["warning"].as_str().expect("text").to_owned();
    assert!(warning.contains("evicts any key"), "{warning}");
    let ended = place.plain(&["explain", "orders"]);
    assert!(ended.code == 0 && ended.stderr.contains("evicts any key"), "{}", ended.stderr);
}

/// What a claim brought counts: no more is taken from the group than is printed.
fn no_more_than_is_wanted(place: &Place) {
    for n in 0..9 {
        place.done(&["add", "orders", "created", &place.payload(&n.to_string())]);
    }
    place.done(&["consume", "orders", "mail", "--max", "3", "--no-ack", "--consumer", "w1"]);
    let taken =
        place.done(&["consume", "orders", "mail", "--claim-idle-ms", "0", "--consumer", "w2", "--max", "4"]);
    assert_eq!(taken.len(), 4);
    assert_eq!(place.done(&["groups", "orders"])[0]["pending"], json!(0));
    assert_eq!(place.done(&["consume", "orders", "mail"]).len(), 5, "the rest is there for others");
}

#[test]
fn a_consumer_takes_no_more_than_it_prints() {
    no_more_than_is_wanted(&Place::directory());
    no_more_than_is_wanted(&Place::server());
}

/// A server that is named in the environment is for those who name no place, and its password is shown to
/// nobody.
#[test]
fn a_directory_that_is_named_counts_more_than_a_server_of_the_environment() {
    let place = Place::directory();
    let one = place.payload("one");
    let url = "redis://user:secret@127.0.0.1:1/";
    let run = |place: &Place, args: &[&str]| -> Ended {
        place.command(args).env("STRANDLINE_REDIS_URL", url).output().expect("runs").into()
    };
    assert_eq!(run(&place, &["add", "orders", "created", &one]).code, 0);
    assert_eq!(place.done(&["snapshot", "orders"]).len(), 1, "it is in the directory");
    assert_eq!(run(&place, &["destroy", "orders"]).code, 0);

    let mut nowhere = Command::new(env!("CARGO_BIN_EXE_strandline"));
    nowhere.args(["stream", "snapshot", "orders"]).env("STRANDLINE_REDIS_URL", url);
    let ended: Ended = nowhere.output().expect("runs").into();
    assert_eq!(ended.code, 4, "{}", ended.stderr);
    assert!(ended.stderr.contains("127.0.0.1:1") && !ended.stderr.contains("secret"), "{}", ended.stderr);
    let help = run(&place, &["snapshot", "--help"]);
    assert!(!String::from_utf8_lossy(&help.stdout).contains("secret"));
}

#[test]
fn every_command_in_a_directory() {
    tour(&Place::directory());
}

#[test]
fn every_command_on_a_server() {
    tour(&Place::server());
}

/// What is refused, with the exit code that says by whom.
fn errors(place: &Place) {
    let one = place.payload("one");
    failed(&place.run(&["destroy", "never"]), 1, "`stream add` makes");
    place.done(&["add", "orders", "created", &one]);
    failed(&place.run(&["snapshot", "never"]), 1, "does not exist");
    failed(&place.run(&["add", "orders", "", &one]), 2, "event name");
    failed(&place.run(&["add", "a b", "created", &one]), 2, "none of space");
    failed(&place.run(&["add", "orders", "created", &one, "--max-len", "0"]), 2, "max_len");
    failed(&place.run(&["add", "orders", "created", &one, "--max-len", "7"]), 1, "another one");
    failed(&place.run(&["add", "orders", "created", &one, "--after", "7"]), 2, "a position like");
    failed(&place.run(&["add-once", "orders", "created", &one, "--key", ""]), 2, "1 to 256 bytes");
    failed(&place.run(&["tail", "orders", "--pattern", "("]), 2, "regex");
    failed(&place.run(&["consume", "orders", "=g"]), 2, "no =");
    place.done(&["consume", "orders", "mail"]);
    failed(&place.run(&["consume", "orders", "mail", "--grace-ms", "7"]), 1, "another filter");
    failed(&place.run(&["add", "orders", "created", "/nowhere/at/all"]), 2, "cannot open");
}

#[test]
fn errors_in_a_directory() {
    let place = Place::directory();
    errors(&place);
    failed(&place.run(&["tail", "orders", "--follow"]), 2, "expected --redis with --follow");
    let mut bare = Command::new(env!("CARGO_BIN_EXE_strandline"));
    bare.env_remove("STRANDLINE_DIR").env_remove("STRANDLINE_REDIS_URL");
    let ended: Ended = bare.args(["stream", "snapshot", "orders", "--json"]).output().expect("runs").into();
    failed(&ended, 2, "give --dir DIR, or --redis");
}

#[test]
fn errors_on_a_server() {
    errors(&Place::server());
}

#[test]
fn a_server_that_is_not_there_is_a_peer_that_cannot_be_reached() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one").port();
    let url = format!("redis://127.0.0.1:{port}/");
    let run = |args: &[&str]| -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
        command.arg("stream").args(args).args(["--json", "--redis", &url]);
        command.output().expect("runs").into()
    };
    failed(&run(&["snapshot", "orders"]), 4, "cannot reach");
}

#[test]
fn streams_and_a_replica_do_not_share_a_directory() {
    let replica = support::Replica::writer("a");
    let run = |args: &[&str]| replica.run(args);
    failed(&run(&["stream", "destroy", "orders"]), 2, "a directory of their own");
    let place = Place::directory();
    place.done(&["add", "orders", "created", &place.payload("one")]);
    let dir = place.home.path().join("streams");
    let mut status = Command::new(env!("CARGO_BIN_EXE_strandline"));
    let ended: Ended =
        status.arg("--dir").arg(&dir).args(["status", "--json"]).output().expect("runs").into();
    assert_ne!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(place.done(&["snapshot", "orders"]).len(), 1, "and it is unharmed");
}

/// Publishers are killed at any moment and run again with the same key: each event is there once.
fn killed_and_run_again(place: &Place, keys: u64) {
    let mut kills = 0;
    for key in 0..keys {
        let payload = place.payload(&key.to_string());
        let args =
            ["add-once", "orders", "created", payload.as_str(), "--key", &key.to_string(), "--unbounded"];
        for attempt in 0..6 {
            let mut child =
                place.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
            // Later and later, and spread over what the program does.
            std::thread::sleep(Duration::from_micros(700 * (key % 13) + 4000 * attempt));
            if child.try_wait().expect("asks").is_none() {
                kills += 1;
            }
            let _ = child.kill();
            child.wait().expect("ends");
        }
        place.done(&args);
    }
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for line in place.done(&["tail", "orders"]) {
        *seen.entry(line["payload"].as_str().expect("text").to_owned()).or_default() += 1;
    }
    assert_eq!(seen.len() as u64, keys);
    assert!(seen.values().all(|count| *count == 1), "{seen:?}");
    assert!(kills > keys, "{kills} kills of {} runs", 6 * keys);
}

#[test]
fn publishers_in_a_directory_that_are_killed_publish_once() {
    killed_and_run_again(&Place::directory(), 12);
}

#[test]
fn publishers_on_a_server_that_are_killed_publish_once() {
    killed_and_run_again(&Place::server(), 12);
}

#[test]
fn tail_follows_what_comes_on_a_server() {
    let place = Place::server();
    place.done(&["add", "orders", "created", &place.payload("one")]);
    let follower = place
        .command(&["tail", "orders", "--follow", "--max", "3", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    for text in ["two", "three"] {
        place.done(&["add", "orders", "created", &place.payload(text)]);
    }
    let ended: Ended = follower.wait_with_output().expect("ends").into();
    let payloads: Vec<Value> = ended.lines().iter().map(|line| line["payload"].clone()).collect();
    assert_eq!(payloads, ["one", "two", "three"]);
}
