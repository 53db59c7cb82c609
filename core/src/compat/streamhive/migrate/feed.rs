//! A peer that brings a history to a replica, and nothing else.

use super::History;
use crate::error::{Classified, Family};
use crate::id::LogId;
use crate::lifecycle::checkpoint::{CheckpointHeader, CheckpointWriter};
use crate::limits::PIECE_BYTES_MAX;
use crate::record::Version;
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::capability::{Capabilities, Capability};
use crate::wire::frame::{FrameDecoder, write_frame};
use crate::wire::limits::WireLimits;
use crate::wire::message::{Message, decode_message, encode};
use crate::wire::own::{OwnMessage, SnapshotChunk, SnapshotGet, SnapshotOffer};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Why a replica did not take a history (family: peer).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the replica takes no history: expected {expected}, found {found}")]
pub struct FeedError {
    /// What it should have said.
    pub expected: &'static str,
    /// What it said.
    pub found: String,
}

impl Classified for FeedError {
    const FAMILY: Family = Family::Peer;
}

/// What the replica was given and has not answered.
#[derive(Debug, Eq, PartialEq)]
enum Stage {
    /// It has not said where it stands.
    Waiting,
    /// It reads the checkpoint.
    Checkpoint,
    /// A batch up to here is out.
    Batch(Version),
    Done,
}

/// The source's side of one link: the checkpoint in pieces, then the journal in batches, each when the
/// last one was acknowledged. The blobs that the state needs must be stored before.
///
/// A caller may hand in bytes split anywhere; after an error nothing more is to be handed in.
#[derive(Debug)]
pub struct Feed<'a> {
    history: &'a History,
    limits: WireLimits,
    of_replica: Capabilities,
    decoder: FrameDecoder,
    /// The native checkpoint.
    checkpoint: Vec<u8>,
    offer: Option<SnapshotOffer>,
    stage: Stage,
    /// What was acknowledged last.
    acked: Option<Version>,
}

impl<'a> Feed<'a> {
    /// What a link that brings a history declares.
    ///
    /// # Panics
    /// Never: six short capabilities are within the bounds.
    #[must_use]
    pub fn capabilities(log: LogId) -> Capabilities {
        let declared = [
            Capability::Lifecycle,
            Capability::RepairReconcile,
            Capability::SnapshotChunks,
            Capability::BlobRanges,
            Capability::BlobWait,
            Capability::Log(log),
        ];
        Capabilities::new(declared).expect("one log")
    }

    /// A feed of `history` into a replica of `log` that declared these capabilities.
    ///
    /// # Errors
    /// The checkpoint holds records that no native one can.
    pub fn new(history: &'a History, log: LogId, of_replica: &Capabilities) -> Result<Self, FeedError> {
        let (mut checkpoint, mut offer) = (Vec::new(), None);
        if !history.floor().is_zero() {
            let cut = history.floor();
            let header = CheckpointHeader { log, cut, cut_digest: [0; 32], epochs: Vec::new() };
            let mut writer = CheckpointWriter::new(&header);
            for record in history.checkpoint() {
                writer.push(record).map_err(|error| FeedError {
                    expected: "records that a checkpoint can hold",
                    found: error.to_string(),
                })?;
            }
            while let Some((_, piece)) = writer.take_output() {
                checkpoint.extend_from_slice(&piece);
            }
            let (_, last, written) = writer.finish();
            checkpoint.extend_from_slice(&last);
            let (bytes, sha256, records) = (written.bytes, written.sha256, written.records);
            // What lies before the cut has no digest that other replicas could know.
            offer = Some(SnapshotOffer { cut, cut_digest: None, bytes, sha256, records });
        }
        Ok(Self {
            history,
            limits: WireLimits::default(),
            of_replica: of_replica.clone(),
            decoder: FrameDecoder::default(),
            checkpoint,
            offer,
            stage: Stage::Waiting,
            acked: None,
        })
    }

    /// Whether the replica has acknowledged everything.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Takes what the replica says, and appends the frames that answer it.
    ///
    /// # Errors
    /// It says what no replica says that takes a history.
    pub fn received(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), FeedError> {
        let mut taken = 0;
        loop {
            taken += self.decoder.push(&bytes[taken..]);
            let wrong = |expected, found: String| FeedError { expected, found };
            let message = match self.decoder.next_frame() {
                Ok(Some(payload)) => decode_message(payload, &self.limits, &self.of_replica)
                    .map_err(|error| wrong("a message of this protocol", error.to_string()))?,
                Ok(None) if taken == bytes.len() => return Ok(()),
                Ok(None) => continue,
                Err(error) => return Err(wrong("SHV1 frames", error.to_string())),
            };
            self.message(message, out)?;
        }
    }

    fn message(&mut self, message: Message, out: &mut Vec<u8>) -> Result<(), FeedError> {
        match message {
            Message::Ack { watermark } => self.acknowledged(watermark, out),
            Message::Own(OwnMessage::Ack(ack)) => self.acknowledged(ack.watermark, out),
            Message::Own(OwnMessage::SnapshotGet(get)) => self.piece(get, out),
            // What the state needs is stored. What an older record named may be gone: its key has a later
            // one, which settles it.
            Message::Own(OwnMessage::BlobRangeGet(get)) => {
                self.send(&Message::Own(OwnMessage::BlobAbsent { key: get.key }), out)
            }
            // What it has, and what it would like to know, is not what this link is for.
            Message::Blob(_) | Message::Record(_) => Ok(()),
            Message::Own(other) => Err(FeedError {
                expected: "acknowledgements and requests for pieces",
                found: other.message_type().name().to_string(),
            }),
            Message::Batch(_) | Message::Snapshot(_) => {
                Err(FeedError { expected: "no records", found: "records".to_string() })
            }
        }
    }

    fn acknowledged(&mut self, watermark: Version, out: &mut Vec<u8>) -> Result<(), FeedError> {
        if self.acked == Some(watermark) {
            // Only more blobs are known to be there.
            return Ok(());
        }
        let expected = match self.stage {
            Stage::Waiting => Version::ZERO,
            Stage::Checkpoint => self.history.floor(),
            Stage::Batch(to) => to,
            Stage::Done => self.history.tail(),
        };
        if watermark != expected {
            let expected = "an acknowledgement of what was sent";
            return Err(FeedError { expected, found: watermark.to_string() });
        }
        self.acked = Some(watermark);
        match (&self.stage, self.offer) {
            (Stage::Waiting, Some(offer)) => {
                self.stage = Stage::Checkpoint;
                self.send(&Message::Own(OwnMessage::SnapshotOffer(offer)), out)
            }
            (Stage::Waiting | Stage::Checkpoint | Stage::Batch(_) | Stage::Done, _) => {
                self.batch(watermark, out)
            }
        }
    }

    fn piece(&mut self, get: SnapshotGet, out: &mut Vec<u8>) -> Result<(), FeedError> {
        let from = usize::try_from(get.offset).unwrap_or(usize::MAX).min(self.checkpoint.len());
        let to = from.saturating_add(PIECE_BYTES_MAX as usize).min(self.checkpoint.len());
        let data = self.checkpoint[from..to].to_vec();
        if data.is_empty() {
            return Err(FeedError { expected: "an offset in the checkpoint", found: get.offset.to_string() });
        }
        self.send(&Message::Own(OwnMessage::SnapshotChunk(SnapshotChunk { offset: get.offset, data })), out)
    }

    fn batch(&mut self, from: Version, out: &mut Vec<u8>) -> Result<(), FeedError> {
        let journal = self.history.journal();
        let first = journal.partition_point(|record| record.version <= from);
        if first == journal.len() {
            self.stage = Stage::Done;
            return Ok(());
        }
        let mut builder = BatchBuilder::new(from, self.limits.repair);
        let last = journal.len() - 1;
        let unsendable = |found: String| FeedError { expected: "records that a batch can carry", found };
        for (at, record) in journal.iter().enumerate().skip(first) {
            match builder.push(record, at < last) {
                Ok(()) => {}
                Err(error) if builder.records() == 0 => return Err(unsendable(error.to_string())),
                Err(_) => break,
            }
        }
        let mut payload = Vec::new();
        let more = builder.to() < self.history.tail();
        let to = builder.finish(more, &mut payload).map_err(|error| unsendable(error.to_string()))?;
        self.stage = Stage::Batch(to);
        write_frame(&payload, out).map_err(|error| unsendable(error.to_string()))
    }

    fn send(&self, message: &Message, out: &mut Vec<u8>) -> Result<(), FeedError> {
        let mut payload = Vec::new();
        let unsendable = |found: String| FeedError { expected: "a message within its bounds", found };
        encode(message, &self.limits, &mut payload).map_err(|error| unsendable(error.to_string()))?;
        write_frame(&payload, out).map_err(|error| unsendable(error.to_string()))
    }
}
