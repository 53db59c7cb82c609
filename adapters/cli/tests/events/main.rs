//! Live topics on the command line: the built program serves, publishes, follows and explains, from
//! memory and over a real server.

mod metrics;
mod program;
#[path = "../../../redis-hub/tests/support/mod.rs"]
#[allow(dead_code, reason = "a fixture that the tests of another crate share")]
mod redis_server;
mod shared;

use program::{Ended, Serving, Tail, ended};
use serde_json::Value;

/// The error that a command ended with, as it prints it with `--json`.
fn error(ended: &Ended) -> Value {
    let last = ended.stderr.lines().last().expect("an error");
    serde_json::from_str::<Value>(last).expect("JSON")["error"].clone()
}

#[test]
fn what_is_published_is_tailed_with_an_id_to_go_on_from() {
    let serving = Serving::start(&[]);
    let first = serving.publish(&["a"], b"one").only();
    assert_eq!((&first["position"], &first["repeated"]), (&"1".into(), &false.into()));
    let file = serving.file("two", b"two");
    serving.run(&["publish", "b", &file, "--kind", "note"]).only();
    serving.publish(&["a"], b"three").only();

    let all = serving.run(&["tail", "a", "b", "--from", "earliest", "--count", "3"]);
    let lines = all.lines();
    let mut data: Vec<_> = lines.iter().map(|l| [&l["topic"], &l["data"], &l["kind"]]).collect();
    data.sort_by_key(|line| line.map(Value::to_string));
    assert_eq!(data, [["a", "one", ""], ["a", "three", ""], ["b", "two", "note"]]);
    assert!(lines.iter().all(|line| line["event"] == "event" && line["at_ms"].as_u64() > Some(0)));

    serving.publish(&["b"], b"four").only();
    let id = lines[2]["id"].as_str().expect("an id");
    let rest = serving.run(&["tail", "a", "b", "--id", id, "--count", "1"]).only();
    assert_eq!((&rest["topic"], &rest["data"]), (&"b".into(), &"four".into()));
    let text = serving.plain(&["tail", "b", "--from", "last", "--count", "1"]);
    assert_eq!((text.code, text.stdout.as_str()), (0, "b - four\n"));
}

#[test]
fn a_token_makes_repeats_one_publish() {
    let serving = Serving::start(&[]);
    let first = serving.publish(&["t", "--token", "k"], b"x").only();
    let again = serving.publish(&["t", "--token", "k"], b"x").only();
    assert_eq!((&first["repeated"], &again["repeated"]), (&false.into(), &true.into()));
    assert_eq!((&first["id"], &first["position"]), (&again["id"], &again["position"]));
    let text = ended(serving.command(&["publish", "t", "--token", "k"], false), b"x").stdout;
    assert_eq!(text, format!("{} at 1, published before\n", first["id"].as_str().expect("an id")));
}

#[test]
fn bytes_that_are_no_text_come_as_base64() {
    let serving = Serving::start(&[]);
    serving.publish(&["t"], b"\xff\x00").only();
    let line = serving.run(&["tail", "t", "--from", "earliest", "--count", "1"]).only();
    assert_eq!((&line["base64"], line.get("data")), (&"/wA=".into(), None));
}

#[test]
fn a_tail_goes_on_over_a_restart_and_is_told_to_synchronise() {
    let mut serving = Serving::start(&[]);
    let mut tail = Tail::start(&serving, &["t", "--from", "earliest"]);
    serving.publish(&["t"], b"before").only();
    assert_eq!(tail.next()["data"], "before");
    serving.restart();
    let told = tail.next();
    assert_eq!((&told["event"], &told["topic"]), (&"sync_required".into(), &"t".into()));
    assert_eq!(told["reason"], "other_incarnation");
    let explained =
        serving.run(&["explain", "--topic", "t", told["id"].as_str().expect("an id to go on from")]).only();
    assert_eq!(explained["verdict"], "complete");
    serving.publish(&["t"], b"after").only();
    assert_eq!(tail.next()["data"], "after");
}

#[test]
fn an_id_is_explained_with_floor_and_head() {
    let serving = Serving::start(&["--buffer-events-max", "2"]);
    let ids: Vec<String> = ["1", "2", "3", "4"]
        .map(|n| serving.publish(&["t"], n.as_bytes()).only()["id"].as_str().expect("an id").to_owned())
        .into();
    for (id, verdict, reason) in [
        (&ids[0], "gap", "evicted".into()),
        (&ids[1], "complete", Value::Null),
        (&ids[3], "complete", Value::Null),
    ] {
        let why = serving.run(&["explain", "--topic", "t", id]).only();
        assert_eq!((&why["verdict"], &why["reason"]), (&verdict.into(), &reason));
        assert_eq!((&why["floor"], &why["head"]), (&"2".into(), &"4".into()));
    }
    let odd = serving.run(&["explain", "--topic", "t", "--topic", "u", "rubbish"]);
    let reasons: Vec<_> = odd.lines().iter().map(|line| line["reason"].clone()).collect();
    assert_eq!((odd.code, reasons), (0, vec!["unreadable_cursor".into(), "unreadable_cursor".into()]));
    let table = serving.plain(&["explain", "--topic", "t", &ids[0]]).stdout;
    assert!(table.contains("verdict") && table.contains("evicted"), "{table}");
}

#[test]
fn the_command_line_is_wrong() {
    let serving = Serving::start(&[]);
    for (args, says) in [
        (&["publish", "{"][..], "topic"),
        (&["tail", ""], "topic"),
        (&["tail"], "TOPICS"),
        (&["tail", "t", "--from", "yesterday"], "yesterday"),
        (&["explain", "id"], "--topic"),
        (&["serve", "--namespace", "n"], "--redis"),
        (&["serve", "--redis", "gopher://h"], "Redis"),
        (&["serve", "--redis", "redis://h", "--namespace", "a b"], "namespace"),
    ] {
        let ended = serving.run(args);
        assert_eq!(ended.code, 2, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{args:?}: {}", ended.stderr);
    }
    let tls = ended(program::events(&["tail", "t", "--url", "https://h", "--json"]), b"");
    assert_eq!((tls.code, &error(&tls)["exit"]), (2, &"usage".into()));
    let bad_kind = serving.publish(&["t", "--kind", "two\nlines"], b"x");
    assert_eq!((bad_kind.code, &error(&bad_kind)["exit"]), (2, &"usage".into()));
    let large = serving.publish(&["t"], &vec![b'x'; 2 << 20]);
    assert_eq!((large.code, &error(&large)["exit"]), (2, &"usage".into()));
    let message = error(&large)["message"].as_str().expect("text").to_owned();
    assert!(message.starts_with("too_large (413)"), "{message}");
    let missing = serving.run(&["publish", "t", "no such file"]);
    assert_eq!((missing.code, &error(&missing)["exit"]), (2, &"usage".into()));
}

#[test]
fn nobody_serves_there() {
    let mut serving = Serving::start(&[]);
    let taken = serving.address.clone();
    let second = ended(program::events(&["serve", "--listen", &taken, "--json"]), b"");
    assert_eq!((second.code, &error(&second)["exit"]), (4, &"peer".into()));
    assert_eq!(serving.stop(), 0);
    for args in [&["publish", "t"][..], &["tail", "t"], &["explain", "--topic", "t", "id"]] {
        let gone = serving.run(args);
        assert_eq!((gone.code, &error(&gone)["exit"]), (4, &"peer".into()), "{args:?}: {}", gone.stderr);
        assert!(error(&gone)["advice"].as_str().is_some_and(|advice| advice.contains("events serve")));
    }
}

#[test]
fn a_full_server_says_so() {
    let serving = Serving::start(&["--streams-max", "1"]);
    let mut tail = Tail::start(&serving, &["t", "--from", "earliest"]);
    serving.publish(&["t"], b"x").only();
    assert_eq!(tail.next()["data"], "x");
    let second = serving.run(&["tail", "t"]);
    assert_eq!((second.code, &error(&second)["exit"]), (4, &"peer".into()));
    let message = error(&second)["message"].as_str().expect("text").to_owned();
    assert!(message.starts_with("total_limit"), "{message}");
}

#[test]
fn the_status_page_asks_no_other_network() {
    let serving = Serving::start(&[]);
    let page = serving.get("/");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<html"), "{page}");
    let elsewhere = ["src=\"http", "href=\"http", "@import", "url(http", "//cdn"];
    assert!(elsewhere.iter().all(|from| !page.contains(from)), "{page}");
    // Only its own topic is handed out there, and nothing is taken.
    assert!(serving.get("/status/events?topics=orders&client=fetch").starts_with("HTTP/1.1 403"));
}
