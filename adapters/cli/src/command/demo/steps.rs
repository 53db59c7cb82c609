//! The story, step by step. Each step runs the program as a person would and checks what it says.

use super::Story;
use super::compare::compare;
use super::proxy::Proxy;
use super::replica::{Compacted, Imported, Replica, wait_for};
use crate::entropy::random;
use crate::exit::Failure;
use crate::text::{shown, size};
use crate::tree::scan::scan;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use strandline_core::id::hex;
use strandline_core::record::RecordLimits;

/// The replicas: A writes, B is repaired and killed, S sleeps through a delete, C comes late.
struct Cast {
    a: Replica,
    b: Replica,
    s: Replica,
    c: Replica,
}

impl Cast {
    fn new(root: &Path) -> Result<Self, Failure> {
        let program = std::env::current_exe()
            .map_err(|e| Failure::storage(format!("cannot find this program: {e}")))?;
        let replica = |name| Replica::new(name, hex(&random::<16>()?), &program, root);
        Ok(Self { a: replica("a")?, b: replica("b")?, s: replica("s")?, c: replica("c")? })
    }

    /// What A's peers file says: everyone may call.
    fn callers(&self) -> String {
        [&self.b, &self.s, &self.c]
            .map(|r| format!("[[peers]]\nidentity = \"{}\"\ntoken = {:?}\n", r.name, r.token))
            .concat()
    }
}

/// What the peers file of the others says: A is called there.
fn calls_a(at: SocketAddr) -> String {
    format!("[[peers]]\nidentity = \"a\"\naddress = \"{at}\"\n")
}

fn follow(replica: &Replica, log: &str) -> Result<(), Failure> {
    replica.run(["init", "--identity", replica.name, "--follow", "--log", log]).map(drop)
}

fn deny(holds: bool, what: &str) -> Result<(), Failure> {
    if holds { Err(Failure::refused(what)) } else { Ok(()) }
}

/// Tells the whole story.
pub(super) fn tell(story: &mut Story, source: &Path, root: &Path) -> Result<(), Failure> {
    let key_bytes_max = RecordLimits::default().logical_key_bytes_max;
    let found = scan(source, None, key_bytes_max)?.found;
    let bytes: u64 = found.iter().map(|f| f.bytes).sum();
    let Some(victim) = found.iter().find(|f| !f.is_directory()).map(|f| f.key.clone()) else {
        return Err(Failure::usage(format!("{} holds no file to import", source.display())));
    };
    let mut cast = Cast::new(root)?;
    import(story, &cast, source)?;
    let at = repair_and_kill(story, &mut cast, bytes)?;
    sleep(story, &mut cast, at)?;
    delete(story, &cast, &victim)?;
    compact(story, &cast)?;
    wake(story, &mut cast, at, &victim)?;
    bootstrap(story, &mut cast, at)?;
    export(story, &cast, source, &victim, &root.join("export"), key_bytes_max)?;
    end(story, &mut cast)
}

fn import(story: &mut Story, cast: &Cast, source: &Path) -> Result<(), Failure> {
    story.step("import", "a directory becomes keys and blobs of replica A, the log's writer", || {
        cast.a.run(["init", "--identity", "a"])?;
        let source = source.to_str().ok_or_else(|| Failure::usage("the directory's path is not UTF-8"))?;
        let done: Imported = cast.a.answer(&["import", "--acks", source])?;
        let tail = cast.a.status()?.tail;
        let skipped = match done.skipped {
            0 => String::new(),
            skipped => format!("; {skipped} symlinks and special files left out"),
        };
        Ok(format!("{} keys, {} stored, tail {tail}{skipped}", done.added, size(done.bytes_stored)))
    })
}

/// Serves A, lets B be repaired through a connection that stalls half-way, kills B there, starts it
/// again. Gives A's address.
fn repair_and_kill(story: &mut Story, cast: &mut Cast, bytes: u64) -> Result<SocketAddr, Failure> {
    let callers = cast.callers();
    let at = cast.a.serve(&callers)?;
    let proxy = Proxy::start(at, bytes / 2 + 1)?;
    let log = cast.a.status()?.log;
    let peers = calls_a(proxy.address());
    let b = &mut cast.b;
    let a = &cast.a;
    story.step("kill", "replica B, repaired by A over TCP, is killed with SIGKILL in mid-repair", || {
        follow(b, &log)?;
        b.serve(&peers)?;
        wait_for("the middle of the repair", || Ok(proxy.stalled().then_some(())))?;
        b.kill()?;
        let (left, whole) = (b.status()?, a.status()?);
        deny(left.tail == whole.tail, "B had everything when it was killed")?;
        let passed = size(proxy.passed());
        Ok(format!("killed after {passed} had come; recovered with tail {} of {}", left.tail, whole.tail))
    })?;
    story.step("repair", "B is started again and repaired to the end", || {
        proxy.release();
        b.serve(&peers)?;
        let whole = a.status()?;
        let status = b.wait_until_same(&whole)?;
        Ok(format!(
            "tail {} and digest {}... as A's, every blob verified, {} came over TCP in both lives",
            status.tail,
            &status.tail_digest[..12],
            size(proxy.passed())
        ))
    })?;
    a.run(["members", "add", "b"])?;
    // B goes on without the proxy in between.
    b.stop()?;
    b.serve(&calls_a(at))?;
    Ok(at)
}

fn sleep(story: &mut Story, cast: &mut Cast, at: SocketAddr) -> Result<(), Failure> {
    let (a, s) = (&cast.a, &mut cast.s);
    story.step("sleep", "replica S is repaired as well, then stopped", || {
        let whole = a.status()?;
        follow(s, &whole.log)?;
        s.serve(&calls_a(at))?;
        let status = s.wait_until_same(&whole)?;
        s.stop()?;
        Ok(format!("stopped at tail {} with {} keys", status.tail, status.present))
    })
}

fn get(key: &[u8]) -> [OsString; 2] {
    ["get".into(), OsString::from_vec(key.to_vec())]
}

fn delete(story: &mut Story, cast: &Cast, victim: &[u8]) -> Result<(), Failure> {
    story.step("delete", "a key is deleted on the running A and reaches the running B", || {
        deny(cast.b.is_refused(get(victim))?, "B did not have the key before")?;
        cast.a.run([OsString::from("delete"), OsString::from_vec(victim.to_vec())])?;
        let status = cast.b.wait_until_same(&cast.a.status()?)?;
        deny(!cast.b.is_refused(get(victim))?, "B still has the deleted key")?;
        Ok(format!("{:?} is gone on A and B at {}", shown(victim), status.tail))
    })
}

fn compact(story: &mut Story, cast: &Cast) -> Result<(), Failure> {
    story.step("compact", "A is compacted while it serves; S is not waited for", || {
        let tail = cast.a.status()?.tail;
        let (mut entries, mut tombstones) = (0, 0);
        // Until B has acknowledged everything, less can go, or nothing.
        let floor = wait_for("A to compact to its tail", || {
            if let Some(done) = cast.a.answer_unless_refused::<Compacted>(&["compact"])? {
                entries += done.entries_dropped;
                tombstones += done.tombstones_dropped;
            }
            let floor = cast.a.status()?.floor;
            Ok((floor == tail).then_some(floor))
        })?;
        deny(tombstones == 0, "the tombstone was kept")?;
        Ok(format!("floor {floor}: {entries} journal entries and {tombstones} tombstones dropped"))
    })
}

fn wake(story: &mut Story, cast: &mut Cast, at: SocketAddr, victim: &[u8]) -> Result<(), Failure> {
    story.step("wake", "S comes back with the key that it slept through the deletion of", || {
        let slept = cast.s.status()?;
        deny(cast.s.is_refused(get(victim))?, "S did not have the key any more")?;
        cast.s.serve(&calls_a(at))?;
        let whole = cast.a.status()?;
        let status = cast.s.wait_until_same(&whole)?;
        for replica in [&cast.a, &cast.b, &cast.s] {
            deny(!replica.is_refused(get(victim))?, "the deleted key is back")?;
        }
        Ok(format!("S went from {} to {}; the key is gone on A, B and S", slept.tail, status.tail))
    })
}

fn bootstrap(story: &mut Story, cast: &mut Cast, at: SocketAddr) -> Result<(), Failure> {
    story.step("bootstrap", "a late replica C gets a snapshot in chunks", || {
        let whole = cast.a.status()?;
        follow(&cast.c, &whole.log)?;
        cast.c.serve(&calls_a(at))?;
        let status = cast.c.wait_until_same(&whole)?;
        deny(status.floor != whole.floor, "C has no snapshot of A's floor")?;
        Ok(format!("{} keys, floor {} and tail {} as A's", status.present, status.floor, status.tail))
    })
}

fn export(
    story: &mut Story,
    cast: &Cast,
    source: &Path,
    victim: &[u8],
    target: &PathBuf,
    key_bytes_max: u32,
) -> Result<(), Failure> {
    story.step("export", "C is exported and compared with the source", || {
        cast.c.run([OsString::from("export"), target.into()])?;
        let same = compare(source, victim, target, key_bytes_max)?;
        Ok(format!(
            "{} files ({}) and {} directories are the same byte for byte, without the deleted key",
            same.files,
            size(same.bytes),
            same.directories
        ))
    })
}

fn end(story: &mut Story, cast: &mut Cast) -> Result<(), Failure> {
    story.step("end", "all nodes end on SIGTERM; their directories are opened and verified", || {
        let mut replicas = [&mut cast.a, &mut cast.b, &mut cast.s, &mut cast.c];
        for replica in &mut replicas {
            replica.stop()?;
        }
        for replica in &replicas {
            replica.run(["verify"])?;
        }
        Ok("4 clean ends, 4 journals recovered, every blob verified".to_owned())
    })
}
