//! The rules of the core that no compiler checks: its folders import only upwards, and nothing in it
//! reaches for a host. Sources are read as tokens, so that comments and strings do not count.
mod tokens;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use tokens::{Kind, Token, closed, path_goes_on, tokens};

/// The folders of the core, lowest first. A folder may use itself and those before it; files at the
/// root lie below all of them.
const ORDER: [&str; 7] = ["journal", "record", "wire", "lifecycle", "compat", "stream", "coverage"];

/// Types that bring a clock or an unstable order into the core.
const FORBIDDEN_TYPES: [&str; 4] = ["HashMap", "HashSet", "RandomState", "SystemTime"];

/// Crates that bring entropy, a runtime or a protocol of the host.
const FORBIDDEN_CRATES: [&str; 7] = ["getrandom", "rand", "tokio", "async_std", "futures", "redis", "rustls"];

/// A file over this many lines is named in the report. It does not fail: a table may be long.
const FILE_LINES_ADVISED: usize = 500;

/// What lets an item exist, by its `cfg`. A condition with a `not` is read as `Always`: the stricter way.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Exists {
    Always,
    WithStd,
    InTests,
}

fn condition(attribute: &[Token]) -> Exists {
    let has_std = attribute.iter().any(|t| t.kind == Kind::Text("std".into()));
    let has = |word: &str| attribute.iter().any(|t| t.is_word(word));
    if !attribute.get(1).is_some_and(|t| t.is_word("cfg")) || has("not") {
        Exists::Always
    } else if has_std {
        Exists::WithStd
    } else if has("test") && !has("any") {
        Exists::InTests
    } else {
        Exists::Always
    }
}

/// When each token exists.
fn existence(tokens: &[Token]) -> Vec<Exists> {
    let mut out = vec![Exists::Always; tokens.len()];
    let mut i = 0;
    while i < tokens.len() {
        let inner = tokens.get(i + 1).is_some_and(|t| t.is_mark('!'));
        let open = i + 1 + usize::from(inner);
        if !tokens[i].is_mark('#') || !tokens.get(open).is_some_and(|t| t.is_mark('[')) {
            i += 1;
            continue;
        }
        let end = closed(tokens, open);
        let exists = condition(&tokens[open..end]);
        if exists > Exists::Always {
            let item_end = if inner { tokens.len() } else { item_end(tokens, end) };
            for token in &mut out[i..item_end] {
                *token = exists.max(*token);
            }
        }
        i = end;
    }
    out
}

/// Where the item, field or arm that starts at `start` (further attributes included) ends.
fn item_end(tokens: &[Token], start: usize) -> usize {
    const KEYWORDS: [&str; 14] = [
        "pub", "fn", "impl", "mod", "use", "struct", "enum", "trait", "const", "static", "type", "extern",
        "async", "unsafe",
    ];
    let mut i = start;
    while tokens.get(i).is_some_and(|t| t.is_mark('#')) {
        i = closed(tokens, i + 1);
    }
    let is_item = tokens.get(i).is_some_and(|t| KEYWORDS.iter().any(|k| t.is_word(k)));
    while i < tokens.len() {
        match tokens[i].kind {
            Kind::Mark('{') => return closed(tokens, i),
            Kind::Mark('(' | '[') => i = closed(tokens, i),
            Kind::Mark(';') => return i + 1,
            Kind::Mark(',') if !is_item => return i + 1,
            Kind::Mark(')' | ']' | '}') => return i,
            Kind::Mark(_) | Kind::Word(_) | Kind::Text(_) => i += 1,
        }
    }
    i
}

/// A name looked up at the crate's root, and the token where it stands.
struct RootName {
    name: String,
    at: usize,
}

/// Every `crate::name`, also inside groups and by way of `super`. `depth` is how many modules deep the
/// file's own module is.
fn root_names(tokens: &[Token], depth: usize) -> Vec<RootName> {
    let mut out = Vec::new();
    let mut inline_ends: Vec<usize> = Vec::new();
    for i in 0..tokens.len() {
        inline_ends.retain(|end| i < *end);
        if tokens[i].is_word("mod") && tokens.get(i + 2).is_some_and(|t| t.is_mark('{')) {
            inline_ends.push(closed(tokens, i + 2));
        }
        let here = depth + inline_ends.len();
        let continues = i >= 3 && tokens[i - 3].is_word("super") && tokens[i - 1].is_mark(':');
        if tokens[i].is_word("crate") && path_goes_on(tokens, i + 1) {
            walk(tokens, i + 3, here, here, &mut out);
        } else if tokens[i].is_word("super") && !continues {
            walk(tokens, i, 0, here, &mut out);
        }
    }
    out
}

/// Follows one path (or each path of a group) from `at`, having climbed `climbed` of `depth` modules.
fn walk(tokens: &[Token], at: usize, climbed: usize, depth: usize, out: &mut Vec<RootName>) {
    let Some(token) = tokens.get(at) else { return };
    match &token.kind {
        Kind::Word(w) if w == "super" => {
            if path_goes_on(tokens, at + 1) {
                walk(tokens, at + 3, climbed + 1, depth, out);
            }
        }
        Kind::Mark('{') => {
            let end = closed(tokens, at) - 1;
            let mut i = at + 1;
            while i < end {
                walk(tokens, i, climbed, depth, out);
                while i < end && !tokens[i].is_mark(',') {
                    i = if tokens[i].is_mark('{') { closed(tokens, i) } else { i + 1 };
                }
                i += 1;
            }
        }
        Kind::Word(name) if climbed == depth => out.push(RootName { name: name.clone(), at }),
        Kind::Mark('*') if climbed == depth => out.push(RootName { name: "*".into(), at }),
        Kind::Word(_) | Kind::Text(_) | Kind::Mark(_) => {}
    }
}

/// One broken rule.
#[derive(Debug, Eq, PartialEq)]
struct Fault {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core/src/{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// `None` for a file at the root.
fn folder(file: &Path) -> Option<String> {
    let first = file.components().next()?.as_os_str().to_str()?.to_owned();
    (file.components().count() > 1).then_some(first)
}

fn rank(folder: &str) -> Option<usize> {
    ORDER.iter().position(|name| *name == folder)
}

/// How many modules lie between the crate's root and this file's own module, itself included.
fn module_depth(file: &Path) -> usize {
    let parts = file.components().count();
    let own = !matches!(file.file_name().and_then(|n| n.to_str()), Some("mod.rs" | "lib.rs"));
    parts - 1 + usize::from(own)
}

/// The faults of one file. `root_modules` are the files at the root, without `lib.rs`, which declares
/// the folders and so may name any of them.
///
/// Unit tests may import from anywhere, because they prove a part against those who use it.
fn check(file: &Path, source: &str, root_modules: &BTreeSet<String>, file_exists: Exists) -> Vec<Fault> {
    let tokens = tokens(source);
    let exists: Vec<Exists> = existence(&tokens).into_iter().map(|e| e.max(file_exists)).collect();
    let mut out = Vec::new();
    let mut fault =
        |at: usize, what: String| out.push(Fault { file: file.to_owned(), line: tokens[at].line, what });

    let own = folder(file);
    if let Some(unknown) = own.as_deref().filter(|own| rank(own).is_none()) {
        fault(0, format!("the folder {unknown} has no place in the order {ORDER:?}"));
    } else if file != Path::new("lib.rs") {
        let own_rank = own.as_deref().and_then(rank);
        let names = root_names(&tokens, module_depth(file));
        for RootName { name, at } in names.into_iter().filter(|n| exists[n.at] < Exists::InTests) {
            match rank(&name) {
                Some(target) if own_rank.is_none_or(|own| target > own) => {
                    let own = own.as_deref().unwrap_or("the root");
                    fault(at, format!("{own} imports crate::{name}, a later folder"));
                }
                Some(_) => {}
                None if root_modules.contains(&name) => {}
                None if tokens.get(at + 1).is_some_and(|t| t.is_mark('!')) => {}
                None => fault(at, format!("crate::{name} hides which folder is used; name the folder")),
            }
        }
    }

    for (at, token) in tokens.iter().enumerate() {
        let Kind::Word(word) = &token.kind else { continue };
        if word.starts_with("strandline_") && word != "strandline_core" {
            fault(at, format!("the core names the adapter {word}"));
        }
        if exists[at] > Exists::Always {
            continue;
        }
        if word == "std" && path_goes_on(&tokens, at + 1) {
            fault(at, "std:: outside tests and the feature std".into());
        }
        if word == "Instant" && path_goes_on(&tokens, at + 1) && tokens[at + 3].is_word("now") {
            fault(at, "the core reads a clock: Instant::now".into());
        }
        let path_start = path_goes_on(&tokens, at + 1) && !(at >= 2 && path_goes_on(&tokens, at - 2));
        let foreign = path_start && FORBIDDEN_CRATES.contains(&word.as_str());
        if foreign || FORBIDDEN_TYPES.contains(&word.as_str()) {
            fault(at, format!("the core may not use {word}"));
        }
    }
    out
}

/// The files whose `mod name;` stands under a condition.
fn conditional_modules(file: &Path, source: &str) -> Vec<(PathBuf, Exists)> {
    let tokens = tokens(source);
    let exists = existence(&tokens);
    let plain = matches!(file.file_name().and_then(|n| n.to_str()), Some("mod.rs" | "lib.rs"));
    let base =
        if plain { file.parent().map(Path::to_owned).unwrap_or_default() } else { file.with_extension("") };
    let mut out = Vec::new();
    for i in 0..tokens.len().saturating_sub(2) {
        let declares = tokens[i].is_word("mod") && tokens[i + 2].is_mark(';');
        if let (true, Kind::Word(name)) = (declares && exists[i] > Exists::Always, &tokens[i + 1].kind) {
            out.push((base.join(name), exists[i]));
        }
    }
    out
}

fn sources(root: &Path, under: &Path, out: &mut Vec<(PathBuf, String)>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(root.join(under)).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let relative = path.strip_prefix(root).unwrap().to_owned();
        if path.is_dir() {
            sources(root, &relative, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push((relative, fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn folders_of_the_core_import_only_upwards_and_nothing_reaches_for_a_host() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, Path::new(""), &mut files);
    assert!(files.iter().any(|(file, _)| file == Path::new("lib.rs")), "no sources under {}", root.display());

    let is_root_module = |file: &Path| folder(file).is_none() && file != Path::new("lib.rs");
    let root_modules: BTreeSet<String> = files
        .iter()
        .filter(|(file, _)| is_root_module(file))
        .map(|(file, _)| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let conditional: Vec<(PathBuf, Exists)> =
        files.iter().flat_map(|(file, source)| conditional_modules(file, source)).collect();

    let mut faults = Vec::new();
    for (file, source) in &files {
        let module = file.with_extension("");
        let above =
            conditional.iter().filter(|(path, _)| module.starts_with(path)).map(|(_, exists)| *exists);
        let file_exists = above.max().unwrap_or(Exists::Always);
        faults.extend(check(file, source, &root_modules, file_exists));
        let lines = source.lines().count();
        if lines > FILE_LINES_ADVISED {
            println!("core/src/{}: {lines} lines, over {FILE_LINES_ADVISED}", file.display());
        }
    }
    println!("{} files of the core checked", files.len());
    let report: Vec<String> = faults.iter().map(Fault::to_string).collect();
    assert!(report.is_empty(), "{} broken rules:\n{}", report.len(), report.join("\n"));
}

#[test]
fn the_core_depends_on_no_crate_of_this_workspace() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    for (number, line) in manifest.lines().enumerate() {
        let line = line.trim();
        let own_name = line.starts_with("name =") || line.starts_with('#');
        let fault = !own_name && (line.contains("strandline-") || line.contains("path ="));
        assert!(!fault, "core/Cargo.toml:{}: the core depends on a neighbour: {line}", number + 1);
    }
}

fn faults_of(file: &str, source: &str) -> Vec<String> {
    let root_modules = ["time", "error"].map(String::from).into();
    check(Path::new(file), source, &root_modules, Exists::Always).iter().map(Fault::to_string).collect()
}

#[test]
fn an_import_from_a_later_folder_is_named_with_its_line() {
    let found = faults_of("journal/index.rs", "use crate::time::Now;\nuse crate::wire::Frame;\n");
    assert_eq!(found, ["core/src/journal/index.rs:2: journal imports crate::wire, a later folder"]);
}

#[test]
fn every_way_to_write_a_path_is_seen() {
    for source in [
        "fn f() -> crate::compat::Table { g() }",
        "use crate::{time::Now, record::{Key, Version}, lifecycle::View};",
        "use super::super::compat::X;",
        "use super::{super::{time, compat::X}};",
        "mod deep { use super::super::super::compat::X; }",
        "fn f() { let c = 'a'; let s = \"\\\"\"; crate::compat::f(c, s); }",
        "fn f<'a>(x: &'a str) -> crate::compat::Y<'a> { x }",
        "use crate::*;",
        "use crate::Hidden;",
    ] {
        assert_eq!(faults_of("wire/frame.rs", source).len(), 1, "{source}");
    }
    assert_eq!(faults_of("time.rs", "use crate::journal::Lsn;").len(), 1);
    assert_eq!(faults_of("helper/mod.rs", "struct X;").len(), 1);
}

#[test]
fn comments_strings_and_earlier_folders_are_no_faults() {
    for source in [
        "// use crate::compat::X;\n/* crate::compat /* std::fs */ */",
        "/// [`crate::compat::X`] reads no std::fs\nstruct X;",
        "const A: &str = \"crate::compat std::fs\"; const B: &str = r#\"\"crate::compat\"#;",
        "use crate::{journal::Lsn, record::Key, wire::Frame, time};",
        "use super::compat; pub(crate) struct X;",
        "#[cfg(test)] mod tests { use super::super::super::compat::X; use crate::compat::Y; }",
        "mod compat {} use super::compat::X;",
    ] {
        assert_eq!(faults_of("wire/frame.rs", source), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn a_host_is_allowed_only_in_tests_and_with_the_feature_std() {
    for source in [
        "#[cfg(test)] mod tests { use std::vec; }",
        "#[cfg(test)]\n#[allow(unused)]\nimpl<A, B> X<A, B> { fn f() { std::process::abort() } }",
        "#[cfg(any(test, feature = \"std\"))] use std::vec;",
        "#[cfg(all(test, feature = \"x\"))] use std::vec;",
        "#![cfg(test)] use std::fs;",
        "struct X { #[cfg(test)] seen: std::vec::Vec<u8>, y: u8 }",
    ] {
        assert_eq!(faults_of("wire/frame.rs", source), Vec::<String>::new(), "{source}");
    }
    for source in [
        "use std::fs;",
        "#[cfg(not(test))] use std::fs;",
        "#[cfg(test)] mod tests {} use std::fs;",
        "#[cfg(test)] use x::Y; fn f() { std::process::abort() }",
        "struct X { #[cfg(test)] seen: u8, y: std::vec::Vec<u8> }",
        "use hashbrown::HashMap;",
        "fn f() { rand::random() }",
        "fn f() { Instant::now(); }",
        "fn f() -> SystemTime { g() }",
        "use strandline_file::Disk;",
    ] {
        assert_eq!(faults_of("wire/frame.rs", source).len(), 1, "{source}");
    }
}

#[test]
fn a_condition_on_a_module_holds_for_its_file() {
    let named = |file: &str, source: &str| conditional_modules(Path::new(file), source);
    let test = |path: &str| vec![(PathBuf::from(path), Exists::InTests)];
    assert_eq!(named("wire/mod.rs", "#[cfg(test)] mod t; mod u;"), test("wire/t"));
    assert_eq!(named("wire/f.rs", "#[cfg(test)] mod t; #[cfg(test)] mod u {}"), test("wire/f/t"));
    let source = "use crate::compat::X; use std::fs;";
    let found = |exists| check(Path::new("wire/t.rs"), source, &BTreeSet::new(), exists).len();
    assert_eq!([Exists::Always, Exists::WithStd, Exists::InTests].map(found), [2, 1, 0]);
}
