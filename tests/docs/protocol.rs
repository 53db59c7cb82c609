//! The generated parts of `docs/PROTOCOL.md`.

use crate::formats::{dump, limits_table};
use std::fmt::Write as _;
use strandline_core::id::{Incarnation, LogId};
use strandline_core::lifecycle::api::PairReason;
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::record::{AuthorityId, BlobKey, Key, Record, State, Version};
use strandline_core::wire::auth::{Auth, AuthOk, encode_reject};
use strandline_core::wire::blob::BlobMessage;
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::frame::write_frame;
use strandline_core::wire::identity::PeerIdentity;
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, MessageType, decode_message, encode};
use strandline_core::wire::own::{
    Acknowledgement, BlobRange, BlobRangeGet, DigestAt, DigestGet, EpochMark, Mark, OwnMessage, Position,
    SnapshotChunk, SnapshotGet, SnapshotOffer, Stop, StopVerdict,
};
use strandline_core::wire::repair::{Batch, Snapshot};

pub(crate) fn parts() -> Vec<(&'static str, String)> {
    let mut parts = vec![
        ("frame", frame()),
        ("handshake", handshake()),
        ("message types", types()),
        ("limits", limits()),
        ("reasons", reasons()),
    ];
    parts.extend(MessageType::ALL.map(|kind| (kind.name(), example(kind))));
    parts
}

fn declared() -> Capabilities {
    Capabilities::new([
        Capability::Lifecycle,
        Capability::RepairReconcile,
        Capability::Log(LogId([0x11; 16])),
        Capability::Incarnation(Incarnation { counter: 1, nonce: [0x33; 8] }),
        Capability::SnapshotChunks,
        Capability::BlobRanges,
        Capability::History,
        Capability::BlobWait,
        Capability::Window,
    ])
    .expect("one log, one incarnation")
}

fn payload(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &WireLimits::default(), &mut out).expect("within the limits");
    let read = decode_message(&out, &WireLimits::default(), &declared());
    assert_eq!(read.as_ref(), Ok(message), "what is shown reads back");
    out
}

fn json(payloads: &[Vec<u8>]) -> String {
    let mut out = String::from("```json\n");
    for payload in payloads {
        let _ = writeln!(out, "{}", std::str::from_utf8(payload).expect("JSON"));
    }
    out + "```"
}

fn frame() -> String {
    let mut out = Vec::new();
    write_frame(&payload(&sample(MessageType::Ack)), &mut out).expect("short");
    dump(&out)
}

fn handshake() -> String {
    let identity = |name| Some(PeerIdentity::parse(name).expect("a name"));
    let (mut auth, mut ok, mut reject) = (Vec::new(), Vec::new(), Vec::new());
    let dialer = Auth { token: "secret".into(), identity: identity("b"), capabilities: declared() };
    dialer.encode(&mut auth).expect("short");
    AuthOk { identity: identity("a"), capabilities: declared() }.encode(&mut ok).expect("short");
    encode_reject(&mut reject);
    json(&[auth, ok, reject])
}

fn types() -> String {
    let mut out = String::from("| message | the sender must have declared |\n|---|---|\n");
    for kind in MessageType::ALL {
        let needs = kind.needs().map_or_else(|| "nothing".into(), |(_, name)| format!("`{name}`"));
        let _ = writeln!(out, "| `{}` | {needs} |", kind.name());
    }
    out
}

fn reasons() -> String {
    PairReason::ALL.map(|reason| format!("`{reason}`")).join(", ")
}

fn limits() -> String {
    let config = ReplicaConfig::default();
    let (wire, record) = (config.wire, config.wire.record);
    limits_table(&[
        ("record.namespace_bytes_max", record.namespace_bytes_max.into()),
        ("record.logical_key_bytes_max", record.logical_key_bytes_max.into()),
        ("record.authority_bytes_max", record.authority_bytes_max.into()),
        ("record.record_bytes_max", record.record_bytes_max.into()),
        ("wire.record_payload_bytes_max", wire.record_payload_bytes_max.into()),
        ("wire.repair.records_max", wire.repair.records_max.into()),
        ("wire.repair.key_bytes_max", wire.repair.key_bytes_max.into()),
        ("wire.repair.record_json_bytes_max", wire.repair.record_json_bytes_max.into()),
        ("wire.repair.payload_bytes_max", wire.repair.payload_bytes_max.into()),
        ("wire.blob.key_bytes_max", wire.blob.key_bytes_max.into()),
        ("wire.blob.keys_max", wire.blob.keys_max.into()),
        ("wire.blob.data_bytes_max", wire.blob.data_bytes_max.into()),
        ("links_max", config.links_max.into()),
        ("link_queue_bytes_max", config.link_queue_bytes_max),
        ("blob_requests_max", config.blob_requests_max.into()),
        ("blobs_wanted_max", config.blobs_wanted_max.into()),
        ("blob_wait_ms", config.blob_wait_ms),
        ("plan_reads_max", config.plan_reads_max.into()),
        ("plan_kept_bytes_max", config.plan_kept_bytes_max),
        ("snapshot_requests_max", config.snapshot_requests_max.into()),
        ("snapshot_pin_ms", config.snapshot_pin_ms),
        ("acked_save_ms", config.acked_save_ms),
        ("keepalive_ms", config.keepalive_ms),
        ("idle_ms", config.idle_ms),
    ])
}

fn example(kind: MessageType) -> String {
    json(&[payload(&sample(kind))])
}

const BLOB: BlobKey = BlobKey([0x55; 32]);
const SHA256: [u8; 32] = [0x66; 32];

fn record(key: &[u8], state: State, sequence: u64) -> Record {
    let key = Key::from_parts(b"files", key).expect("short");
    Record { key, state, version: Version::new(1, sequence), authority: AuthorityId::from_text("a") }
}

/// One message of each type.
fn sample(kind: MessageType) -> Message {
    let present = record(b"a.txt", State::Present { blob: BLOB }, 7);
    let deleted = record(b"b.txt", State::Deleted, 6);
    let own = Message::Own;
    let blob = Message::Blob;
    match kind {
        MessageType::Record => Message::Record(present),
        MessageType::Batch => Message::Batch(Batch {
            from: Version::new(1, 5),
            to: Version::new(1, 7),
            more: false,
            records: vec![deleted, present],
        }),
        MessageType::Snapshot => {
            Message::Snapshot(Snapshot { watermark: Version::new(1, 7), records: vec![present, deleted] })
        }
        MessageType::Ack => Message::Ack { watermark: Version::new(1, 7) },
        MessageType::BlobPut => blob(BlobMessage::Put { key: BLOB.into(), data: b"hello".to_vec() }),
        MessageType::BlobHas => blob(BlobMessage::Has { keys: vec![BLOB.into()] }),
        MessageType::BlobMissing => blob(BlobMessage::Missing { keys: vec![BLOB.into()] }),
        MessageType::BlobGet => blob(BlobMessage::Get { key: BLOB.into() }),
        MessageType::BlobAck => blob(BlobMessage::Ack { key: BLOB.into() }),
        MessageType::Position => own(OwnMessage::Position(Position {
            floor: Mark { version: Version::ZERO, digest: Some([0; 32]) },
            tail: Mark { version: Version::new(1, 7), digest: Some([0x44; 32]) },
            epochs: vec![EpochMark {
                epoch: 1,
                start: Version::new(1, 1),
                previous_end: Version::ZERO,
                authority: AuthorityId::from_text("a"),
            }],
        })),
        MessageType::DigestGet => own(OwnMessage::DigestGet(DigestGet { version: Version::new(1, 7) })),
        MessageType::Digest => own(OwnMessage::Digest(DigestAt {
            version: Version::new(1, 7),
            digest: Some([0x44; 32]),
            asks: false,
        })),
        MessageType::SnapshotOffer => own(OwnMessage::SnapshotOffer(SnapshotOffer {
            cut: Version::new(1, 7),
            cut_digest: Some([0x44; 32]),
            bytes: 300_000,
            sha256: SHA256,
            records: 4000,
        })),
        MessageType::SnapshotGet => {
            own(OwnMessage::SnapshotGet(SnapshotGet { sha256: SHA256, offset: 262_144 }))
        }
        MessageType::SnapshotChunk => {
            own(OwnMessage::SnapshotChunk(SnapshotChunk { offset: 262_144, data: b"hello".to_vec() }))
        }
        MessageType::BlobRangeGet => {
            own(OwnMessage::BlobRangeGet(BlobRangeGet { key: BLOB, offset: 262_144, bytes: 262_144 }))
        }
        MessageType::BlobRange => own(OwnMessage::BlobRange(BlobRange {
            key: BLOB,
            offset: 262_144,
            total: 262_149,
            data: b"hello".to_vec(),
        })),
        MessageType::BlobAbsent => own(OwnMessage::BlobAbsent { key: BLOB }),
        MessageType::Stop => own(OwnMessage::Stop(Stop {
            verdict: StopVerdict::Diverged,
            reason: PairReason::OtherHistory.to_string(),
            at: Some(Version::new(1, 7)),
            detail: "other-history at 1.7: ours 4444444444444444, theirs 7777777777777777".into(),
        })),
        MessageType::OwnAck => own(OwnMessage::Ack(Acknowledgement {
            watermark: Version::new(1, 7),
            complete: Version::new(1, 4),
        })),
    }
}
