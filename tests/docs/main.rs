//! Keeps the documents true: what can be generated from the code is, and what they name exists.
//!
//! A generated part of a document stands between `<!-- generated: NAME -->` and
//! `<!-- end of NAME -->`. With `STRANDLINE_WRITE_DOCS=1` in the environment the parts are written
//! instead of compared.

mod comparison;
mod coverage;
mod formats;
mod protocol;

use std::fs;
use std::path::{Path, PathBuf};

const DOCUMENTS: [&str; 8] = [
    "README.md",
    "CHANGELOG.md",
    "docs/ARCHITECTURE.md",
    "docs/COMPARISON.md",
    "docs/COVERAGE.md",
    "docs/FORMATS.md",
    "docs/PROTOCOL.md",
    "docs/STREAMS.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

fn read(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

/// Compares every generated part of a document with what the code gives, or writes it.
fn check(document: &str, parts: &[(&str, String)]) {
    let mut text = read(document);
    let write = std::env::var_os("STRANDLINE_WRITE_DOCS").is_some();
    let mut stale = Vec::new();
    for (name, content) in parts {
        let (begin, end) = (format!("<!-- generated: {name} -->\n"), format!("<!-- end of {name} -->"));
        let start = text.find(&begin).unwrap_or_else(|| panic!("{document} has no part {begin:?}"));
        let start = start + begin.len();
        let length = text[start..].find(&end).unwrap_or_else(|| panic!("{document} has no {end:?}"));
        let expected = format!("\n{}\n\n", content.trim_end());
        if text[start..start + length] != expected {
            text.replace_range(start..start + length, &expected);
            stale.push(*name);
        }
    }
    let marked = text.matches("<!-- generated: ").count();
    assert_eq!(marked, parts.len(), "{document}: a part is marked as generated and nothing generates it");
    if write {
        fs::write(root().join(document), text).expect("written");
    } else {
        assert!(
            stale.is_empty(),
            "{document} differs from the code in {stale:?}; to write it anew:\n  \
             STRANDLINE_WRITE_DOCS=1 cargo test -p strandline-tests --test docs"
        );
    }
}

#[test]
fn formats() {
    check("docs/FORMATS.md", &formats::parts());
}

#[test]
fn protocol() {
    check("docs/PROTOCOL.md", &protocol::parts());
}

/// What stands between backticks in a document's text, fenced blocks left out.
fn quoted(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (i, part) in text.split("```").enumerate() {
        if i % 2 == 0 {
            found.extend(part.split('`').skip(1).step_by(2));
        }
    }
    found
}

#[test]
fn the_sources_that_documents_name_exist() {
    let is_source = |name: &&str| {
        let ends = name.ends_with(".rs") || name.ends_with(".md") || name.ends_with('/');
        let tree = ["core/", "adapters/", "tests/", "fuzz/", "docs/", ".ci/"];
        ends && tree.iter().any(|top| name.starts_with(top)) && !name.contains(['*', ' ', '<'])
    };
    let mut seen = 0;
    for document in DOCUMENTS {
        let text = read(document);
        for name in quoted(&text).into_iter().filter(is_source) {
            assert!(root().join(name).exists(), "{document} names {name}, which does not exist");
            seen += 1;
        }
    }
    assert!(seen > 10, "the documents name {seen} sources: the search finds too little");
}

#[test]
fn the_links_between_documents_lead_somewhere() {
    for document in DOCUMENTS {
        let text = read(document);
        let folder = root().join(document).parent().expect("in a folder").to_path_buf();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            let outside = link.contains("://") || path.is_empty();
            assert!(outside || folder.join(path).exists(), "{document} links to {link}, which is not there");
        }
    }
}

/// The lines of a document's `sh` blocks.
fn shell_lines(text: &str) -> Vec<&str> {
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn every_make_command_has_its_target() {
    let makefile = read("Makefile");
    let mut seen = 0;
    for document in DOCUMENTS {
        let text = read(document);
        let quoted = quoted(&text);
        for line in shell_lines(&text).into_iter().chain(quoted) {
            let mut words = line.split_whitespace();
            if words.next() != Some("make") {
                continue;
            }
            let Some(target) = words.find(|word| !word.contains('=')) else { continue };
            let rule = format!("\n{target}:");
            assert!(makefile.contains(&rule), "{document} says `{line}`; the Makefile has no such target");
            seen += 1;
        }
    }
    assert!(seen >= 2, "`make demo` and `make test` stand in the README");
}

#[test]
fn the_readme_lists_every_member_of_the_workspace() {
    let manifest = read("Cargo.toml");
    let members = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next());
    let readme = read("README.md");
    for member in members.expect("the workspace has members").split('"').skip(1).step_by(2) {
        assert!(readme.contains(&format!("| `{member}`")), "README.md has no row for {member}");
    }
}
