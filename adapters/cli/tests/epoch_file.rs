//! A lease says who writes: two nodes of the built program, each with a file in which its agent writes the
//! fence token.

mod support;

use std::path::Path;
use support::{Replica, wait_until};

/// As an agent does it: nobody sees half of it.
fn give(file: &Path, text: &str) {
    let fresh = file.with_extension("new");
    std::fs::write(&fresh, text).expect("writes");
    std::fs::rename(&fresh, file).expect("renames");
}

fn wait_for_epoch(replica: &Replica, epoch: u64) {
    wait_until("the epoch", || replica.status()["epoch"] == epoch);
}

#[test]
fn the_token_of_a_lease_moves_the_right_to_write_and_the_old_writer_is_refused() {
    let mut a = Replica::writer("a");
    let log = a.status()["log"].as_str().expect("a log").to_owned();
    let mut b = Replica::new();
    b.done(["init", "--identity", "b", "--follow", "--log", &log]);
    for node in [&mut a, &mut b] {
        let file = node.path("epoch");
        node.options = vec!["--epoch-file".into(), file.into()];
    }
    let (of_a, of_b) = (a.path("epoch"), b.path("epoch"));
    let address = a.serve("[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n");
    b.serve(&format!("token = \"of b\"\n[[peers]]\nidentity = \"a\"\naddress = \"{address}\"\n"));
    a.put("k", b"of the first");
    let tail = a.status()["tail"].clone();
    wait_until("the record", || b.status()["tail"] == tail);
    assert_eq!(b.try_put("k", b"not ours").code, 1, "nobody gave it a token");

    give(&of_b, "2\n");
    wait_for_epoch(&b, 2);
    wait_for_epoch(&a, 2);
    let refused = a.try_put("k", b"of the old writer");
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    b.put("k", b"of the second");
    wait_until("the record", || a.plain(["get", "k"]).stdout == b"of the second");

    // A token that was given before is of no use to anybody, and what is no token takes nothing.
    give(&of_a, "2");
    wait_until("what a says", || a.said().contains("an epoch that is over: 2 is known"));
    give(&of_a, "the third");
    wait_until("what a says", || a.said().contains("expected an epoch in decimal digits"));
    assert_eq!(a.try_put("k", b"of the old writer").code, 1);
    give(&of_a, "7");
    wait_for_epoch(&a, 7);
    wait_for_epoch(&b, 7);
    assert_eq!(b.try_put("k", b"of the second").code, 1);
    a.put("k", b"of the first again");
    wait_until("the record", || b.plain(["get", "k"]).stdout == b"of the first again");

    // A node that starts with the token it has goes on.
    assert_eq!(a.stop(), 0);
    a.serve("[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n");
    a.put("k", b"after a start");
    assert_eq!((a.status()["epoch"].as_u64(), a.stop(), b.stop()), (Some(7), 0, 0));
}
