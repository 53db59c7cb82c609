//! Requests and answers of the control protocol, and the request's one dispatch.

use super::LINE_BYTES_MAX;
use crate::access::ReloadReport;
use crate::backend::{Backend, PAGE_ENTRIES_MAX};
use crate::exit::Failure;
use crate::report::{
    BlobText, CollectedReport, CompactedReport, EntryReport, FencedReport, MembersText, MutationText,
    ScrubbedReport, StatusReport,
};
use crate::text::{Bytes, KeyText, VersionText};
use crate::watch::{CursorReport, CursorText, PageReport};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::path::Path;
use strandline_core::lifecycle::api::{Collect, Scan, ScanPage, Scrub};

/// What a command asks of the node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub(crate) enum Request {
    /// How the replica stands.
    Status,
    /// What a key is.
    Get {
        #[serde(flatten)]
        key: KeyText,
    },
    /// A page of keys.
    Scan { namespace: Option<Bytes>, prefix: Bytes, after: Option<KeyText>, entries_max: u32, deleted: bool },
    /// Mutations, all or none; answered when they are durable.
    Batch { mutations: Vec<MutationText> },
    /// Compaction.
    Compact { upto: Option<VersionText> },
    /// A change of the members.
    Members { change: MembersText },
    /// Whether a key is present and its blob is not here yet.
    Pending {
        #[serde(flatten)]
        key: KeyText,
    },
    /// Collection of blobs that nothing needs.
    Collect { dry_run: bool, untouched_ms: u64 },
    /// A look at every blob, no faster than this.
    Scrub { bytes_per_second: u64 },
    /// The right to write the log.
    Fence { epoch: u64 },
    /// The peers file and certificates, read anew.
    Reload,
    /// What can be vouched for to who has everything up to a cursor.
    Judge { cursor: CursorText },
    /// The log's files of one moment, copied to a folder that is made.
    Backup { to: String },
    /// Whether a blob's bytes are those of its key.
    BlobVerify { blob: BlobText },
    /// How many blobs are stored.
    BlobCount,
}

/// What a command asks of the node that takes more than a line each way.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub(crate) enum ChunkedRequest {
    /// A group of blobs: [`Item`]s follow.
    BlobGroup,
    /// The changes after a cursor, or after the tail: [`WatchItem`]s follow.
    Watch { cursor: Option<CursorText> },
    /// A blob, answered by [`Answer::Chunks`] and the chunks.
    BlobRead { blob: BlobText },
}

/// A line that asks.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
#[serde(untagged)]
pub(crate) enum AnyRequest {
    Chunked(ChunkedRequest),
    Plain(Request),
}

/// One step of a group of blobs.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "item", rename_all = "kebab-case")]
pub(crate) enum Item {
    /// Chunks follow; answered by [`Answer::Added`].
    Add,
    /// Answered by [`Answer::Stored`] when everything added is durable.
    Commit,
}

/// What a watch asks for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "item", rename_all = "kebab-case")]
pub(crate) enum WatchItem {
    /// The next page, answered by [`Answer::Watched`], within about half a second without one.
    Next,
    /// The state, and what comes after it; answered by [`Answer::Resetting`].
    Reset,
    /// Nothing more, answered by [`Answer::WatchEnded`].
    End,
}

/// What the node answers.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum Answer {
    Status {
        status: Box<StatusReport>,
    },
    Entry {
        entry: Option<EntryReport>,
    },
    Page {
        entries: Vec<PageEntry>,
        next: Option<KeyText>,
        at: VersionText,
    },
    Accepted {
        versions: Vec<VersionText>,
    },
    Compacted {
        compacted: CompactedReport,
    },
    Members,
    Pending {
        pending: bool,
    },
    Collected {
        collected: CollectedReport,
    },
    Scrubbed {
        scrubbed: ScrubbedReport,
    },
    Fenced {
        fenced: FencedReport,
    },
    Reloaded {
        reloaded: ReloadReport,
    },
    Judged {
        verdict: CursorReport,
    },
    BackedUp {
        tail: VersionText,
        tail_digest: String,
    },
    /// The watch takes items.
    Watching {
        verdict: CursorReport,
    },
    Watched {
        page: Option<PageReport>,
    },
    Resetting,
    WatchEnded,
    /// The group takes items.
    Group,
    Added {
        blob: BlobText,
        bytes: u64,
    },
    Stored,
    /// The blob follows, or nothing if it is not stored.
    Chunks {
        stored: bool,
    },
    /// The length of a verified blob; absent if it is not stored.
    Verified {
        bytes: Option<u64>,
    },
    Count {
        blobs: u64,
    },
    Failed {
        failure: Failure,
    },
}

/// A key and what it is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct PageEntry {
    #[serde(flatten)]
    pub(crate) key: KeyText,
    #[serde(flatten)]
    pub(crate) entry: EntryReport,
}

impl From<&Scan> for Request {
    fn from(scan: &Scan) -> Self {
        Self::Scan {
            namespace: scan.namespace.clone().map(Bytes),
            prefix: Bytes(scan.prefix.clone()),
            after: scan.after.as_ref().map(KeyText::from),
            entries_max: scan.entries_max,
            deleted: scan.deleted,
        }
    }
}

impl From<&ScanPage> for Answer {
    fn from(page: &ScanPage) -> Self {
        let entries = page
            .entries
            .iter()
            .map(|(key, entry)| PageEntry { key: key.into(), entry: entry.into() })
            .collect();
        Self::Page { entries, next: page.next.as_ref().map(KeyText::from), at: VersionText(page.at) }
    }
}

/// Carries out one request.
pub(crate) fn dispatch(backend: &mut dyn Backend, request: Request) -> Answer {
    answer(backend, request).unwrap_or_else(|failure| Answer::Failed { failure })
}

fn answer(backend: &mut dyn Backend, request: Request) -> Result<Answer, Failure> {
    match request {
        Request::Status => Ok(Answer::Status { status: Box::new(backend.status()?) }),
        Request::Get { key } => {
            let entry = backend.get(&key.to_key().map_err(Failure::usage)?)?;
            Ok(Answer::Entry { entry: entry.as_ref().map(EntryReport::from) })
        }
        Request::Scan { namespace, prefix, after, entries_max, deleted } => {
            let after = after.map(|key| key.to_key()).transpose().map_err(Failure::usage)?;
            let page = backend.scan(&Scan {
                namespace: namespace.map(|n| n.0),
                prefix: prefix.0,
                after,
                entries_max: entries_max.min(PAGE_ENTRIES_MAX),
                deleted,
            })?;
            Ok(Answer::from(&page))
        }
        Request::Batch { mutations } => {
            let mutations = mutations
                .iter()
                .map(MutationText::to_mutation)
                .collect::<Result<Vec<_>, _>>()
                .map_err(Failure::usage)?;
            let versions = backend.batch(&mutations)?;
            Ok(Answer::Accepted { versions: versions.into_iter().map(VersionText).collect() })
        }
        Request::Compact { upto } => {
            Ok(Answer::Compacted { compacted: backend.compact(upto.map(|v| v.0))?.into() })
        }
        Request::Members { change } => {
            backend.members(&change.into())?;
            Ok(Answer::Members)
        }
        Request::Pending { key } => {
            let pending = backend.pending(&key.to_key().map_err(Failure::usage)?)?;
            Ok(Answer::Pending { pending })
        }
        Request::Collect { dry_run, untouched_ms } => {
            let collected = backend.collect(Collect { dry_run, untouched_ms })?;
            Ok(Answer::Collected { collected: CollectedReport::new(dry_run, &collected) })
        }
        Request::Scrub { bytes_per_second } => {
            let scrubbed = backend.scrub(Scrub { bytes_per_second: bytes_per_second.max(1) })?;
            Ok(Answer::Scrubbed { scrubbed: ScrubbedReport::from(&scrubbed) })
        }
        Request::Fence { epoch } => Ok(Answer::Fenced { fenced: backend.fence(epoch)? }),
        Request::Reload => Ok(Answer::Reloaded { reloaded: backend.reload()? }),
        Request::Judge { cursor } => Ok(Answer::Judged { verdict: backend.judge(cursor)? }),
        Request::Backup { to } => {
            let moment = backend.begin_backup(Path::new(&to))?;
            let tail_digest = strandline_core::id::hex(&moment.tail_digest);
            Ok(Answer::BackedUp { tail: VersionText(moment.tail), tail_digest })
        }
        Request::BlobVerify { blob } => Ok(Answer::Verified { bytes: backend.verify(blob.0)? }),
        Request::BlobCount => Ok(Answer::Count { blobs: backend.blob_count()? }),
    }
}

/// Reads one line; `None` at the end of the stream. A longer line than [`LINE_BYTES_MAX`] is an
/// error before more than that is held.
pub(crate) fn read_line<T: DeserializeOwned>(stream: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let read = stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("expected a line of at most {LINE_BYTES_MAX} bytes, found {read} bytes without its end"),
        ));
    }
    serde_json::from_slice(&line).map(Some).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Writes one line.
pub(crate) fn write_line(stream: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_documented_form() {
        let text = r#"{"request":"batch","mutations":[{"namespace":"files","key":{"base64":"/w=="},"if_version":"1.2"}]}"#;
        let request: Request = serde_json::from_str(text).expect("decodes");
        assert_eq!(serde_json::to_string(&request).expect("encodes"), text);
    }

    #[test]
    fn a_line_without_its_end_is_no_request() {
        let found = read_line::<AnyRequest>(&mut &br#"{"request":"status"}"#[..]);
        assert_eq!(found.expect_err("no line end").kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn an_unknown_request_is_refused() {
        let found = read_line::<AnyRequest>(&mut &b"{\"request\":\"format-disk\"}\n"[..]);
        assert_eq!(found.expect_err("unknown").kind(), io::ErrorKind::InvalidData);
    }
}
