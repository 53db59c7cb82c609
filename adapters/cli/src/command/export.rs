//! `strandline export`: keys as a directory.

use super::get::{blob_damaged, blob_missing, blob_unreadable};
use super::key::NamespaceArg;
use crate::backend::{Backend, scan_all, whole};
use crate::content::CopyError;
use crate::context::Context;
use crate::entropy::random;
use crate::exit::Failure;
use crate::output::Output;
use crate::text::{shown, size};
use crate::tree::path::RelPath;
use crate::tree::place::{Copied, Placing};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use strandline_core::id::hex;
use strandline_core::record::{BlobKey, Key, State};

/// Write the present keys of a namespace to a directory, each verified by its hash, and make them
/// durable. Keys that would leave the directory are refused; symlinks are not followed.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where to write; made if it is missing, else it must be empty.
    target: PathBuf,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Write also into a directory that is not empty, replacing files of the same names.
    #[arg(long)]
    force: bool,
}

/// A key to write.
struct Item {
    key: Key,
    path: RelPath,
    blob: BlobKey,
}

#[derive(Debug, Default, Eq, PartialEq, Serialize)]
struct Counts {
    files: u64,
    directories: u64,
    bytes: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let counts = context.with_replica(|replica| {
        let items = items(replica, args.namespace.bytes())?;
        let own = context.dir()?;
        // Before anything is made there; and again, since a name behind a missing one is not known yet.
        keep_out(&items, &args.target, own)?;
        prepare(&args.target, args.force)?;
        keep_out(&items, &args.target, own)?;
        export(replica, &items, &args.target, context.output)
    })?;
    let text = format!(
        "{} files ({}), {} directories written",
        counts.files,
        size(counts.bytes),
        counts.directories
    );
    context.output.result(text, &counts)
}

/// What to write, refused as a whole if a key is no path or two of them exclude each other.
fn items(replica: &mut dyn Backend, namespace: &[u8]) -> Result<Vec<Item>, Failure> {
    let mut items = Vec::new();
    scan_all(replica, whole(namespace, b"", false), |key, entry| {
        let State::Present { blob } = entry.state else { return Ok(()) };
        let path = RelPath::parse(key.logical_key()).map_err(|why| refused(key, &why.to_string()))?;
        if path.is_directory() && blob != empty() {
            return Err(refused(key, "it ends in / and names a blob that is not empty"));
        }
        items.push(Item { key: key.clone(), path, blob });
        Ok(())
    })?;
    let files: BTreeSet<_> =
        items.iter().filter(|i| !i.path.is_directory()).map(|i| i.path.names().to_vec()).collect();
    for Item { key, path, .. } in &items {
        let own = if path.is_directory() { path.names().len() } else { path.names().len() - 1 };
        if (1..=own).any(|names| files.contains(&path.names()[..names])) {
            return Err(refused(key, "another key is a file where this one needs a directory"));
        }
    }
    Ok(items)
}

fn refused(key: &Key, why: &str) -> Failure {
    Failure::refused(format!("key {key} is no path to write: {why}"))
        .advise("nothing was written; delete that key, or read keys one by one with `get`")
}

/// The blob of a directory.
fn empty() -> BlobKey {
    use sha2::{Digest, Sha256};
    BlobKey(Sha256::digest([]).into())
}

fn prepare(target: &Path, force: bool) -> Result<(), Failure> {
    fs::create_dir_all(target).map_err(|e| Failure::io("make", target, &e))?;
    let mut entries = fs::read_dir(target).map_err(|e| Failure::io("read", target, &e))?;
    if entries.next().is_some() && !force {
        return Err(Failure::refused(format!("{} is not empty", target.display()))
            .advise("name an empty directory, or give --force to write into this one"));
    }
    Ok(())
}

/// Refuses to write into the replica's own directory, however it is reached: a key may be named as
/// one of its files. Links below the target are never followed, so that only the way to it counts.
fn keep_out(items: &[Item], target: &Path, own: &Path) -> Result<(), Failure> {
    let real = |path: &Path| fs::canonicalize(path).map_err(|e| Failure::io("find", path, &e));
    let absolute = std::path::absolute(target).map_err(|e| Failure::io("find", target, &e))?;
    let there = absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let missing = absolute.strip_prefix(there).unwrap_or(Path::new(""));
    let (real_target, real_own) = (real(there)?.join(missing), real(own)?);
    let place = |item: &Item| real_target.join(OsStr::from_bytes(item.key.logical_key()));
    if real_target.starts_with(&real_own) || items.iter().any(|i| place(i).starts_with(&real_own)) {
        let message = format!("{} leads into the replica's own directory", target.display());
        return Err(Failure::refused(message).advise("export to another directory"));
    }
    Ok(())
}

fn export(
    replica: &mut dyn Backend,
    items: &[Item],
    target: &Path,
    output: Output,
) -> Result<Counts, Failure> {
    let failed = |key: &[u8], error: std::io::Error| {
        Failure::io("write", &target.join(shown(key)), &error)
            .advise("nothing has its final name yet; free the way and export again")
    };
    let nonce = hex(&random::<8>()?);
    let mut placing = Placing::new(target, nonce).map_err(|e| Failure::io("open", target, &e))?;
    let mut counts = Counts::default();
    let bar = output.progress("export", items.len() as u64);
    for Item { key, path, blob } in items {
        if path.is_directory() {
            placing.directory(path).map_err(|e| failed(key.logical_key(), e))?;
            counts.directories += 1;
        } else {
            let Some(mut from) = replica.blob(*blob)? else { return Err(blob_missing(key, *blob)) };
            match placing.file(path, *blob, &mut from) {
                Ok(Copied::Verified(bytes)) => counts.bytes += bytes,
                Ok(Copied::Mismatch(found)) => return Err(blob_damaged(key, *blob, found)),
                Err(CopyError::Source(error)) => return Err(blob_unreadable(key, *blob, &error)),
                Err(CopyError::Target(error)) => return Err(failed(key.logical_key(), error)),
            }
            counts.files += 1;
        }
        bar.inc(1);
    }
    placing.finish().map_err(|e| {
        Failure::io("finish", target, &e).advise("some files may have their names and some not: export again")
    })?;
    bar.finish_and_clear();
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::Fake;
    use crate::exit::Exit;
    use strandline_core::lifecycle::api::{Change, Mutation};

    fn replica(keys: &[(&str, &[u8])]) -> Fake {
        let mut fake = Fake::default();
        for &(key, mut content) in keys {
            let mut group = fake.group().expect("opens");
            let (blob, _) = group.add(&mut content).expect("adds");
            group.commit().expect("stores");
            let key = Key::from_parts(b"files", key.as_bytes()).expect("short");
            fake.batch(&[Mutation { key, change: Change::Put { blob }, if_version: None }])
                .expect("accepted");
        }
        fake
    }

    fn to(target: &Path, fake: &mut Fake) -> Result<Counts, Failure> {
        let items = items(fake, b"files")?;
        export(fake, &items, target, Output::new(true))
    }

    #[test]
    fn keys_become_files_and_directories() {
        let target = tempfile::tempdir().expect("a directory");
        let mut fake = replica(&[("d/", b""), ("d/e/", b""), ("d/f", b"one"), ("g", b"")]);
        let counts = to(target.path(), &mut fake).expect("exports");
        assert_eq!(counts, Counts { files: 2, directories: 2, bytes: 3 });
        assert_eq!(fs::read(target.path().join("d/f")).expect("reads"), b"one");
        assert!(target.path().join("d/e").is_dir());
    }

    #[test]
    fn a_key_that_leaves_the_directory_refuses_the_whole_export() {
        for key in ["../out", "a/../../out", "/out", "a//b"] {
            let target = tempfile::tempdir().expect("a directory");
            let mut fake = replica(&[("first", b"1"), (key, b"2")]);
            assert_eq!(to(target.path(), &mut fake).expect_err(key).exit, Exit::Refused);
            assert_eq!(fs::read_dir(target.path()).expect("lists").count(), 0, "{key}");
        }
    }

    #[test]
    fn a_file_where_another_key_needs_a_directory_refuses_the_whole_export() {
        for keys in [[("a", &b"1"[..]), ("a/b", b"2")], [("a", b"1"), ("a/", b"")]] {
            let mut fake = replica(&keys);
            assert_eq!(items(&mut fake, b"files").err().expect("refused").exit, Exit::Refused);
        }
    }

    #[test]
    fn a_damaged_or_missing_blob_ends_the_export_and_leaves_nothing() {
        for damage in [true, false] {
            let target = tempfile::tempdir().expect("a directory");
            let mut fake = replica(&[("a", b"1"), ("b", b"2")]);
            let blob = items(&mut fake, b"files").expect("two").remove(1).blob;
            if damage {
                fake.damage(blob)
            } else {
                fake.lose(blob)
            }
            assert_eq!(to(target.path(), &mut fake).expect_err("damaged").exit, Exit::Storage);
            assert_eq!(fs::read_dir(target.path()).expect("lists").count(), 0);
        }
    }

    #[test]
    fn a_directory_that_is_not_empty_needs_force() {
        let target = tempfile::tempdir().expect("a directory");
        fs::write(target.path().join("f"), b"mine").expect("writes");
        assert_eq!(prepare(target.path(), false).expect_err("refused").exit, Exit::Refused);
        assert_eq!(prepare(target.path(), true), Ok(()));
    }
}
