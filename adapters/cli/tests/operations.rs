//! What docs/OPERATIONS.md tells an operator to type: all of it runs, in its order.

use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/OPERATIONS.md");
const PROGRAM: &str = env!("CARGO_BIN_EXE_strandline");

/// The words that the page explains, and an end to every node whatever happens.
const WORDS: &str = r#"
set -eu
strandline() {
    case " $* " in
    *" serve "*) command strandline "$@" & echo $! > "$2.pid"; wait ;;
    *) command strandline "$@" ;;
    esac
}
tries() { n=0; until "$@"; do n=$((n + 1)); [ "$n" -lt 600 ] || { echo "in vain: $*" >&2; return 1; }; sleep 0.1; done; }
wait_for() { tries test -s "$1"; }
digest() { command strandline --dir "$1" --json status | sed 's/.*"tail_digest":"\([0-9a-f]*\)".*/\1/'; }
same() { first=$(digest "$1"); for name in "$@"; do [ "$(digest "$name")" = "$first" ] || return 1; done; }
wait_same() { tries same "$@"; }
gone() { ! kill -0 "$1" 2>/dev/null; }
stop() { pid=$(cat "$1.pid"); rm -f "$1.pid" "$1.ready"; kill "$pid"; tries gone "$pid"; }
end() { for file in *.pid; do [ ! -e "$file" ] || kill "$(cat "$file")" 2>/dev/null || :; done; }
trap end EXIT
"#;

#[test]
fn every_command_of_the_page_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let programs = Path::new(PROGRAM).parent().expect("in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let blocks: Vec<&str> =
        PAGE.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 5, "found {} blocks", blocks.len());
    let output = Command::new("sh")
        .args(["-c", &format!("{WORDS}{}", blocks.concat())])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{path}", programs.display()))
        .env_remove("STRANDLINE_DIR")
        .output()
        .expect("a shell");
    let (said, failed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "ended with {}:\n{said}{failed}", output.status);
    assert!(said.contains("epoch 2 of b begins after"), "{said}");
    assert!(said.contains("hello\n"), "`get` gives what was put:\n{said}");
}

#[test]
fn every_reason_of_a_verdict_is_explained() {
    for reason in strandline_core::lifecycle::api::PairReason::ALL {
        assert!(PAGE.contains(reason.name()), "docs/OPERATIONS.md does not say what {reason} means");
    }
}
