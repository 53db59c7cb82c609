//! A long history: written, reopened, repaired from nothing over TCP, compacted. 5,000,000 entries
//! with `STRANDLINE_SOAK=1` (or as many as it says, from 1,000 on), else 20,000. Figures are printed,
//! never asserted.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{
    Change, Compacted, LinkRole, MembersChange, Mutation, RequestError, Status,
};
use strandline_core::lifecycle::recovery::{Init, RecoveryReport};
use strandline_core::record::{AuthorityId, BlobKey, Key, State};
use strandline_core::wire::admission::Terms;
use strandline_file::node::{Node, NodeConfig, RequestFailed, StartError, WaitPolicy};
use strandline_net::{Access, Handle, NetConfig, Peer};
use strandline_tokio::{ServeConfig, Server, serve};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const TOKEN: &str = "the token of b";
const ENTRIES_OF_BATCH: u64 = 1000;
/// Batches under way at once, so that the disk is not waited for between two of them.
const BATCHES_UNDER_WAY: usize = 8;
/// Longest wait for one step; only one that hangs reaches it.
const WAIT: Duration = Duration::from_secs(3000);

fn entries() -> u64 {
    let soak = std::env::var("STRANDLINE_SOAK").ok();
    match soak.map(|text| text.parse::<u64>().unwrap_or(1)) {
        None => 20_000,
        Some(entries) if entries >= ENTRIES_OF_BATCH => entries,
        Some(_) => 5_000_000,
    }
}

fn init(identity: &str) -> Init {
    let authority = (identity == "a").then(|| AuthorityId::from_text(identity));
    Init { log: LogId([9; 16]), identity: identity.into(), namespaces: vec![b"n".to_vec()], authority }
}

fn start(path: &Path, identity: &str) -> std::result::Result<(Node, RecoveryReport), StartError> {
    let config = NodeConfig::default();
    if path.exists() { Node::open(path, config) } else { Node::create(path, init(identity), config) }
}

async fn listen(node: Node, peers: Vec<Peer>, token: &str) -> Result<Server> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let limits = NetConfig { retry_ms: 10, retry_ms_max: 50, ..NetConfig::default() };
    let access = Access { token: token.into(), peers, ..Access::default() };
    Ok(serve(ServeConfig { node, listen, access, limits }).await?)
}

fn peer(identity: &str, address: Option<SocketAddr>) -> Peer {
    let token = address.is_none().then(|| TOKEN.into());
    let address = address.map(|at| at.to_string());
    Peer { identity: identity.into(), address, token, role: LinkRole::Both, terms: Terms::default() }
}

/// What a history of `entries` does to its keys: every key is changed ten times, and every third
/// change is a delete. All blobs are one and the same, so that this measures records.
struct History {
    keys: u64,
    blob: BlobKey,
}

impl History {
    fn mutation(&self, entry: u64) -> Mutation {
        let name = format!("a folder/with some depth/key-{:09}", entry % self.keys);
        let key = Key::from_parts(b"n", name.as_bytes()).expect("short");
        let change = if entry.is_multiple_of(3) { Change::Delete } else { Change::Put { blob: self.blob } };
        Mutation { key, change, if_version: None }
    }

    /// Writes the entries from `first` to before `end`.
    async fn write(&self, handle: &Handle, first: u64, end: u64) -> Result {
        let mut under_way = tokio::task::JoinSet::new();
        let mut next = first;
        while next < end || !under_way.is_empty() {
            while next < end && under_way.len() < BATCHES_UNDER_WAY {
                let through = end.min(next + ENTRIES_OF_BATCH);
                let mutations = (next..through).map(|entry| self.mutation(entry)).collect();
                let handle = handle.clone();
                under_way.spawn(async move { handle.batch(mutations, WaitPolicy::Wait).await });
                next = through;
            }
            let written = under_way.join_next().await.expect("some are under way");
            written??;
        }
        Ok(())
    }
}

/// Prints how fast one step went.
fn told(what: &str, entries: u64, started: Instant) {
    let took = started.elapsed();
    let speed = entries as f64 / took.as_secs_f64();
    println!("{what}: {entries} entries in {took:.2?}, {speed:.0}/s; peak RSS {}", peak_rss());
}

/// The most memory that this process ever had, where the system tells.
fn peak_rss() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".into(), |text| text.trim().to_owned())
}

async fn until_same(a: &Handle, b: &Handle) -> Result<(Status, Status)> {
    let same = async {
        loop {
            let (ours, theirs) = (a.status().await?, b.status().await?);
            if ours.tail == theirs.tail {
                return Ok::<_, Box<dyn Error>>((ours, theirs));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WAIT, same).await?
}

/// Compacts as soon as the member's acknowledgement is stored.
async fn compact(a: &Handle) -> Result<Compacted> {
    let compacted = async {
        loop {
            match a.compact(None).await {
                Err(RequestFailed::Refused(RequestError::Behind { .. })) => {}
                ended => return ended,
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    Ok(tokio::time::timeout(WAIT, compacted).await??)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_is_reopened_repaired_and_compacted() -> Result {
    let folder = tempfile::tempdir()?;
    let (path_a, path_b) = (folder.path().join("a"), folder.path().join("b"));
    let (written, appended) = (entries(), ENTRIES_OF_BATCH);
    let all = written + appended;

    let a = listen(start(&path_a, "a")?.0, Vec::new(), "of a").await?;
    let blob = a.handle().store(b"the same for all".to_vec()).await?.key;
    let history = History { keys: written / 10, blob };
    let started = Instant::now();
    history.write(a.handle(), 0, written).await?;
    told("written", written, started);
    let before = a.handle().status().await?;
    a.shutdown().await?;

    let started = Instant::now();
    let (node, report) = start(&path_a, "a")?;
    told("reopened", report.entries, started);
    println!("{report:?}");
    assert_eq!((report.entries, report.cut), (before.entries, None));
    let a = listen(node, vec![peer("b", None)], "of a").await?;
    let after = a.handle().status().await?;
    assert_eq!((after.tail, after.tail_digest), (before.tail, before.tail_digest));
    a.handle().members(MembersChange::Add("b".into())).await?;
    history.write(a.handle(), written, all).await?;

    let started = Instant::now();
    let b = listen(start(&path_b, "b")?.0, vec![peer("a", Some(a.local_addr()))], TOKEN).await?;
    let (ours, theirs) = until_same(a.handle(), b.handle()).await?;
    told("repaired", all, started);
    assert_eq!(ours.tail_digest, theirs.tail_digest);
    assert_eq!((ours.present, ours.tombstones), (theirs.present, theirs.tombstones));
    assert_eq!(ours.present + ours.tombstones, history.keys);

    let started = Instant::now();
    let compacted = compact(a.handle()).await?;
    told("compacted", compacted.entries_dropped, started);
    println!("{compacted:?}");
    assert!(compacted.floor > before.floor && compacted.records > 0);
    let status = a.handle().status().await?;
    assert_eq!(
        (status.tail, status.tail_digest, status.present),
        (ours.tail, ours.tail_digest, ours.present)
    );
    let last = (all - history.keys..all).find(|entry| !entry.is_multiple_of(3)).expect("not all are deletes");
    let entry = b.handle().get(history.mutation(last).key).await?.expect("it was put last");
    assert_eq!(entry.state, State::Present { blob });
    b.shutdown().await?;
    Ok(a.shutdown().await?)
}
