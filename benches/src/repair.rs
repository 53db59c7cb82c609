//! Repair of an empty replica through two sessions in one process, counted in durable appends.
//!
//! The reference's figure was taken on another day, so seconds say little: both are divided by what one
//! durable append cost where they were measured.

use crate::measure::{Better, Row, Scale, medians, thousands};
use crate::records::{PAYLOAD_BYTES, payload, record};
use std::error::Error;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use strandline_core::id::{LinkId, LogId};
use strandline_core::lifecycle::api::{Change, CloseReason, LinkRole, Mutation};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::machine::Sent;
use strandline_core::record::AuthorityId;
use strandline_core::wire::handshake::{
    Authenticated, DialAuth, Handshake, ListenAuth, PeerCredential, Progress,
};
use strandline_core::wire::identity::PeerIdentity;
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::{LinkSink, NodeConfig, NodeHandle};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// StreamHive v0.14: 65,536 records from nothing, in 22.97 s, where one durable append of its journal took
/// 155.2 us. Its receiver syncs each record; its blobs lay in memory.
const REFERENCE_APPENDS: f64 = 22.97 / 155.2e-6;

const RECORDS: u64 = 65_536;
const BATCH: u64 = 128;
const TOKEN: &str = "of b";

/// Frames that one side handed over and the other has not taken.
const FRAMES_ON_THE_WAY: usize = 8;

/// Plain appends of one round.
const APPENDS: u64 = 500;

/// Longest repair; only one that hangs takes so long.
const WAIT: Duration = Duration::from_secs(300);

fn init(identity: &str) -> Init {
    let authority = (identity == "a").then(|| AuthorityId::from_text(identity));
    let namespaces = vec![record(1).key.namespace().to_vec()];
    Init { log: LogId([8; 16]), identity: identity.into(), namespaces, authority }
}

fn create(path: &Path, identity: &str) -> Outcome<BlockingReplica> {
    Ok(BlockingReplica::create(path, init(identity), NodeConfig::default())?.0)
}

/// Carries frames to the other replica, a few at a time.
struct Wire {
    frames: Sender<Vec<u8>>,
    on_the_way: Arc<AtomicUsize>,
}

impl LinkSink for Wire {
    fn send(&mut self, frame: &[u8]) -> Sent {
        let before = self.on_the_way.fetch_add(1, Ordering::AcqRel);
        // Nobody takes them any more once the other side has ended.
        let _ = self.frames.send(frame.to_vec());
        if before + 1 < FRAMES_ON_THE_WAY { Sent::More } else { Sent::Enough }
    }
    fn close(&mut self, _reason: &CloseReason) {}
}

/// One end of the connection: a node, its link, and what counts the frames it has sent.
struct End {
    node: NodeHandle,
    link: LinkId,
    on_the_way: Arc<AtomicUsize>,
    frames: Receiver<Vec<u8>>,
}

impl End {
    fn new(node: &NodeHandle, peer: Authenticated) -> Outcome<Self> {
        let (frames, sent) = channel();
        let on_the_way = Arc::new(AtomicUsize::new(0));
        let (up, is_up) = channel();
        let wire = Wire { frames, on_the_way: Arc::clone(&on_the_way) };
        node.link_up(peer, LinkRole::Both, Box::new(wire), move |link| drop(up.send(link)));
        Ok(Self { node: node.clone(), link: is_up.recv()??, on_the_way, frames: sent })
    }

    /// Brings what `self` sends to `to`, until `self` sends no more.
    fn carry(self, to: NodeHandle, link: LinkId) {
        let Self { node, link: from, on_the_way, frames } = self;
        for frame in frames {
            let (node, on_the_way) = (node.clone(), Arc::clone(&on_the_way));
            to.received(link, frame, move || {
                if on_the_way.fetch_sub(1, Ordering::AcqRel) == FRAMES_ON_THE_WAY {
                    node.link_ready(from);
                }
            });
        }
    }
}

/// What a handshake between both leaves: who `a` sees, and who `b` sees.
fn introduce(a: &NodeHandle, b: &NodeHandle) -> Outcome<(Authenticated, Authenticated)> {
    let capabilities = |node: &NodeHandle| {
        let (tell, told) = channel();
        node.read(move |replica| drop(tell.send(replica.map(|replica| replica.capabilities()))));
        Ok::<_, Box<dyn Error>>(told.recv()??)
    };
    let (name_a, name_b) = (PeerIdentity::parse("a")?, PeerIdentity::parse("b")?);
    let (mut hello, mut answer) = (Vec::new(), Vec::new());
    let dialer = Handshake::dial(
        DialAuth {
            token: TOKEN.into(),
            identity: Some(name_b.clone()),
            capabilities: capabilities(b)?,
            expect: Some(name_a.clone()),
        },
        &mut hello,
    )?;
    let listener = Handshake::listen(ListenAuth {
        identity: Some(name_a),
        capabilities: capabilities(a)?,
        credentials: vec![PeerCredential::of_token(name_b, TOKEN)],
    });
    let seen_by_a = listener.handle_received(&hello, &mut answer)?;
    let seen_by_b = dialer.handle_received(&answer, &mut Vec::new())?;
    match (seen_by_a, seen_by_b) {
        (Progress::Done { peer: b, .. }, Progress::Done { peer: a, .. }) => Ok((b, a)),
        _ => Err("the whole of both messages was there".into()),
    }
}

/// Seconds until a new replica at `path` holds all that `a` has.
fn repair(a: &BlockingReplica, path: &Path) -> Outcome<f64> {
    let b = create(path, "b")?;
    let (one, other) = introduce(a.handle(), b.handle())?;
    let want = a.status()?;
    let start = Instant::now();
    let (one, other) = (End::new(a.handle(), one)?, End::new(b.handle(), other)?);
    let (link_a, link_b) = (one.link, other.link);
    let (to_a, to_b) = (a.handle().clone(), b.handle().clone());
    let wires =
        [thread::spawn(move || one.carry(to_b, link_b)), thread::spawn(move || other.carry(to_a, link_a))];
    while b.status()?.tail != want.tail {
        assert!(start.elapsed() < WAIT, "b stands at {}, a at {}", b.status()?.tail, want.tail);
        thread::sleep(Duration::from_millis(1));
    }
    let took = start.elapsed().as_secs_f64();
    let have = b.status()?;
    assert_eq!((have.tail_digest, have.present), (want.tail_digest, want.present), "it is the same history");
    a.handle().link_down(link_a);
    b.close()?;
    for wire in wires {
        wire.join().map_err(|_| "a wire panicked")?;
    }
    std::fs::remove_dir_all(path)?;
    Ok(took)
}

/// Seconds of one write and fsync at the end of a growing file, as the reference appends.
fn append(path: &Path) -> Outcome<f64> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    file.sync_all()?;
    let start = Instant::now();
    for number in 0..APPENDS {
        file.write_all_at(&payload(number), number * PAYLOAD_BYTES as u64)?;
        file.sync_all()?;
    }
    Ok(start.elapsed().as_secs_f64() / APPENDS as f64)
}

/// Repair of 65,536 records, every other one a delete, all blobs one and the same.
pub(crate) fn rows(scale: &Scale, work: &Path, rows: &mut Vec<Row>) -> Outcome {
    let records = RECORDS / scale.divisor;
    let a = create(&work.join("repair-a"), "a")?;
    let blob = a.blobs().store_reader(&b"the same for all"[..])?.key;
    for first in (1..=records).step_by(BATCH as usize) {
        let mutation = |n: u64| {
            let change = if n.is_multiple_of(2) { Change::Delete } else { Change::Put { blob } };
            Mutation { key: record(n).key, change, if_version: None }
        };
        a.write_batch((first..first + BATCH).map(mutation).collect())?;
    }
    let mut ours = || repair(&a, &work.join("repair-b")).expect("it is repaired");
    let mut theirs = || append(&work.join("repair-append")).expect("the disk works");
    let [took, append] = medians(scale.rounds, [&mut ours, &mut theirs]);
    a.close()?;
    let name = format!("repair of {} records, two sessions", thousands(records));
    rows.push(Row {
        name: name.clone(),
        ours: took * 1e3,
        theirs: append * records as f64 * 1e3,
        unit: "ms",
        beside: "write+fsync for each record, growing file",
        better: Better::Lower,
    });
    rows.push(Row {
        name,
        ours: took / append,
        theirs: REFERENCE_APPENDS / scale.divisor as f64,
        unit: "appends",
        beside: "StreamHive: 22.97 s, 155.2 us an append",
        better: Better::Lower,
    });
    Ok(())
}
