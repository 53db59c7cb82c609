//! Whether two trees are the same, byte for byte.

use crate::exit::Failure;
use crate::tree::beneath::Beneath;
use crate::tree::path::RelPath;
use crate::tree::scan::{Found, scan};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// How much was found to be the same.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Same {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) bytes: u64,
}

/// Compares the files and directories of `source`, without the key `deleted`, with those of `copy`.
pub(super) fn compare(
    source: &Path,
    deleted: &[u8],
    copy: &Path,
    key_bytes_max: u32,
) -> Result<Same, Failure> {
    let mut expected = scan(source, None, key_bytes_max)?.found;
    expected.retain(|found| found.key != deleted);
    let found = scan(copy, None, key_bytes_max)?.found;
    if let Some(differ) = first_difference(&expected, &found) {
        return Err(Failure::refused(format!("the trees differ at {}", crate::text::shown(differ))));
    }
    let open = |root: &Path| Beneath::open(root).map_err(|e| Failure::io("open", root, &e));
    let (mut ours, mut theirs) = (open(source)?, open(copy)?);
    let mut same = Same::default();
    for Found { key, bytes } in &expected {
        if key.ends_with(b"/") {
            same.directories += 1;
            continue;
        }
        let read =
            |tree: &mut Beneath, root: &Path| file(tree, key).map_err(|e| Failure::io("read", root, &e));
        if !equal(read(&mut ours, source)?, read(&mut theirs, copy)?)? {
            let name = crate::text::shown(key);
            return Err(Failure::refused(format!("the bytes of {name} differ")));
        }
        same.files += 1;
        same.bytes += bytes;
    }
    Ok(same)
}

fn first_difference<'a>(expected: &'a [Found], found: &'a [Found]) -> Option<&'a [u8]> {
    let differ = expected.iter().zip(found).find(|(e, f)| e != f).map(|(e, f)| e.key.as_slice().min(&f.key));
    let longer = if expected.len() > found.len() { expected } else { found };
    differ.or_else(|| longer.get(expected.len().min(found.len())).map(|f| f.key.as_slice()))
}

fn file(tree: &mut Beneath, key: &[u8]) -> std::io::Result<File> {
    let path = RelPath::parse(key).map_err(|why| std::io::Error::other(why.to_string()))?;
    let (parents, name) = path.split();
    tree.read(parents, name)
}

fn equal(mut a: File, mut b: File) -> Result<bool, Failure> {
    const PIECE: u64 = 256 << 10;
    let piece = |file: &mut File| {
        let mut bytes = Vec::new();
        file.by_ref()
            .take(PIECE)
            .read_to_end(&mut bytes)
            .map_err(|e| Failure::storage(format!("cannot read a file to compare: {e}")))?;
        Ok::<_, Failure>(bytes)
    };
    loop {
        let (ours, theirs) = (piece(&mut a)?, piece(&mut b)?);
        if ours != theirs {
            return Ok(false);
        }
        if ours.is_empty() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn trees() -> (tempfile::TempDir, tempfile::TempDir) {
        let make = || {
            let root = tempfile::tempdir().expect("a directory");
            fs::create_dir(root.path().join("d")).expect("creates");
            fs::write(root.path().join("d/f"), b"one").expect("writes");
            fs::write(root.path().join("g"), b"two").expect("writes");
            root
        };
        (make(), make())
    }

    #[test]
    fn the_same_trees_are_the_same_without_the_deleted_key() {
        let (a, b) = trees();
        let same = |deleted| compare(a.path(), deleted, b.path(), 1024);
        assert_eq!(same(b"").expect("the same"), Same { files: 2, directories: 1, bytes: 6 });
        same(b"g").expect_err("g is still there");
        fs::remove_file(b.path().join("g")).expect("removes");
        assert_eq!(compare(a.path(), b"g", b.path(), 1024).expect("the same").files, 1);
    }

    #[test]
    fn one_byte_or_one_name_makes_a_difference() {
        let (a, b) = trees();
        fs::write(b.path().join("d/f"), b"ons").expect("writes");
        compare(a.path(), b"", b.path(), 1024).expect_err("another byte");
        let (a, b) = trees();
        fs::write(b.path().join("more"), b"").expect("writes");
        compare(a.path(), b"", b.path(), 1024).expect_err("another name");
    }
}
