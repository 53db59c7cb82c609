//! Real faults on real files: power cuts rebuilt from what the program did to its files, calls of the
//! system that fail, full disks, and storms of kills over nodes whose connections break.
#![cfg(target_os = "linux")]

mod client;
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
