//! A TCP connection that carries so many bytes and then stalls until it is released, so that a
//! repair can be caught in the middle on any machine.

use crate::exit::Failure;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Time between two looks while stalled.
const PAUSE: Duration = Duration::from_millis(5);

/// A listener on loopback that passes connections on.
pub(super) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    /// Bytes that may pass from the target in all connections together.
    allowed: AtomicU64,
    passed: AtomicU64,
}

impl Proxy {
    /// Passes at most `allowed` bytes of what `target` sends. Its threads end with the process or,
    /// each, with its connection.
    pub(super) fn start(target: SocketAddr, allowed: u64) -> Result<Self, Failure> {
        let failed = |e: io::Error| Failure::peer(format!("cannot listen on loopback: {e}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared { target, allowed: AtomicU64::new(allowed), passed: AtomicU64::new(0) });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A connection that cannot be passed on is closed; its dialer tries again.
                let _ = pass(stream, &accepting);
            }
        });
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many bytes have passed from the target.
    pub(super) fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::SeqCst)
    }

    /// Whether as much has passed as may.
    pub(super) fn stalled(&self) -> bool {
        self.passed() >= self.shared.allowed.load(Ordering::SeqCst)
    }

    /// Lets everything pass from now on.
    pub(super) fn release(&self) {
        self.shared.allowed.store(u64::MAX, Ordering::SeqCst);
    }
}

fn pass(client: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    let target = TcpStream::connect(shared.target)?;
    let (mut from_client, mut to_target) = (client.try_clone()?, target.try_clone()?);
    thread::spawn(move || {
        // Either end closing is the end of the connection.
        let _ = io::copy(&mut from_client, &mut to_target);
        close(&from_client, &to_target);
    });
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let _ = pass_limited(&target, &client, &shared);
        close(&client, &target);
    });
    Ok(())
}

fn pass_limited(mut from: &TcpStream, mut to: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buf = [0; 16 << 10];
    loop {
        let allowed = shared.allowed.load(Ordering::SeqCst);
        let left = allowed.saturating_sub(shared.passed.load(Ordering::SeqCst));
        if left == 0 {
            thread::sleep(PAUSE);
            continue;
        }
        let most = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = from.read(&mut buf[..most])?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buf[..read])?;
        shared.passed.fetch_add(read as u64, Ordering::SeqCst);
    }
}

fn close(a: &TcpStream, b: &TcpStream) {
    // One that is closed already is closed.
    let _ = a.shutdown(Shutdown::Both);
    let _ = b.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_bytes_pass_until_it_is_released() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
        let proxy = Proxy::start(listener.local_addr().expect("an address"), 10).expect("starts");
        let mut client = TcpStream::connect(proxy.address()).expect("connects");
        let (mut target, _) = listener.accept().expect("is passed on");
        target.write_all(b"0123456789abc").expect("sends");
        let mut first = [0; 10];
        client.read_exact(&mut first).expect("reads");
        while !proxy.stalled() {
            thread::yield_now();
        }
        assert_eq!((&first, proxy.passed()), (b"0123456789", 10));
        proxy.release();
        let mut rest = [0; 3];
        client.read_exact(&mut rest).expect("reads");
        assert_eq!(&rest, b"abc");
    }
}
