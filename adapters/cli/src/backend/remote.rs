//! The replica in the node that serves its directory.

use super::{AddError, Backend, Group, remote_watch};
use crate::access::ReloadReport;
use crate::control::chunks::{self, ChunkReader};
use crate::control::message::{Answer, ChunkedRequest, Item, Request, read_line, write_line};
use crate::control::{SOCKET_NAME, socket};
use crate::exit::Failure;
use crate::report::{BlobText, EntryReport, FencedReport, MembersText, MutationText, StatusReport};
use crate::text::{KeyText, VersionText};
use crate::watch::{CursorReport, CursorText, Watch};
use serde::Serialize;
use std::io::{self, BufReader, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use strandline_core::lifecycle::api::{
    Collect, Collected, Compacted, Entry, MembersChange, Mutation, Scan, ScanPage, Scrub, Scrubbed,
};
use strandline_core::record::{BlobKey, Key, Version};
use strandline_file::backup::BackedUp;

/// A connection to the node.
pub(crate) struct Remote {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
    /// The connection was given up amid an answer: the next request needs another.
    hung_up: bool,
}

impl Remote {
    /// Reaches the node that serves `dir`; `None` if none does.
    pub(crate) fn reach(dir: &Path) -> Result<Option<Self>, Failure> {
        let path = dir.join(SOCKET_NAME);
        socket::connect(dir)
            .map(|found| {
                found.map(|stream| Self {
                    stream: BufReader::new(stream),
                    socket: path.clone(),
                    hung_up: false,
                })
            })
            .map_err(|error| {
                Failure::peer(format!("cannot reach the node at {}: {error}", path.display()))
                    .advise("run as the user who runs the node")
            })
    }

    fn exchange(&mut self, request: &impl Serialize) -> io::Result<Answer> {
        if self.hung_up {
            let dir = self.socket.parent().unwrap_or(Path::new("."));
            let stream = socket::connect(dir)?.ok_or(io::ErrorKind::ConnectionRefused)?;
            (self.stream, self.hung_up) = (BufReader::new(stream), false);
        }
        write_line(self.stream.get_mut(), request)?;
        read_line(&mut self.stream)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the node closed the connection"))
    }

    /// A request that changes nothing: without an answer it can be asked again.
    pub(super) fn read(&mut self, request: &impl Serialize) -> Result<Answer, Failure> {
        match self.exchange(request) {
            Ok(Answer::Failed { failure }) => Err(failure),
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// The connection failed while nothing that it asked for changes a key.
    fn lost(&self, error: &io::Error) -> Failure {
        Failure::peer(format!("no answer through {}: {error}", self.socket.display()))
            .advise("ask again; if the node has ended, the command works on the directory itself")
    }

    /// A request that changes something: without an answer nobody knows whether it did.
    fn write(&mut self, request: &impl Serialize) -> Result<Answer, Failure> {
        match self.exchange(request) {
            Ok(Answer::Failed { failure }) => Err(failure),
            Ok(answer) => Ok(answer),
            Err(error) => {
                Err(Failure::uncertain(format!("no answer through {}: {error}", self.socket.display()))
                    .advise("look at the key or the status before asking again"))
            }
        }
    }
}

pub(super) fn other(asked: &str) -> Failure {
    Failure::peer(format!("the node answered something else than what {asked} asks for"))
        .advise("use the same version of the program as the node")
}

impl Backend for Remote {
    fn status(&mut self) -> Result<StatusReport, Failure> {
        let Answer::Status { status } = self.read(&Request::Status)? else { return Err(other("status")) };
        Ok(*status)
    }

    fn get(&mut self, key: &Key) -> Result<Option<Entry>, Failure> {
        let Answer::Entry { entry } = self.read(&Request::Get { key: KeyText::from(key) })? else {
            return Err(other("get"));
        };
        Ok(entry.as_ref().map(EntryReport::to_entry))
    }

    fn scan(&mut self, scan: &Scan) -> Result<ScanPage, Failure> {
        let Answer::Page { entries, next, at } = self.read(&Request::from(scan))? else {
            return Err(other("scan"));
        };
        let entries =
            entries.iter().map(|e| Ok((e.key.to_key()?, e.entry.to_entry()))).collect::<Result<_, String>>();
        let next = next.map(|key| key.to_key()).transpose();
        Ok(ScanPage {
            entries: entries.map_err(Failure::peer)?,
            next: next.map_err(Failure::peer)?,
            at: at.0,
        })
    }

    fn batch(&mut self, mutations: &[Mutation]) -> Result<Vec<Version>, Failure> {
        let request = Request::Batch { mutations: mutations.iter().map(MutationText::from).collect() };
        let Answer::Accepted { versions } = self.write(&request)? else { return Err(other("batch")) };
        if versions.len() != mutations.len() {
            return Err(other("batch"));
        }
        Ok(versions.into_iter().map(|v| v.0).collect())
    }

    fn compact(&mut self, upto: Option<Version>) -> Result<Compacted, Failure> {
        let request = Request::Compact { upto: upto.map(VersionText) };
        let Answer::Compacted { compacted } = self.write(&request)? else { return Err(other("compact")) };
        Ok(compacted.into())
    }

    fn members(&mut self, change: &MembersChange) -> Result<(), Failure> {
        let request = Request::Members { change: MembersText::from(change) };
        let Answer::Members = self.write(&request)? else { return Err(other("members")) };
        Ok(())
    }

    fn pending(&mut self, key: &Key) -> Result<bool, Failure> {
        let Answer::Pending { pending } = self.read(&Request::Pending { key: KeyText::from(key) })? else {
            return Err(other("pending"));
        };
        Ok(pending)
    }

    fn collect(&mut self, collect: Collect) -> Result<Collected, Failure> {
        let Collect { dry_run, untouched_ms } = collect;
        let Answer::Collected { collected } = self.write(&Request::Collect { dry_run, untouched_ms })? else {
            return Err(other("collect"));
        };
        Ok(collected.into())
    }

    fn scrub(&mut self, scrub: Scrub) -> Result<Scrubbed, Failure> {
        let request = Request::Scrub { bytes_per_second: scrub.bytes_per_second };
        let Answer::Scrubbed { scrubbed } = self.read(&request)? else { return Err(other("scrub")) };
        scrubbed.to_scrubbed().map_err(Failure::peer)
    }

    fn reload(&mut self) -> Result<ReloadReport, Failure> {
        let Answer::Reloaded { reloaded } = self.write(&Request::Reload)? else {
            return Err(other("reload"));
        };
        Ok(reloaded)
    }

    fn judge(&mut self, cursor: CursorText) -> Result<CursorReport, Failure> {
        let Answer::Judged { verdict } = self.read(&Request::Judge { cursor })? else {
            return Err(other("judge"));
        };
        Ok(verdict)
    }

    fn watch(&mut self, cursor: Option<CursorText>) -> Result<Box<dyn Watch + '_>, Failure> {
        remote_watch::watch(self, cursor)
    }

    fn begin_backup(&mut self, to: &Path) -> Result<BackedUp, Failure> {
        let to = to.to_str().ok_or_else(|| {
            Failure::usage("the folder's path is not UTF-8, which the node is told it in")
                .advise("name another folder")
        })?;
        let answer = self.read(&Request::Backup { to: to.to_owned() })?;
        let Answer::BackedUp { tail, tail_digest } = answer else { return Err(other("backup")) };
        let tail_digest = strandline_core::id::unhex(&tail_digest).ok_or_else(|| other("backup"))?;
        Ok(BackedUp { tail: tail.0, tail_digest })
    }

    fn fence(&mut self, epoch: u64) -> Result<FencedReport, Failure> {
        let Answer::Fenced { fenced } = self.write(&Request::Fence { epoch })? else {
            return Err(other("fence"));
        };
        Ok(fenced)
    }

    fn group(&mut self) -> Result<Box<dyn Group + '_>, Failure> {
        let Answer::Group = self.read(&ChunkedRequest::BlobGroup)? else { return Err(other("blob-group")) };
        Ok(Box::new(RemoteGroup(self)))
    }

    fn blob(&mut self, key: BlobKey) -> Result<Option<Box<dyn Read + '_>>, Failure> {
        let request = ChunkedRequest::BlobRead { blob: BlobText(key) };
        let Answer::Chunks { stored } = self.read(&request)? else { return Err(other("blob-read")) };
        if !stored {
            return Ok(None);
        }
        let chunks = ChunkReader::new(&mut self.stream);
        Ok(Some(Box::new(RemoteBlob { chunks, hung_up: &mut self.hung_up })))
    }

    fn verify(&mut self, key: BlobKey) -> Result<Option<u64>, Failure> {
        let request = Request::BlobVerify { blob: BlobText(key) };
        let Answer::Verified { bytes } = self.read(&request)? else { return Err(other("blob-verify")) };
        Ok(bytes)
    }

    fn blob_count(&mut self) -> Result<u64, Failure> {
        let Answer::Count { blobs } = self.read(&Request::BlobCount)? else {
            return Err(other("blob-count"));
        };
        Ok(blobs)
    }
}

/// The bytes of a blob. Dropped before the end it hangs up, since nobody waits for a rest that nobody
/// wants; the next request makes another connection.
struct RemoteBlob<'a> {
    chunks: ChunkReader<'a, BufReader<UnixStream>>,
    hung_up: &'a mut bool,
}

impl Read for RemoteBlob<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.chunks.read(buf)
    }
}

impl Drop for RemoteBlob<'_> {
    fn drop(&mut self) {
        if !self.chunks.ended() {
            *self.hung_up = true;
            // One that is gone already needs no hanging up.
            let _ = self.chunks.stream().get_ref().shutdown(Shutdown::Both);
        }
    }
}

struct RemoteGroup<'a>(&'a mut Remote);

impl RemoteGroup<'_> {
    fn send(&mut self, from: &mut dyn Read) -> io::Result<(Result<(), io::Error>, Answer)> {
        let stream = self.0.stream.get_mut();
        write_line(stream, &Item::Add)?;
        let source = chunks::send(from, stream)?;
        let answer = read_line(&mut self.0.stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((source, answer))
    }
}

impl Group for RemoteGroup<'_> {
    fn add(&mut self, from: &mut dyn Read) -> Result<(BlobKey, u64), AddError> {
        match self.send(from) {
            Ok((Err(source), _)) => Err(AddError::Source(source)),
            Ok((Ok(()), Answer::Added { blob, bytes })) => Ok((blob.0, bytes)),
            Ok((Ok(()), Answer::Failed { failure })) => Err(AddError::Store(failure)),
            Ok((Ok(()), _)) => Err(AddError::Store(other("add"))),
            Err(error) => Err(AddError::Store(self.0.lost(&error))),
        }
    }

    fn commit(self: Box<Self>) -> Result<(), Failure> {
        let stored =
            write_line(self.0.stream.get_mut(), &Item::Commit).and_then(|()| read_line(&mut self.0.stream));
        match stored {
            Ok(Some(Answer::Stored)) => Ok(()),
            Ok(Some(Answer::Failed { failure })) => Err(failure),
            Ok(Some(_)) => Err(other("commit")),
            Ok(None) => Err(self.0.lost(&io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(self.0.lost(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_drops_a_blob_early_does_not_read_the_rest() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let node = std::thread::spawn(move || {
            let mut request = BufReader::new(theirs.try_clone().expect("a copy"));
            let asked: Option<serde_json::Value> = read_line(&mut request).expect("a request");
            assert!(asked.is_some());
            write_line(&mut theirs, &Answer::Chunks { stored: true }).expect("is read");
            // Would never end if it were read to its end.
            chunks::send(&mut io::repeat(7), &mut theirs).map(drop)
        });
        let mut remote =
            Remote { stream: BufReader::new(ours), socket: "none/socket".into(), hung_up: false };
        let mut blob = remote.blob(BlobKey([0; 32])).expect("answers").expect("stored");
        blob.read_exact(&mut [0; 10]).expect("reads");
        drop(blob);
        assert!(node.join().expect("ends").is_err(), "the node is told that nobody reads");
        assert!(remote.status().is_err(), "nobody listens for another connection");
    }
}
