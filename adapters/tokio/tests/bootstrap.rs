//! A new peer takes up a large state over a connection that is cut again and again, while its source is
//! written to and compacted. 1,000,000 records with `STRANDLINE_SOAK=1` (or as many as it says, from
//! 1,000 on), else 20,000. Figures are printed, never asserted.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{Change, LinkRole, MembersChange, Mutation};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, BlobKey, Key};
use strandline_core::wire::admission::Terms;
use strandline_file::node::{Node, NodeConfig, WaitPolicy};
use strandline_net::{Access, Handle, NetConfig, Peer};
use strandline_tokio::{ServeConfig, Server, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const TOKEN: &str = "the token of b";
const BATCH: u64 = 1000;
/// Longest wait for one step; only one that hangs reaches it.
const WAIT: Duration = Duration::from_secs(3000);
/// How often the connection is cut before it is left alone.
const CUTS: u64 = 5;

fn records() -> u64 {
    let soak = std::env::var("STRANDLINE_SOAK").ok();
    match soak.map(|text| text.parse::<u64>().unwrap_or(1)) {
        None => 20_000,
        Some(records) if records >= BATCH => records,
        Some(_) => 1_000_000,
    }
}

fn key(n: u64) -> Key {
    Key::from_parts(b"n", format!("a folder/with some depth/key-{n:09}").as_bytes()).expect("short")
}

fn node(folder: &tempfile::TempDir, identity: &str) -> Result<Node> {
    let authority = (identity == "a").then(|| AuthorityId::from_text(identity));
    let namespaces = vec![b"n".to_vec()];
    let init = Init { log: LogId([9; 16]), identity: identity.into(), namespaces, authority };
    Ok(Node::create(folder.path().join(identity), init, NodeConfig::default())?.0)
}

async fn listen(node: Node, peer: Peer, token: &str) -> Result<Server> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let limits = NetConfig { retry_ms: 10, retry_ms_max: 50, ..NetConfig::default() };
    let access = Access { token: token.into(), peers: vec![peer], ..Access::default() };
    Ok(serve(ServeConfig { node, listen, access, limits }).await?)
}

fn peer(identity: &str, address: Option<SocketAddr>) -> Peer {
    let token = address.is_none().then(|| TOKEN.into());
    let address = address.map(|at| at.to_string());
    Peer { identity: identity.into(), address, token, role: LinkRole::Both, terms: Terms::default() }
}

async fn put(handle: &Handle, numbers: std::ops::Range<u64>, blob: BlobKey) -> Result {
    let change = Change::Put { blob };
    let mutations = numbers.map(|n| Mutation { key: key(n), change, if_version: None }).collect();
    handle.batch(mutations, WaitPolicy::Wait).await?;
    Ok(())
}

/// Carries bytes to `to`, and cuts each of the first [`CUTS`] connections after `bytes_max` came back.
async fn cutting_proxy(to: SocketAddr, bytes_max: u64, cuts: Arc<AtomicU64>) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let cuts = Arc::clone(&cuts);
            tokio::spawn(async move {
                let Ok(far) = TcpStream::connect(to).await else { return };
                let ((mut near_in, mut near_out), (mut far_in, mut far_out)) =
                    (near.into_split(), far.into_split());
                let forth = async { drop(tokio::io::copy(&mut near_in, &mut far_out).await) };
                let back = async {
                    let (mut carried, mut piece) = (0, vec![0; 16 << 10]);
                    while let Ok(read @ 1..) = far_in.read(&mut piece).await {
                        carried += read as u64;
                        if carried > bytes_max && cuts.load(Ordering::Relaxed) < CUTS {
                            cuts.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                        if near_out.write_all(&piece[..read]).await.is_err() {
                            return;
                        }
                    }
                };
                // Whichever ends first ends both.
                tokio::select! { () = forth => {}, () = back => {} }
            });
        }
    });
    Ok(address)
}

/// The most memory that this process ever had, where the system tells: of both nodes together.
fn peak_rss() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".into(), |text| text.trim().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_peer_takes_up_a_large_state_through_cuts_writes_and_a_compaction() -> Result {
    let folder = tempfile::tempdir()?;
    let records = records();
    let a = listen(node(&folder, "a")?, peer("b", None), "of a").await?;
    let blob = a.handle().store(b"the same for all".to_vec()).await?.key;
    for first in (0..records).step_by(BATCH as usize) {
        put(a.handle(), first..records.min(first + BATCH), blob).await?;
    }
    a.handle().members(MembersChange::Clear).await?;
    let compacted = a.handle().compact(None).await?;
    assert_eq!(compacted.records, records);
    println!("{records} records, {} bytes of state; peak RSS {}", compacted.checkpoint_bytes, peak_rss());

    let cuts = Arc::new(AtomicU64::new(0));
    let bytes_max = compacted.checkpoint_bytes / (CUTS + 2);
    let proxy = cutting_proxy(a.local_addr(), bytes_max, Arc::clone(&cuts)).await?;
    let started = Instant::now();
    let b = listen(node(&folder, "b")?, peer("a", Some(proxy)), TOKEN).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (a, stop) = (a.handle().clone(), Arc::clone(&stop));
        async move {
            let mut next = records;
            while !stop.load(Ordering::Relaxed) {
                put(&a, next..next + 10, blob).await.map_err(|error| error.to_string())?;
                next += 10;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok::<_, String>(next)
        }
    });
    // In the middle of it the source is compacted: the cut that is being read is pinned.
    let middle = async {
        while cuts.load(Ordering::Relaxed) < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        a.handle().compact(None).await.map_err(|error| error.to_string())
    };
    let again = tokio::time::timeout(WAIT, middle).await??;
    assert!(again.floor > compacted.floor);
    let taken_up = async {
        loop {
            let status = b.handle().status().await?;
            assert!(
                status.present == 0 || status.present >= records,
                "a part of a snapshot is shown: {} keys",
                status.present
            );
            if status.present >= records {
                return Ok::<_, Box<dyn Error>>(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(WAIT, taken_up).await??;
    println!(
        "taken up in {:.2?} through {} cuts; peak RSS of both nodes in one process {}",
        started.elapsed(),
        cuts.load(Ordering::Relaxed),
        peak_rss()
    );
    stop.store(true, Ordering::Relaxed);
    let written = writer.await??;
    let same = async {
        loop {
            let (ours, theirs) = (a.handle().status().await?, b.handle().status().await?);
            if ours.tail == theirs.tail {
                return Ok::<_, Box<dyn Error>>((ours, theirs));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let (ours, theirs) = tokio::time::timeout(WAIT, same).await??;
    assert_eq!((ours.tail_digest, ours.present), (theirs.tail_digest, theirs.present));
    assert_eq!(theirs.present, written);
    assert!(cuts.load(Ordering::Relaxed) >= 2);
    println!("caught up with {} more changes in {:.2?}", written - records, started.elapsed());
    b.shutdown().await?;
    Ok(a.shutdown().await?)
}
