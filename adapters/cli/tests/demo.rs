//! The demo is a test of everything at once.

use std::process::Command;

#[test]
fn every_step_of_the_demo_holds() {
    let source = tempfile::tempdir().expect("a directory");
    for n in 0..200 {
        std::fs::write(source.path().join(format!("{n:03}")), vec![n; 10_000]).expect("writes");
    }
    std::fs::write(source.path().join("large"), vec![1; 4 << 20]).expect("writes");
    let ended = Command::new(env!("CARGO_BIN_EXE_strandline"))
        .args(["demo", "--json"])
        .arg(source.path())
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(said.lines().filter(|line| line.contains("\"ok\":true")).count(), 10, "{said}");
}
