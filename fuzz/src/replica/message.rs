//! What a peer may say: messages near what is true of the replica, and far from it.

use crate::blobs::blob_key;
use crate::input::Input;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use strandline_core::id::{Incarnation, LogId};
use strandline_core::lifecycle::api::Status;
use strandline_core::lifecycle::checkpoint::{CheckpointHeader, CheckpointWriter};
use strandline_core::record::{AuthorityId, BlobKey, Key, Record, RecordLimits, State, Version};
use strandline_core::wire::blob::{BlobMessage, PeerKey};
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::handshake::{
    Authenticated, DialAuth, Handshake, ListenAuth, PeerCredential, Progress,
};
use strandline_core::wire::identity::PeerIdentity;
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, decode_message};
use strandline_core::wire::own::{
    Acknowledgement, BlobRange, BlobRangeGet, DigestAt, DigestGet, EpochMark, Mark, OwnMessage, Position,
    SnapshotChunk, SnapshotGet, SnapshotOffer, Stop, StopVerdict,
};
use strandline_core::wire::repair::{Batch, Snapshot};

pub(crate) const LOG: LogId = LogId([7; 16]);
const BLOBS: [&[u8]; 3] = [b"", b"one", b"two"];

pub(crate) fn key(input: &mut Input<'_>) -> Key {
    let name = input.of(&["k", "l", "m", "n"]);
    RecordLimits::default().key(b"files", name.as_bytes()).expect("a short key")
}

/// A blob's bytes.
pub(crate) fn blob(input: &mut Input<'_>) -> &'static [u8] {
    input.of(&BLOBS)
}

fn state(input: &mut Input<'_>) -> State {
    if input.below(3) == 0 { State::Deleted } else { State::Present { blob: blob_key(blob(input)) } }
}

/// A version near the ends of the log, or any.
pub(crate) fn version(input: &mut Input<'_>, status: &Status) -> Version {
    let tail = status.tail;
    match input.below(7) {
        0 => Version::ZERO,
        1 => status.floor,
        2 => Version::new(tail.epoch.max(1), tail.sequence + 1),
        3 => Version::new(tail.epoch, tail.sequence.saturating_sub(1)),
        4 => Version::new(1, u64::from(input.byte())),
        5 => Version::new(u64::from(input.byte()), u64::from(input.byte())),
        _ => tail,
    }
}

fn digest(input: &mut Input<'_>, status: &Status) -> Option<[u8; 32]> {
    match input.below(4) {
        0 => None,
        1 => Some([0; 32]),
        2 => Some([input.byte(); 32]),
        _ => Some(status.tail_digest),
    }
}

fn records(input: &mut Input<'_>, after: Version, sorted: bool) -> Vec<Record> {
    let limits = RecordLimits::default();
    let authority = AuthorityId::from_text(input.of(&["w", "w", "w", "other"]));
    let mut version = Version::new(after.epoch.max(1), after.sequence);
    let mut records: Vec<Record> = (0..=input.below(3))
        .filter_map(|_| {
            version.sequence = version.sequence.saturating_add(1 + u64::from(input.byte() / 128));
            limits.record(key(input), state(input), version, authority.clone()).ok()
        })
        .collect();
    if sorted {
        records.sort_by(|a, b| a.key.cmp(&b.key));
        records.dedup_by(|a, b| a.key == b.key);
    }
    records
}

/// A snapshot: sometimes a true one.
fn snapshot(input: &mut Input<'_>, status: &Status) -> (SnapshotOffer, Vec<u8>) {
    let records = records(input, status.tail, true);
    let cut = records.iter().map(|record| record.version).max().unwrap_or(status.tail);
    let header = CheckpointHeader { log: LOG, cut, cut_digest: [5; 32], epochs: Vec::new() };
    let mut writer = CheckpointWriter::new(&header);
    let mut bytes = Vec::new();
    let mut count = 0;
    for record in &records {
        count += u64::from(writer.push(record).is_ok());
        while let Some((_, piece)) = writer.take_output() {
            bytes.extend(piece);
        }
    }
    bytes.extend(writer.finish().1);
    let sha256 = Sha256::digest(&bytes).into();
    (SnapshotOffer { cut, cut_digest: None, bytes: bytes.len() as u64, sha256, records: count }, bytes)
}

/// What a peer keeps in mind between its messages.
#[derive(Default)]
pub(crate) struct Peer {
    offered: Option<(SnapshotOffer, Vec<u8>)>,
    /// What it was sent and did not answer yet.
    heard: VecDeque<Vec<u8>>,
}

impl Peer {
    /// One message; it may be one that no encoder lets out.
    pub(crate) fn message(&mut self, input: &mut Input<'_>, status: &Status) -> Message {
        let own = match input.below(22) {
            0 | 1 => OwnMessage::Position(position(input, status)),
            2 => {
                let (offer, bytes) = snapshot(input, status);
                self.offered = Some((offer, bytes));
                OwnMessage::SnapshotOffer(offer)
            }
            3 => OwnMessage::SnapshotChunk(self.chunk(input)),
            4 => OwnMessage::SnapshotGet(SnapshotGet { sha256: [input.byte(); 32], offset: 0 }),
            5 => OwnMessage::BlobRangeGet(BlobRangeGet { key: any_blob(input), offset: 0, bytes: 1 }),
            6 | 7 => {
                let data = blob(input);
                let total = data.len() as u64 + u64::from(input.byte() / 200);
                OwnMessage::BlobRange(BlobRange {
                    key: any_blob(input),
                    offset: 0,
                    total,
                    data: data.to_vec(),
                })
            }
            8 => OwnMessage::BlobAbsent { key: any_blob(input) },
            9 => OwnMessage::Stop(Stop {
                verdict: input.of(&[
                    StopVerdict::Gap,
                    StopVerdict::Unknown,
                    StopVerdict::Diverged,
                    StopVerdict::Fault,
                ]),
                reason: "other-history".into(),
                at: (input.below(2) == 0).then_some(status.tail),
                detail: "so it is".into(),
            }),
            19 => {
                let version = version(input, status);
                let digest = digest(input, status);
                OwnMessage::Digest(DigestAt { version, digest, asks: input.below(2) == 0 })
            }
            21 => {
                let watermark = version(input, status);
                OwnMessage::Ack(Acknowledgement { watermark, complete: version(input, status) })
            }
            20 => OwnMessage::DigestGet(DigestGet { version: version(input, status) }),
            10 | 11 => return batch(input, status),
            12 | 13 => return Message::Ack { watermark: version(input, status) },
            14 => {
                let watermark = version(input, status);
                return Message::Snapshot(Snapshot {
                    watermark,
                    records: records(input, Version::ZERO, true),
                });
            }
            15 => {
                let data = blob(input).to_vec();
                return Message::Blob(BlobMessage::Put { key: any_blob(input).into(), data });
            }
            16 => return Message::Blob(BlobMessage::Has { keys: vec![any_blob(input).into()] }),
            17 => return Message::Blob(BlobMessage::Get { key: any_blob(input).into() }),
            _ => return Message::Blob(BlobMessage::Ack { key: any_blob(input).into() }),
        };
        Message::Own(own)
    }

    /// A frame came from the replica.
    pub(crate) fn heard(&mut self, frame: Vec<u8>) {
        self.heard.push_back(frame);
        self.heard.truncate(16);
    }

    /// What a peer that keeps the protocol would say to the oldest frame.
    pub(crate) fn answer(&mut self, status: &Status, capabilities: &Capabilities) -> Option<Message> {
        let frame = self.heard.pop_front()?;
        match decode_message(&frame[8..], &WireLimits::default(), capabilities).ok()? {
            Message::Batch(batch) if capabilities.has(Capability::BlobWait) => {
                let (watermark, complete) = (batch.to, batch.to);
                Some(Message::Own(OwnMessage::Ack(Acknowledgement { watermark, complete })))
            }
            Message::Batch(batch) => Some(Message::Ack { watermark: batch.to }),
            Message::Ack { .. } => None,
            Message::Snapshot(snapshot) => Some(Message::Ack { watermark: snapshot.watermark }),
            Message::Blob(BlobMessage::Put { key, .. }) => Some(Message::Blob(BlobMessage::Ack { key })),
            Message::Blob(BlobMessage::Get { key: PeerKey::Blob(key) }) => {
                let data = stored(key)?.to_vec();
                Some(Message::Blob(BlobMessage::Put { key: key.into(), data }))
            }
            Message::Record(_) | Message::Blob(_) => None,
            Message::Own(own) => self.answer_own(own, status).map(Message::Own),
        }
    }

    fn answer_own(&self, own: OwnMessage, status: &Status) -> Option<OwnMessage> {
        match own {
            // It has a record more than we do, and what it has of ours is the same.
            OwnMessage::Position(_) => {
                let at = |version| Mark { version, digest: None };
                let ahead = Version::new(status.tail.epoch.max(1), status.tail.sequence + 1);
                let tail = if status.authority.is_some() { status.tail } else { ahead };
                Some(OwnMessage::Position(Position {
                    floor: at(Version::ZERO),
                    tail: at(tail),
                    epochs: Vec::new(),
                }))
            }
            OwnMessage::SnapshotOffer(offer) => {
                Some(OwnMessage::SnapshotGet(SnapshotGet { sha256: offer.sha256, offset: 0 }))
            }
            OwnMessage::SnapshotGet(get) => {
                let (_, bytes) = self.offered.as_ref()?;
                let data = bytes.get(usize::try_from(get.offset).ok()?..)?.to_vec();
                Some(OwnMessage::SnapshotChunk(SnapshotChunk { offset: get.offset, data }))
            }
            OwnMessage::BlobRangeGet(get) => {
                let data = stored(get.key)?.to_vec();
                let total = data.len() as u64;
                Some(OwnMessage::BlobRange(BlobRange { key: get.key, offset: 0, total, data }))
            }
            OwnMessage::DigestGet(get) => {
                let digest = (get.version == status.tail).then_some(status.tail_digest);
                Some(OwnMessage::Digest(DigestAt { version: get.version, digest, asks: false }))
            }
            OwnMessage::Ack(_)
            | OwnMessage::Digest(_)
            | OwnMessage::SnapshotChunk(_)
            | OwnMessage::BlobRange(_)
            | OwnMessage::BlobAbsent { .. }
            | OwnMessage::Stop(_) => None,
        }
    }

    /// A piece of what was offered last, mostly the right one.
    fn chunk(&self, input: &mut Input<'_>) -> SnapshotChunk {
        let bytes = self.offered.as_ref().map_or(&[1u8][..], |(_, bytes)| bytes);
        let from = if input.below(4) == 0 { input.below(bytes.len()) } else { 0 };
        let to = if input.below(4) == 0 { bytes.len().min(from + 20) } else { bytes.len() };
        SnapshotChunk { offset: from as u64, data: bytes[from..to].to_vec() }
    }
}

fn stored(key: BlobKey) -> Option<&'static [u8]> {
    BLOBS.into_iter().find(|bytes| blob_key(bytes) == key)
}

fn any_blob(input: &mut Input<'_>) -> BlobKey {
    if input.below(8) == 0 { BlobKey([9; 32]) } else { blob_key(blob(input)) }
}

fn position(input: &mut Input<'_>, status: &Status) -> Position {
    let mark =
        |input: &mut Input<'_>| Mark { version: version(input, status), digest: digest(input, status) };
    let epochs = if input.below(4) == 0 {
        vec![EpochMark {
            epoch: 1,
            start: Version::new(1, 1),
            previous_end: Version::ZERO,
            authority: AuthorityId::from_text("w"),
        }]
    } else {
        Vec::new()
    };
    let (floor, tail) = (mark(input), mark(input));
    Position {
        floor: if input.below(2) == 0 { floor } else { Mark { version: Version::ZERO, ..floor } },
        tail,
        epochs,
    }
}

fn batch(input: &mut Input<'_>, status: &Status) -> Message {
    // Mostly one that fits.
    let from = if input.below(4) == 0 { version(input, status) } else { status.submitted };
    let records = records(input, from, false);
    let to = records.last().map_or(from, |record| record.version);
    Message::Batch(Batch { from, to, more: input.below(2) == 0, records })
}

/// What a peer declares: any set of what there is.
pub(crate) fn capabilities(input: &mut Input<'_>) -> Capabilities {
    // Mostly what our own replicas declare.
    let bits = if input.below(3) == 0 { u16::from_le_bytes([input.byte(), input.byte()]) } else { u16::MAX };
    let incarnation = Incarnation { counter: 1 + u32::from(input.byte() / 200), nonce: [3; 8] };
    let all = [
        Capability::RepairReconcile,
        Capability::Lifecycle,
        Capability::Log(LOG),
        Capability::Incarnation(incarnation),
        Capability::SnapshotChunks,
        Capability::BlobRanges,
        Capability::History,
        Capability::BlobWait,
        Capability::Window,
    ];
    let declared = all.into_iter().enumerate().filter(|(at, _)| bits & 1 << at != 0).map(|(_, one)| one);
    Capabilities::new(declared).expect("nine short capabilities")
}

/// A peer that proved its name, and whether we dialed it.
pub(crate) fn authenticated(name: &str, capabilities: Capabilities, dialed: bool) -> Authenticated {
    let identity = |name: &str| PeerIdentity::parse(name).expect("a name");
    let (dialer, listener) = if dialed { ("us", name) } else { (name, "us") };
    let (of_dialer, of_listener) = if dialed {
        (Capabilities::default(), capabilities)
    } else {
        (capabilities, Capabilities::default())
    };
    let (mut there, mut back) = (Vec::new(), Vec::new());
    let dial = DialAuth {
        token: "secret".into(),
        identity: Some(identity(dialer)),
        capabilities: of_dialer,
        expect: Some(identity(listener)),
    };
    let dial = Handshake::dial(dial, &mut there).expect("a short message");
    let listen = Handshake::listen(ListenAuth {
        identity: Some(identity(listener)),
        capabilities: of_listener,
        credentials: vec![PeerCredential::of_token(identity(dialer), "secret")],
    });
    let listened = listen.handle_received(&there, &mut back);
    let done = if dialed { dial.handle_received(&back, &mut Vec::new()) } else { listened };
    match done {
        Ok(Progress::Done { peer, .. }) => peer,
        Ok(Progress::More(_)) | Err(_) => unreachable!("both have the token"),
    }
}
