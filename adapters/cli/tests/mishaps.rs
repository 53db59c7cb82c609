//! What an operator meets sooner or later: a log that cannot be written, a stop amid long work, options
//! that were forgotten, a directory in use. Nodes and commands of the built program.

mod support;

use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{Ended, Replica, wait_until};

#[cfg(target_os = "linux")]
mod full_log {
    use super::support::{Replica, wait_until};
    use rustix::fs::{FileType, Mode, OFlags};
    use std::io::Write;
    use std::path::Path;

    /// A pipe with a name, so that a file is read only when there is something in it.
    fn pipe(at: &Path) {
        rustix::fs::mknodat(rustix::fs::CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("makes");
    }

    /// Gives a pipe's reader a text, if one is there.
    fn give(pipe: &Path, text: &str) -> bool {
        match rustix::fs::open(pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
            Ok(open) => std::fs::File::from(open).write_all(text.as_bytes()).is_ok(),
            Err(_) => false,
        }
    }

    #[test]
    fn a_log_that_cannot_be_written_stops_nothing() {
        let mut a = Replica::writer("a");
        let file = a.path("epoch");
        pipe(&file);
        std::os::unix::fs::symlink("/dev/full", a.path("said")).expect("links");
        a.options = vec!["--epoch-file".into(), file.clone().into()];
        a.try_serve("").expect("serves");
        // Nothing of it is an epoch, which the node logs; what it reads afterwards is one.
        wait_until("the first look", || give(&file, "two"));
        wait_until("the epoch", || {
            give(&file, "2");
            a.status()["epoch"] == 2
        });
        a.kill();
    }
}

#[test]
fn a_node_that_is_told_to_end_amid_a_long_scrub_ends_and_says_so_to_who_asked_for_it() {
    let mut a = Replica::writer("a");
    for key in ["one", "two"] {
        // Hours, at this rate.
        a.put(key, &vec![7; 100_000]);
    }
    a.serve("");
    let scrub = || a.begin(["verify", "--blobs", "--rate", "1"]);
    // One at a time: that the other is refused says that the first is under way.
    let mut scrubs = [scrub(), scrub()];
    let mut refused = None;
    wait_until("a scrub", || {
        refused = scrubs.iter_mut().position(|scrub| scrub.try_wait().expect("asks").is_some());
        refused.is_some()
    });
    let [first, second] = scrubs;
    let under_way = if refused == Some(0) { second } else { first };
    a.signal(Signal::TERM);
    assert_eq!(a.ended(), 0, "{}", a.said());
    let told = Ended::from(under_way.wait_with_output().expect("ends"));
    assert_eq!(told.code, 1, "it is told that the node closes: {}", told.stderr);
}

/// Two replicas of a log, `b` one that follows, and the peers file with which it calls `a`.
fn pair(a: &Replica) -> Replica {
    let log = a.status()["log"].as_str().expect("a log").to_owned();
    let b = Replica::new();
    b.done(["init", "--identity", "b", "--follow", "--log", &log]);
    b
}

fn peers_of_b(b: &Replica, address: &str) -> String {
    let file = b.path("reseed.toml");
    let text = format!("token = \"of b\"\n[[peers]]\nidentity = \"a\"\naddress = \"{address}\"\n");
    std::fs::write(&file, text).expect("writes");
    file.to_str().expect("UTF-8").to_owned()
}

const CALLED: &str = "[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n";

#[test]
fn a_reseed_that_cannot_call_its_peer_throws_nothing_away() {
    let a = Replica::writer("a");
    let b = pair(&a);
    let before = b.status();
    let peers = peers_of_b(&b, "192.0.2.1:7401");
    let refused = b.run(["reseed", "--from", "a", "--peers", &peers, "--yes"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("--plaintext"), "{}", refused.stderr);
    assert!(!b.dir().join("kept").exists(), "nothing was thrown away");
    assert_eq!(b.status()["incarnation"], before["incarnation"]);
}

/// The files of a replica's blobs.
fn blobs(replica: &Replica) -> Vec<PathBuf> {
    let tree = support::tree(&replica.dir().join("blobs"));
    let is_blob = |path: &Path| path.file_name().is_some_and(|name| name.len() == 64);
    let files = tree.into_iter().filter(|(path, bytes)| bytes.is_some() && is_blob(path));
    files.map(|(path, _)| replica.dir().join("blobs").join(path)).collect()
}

#[test]
fn a_reseed_has_ended_when_every_blob_is_here_or_says_how_many_are_not() {
    let mut a = Replica::writer("a");
    for n in 0..3u8 {
        let large: Vec<u8> = (0..4_000_000u32).map(|at| (at % 251) as u8 ^ n).collect();
        a.put(&format!("k{n}"), &large);
    }
    let address = a.serve(CALLED);
    let b = pair(&a);
    let peers = peers_of_b(&b, &address);
    let reseed =
        |more: &[&str]| b.run(["reseed", "--from", "a", "--peers", &peers, "--yes"].iter().chain(more));
    let done = reseed(&[]);
    assert_eq!((done.code, &done.last()["blobs_wanted"]), (0, &0.into()), "{}", done.stderr);
    let verified = b.done(["verify"]).last();
    assert_eq!((&verified["blobs"], &verified["missing"]), (&3.into(), &0.into()));

    for replica in [&a, &b] {
        let lost = blobs(replica).into_iter().min().expect("three");
        std::fs::remove_file(lost).expect("removes");
    }
    // Where the machine is too slow for the records it says so, with another code: it gets more time.
    let mut tries = ["3", "20", "60"].iter().map(|wait_s| reseed(&["--wait-s", wait_s]));
    let without = tries.find(|ended| ended.code != 4).expect("the records come");
    assert_eq!((without.code, &without.last()["blobs_wanted"]), (6, &1.into()), "{}", without.stderr);
    assert!(without.stderr.contains("1 blobs did not come"), "{}", without.stderr);
    assert_eq!(a.stop(), 0);
}

#[test]
fn whoever_opens_a_directory_says_what_recovery_cut() {
    let a = Replica::writer("a");
    a.put("k", b"kept");
    let files = std::fs::read_dir(a.dir()).expect("lists").map(|entry| entry.expect("reads").path());
    let is_segment = |path: &PathBuf| path.to_string_lossy().contains("segment-");
    // The newest with anything in it: one may be prepared behind it.
    let written = files.filter(is_segment).map(|path| (std::fs::read(&path).expect("reads"), path));
    let (mut bytes, path) = written
        .filter(|(bytes, _)| bytes.iter().any(|byte| *byte != 0))
        .max_by_key(|(_, path)| path.clone())
        .expect("one");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("a batch") / 8 * 8 + 8;
    bytes[end..end + 64].fill(0xaa);
    std::fs::write(&path, bytes).expect("damages");

    let verified = a.done(["verify"]);
    let cut = &verified.last()["cut"];
    assert!(cut["bytes"].as_u64() >= Some(64), "{cut}");
    assert!(path.ends_with(cut["file"].as_str().expect("a name")), "{cut}");
    let told: serde_json::Value = serde_json::from_str(&verified.stderr).expect("one line of JSON");
    assert_eq!(&told["cut"], cut);
    let again = a.done(["verify"]);
    assert_eq!((again.last().get("cut"), again.stderr.as_str()), (None, ""), "it happens once");
}

/// A `put` that has the directory open for as long as its standard input is.
fn held_put(replica: &Replica) -> Child {
    let mut put = Command::new(env!("CARGO_BIN_EXE_strandline"))
        .arg("--dir")
        .arg(replica.dir())
        .args(["put", "k"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("runs");
    // More than a pipe holds: who has taken this has opened the directory.
    put.stdin.as_mut().expect("piped").write_all(&vec![7; 1 << 20]).expect("is read");
    put
}

#[test]
fn a_node_waits_for_a_directory_that_a_command_has_open() {
    let mut a = Replica::writer("a");
    // A machine that is busy for seconds may let one try fail; a node that does not wait fails all of them.
    let served = (0..5).any(|_| {
        let mut put = held_put(&a);
        let release = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(1));
            drop(put.stdin.take());
            put.wait().expect("ends")
        });
        let served = a.try_serve("");
        assert!(release.join().expect("released").success());
        served.is_ok()
    });
    assert!(served, "{}", a.said());
    assert_eq!(a.stop(), 0);
}

/// Takes the next connection and reads what it asks; `None` if the client has ended.
fn asked(listener: &TcpListener, client: &mut Child) -> Option<TcpStream> {
    listener.set_nonblocking(true).expect("can");
    let mut found = None;
    wait_until("a connection, or the client's end", || {
        found = listener.accept().ok();
        found.is_some() || client.try_wait().expect("asks").is_some()
    });
    let (mut stream, _) = found?;
    stream.set_nonblocking(false).expect("can");
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut buf = [0; 1024];
        let read = stream.read(&mut buf).ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&buf[..read]);
    }
    Some(stream)
}

fn events(listener: &TcpListener, args: &[&str]) -> Child {
    let url = format!("http://{}", listener.local_addr().expect("one"));
    Command::new(env!("CARGO_BIN_EXE_strandline"))
        .args(["--json", "events"])
        .args(args)
        .args(["--silence-ms", "1000", "--url", &url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs")
}

#[test]
fn a_server_of_events_that_falls_silent_is_asked_again() {
    const BEGUN: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    // A tail whose first answer comes too late ends, as it must: then another one is tried.
    let asked_again = (0..5).any(|_| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut tail = events(&listener, &["tail", "t"]);
        let first = asked(&listener, &mut tail);
        let silent = first.filter(|mut stream| stream.write_all(BEGUN).is_ok());
        let second = silent.as_ref().and_then(|_| asked(&listener, &mut tail));
        tail.kill().expect("kills");
        tail.wait().expect("ends");
        second.is_some()
    });
    assert!(asked_again);
}

#[test]
fn a_publish_whose_answer_is_lost_is_uncertain() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
    let by_a_gateway = "HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
    for answer in ["", cut, by_a_gateway] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut publish = events(&listener, &["publish", "t"]);
        // Held open until the end: one that is too slow here is uncertain as well.
        let stream = asked(&listener, &mut publish);
        let _ = stream.as_ref().map(|mut stream| stream.write_all(answer.as_bytes()));
        let ended = Ended::from(publish.wait_with_output().expect("ends"));
        assert_eq!(ended.code, 5, "{answer:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("--token"), "{}", ended.stderr);
    }
}

#[test]
fn a_wrong_path_is_usage_and_a_wrong_command_line_is_told_in_the_form_asked_for() {
    let a = Replica::writer("a");
    let run = |args: &[&str]| -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
        command.env_remove("STRANDLINE_DIR").arg("--json").args(args).stdin(Stdio::null());
        command.output().expect("runs").into()
    };
    let home = a.home.path().to_str().expect("UTF-8");
    let file = a.path("file");
    std::fs::write(&file, b"").expect("writes");
    let (dir, file, typo) = (a.dir(), file.to_str().expect("UTF-8").to_owned(), a.path("typo"));
    let (dir, typo) = (dir.to_str().expect("UTF-8"), typo.to_str().expect("UTF-8"));
    for (args, code, says) in [
        (&["--dir", dir, "put", "k", home][..], 2, "found the directory"),
        (&["--dir", &file, "status"], 2, "expected a directory"),
        (&["--dir", typo, "status"], 1, "strandline init"),
        (&["--dir", dir, "put"], 2, "<KEY>"),
        (&["--dir", dir, "stream", "add", "s", "n", home], 2, "found the directory"),
        (&["events", "publish", "t", home], 2, "found the directory"),
    ] {
        let ended = run(args);
        let told: serde_json::Value = serde_json::from_str(&ended.stderr).expect("one line of JSON");
        let message = format!("{} {}", told["error"]["message"], told["error"]["advice"]);
        assert!(ended.code == code && message.contains(says), "{args:?}: {} {}", ended.code, ended.stderr);
    }
    assert!(!Path::new(typo).exists());

    // Nothing is made where an export is refused.
    let inside = a.dir().join("exported");
    let refused = a.run([Path::new("export"), &inside]);
    assert_eq!((refused.code, inside.exists()), (1, false), "{}", refused.stderr);
}

#[test]
fn the_file_of_an_earlier_run_does_not_say_that_a_node_is_ready() {
    let a = Replica::writer("a");
    let ready = a.path("ready");
    std::fs::write(&ready, "127.0.0.1:1\n").expect("writes");
    std::fs::write(a.path("peers.toml"), "").expect("writes");
    let peers = a.path("peers.toml");
    // Somebody listens there already: the node never gets ready.
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("one").to_string();
    let args = ["serve", "--listen", &address, "--ready-file"].map(Path::new);
    let ended = a.run(args.into_iter().chain([&*ready, Path::new("--peers"), &peers]));
    assert_eq!((ended.code, ready.exists()), (4, false), "{}", ended.stderr);
}
