//! What the README says of the program: its lines run, and its table names every command.

use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../README.md");
const PROGRAM: &str = env!("CARGO_BIN_EXE_strandline");

/// The `sh` blocks that speak of the program.
fn blocks() -> Vec<&'static str> {
    let fenced = README.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    fenced.filter(|block| block.lines().any(|line| line.starts_with("strandline "))).collect()
}

/// Whether a block can be run as it stands: it serves nobody and names no file of somebody else.
fn runs(block: &str) -> bool {
    !block.contains("strandline serve ")
}

#[test]
fn the_lines_on_one_directory_run() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let programs = Path::new(PROGRAM).parent().expect("in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut ran = 0;
    for block in blocks().into_iter().filter(|block| runs(block)) {
        let script = format!("set -eu\n{block}");
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(folder.path())
            .env("PATH", format!("{}:{path}", programs.display()))
            .env_remove("STRANDLINE_DIR")
            .output()
            .expect("a shell");
        let (said, failed) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{block}\nended with {}:\n{said}{failed}", output.status);
        assert!(said.contains("hello\n"), "`get` gives what was put:\n{said}{failed}");
        ran += 1;
    }
    assert_eq!(ran, 1, "one block runs as it stands");
}

#[test]
fn the_other_lines_are_understood() {
    let lines = blocks().into_iter().filter(|block| !runs(block)).flat_map(str::lines);
    let mut seen = 0;
    for line in lines.filter(|line| line.starts_with("strandline ")) {
        // Help is given only if everything before it was understood.
        let output = Command::new(PROGRAM)
            .args(line.split_whitespace().skip(1))
            .arg("--help")
            .env_remove("STRANDLINE_DIR")
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
        seen += 1;
    }
    assert_eq!(seen, 2, "a follower is made and served");
}

#[test]
fn a_line_with_an_unknown_option_is_not_understood() {
    let status =
        Command::new(PROGRAM).args(["init", "--sideways", "--help"]).output().expect("it starts").status;
    assert_eq!(status.code(), Some(2));
}

#[test]
fn the_table_names_every_command() {
    let output = Command::new(PROGRAM).arg("--help").output().expect("it starts");
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    let commands = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
    let table: String = README.lines().filter(|line| line.starts_with("| `strandline")).collect();
    let mut seen = 0;
    for line in commands.expect("help lists the commands").lines() {
        // The description of a command may go on in the next line, further in.
        let Some(name) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) else { continue };
        let name = name.split_whitespace().next().expect("a name");
        if name != "help" {
            let named = [format!("`{name}`"), format!("`strandline {name}`")];
            assert!(named.iter().any(|form| table.contains(form)), "README.md does not name `{name}`");
            seen += 1;
        }
    }
    assert!(seen >= 13, "found {seen} commands in:\n{help}");
}
