//! The node's side of the control protocol: a thread per connection over a blocking backend.

use super::chunks::{self, ChunkReader};
use super::message::{self, Answer, AnyRequest, ChunkedRequest, Item, WatchItem};
use super::{SOCKET_NAME, socket};
use crate::backend::Backend;
use crate::exit::Failure;
use crate::report::BlobText;
use crate::watch::CursorText;
use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use strandline_core::record::BlobKey;

/// Most connections at once; more are told so and closed.
const CONNECTIONS_MAX: usize = 64;

/// Longest time that stopping waits for requests under way, and then once more for clients to take their
/// answers.
const ANSWERS: Duration = Duration::from_secs(5);

/// Time between two looks at them.
const PAUSE: Duration = Duration::from_millis(10);

/// Rest after the system could not give a connection: it is mostly out of descriptors, and asking
/// again at once would only spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A listening control socket.
pub(crate) struct Server {
    dir: PathBuf,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<Connections>>,
    answers: Duration,
}

impl Server {
    /// Listens in `dir`, whose lock the caller holds. Each connection gets a clone of `backend`.
    pub(crate) fn start<B>(dir: &Path, backend: B) -> io::Result<Self>
    where
        B: Backend + Clone + Send + 'static,
    {
        Self::start_with(dir, backend, ANSWERS)
    }

    fn start_with<B>(dir: &Path, backend: B, answers: Duration) -> io::Result<Self>
    where
        B: Backend + Clone + Send + 'static,
    {
        let listener = socket::bind(dir)?;
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let acceptor = thread::Builder::new()
            .name("control".into())
            .spawn(move || Connections::default().accept_all(listener, &seen, &backend, answers))?;
        Ok(Self { dir: dir.to_owned(), stop, acceptor: Some(acceptor), answers })
    }

    /// Takes no more requests, lets those under way be answered for a while, removes the socket. What takes
    /// longer ends with the node, and its clients hear so: [`Unanswered::end`] comes after that.
    pub(crate) fn stop(mut self) -> Unanswered {
        let connections = self.stop_now().unwrap_or_default();
        Unanswered { connections, answers: self.answers }
    }

    fn stop_now(&mut self) -> Option<Connections> {
        let acceptor = self.acceptor.take()?;
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the acceptor. Where even this fails nobody can connect, and it is left to the
        // end of the process.
        let woken = matches!(socket::connect(&self.dir), Ok(Some(_)));
        let connections = woken.then(|| acceptor.join().ok()).flatten();
        // A socket that stays is stale and the next start replaces it.
        let _ = std::fs::remove_file(self.dir.join(SOCKET_NAME));
        connections
    }
}

/// The connections whose requests had not ended when the server stopped.
#[must_use]
pub(crate) struct Unanswered {
    connections: Connections,
    answers: Duration,
}

impl Unanswered {
    /// Waits until they have ended. The node behind them must have: it answers whatever still waited for it.
    /// A client that does not take its answer within [`ANSWERS`] loses it.
    pub(crate) fn end(self) {
        self.connections.wait(self.answers);
        // A client that is suspended would hold up the end of the node for ever.
        self.connections.shut(Shutdown::Both);
        for worker in self.connections.workers {
            let _ = worker.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_now();
    }
}

/// The connections that are open, so that stopping can end their waiting for requests.
#[derive(Default)]
struct Connections {
    open: Arc<Mutex<BTreeMap<u64, UnixStream>>>,
    workers: Vec<JoinHandle<()>>,
    next: u64,
}

impl Connections {
    /// Takes up connections until it is told to stop, then waits for their requests, at most for `answers`.
    fn accept_all<B>(
        mut self,
        listener: UnixListener,
        stop: &AtomicBool,
        backend: &B,
        answers: Duration,
    ) -> Self
    where
        B: Backend + Clone + Send + 'static,
    {
        for stream in listener.incoming() {
            if stop.load(Ordering::SeqCst) {
                break;
            }
            self.workers.retain(|worker| !worker.is_finished());
            // A connection that cannot be taken up is closed; its client reports that.
            match stream {
                Ok(stream) => drop(self.take_up(stream, backend.clone())),
                Err(_) => thread::sleep(ACCEPT_REST),
            }
        }
        // Whoever connects from now on must not wait for somebody who takes nothing up any more.
        drop(listener);
        self.shut(Shutdown::Read);
        self.wait(answers);
        self
    }

    fn wait(&self, longest: Duration) {
        let start = Instant::now();
        while start.elapsed() < longest && self.workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(PAUSE);
        }
    }

    fn shut(&self, how: Shutdown) {
        for stream in self.lock().values() {
            // One that is gone already has ended its worker.
            let _ = stream.shutdown(how);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, UnixStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_up<B: Backend + Send + 'static>(
        &mut self,
        mut stream: UnixStream,
        mut backend: B,
    ) -> io::Result<()> {
        if self.workers.len() >= CONNECTIONS_MAX {
            let failure =
                Failure::refused(format!("{CONNECTIONS_MAX} control connections are open, the most"))
                    .advise("try again");
            return message::write_line(&mut stream, &Answer::Failed { failure });
        }
        let id = self.next;
        self.next += 1;
        self.lock().insert(id, stream.try_clone()?);
        let open = Arc::clone(&self.open);
        let worker = thread::Builder::new().name("control-connection".into()).spawn(move || {
            // The client sees the closed connection; the node has nobody else to tell.
            let _ = serve_one(stream, &mut backend);
            open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
        match worker {
            Ok(worker) => self.workers.push(worker),
            Err(error) => {
                // The copy that is kept of it would hold the connection open, and its client waiting.
                self.lock().remove(&id);
                return Err(error);
            }
        }
        Ok(())
    }
}

fn serve_one(stream: UnixStream, backend: &mut dyn Backend) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let request = match message::read_line::<AnyRequest>(&mut reader) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) => return refuse(&mut writer, &error),
        };
        match request {
            AnyRequest::Chunked(ChunkedRequest::BlobGroup) => serve_group(&mut reader, &mut writer, backend)?,
            AnyRequest::Chunked(ChunkedRequest::Watch { cursor }) => {
                serve_watch(&mut reader, &mut writer, backend, cursor)?
            }
            AnyRequest::Chunked(ChunkedRequest::BlobRead { blob }) => {
                serve_blob(&mut writer, backend, blob.0)?
            }
            AnyRequest::Plain(plain) => message::write_line(&mut writer, &message::dispatch(backend, plain))?,
        }
    }
}

/// Tells a client that its line is none of ours; what follows it cannot be understood.
fn refuse(writer: &mut UnixStream, error: &io::Error) -> io::Result<()> {
    let failure = Failure::usage(format!("no control request: {error}"));
    message::write_line(writer, &Answer::Failed { failure })
}

fn serve_watch(
    reader: &mut BufReader<UnixStream>,
    writer: &mut UnixStream,
    backend: &mut dyn Backend,
    cursor: Option<CursorText>,
) -> io::Result<()> {
    let mut watch = match backend.watch(cursor) {
        Ok(watch) => watch,
        Err(failure) => return message::write_line(writer, &Answer::Failed { failure }),
    };
    message::write_line(writer, &Answer::Watching { verdict: watch.verdict().clone() })?;
    loop {
        let answer = match message::read_line::<WatchItem>(reader)? {
            Some(WatchItem::Next) => watch.next().map(|page| Answer::Watched { page }),
            Some(WatchItem::Reset) => watch.reset().map(|()| Answer::Resetting),
            Some(WatchItem::End) => return message::write_line(writer, &Answer::WatchEnded),
            // Who watched has gone, or the node is about to.
            None => return Ok(()),
        };
        message::write_line(writer, &answer.unwrap_or_else(|failure| Answer::Failed { failure }))?;
    }
}

fn serve_group(
    reader: &mut BufReader<UnixStream>,
    writer: &mut UnixStream,
    backend: &mut dyn Backend,
) -> io::Result<()> {
    let mut group = match backend.group() {
        Ok(group) => group,
        Err(failure) => return message::write_line(writer, &Answer::Failed { failure }),
    };
    message::write_line(writer, &Answer::Group)?;
    loop {
        let item = message::read_line::<Item>(reader)?;
        match item {
            Some(Item::Add) => {
                let mut chunks = ChunkReader::new(&mut *reader);
                let added = group.add(&mut chunks);
                // What the store did not take is read all the same: the next line lies behind it.
                chunks.skip()?;
                let answer = match added {
                    Ok((blob, bytes)) => Answer::Added { blob: BlobText(blob), bytes },
                    Err(error) => Answer::Failed { failure: error.fatal(Path::new("the client's file")) },
                };
                message::write_line(writer, &answer)?;
            }
            Some(Item::Commit) => {
                let answer = match group.commit() {
                    Ok(()) => Answer::Stored,
                    Err(failure) => Answer::Failed { failure },
                };
                return message::write_line(writer, &answer);
            }
            None => return Ok(()),
        }
    }
}

fn serve_blob(writer: &mut UnixStream, backend: &mut dyn Backend, blob: BlobKey) -> io::Result<()> {
    match backend.blob(blob) {
        Ok(Some(mut from)) => {
            message::write_line(writer, &Answer::Chunks { stored: true })?;
            // A source that fails is told in the chunks; only a failing stream ends the connection.
            chunks::send(&mut *from, writer).map(drop)
        }
        Ok(None) => message::write_line(writer, &Answer::Chunks { stored: false }),
        Err(failure) => message::write_line(writer, &Answer::Failed { failure }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::Fake;
    use crate::backend::remote::Remote;
    use crate::backend::{AddError, scan_all, whole};
    use crate::exit::Exit;
    use std::io::Read;
    use strandline_core::lifecycle::api::{Change, MembersChange, Mutation};
    use strandline_core::record::{Key, Version};

    fn key(logical: &[u8]) -> Key {
        Key::from_parts(b"files", logical).expect("short")
    }

    fn put(logical: &[u8]) -> Mutation {
        Mutation { key: key(logical), change: Change::Put { blob: BlobKey([7; 32]) }, if_version: None }
    }

    #[test]
    fn every_request_makes_the_round_trip() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(dir.path(), Fake::default()).expect("listens");
        let mut remote = Remote::reach(dir.path()).expect("no fault").expect("is served");
        let versions = remote.batch(&[put(b"a"), put(b"\xff/b")]).expect("accepted");
        assert_eq!(versions, [Version::new(1, 1), Version::new(1, 2)]);
        assert_eq!(remote.get(&key(b"\xff/b")).expect("read").expect("is there").version, versions[1]);
        assert_eq!(remote.get(&key(b"none")), Ok(None));
        let mut seen = Vec::new();
        scan_all(&mut remote, whole(b"files", b"", false), |key, _| {
            seen.push(key.logical_key().to_vec());
            Ok(())
        })
        .expect("scans");
        assert_eq!(seen, [b"a".to_vec(), b"\xff/b".to_vec()]);
        assert_eq!(remote.status().expect("status").present, 2);
        assert_eq!(remote.compact(None).expect_err("no members").exit, Exit::Refused);
        remote.members(&MembersChange::Clear).expect("changed");
        assert_eq!(remote.compact(None).expect("compacted").floor, versions[1]);
        assert_eq!(remote.fence(1).expect_err("known").exit, Exit::Refused);
        assert_eq!(remote.fence(2).expect("taken").previous_end.0, versions[1]);
        assert_eq!(remote.reload().expect("reloaded").peers_called, 2);
        server.stop().end();
        assert!(Remote::reach(dir.path()).expect("no fault").is_none());
    }

    #[test]
    fn blobs_pass_in_chunks_and_a_failed_source_leaves_the_group_usable() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the cable was cut"))
            }
        }
        let dir = tempfile::tempdir().expect("a directory");
        let _server = Server::start(dir.path(), Fake::default()).expect("listens");
        let mut remote = Remote::reach(dir.path()).expect("no fault").expect("is served");
        let large = vec![5; 700_000];
        let mut group = remote.group().expect("opens");
        let (key, bytes) = group.add(&mut &large[..]).expect("adds");
        let source = group.add(&mut Broken).expect_err("the source failed");
        assert!(matches!(source, AddError::Source(e) if e.to_string() == "the cable was cut"));
        let (empty, _) = group.add(&mut io::empty()).expect("adds");
        group.commit().expect("stores");
        assert_eq!(bytes, 700_000);
        assert_eq!(remote.blob_count(), Ok(2));
        assert_eq!((remote.verify(key), remote.verify(empty)), (Ok(Some(700_000)), Ok(Some(0))));
        let mut read = Vec::new();
        remote.blob(key).expect("no fault").expect("is stored").read_to_end(&mut read).expect("reads");
        assert!(read == large);
        assert!(remote.blob(BlobKey([0; 32])).expect("no fault").is_none());
    }

    #[test]
    fn a_blob_read_in_part_leaves_the_connection_usable() {
        let dir = tempfile::tempdir().expect("a directory");
        let _server = Server::start(dir.path(), Fake::default()).expect("listens");
        let mut remote = Remote::reach(dir.path()).expect("no fault").expect("is served");
        let mut group = remote.group().expect("opens");
        let (key, _) = group.add(&mut &vec![5; 700_000][..]).expect("adds");
        group.commit().expect("stores");
        remote.blob(key).expect("no fault").expect("is stored").read_exact(&mut [0; 3]).expect("reads");
        assert_eq!(remote.blob_count(), Ok(1));
    }

    #[test]
    fn a_group_without_a_commit_stores_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let _server = Server::start(dir.path(), Fake::default()).expect("listens");
        let mut remote = Remote::reach(dir.path()).expect("no fault").expect("is served");
        remote.group().expect("opens").add(&mut &b"bytes"[..]).expect("adds");
        let mut other = Remote::reach(dir.path()).expect("no fault").expect("is served");
        assert_eq!(other.blob_count(), Ok(0));
        assert_eq!(remote.status().expect_err("an item was expected").exit, Exit::Peer);
    }

    #[test]
    fn a_batch_without_an_answer_is_uncertain() {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = socket::bind(dir.path()).expect("listens");
        let mut remote = Remote::reach(dir.path()).expect("no fault").expect("is served");
        let (stream, _) = listener.accept().expect("accepts");
        drop(stream);
        assert_eq!(remote.batch(&[put(b"a")]).expect_err("closed").exit, Exit::Uncertain);
    }

    #[test]
    fn a_client_that_takes_no_answer_does_not_hold_up_the_stop() {
        let dir = tempfile::tempdir().expect("a directory");
        let answers = Duration::from_millis(50);
        let server = Server::start_with(dir.path(), Fake::default(), answers).expect("listens");
        let mut remote = Remote::reach(dir.path()).expect("no fault").expect("is served");
        let mut group = remote.group().expect("opens");
        let (key, _) = group.add(&mut &vec![5; 8 << 20][..]).expect("adds");
        group.commit().expect("stores");
        let mut held = remote.blob(key).expect("no fault").expect("is stored");
        server.stop().end();
        assert!(held.read_to_end(&mut Vec::new()).is_err(), "the answer was cut off");
    }

    #[test]
    fn stopping_ends_idle_connections() {
        let dir = tempfile::tempdir().expect("a directory");
        let server = Server::start(dir.path(), Fake::default()).expect("listens");
        let mut idle = Remote::reach(dir.path()).expect("no fault").expect("is served");
        idle.status().expect("is taken up");
        server.stop().end();
        assert_eq!(idle.status().expect_err("closed").exit, Exit::Peer);
    }
}
