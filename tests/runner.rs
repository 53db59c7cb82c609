//! The conformance runner itself: it must be able to fail.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::path::{Path, PathBuf};
use strandline_core::id::hex;
use strandline_tests::conformance::{Report, expectations, play};

/// A directory of vectors with one file and one section of cases.
fn directory(name: &str, file: &Value, bytes: &[u8], cases: &Value) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("one.bin"), bytes).unwrap();
    let mut file = file.clone();
    file["file"] = json!("one.bin");
    file["sha256"] = json!(hex(&Sha256::digest(bytes)));
    file["size"] = json!(bytes.len());
    std::fs::write(path.join("manifest.json"), json!({ "files": [file] }).to_string()).unwrap();
    std::fs::write(path.join("cases.json"), cases.to_string()).unwrap();
    path
}

fn played(name: &str, file: &Value, bytes: &[u8]) -> Result<Report, String> {
    play(&directory(name, file, bytes, &json!({})))
}

const EMPTY_MEMBERSHIP: &[u8] = b"\0\0\0\x0e{\"members\":[]}\x3f\x0e\xf5\x70";

fn membership(expected: &Value) -> Value {
    let mut file = json!({ "kind": "membership", "reencode_identical": true, "result": "ok" });
    file["summary"] = json!({ "configured": true, "members_hex": expected });
    file
}

#[test]
fn the_right_answer_is_no_failure() {
    let report = played("right", &membership(&json!([])), EMPTY_MEMBERSHIP).unwrap();
    assert_eq!((report.files(), report.failures(), report.differences().len()), (1, &[][..], 0));
}

#[test]
fn another_value_is_a_failure() {
    let report = played("other", &membership(&json!(["61"])), EMPTY_MEMBERSHIP).unwrap();
    assert_eq!(report.failures().len(), 1);
}

#[test]
fn another_error_is_a_failure() {
    let file = json!({ "kind": "membership", "errors": ["ErrMembershipChecksum"] });
    let mut bytes = EMPTY_MEMBERSHIP.to_vec();
    bytes.push(0);
    let report = played("error", &file, &bytes).unwrap();
    assert_eq!(report.failures().len(), 1);
}

#[test]
fn bytes_written_otherwise_are_a_failure() {
    let mut file = membership(&json!([]));
    file["reencode_identical"] = json!(false);
    let report = played("written", &file, EMPTY_MEMBERSHIP).unwrap();
    assert_eq!(report.failures().len(), 1);
}

#[test]
fn a_difference_is_judged_by_kind_whatever_the_file_is_called() {
    let bytes = b"\0\0\0\x02{}\x29\x7b\xd0\xaa";
    let report = played("difference", &membership(&json!([])), bytes).unwrap();
    assert_eq!(report.failures(), &[] as &[String]);
    assert_eq!(expectations::write(&report), "explicit-membership\tone.bin\n");
}

#[test]
fn a_list_that_no_longer_holds_is_told() {
    let bytes = b"\0\0\0\x02{}\x29\x7b\xd0\xaa";
    let report = played("list", &membership(&json!([])), bytes).unwrap();
    assert_eq!(expectations::unmet("explicit-membership\tone.bin\n", &report), [] as [&str; 0]);
    assert_eq!(expectations::unmet("", &report).len(), 1, "not listed");
    assert_eq!(expectations::unmet("null\tone.bin\n", &report).len(), 1, "another rule");
    let list = "explicit-membership\tone.bin\nnull\tgone.bin\n";
    assert_eq!(expectations::unmet(list, &report).len(), 1, "no longer differs");
}

/// The reference's answers to kinds of journals that the vectors kept here do not have.
#[test]
fn journals_nobody_has_seen_are_judged_by_rule() {
    let three =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/journal/three.bin")).unwrap();
    let refused =
        |size: usize| json!({ "kind": "journal", "errors": ["ErrJournalCorrupt"], "after_open_size": size });
    let cases = [("zeros-4", 4), ("zeros-4096", 4096)];
    for (name, zeros) in cases {
        let mut file = three.clone();
        file.resize(file.len() + zeros, 0);
        let report = played(name, &refused(file.len()), &file).unwrap();
        assert_eq!(report.failures(), &[] as &[String]);
        assert_eq!(expectations::write(&report), "zero-tail\tone.bin\n");
    }

    // The last entry's length, from 189 to 445: all of it is there, the reference cuts it off.
    let mut file = three.clone();
    file[366] ^= 1;
    let left = &three[..364];
    let (floor, last) = (json!({ "epoch": 0, "sequence": 0 }), json!({ "epoch": 1, "sequence": 2 }));
    let summary = json!({
        "bytes": 364, "entries": 2, "floor": floor, "last": last, "recovery_floor": floor,
        "recovery_last": last, "records_count": 2, "records_digest": "", "truncated_tail": true,
    });
    let expected = json!({
        "kind": "journal", "summary": summary, "reencode_identical": false, "after_open_size": 364,
        "file_changed_by_open": true, "after_open_sha256": hex(&Sha256::digest(left)),
    });
    let report = played("last-length", &expected, &file).unwrap();
    assert_eq!(report.failures(), &[] as &[String]);
    assert_eq!(expectations::write(&report), "damage-not-torn\tone.bin\n");
}

#[test]
fn unknown_kinds_limits_and_sections_are_trouble() {
    let trouble = played("kind", &json!({ "kind": "novel" }), b"x").unwrap_err();
    assert!(trouble.contains("kind \"novel\" is unknown"), "{trouble}");
    let mut file = membership(&json!([]));
    file["limits"] = json!({ "max_novel": 1 });
    let trouble = played("limit", &file, EMPTY_MEMBERSHIP).unwrap_err();
    assert!(trouble.contains("limit \"max_novel\" is unknown"), "{trouble}");
    let cases = json!({ "novel": [] });
    let path = directory("section", &membership(&json!([])), EMPTY_MEMBERSHIP, &cases);
    let trouble = play(&path).unwrap_err();
    assert!(trouble.contains("section \"novel\" is unknown"), "{trouble}");
}

#[test]
fn a_file_that_is_not_the_one_described_is_trouble() {
    let path = directory("described", &membership(&json!([])), EMPTY_MEMBERSHIP, &json!({}));
    std::fs::write(path.join("one.bin"), b"other").unwrap();
    assert!(play(&path).is_err());
}
