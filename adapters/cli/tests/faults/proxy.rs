//! A proxy between two nodes that breaks what goes through it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time between two looks while a direction stands still.
const PAUSE: Duration = Duration::from_millis(5);

/// No connection is to be cut.
const WHOLE: i64 = i64::MAX;

/// A listener that passes connections on to wherever its target is now. Its threads end with the
/// process, or each with its connection.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: Mutex<Option<SocketAddr>>,
    open: Mutex<Vec<TcpStream>>,
    /// Milliseconds that each piece waits.
    delay_ms: AtomicU64,
    /// Bytes until the connection that carries the last of them is cut.
    left: AtomicI64,
    /// Whether a direction stands still: from the dialer, to it.
    still: [AtomicBool; 2],
    cuts: AtomicU64,
}

impl Proxy {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target: Mutex::new(None),
            open: Mutex::new(Vec::new()),
            delay_ms: AtomicU64::new(0),
            left: AtomicI64::new(WHOLE),
            still: [AtomicBool::new(false), AtomicBool::new(false)],
            cuts: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for dialer in listener.incoming().flatten() {
                // One that cannot be passed on is closed; its dialer tries again.
                let _ = pass(&dialer, &accepting);
            }
        });
        Self { address, shared }
    }

    /// Connections go there from now on.
    pub(crate) fn lead_to(&self, target: &str) {
        *self.shared.target.lock().expect("no holder panics") = Some(target.parse().expect("an address"));
    }

    /// Cuts all connections that are open.
    pub(crate) fn cut(&self) {
        for stream in self.shared.open.lock().expect("no holder panics").drain(..) {
            if stream.shutdown(Shutdown::Both).is_ok() {
                self.shared.cuts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Cuts whatever connection carries the byte after these, behind that byte: most likely amid a
    /// frame.
    pub(crate) fn cut_after(&self, bytes: u32) {
        self.shared.left.store(i64::from(bytes), Ordering::SeqCst);
    }

    /// Makes every piece wait.
    pub(crate) fn delay(&self, ms: u64) {
        self.shared.delay_ms.store(ms, Ordering::Relaxed);
    }

    /// Lets one direction stand still, or go on.
    pub(crate) fn still(&self, direction: usize, still: bool) {
        self.shared.still[direction].store(still, Ordering::Relaxed);
    }

    /// Breaks nothing any more.
    pub(crate) fn heal(&self) {
        self.shared.left.store(WHOLE, Ordering::SeqCst);
        self.delay(0);
        (0..2).for_each(|direction| self.still(direction, false));
    }

    /// Connections cut so far.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }
}

fn pass(dialer: &TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    let Some(target) = *shared.target.lock().expect("no holder panics") else { return Ok(()) };
    let listener = TcpStream::connect(target)?;
    shared.open.lock().expect("no holder panics").push(dialer.try_clone()?);
    for (direction, (from, to)) in [(dialer, &listener), (&listener, dialer)].into_iter().enumerate() {
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            // Either end closing is the end of the connection, as is a cut.
            let _ = pump(&from, &to, &shared, direction);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}

fn pump(mut from: &TcpStream, mut to: &TcpStream, shared: &Shared, direction: usize) -> std::io::Result<()> {
    let mut piece = [0; 4096];
    loop {
        if shared.still[direction].load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            continue;
        }
        let count = from.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        let wait = shared.delay_ms.load(Ordering::Relaxed);
        if wait > 0 {
            std::thread::sleep(Duration::from_millis(wait));
        }
        let before = shared.left.load(Ordering::SeqCst);
        if before != WHOLE {
            let left = shared.left.fetch_sub(count as i64, Ordering::SeqCst) - count as i64;
            if left <= 0 && left + (count as i64) > 0 {
                shared.left.store(WHOLE, Ordering::SeqCst);
                shared.cuts.fetch_add(1, Ordering::Relaxed);
                return to.write_all(&piece[..(left + count as i64) as usize]);
            }
        }
        to.write_all(&piece[..count])?;
    }
}

#[test]
fn a_connection_is_cut_behind_the_byte_that_was_named() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let proxy = Proxy::start();
    proxy.lead_to(&listener.local_addr().expect("an address").to_string());
    proxy.cut_after(7);
    let mut dialer = TcpStream::connect(proxy.address).expect("connects");
    let (mut end, _) = listener.accept().expect("is passed on");
    dialer.write_all(b"0123456789").expect("sends");
    let mut found = Vec::new();
    // A reset says that it was cut, as an end does.
    let _ = end.read_to_end(&mut found);
    assert_eq!((&found[..], proxy.cuts()), (&b"0123456"[..], 1));
}
