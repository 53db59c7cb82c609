//! Real faults on real files: power cuts rebuilt from what the program did to its files, calls of the
//! system that fail, full disks, and storms of kills over nodes whose connections break.
#![cfg(target_os = "linux")]

mod blob_names;
mod client;
mod damage;
mod disk;
mod failing;
mod full;
mod power_loss;
mod program;
mod proxy;
mod shim;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod told;
mod trace;

/// Whether tests take their long form.
fn soak() -> bool {
    std::env::var_os("STRANDLINE_SOAK").is_some()
}

/// A scratch folder on a file system that answers syncs at once, where the system has one: what a
/// power cut leaves is decided by our model of the disk, not by that file system.
fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    let in_memory = tempfile::tempdir_in(memory);
    in_memory.or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// What `docs/FAULTS.md` says of real faults: the faults and tests that its table names.
#[test]
fn the_table_of_real_faults_names_faults_and_tests_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/FAULTS.md")).expect("is there");
    let (model, after) = page.split_once("## Real faults on real files").expect("has that section");
    let (section, _) = after.split_once("\n## ").expect("is followed by another");
    let mut sources = String::new();
    for folder in ["adapters/cli/tests", "adapters/cli/tests/faults", "adapters/file/tests"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("lists") {
            let path = entry.expect("lists").path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path).expect("is there"));
            }
        }
    }
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let mut named = 0;
    for (faults, tests) in rows {
        for fault in faults.split('`').filter(|word| word.contains(|c: char| c.is_ascii_lowercase())) {
            assert!(model.contains(&format!("\n| `{fault}` |")), "no fault {fault}");
        }
        for test in tests.split('`').skip(1).step_by(2).filter(|word| word.contains('_')) {
            named += 1;
            assert!(sources.contains(&format!("fn {test}()")), "no test {test}");
        }
    }
    assert!(named >= 14, "found only {named} tests");
}
