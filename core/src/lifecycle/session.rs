//! One live link with an authenticated peer: what came, what goes out, and where repair stands.
//!
//! The session routes messages to its four sides: judging the pair (`judging`), sending what the
//! peer lacks (`source`), taking what we lack (`receive`), and moving blobs (`blobs`).

use super::api::{
    CloseReason, Event, Flow, LinkRole, LinkStatus, PairVerdict, PeerFault, PeerFaultKind, Verified,
};
use super::config::ReplicaConfig;
use super::digests::Digests;
use super::doubt::Begun;
use super::fetch::Fetch;
use super::install::Offered;
use super::judge::Standing;
use super::outbox::{Carries, Outbox, Pieces};
use super::questions::Questions;
use super::receive::{Arrivals, Receive};
use super::shared::Shared;
use super::source::Source;
use super::vouching::Evidence;
use crate::id::{Incarnation, LinkId};
use crate::limits::FRAME_PAYLOAD_BYTES_MAX;
use crate::record::{BlobKey, Key, Version};
use crate::time::Instant;
use crate::verdict::Verdict;
use crate::wire::blob::BlobMessage;
use crate::wire::capability::{Capabilities, Capability};
use crate::wire::frame::{FrameDecoder, write_frame};
use crate::wire::handshake::Authenticated;
use crate::wire::message::{Message, decode_message, encode};
use crate::wire::own::{Acknowledgement, OwnMessage, Stop, StopVerdict};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// How many batches may be out to a peer with `strandline.window.v1` before one is acknowledged.
pub(super) const WINDOW_BATCHES: usize = 8;

/// What is known of the peer before it says anything.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) identity: String,
    pub(super) incarnation: Option<Incarnation>,
    /// Exchanges standings before repair.
    pub(super) history: bool,
    /// Takes snapshots in pieces.
    pub(super) chunks: bool,
    /// Takes blobs in pieces, and asks for them itself.
    pub(super) ranges: bool,
    /// Says where it stands with a first acknowledgement.
    pub(super) reconcile: bool,
    /// Takes records ahead of their blobs, and says up to where it has both.
    pub(super) waits: bool,
    /// Takes several batches before it acknowledges one.
    pub(super) window: bool,
    /// We dialed it.
    pub(super) dialed: bool,
    pub(super) capabilities: Capabilities,
}

impl Peer {
    pub(super) fn of(authenticated: &Authenticated) -> Self {
        let capabilities = authenticated.capabilities();
        Self {
            identity: authenticated.identity().to_string(),
            incarnation: authenticated.incarnation(),
            history: capabilities.has(Capability::History),
            chunks: capabilities.has(Capability::SnapshotChunks),
            ranges: capabilities.has(Capability::BlobRanges),
            reconcile: capabilities.has(Capability::RepairReconcile),
            waits: capabilities.has(Capability::BlobWait),
            window: capabilities.has(Capability::Window),
            dialed: authenticated.dialed(),
            capabilities: capabilities.clone(),
        }
    }

    /// How many batches may be out before one is acknowledged, either way.
    pub(super) const fn batches_open_max(&self) -> usize {
        if self.window { WINDOW_BATCHES } else { 1 }
    }
}

/// One live link.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: LinkId,
    pub(super) peer: Peer,
    pub(super) role: LinkRole,
    decoder: FrameDecoder,
    /// Bytes the decoder had no room for.
    unread: Vec<u8>,
    pub(super) outbox: Outbox,
    /// What the peer has, as far as this link knows.
    pub(super) acked: Version,
    pub(super) verdict: Option<PairVerdict>,
    pub(super) digests: Digests,
    pub(super) evidence: Evidence,
    /// Where the peer said it stands, above our tail: it has all we have, and what it has above that is
    /// compared once we have it, too.
    pub(super) ahead: Option<Standing>,
    pub(super) source: Source,
    /// Where the batches end that are out and not acknowledged.
    pub(super) flight: VecDeque<Version>,
    /// Up to here later records supersede all that the peer lacks and that cannot be sent.
    pub(super) skipped: Version,
    pub(super) receive: Receive,
    pub(super) arrivals: Arrivals,
    /// What the peer was last told we have.
    pub(super) told: Option<Acknowledgement>,
    /// Up to where the peer has the blobs, said before it was judged.
    pub(super) complete_early: Option<Version>,
    /// The key up to which the peer was told which blobs are here.
    pub(super) announced: Option<Key>,
    pub(super) fetch: Fetch,
    /// Blob reads out for the peer.
    pub(super) serving: u32,
    /// Pieces the peer asked for, in the order it asked; reads may end in any order.
    pub(super) pieces: Pieces,
    /// Those that were not read for yet.
    pub(super) questions: Questions,
    /// Large blobs whose beginning the peer got.
    pub(super) begun: Begun,
    /// Whole blobs the peer asked for, not read yet, with the request they are of.
    pub(super) serve_queue: VecDeque<(u64, BlobKey)>,
    /// Requests for whole blobs so far, the one that is being answered, and its bytes.
    pub(super) requests: u64,
    pub(super) answering: (u64, u64),
    /// Whole blobs sent ahead that the peer has not acknowledged.
    pub(super) pushed: BTreeSet<BlobKey>,
    /// What the blob store does because the peer sent it, unasked: puts, and looks at what it has.
    pub(super) unasked: u32,
    /// Looks at the blobs of received records, to tell the answer to one from that to another.
    pub(super) looks: u64,
    pub(super) paused: bool,
    pub(super) down: bool,
    pub(super) heard: Instant,
    /// The tail up to which the peer was reported to have everything.
    pub(super) synced: Option<Version>,
    /// A snapshot of the peer's that was not answered yet.
    pub(super) offered: Option<Offered>,
    /// Pieces of a snapshot that were asked for and may come twice, since an offer crossed the questions.
    pub(super) crossed: u64,
    /// One side told the other why repair stopped; what comes after that is not told again.
    stop_said: bool,
}

impl Session {
    pub(super) fn new(link: LinkId, peer: Peer, role: LinkRole, shared: &Shared) -> Self {
        Self {
            link,
            peer,
            role,
            decoder: FrameDecoder::default(),
            unread: Vec::new(),
            outbox: Outbox::default(),
            acked: Version::ZERO,
            verdict: None,
            digests: Digests::default(),
            evidence: Evidence::default(),
            ahead: None,
            source: Source::Waiting,
            flight: VecDeque::new(),
            skipped: Version::ZERO,
            receive: Receive::Idle,
            arrivals: Arrivals::default(),
            told: None,
            complete_early: None,
            announced: None,
            fetch: Fetch::default(),
            serving: 0,
            pieces: Pieces::default(),
            questions: Questions::default(),
            begun: Begun::default(),
            serve_queue: VecDeque::new(),
            requests: 0,
            answering: (0, 0),
            pushed: BTreeSet::new(),
            unasked: 0,
            looks: 0,
            paused: false,
            down: false,
            heard: shared.now.mono,
            synced: None,
            offered: None,
            crossed: 0,
            stop_said: false,
        }
    }

    /// Whether records may go to the peer over this link.
    pub(super) fn sends(&self) -> bool {
        match self.role {
            LinkRole::Both | LinkRole::Source => true,
            LinkRole::Receiver => false,
        }
    }

    /// Whether records may come from the peer over this link.
    pub(super) fn takes(&self, shared: &Shared) -> bool {
        let by_role = match self.role {
            LinkRole::Both | LinkRole::Receiver => true,
            LinkRole::Source => false,
        };
        by_role && shared.authority.is_none()
    }

    /// Says where we stand, and begins whatever needs no answer first.
    pub(super) fn start(&mut self, shared: &mut Shared) {
        if self.peer.history {
            self.send_standing(shared);
            return;
        }
        let tail = shared.history.tail();
        if self.peer.reconcile && self.takes(shared) {
            self.send(shared, &Message::Ack { watermark: tail });
        }
        if !self.sends() {
            self.source = Source::Off;
        } else if !self.peer.reconcile {
            // Only a mark of this life of the peer's data says what the peer has.
            let mark = shared.acked.get(&self.peer.identity);
            let ours = mark.filter(|mark| mark.incarnation == self.peer.incarnation);
            self.acked = ours.map_or(Version::ZERO, |mark| mark.version);
            self.source = Source::Idle;
            self.pump_source(shared);
        }
    }

    /// Takes bytes of the link, split anywhere.
    pub(super) fn received(&mut self, shared: &mut Shared, bytes: &[u8]) -> Flow {
        if self.down {
            return Flow::More;
        }
        self.heard = shared.now.mono;
        self.unread.extend_from_slice(bytes);
        self.process(shared);
        if self.paused { Flow::Pause } else { Flow::More }
    }

    /// Handles whole frames until there are none, or the disk must catch up first.
    pub(super) fn process(&mut self, shared: &mut Shared) {
        let unread = core::mem::take(&mut self.unread);
        let mut taken = 0;
        while !self.down && !self.must_pause(shared) {
            taken += self.decoder.push(&unread[taken..]);
            let message = match self.decoder.next_frame() {
                Ok(Some(payload)) => decode_message(payload, &shared.config.wire, &self.peer.capabilities)
                    .map_err(|error| {
                        (PeerFaultKind::Message, "a message of this protocol", error.to_string())
                    }),
                Ok(None) => break,
                Err(error) => Err((PeerFaultKind::Frame, "SHV1 frames", error.to_string())),
            };
            match message {
                Ok(message) => self.message(shared, message),
                Err((what, expected, found)) => self.fault(shared, what, expected, found),
            }
        }
        self.unread = unread[taken..].to_vec();
        let paused = !self.down && self.must_pause(shared);
        // Whatever found room, bytes that came or an answer of the disk: who was told to pause is told.
        if core::mem::replace(&mut self.paused, paused) && !paused {
            shared.out.event(Event::Resume { link: self.link });
        }
    }

    /// Goes on after a pause once there is room.
    pub(super) fn resume(&mut self, shared: &mut Shared) {
        if !self.paused {
            return;
        }
        self.process(shared);
    }

    fn must_pause(&self, shared: &mut Shared) -> bool {
        // Whatever the peer asks of the disk is bounded: more is not read before some is done.
        let requests_max = shared.config.blob_requests_max;
        let busy = self.unasked >= requests_max || self.serving >= requests_max;
        if busy || self.questions.are_many(requests_max) {
            return true;
        }
        // Not for data that the peer asked for: while both wait to be read from, neither would read.
        let full = self.outbox.words_bytes() >= shared.config.link_queue_bytes_max.saturating_mul(2);
        if full {
            shared.blocked.insert(self.link);
        }
        full
    }

    fn message(&mut self, shared: &mut Shared, message: Message) {
        match message {
            // Repair delivers every record in order; one that comes beside it adds nothing.
            Message::Record(_) => shared.loose_records += 1,
            Message::Batch(batch) => self.on_batch(shared, batch),
            Message::Snapshot(snapshot) => self.on_snapshot_frame(shared, snapshot),
            Message::Ack { watermark } => self.on_ack(shared, watermark),
            Message::Blob(message) => self.blob_message(shared, message),
            Message::Own(message) => self.own_message(shared, message),
        }
    }

    fn blob_message(&mut self, shared: &mut Shared, message: BlobMessage) {
        match message {
            BlobMessage::Put { key, data } => self.on_blob_put(shared, &key, data),
            BlobMessage::Has { keys } => self.on_blob_has(shared, &keys),
            BlobMessage::Missing { keys } => self.on_blob_wanted(shared, &keys),
            BlobMessage::Get { key } => self.on_blob_wanted(shared, &[key]),
            BlobMessage::Ack { key } => self.on_blob_ack(shared, &key),
        }
    }

    fn own_message(&mut self, shared: &mut Shared, message: OwnMessage) {
        match message {
            OwnMessage::Position(position) => self.on_position(shared, &position),
            OwnMessage::DigestGet(get) => self.on_digest_get(shared, get),
            OwnMessage::Digest(at) => self.on_digest(shared, at),
            OwnMessage::SnapshotOffer(offer) => self.on_offer(shared, offer),
            OwnMessage::SnapshotGet(get) => self.on_snapshot_get(shared, get),
            OwnMessage::SnapshotChunk(chunk) => self.on_chunk(shared, chunk),
            OwnMessage::BlobRangeGet(get) => self.on_piece_get(shared, get),
            OwnMessage::BlobRange(piece) => self.on_piece(shared, piece),
            OwnMessage::BlobAbsent { key } => self.on_piece_absent(shared, key),
            OwnMessage::Stop(stop) => self.on_stop(shared, &stop),
            OwnMessage::Ack(ack) => self.on_own_ack(shared, ack),
        }
    }

    /// Queues one of Strandline's own messages.
    pub(super) fn send_own(&mut self, shared: &mut Shared, message: OwnMessage) {
        self.send(shared, &Message::Own(message));
    }

    /// Queues a message for the peer.
    pub(super) fn send(&mut self, shared: &mut Shared, message: &Message) {
        self.send_as(shared, Carries::Words, message);
    }

    /// Queues a message that carries what was read for the peer while there was room.
    pub(super) fn send_data(&mut self, shared: &mut Shared, message: &Message) {
        self.send_as(shared, Carries::Data, message);
    }

    fn send_as(&mut self, shared: &mut Shared, carries: Carries, message: &Message) {
        let mut payload = Vec::new();
        if let Err(error) = encode(message, &shared.config.wire, &mut payload) {
            // What we send was read from our own log under the same limits.
            unreachable!("a message of our own exceeds our own limits: {error}");
        }
        self.send_payload(shared, carries, &payload);
    }

    /// Queues an encoded message for the peer.
    pub(super) fn send_payload(&mut self, shared: &mut Shared, carries: Carries, payload: &[u8]) {
        if self.down {
            return;
        }
        let mut frame = Vec::with_capacity(payload.len() + 8);
        write_frame(payload, &mut frame).expect("the encoder bounds a payload below a frame");
        if self.outbox.is_empty() {
            shared.out.event(Event::Frames { link: self.link });
        }
        self.outbox.push(carries, frame);
    }

    /// The peer broke a rule: the link goes down, nothing of ours changed.
    pub(super) fn fault(
        &mut self,
        shared: &mut Shared,
        what: PeerFaultKind,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        let fault = PeerFault { what, expected: expected.into(), found: found.into() };
        if self.peer.history {
            self.send_stop(shared, StopVerdict::Fault, what.to_string(), None, &fault.to_string());
        }
        self.close(shared, CloseReason::Fault(fault));
    }

    /// Takes the link down and asks the host to close it.
    pub(super) fn close(&mut self, shared: &mut Shared, reason: CloseReason) {
        if self.down {
            return;
        }
        self.down = true;
        shared.went_down.push(self.link);
        shared.out.event(Event::CloseLink { link: self.link, reason });
    }

    /// Records a verdict and reports it, if it is news.
    pub(super) fn give_verdict(&mut self, shared: &mut Shared, verdict: PairVerdict) {
        if self.verdict.as_ref() == Some(&verdict) {
            return;
        }
        let news = match (&self.verdict, &verdict) {
            // Moving on along a verified history is no news.
            (Some(Verdict::Complete { verified: a, .. }), Verdict::Complete { verified: b, .. }) => a != b,
            (Some(_) | None, _) => true,
        };
        self.verdict = Some(verdict.clone());
        if news {
            let identity = self.peer.identity.clone();
            shared.out.event(Event::Verdict { link: self.link, identity, verdict });
        }
    }

    /// Stops repair with a verdict that a person must answer. The link stays, so that both sides
    /// show why, and so that nothing is tried again and again.
    pub(super) fn stop(&mut self, shared: &mut Shared, verdict: PairVerdict) {
        if self.peer.history && !self.stop_said {
            self.stop_said = true;
            let (kind, reason, at, detail) = match &verdict {
                Verdict::Gap { from, to, reason } => {
                    (StopVerdict::Gap, reason.to_string(), None, alloc::format!("from {from} to {to}"))
                }
                Verdict::Unknown { reason } => {
                    (StopVerdict::Unknown, reason.to_string(), None, String::new())
                }
                Verdict::Diverged(evidence) => {
                    let (reason, detail) = (evidence.reason.to_string(), evidence.to_string());
                    (StopVerdict::Diverged, reason, Some(evidence.at), detail)
                }
                Verdict::Complete { .. } => unreachable!("nothing stops at a complete verdict"),
            };
            self.send_stop(shared, kind, reason, at, &detail);
        }
        self.halt_repair(shared);
        self.give_verdict(shared, verdict);
    }

    /// Repair is over on this link, for whatever reason.
    pub(super) fn halt_repair(&mut self, shared: &mut Shared) {
        self.drop_source(shared);
        self.source = Source::Stopped;
        self.receive = Receive::Stopped;
        self.arrivals = Arrivals::default();
        self.digests.stop_repair();
        self.drop_search();
        self.drop_receiving(shared);
    }

    /// What this link was bringing is left to others.
    fn drop_receiving(&mut self, shared: &mut Shared) {
        self.drop_fetch(shared);
        self.offered = None;
        if let Some(install) = &mut shared.install {
            install.link_down(self.link);
        }
        shared.freed = true;
    }

    /// Something that this link may be waiting for was freed: blobs another link was fetching, the
    /// place of an installation, room.
    pub(super) fn retry(&mut self, shared: &mut Shared) {
        if self.is_stopped() {
            return;
        }
        self.pump_fetch(shared);
        self.retry_offered(shared);
        self.advance_batch(shared);
        self.pump_source(shared);
    }

    /// Whether the peer has said where it stands and was not judged yet: what it sends meanwhile waits.
    /// Before it has, nothing may come at all.
    pub(super) fn judging(&self) -> bool {
        self.peer.history && matches!(self.source, Source::Waiting)
    }

    /// Takes the link down if the peer sends `what` before it said where it stands.
    pub(super) fn too_early(&mut self, shared: &mut Shared, what: &str) -> bool {
        let early = self.judging() && !self.digests.judges();
        if early {
            self.fault(shared, PeerFaultKind::Sequence, "a standing before anything else", what);
        }
        early
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.source, Source::Stopped)
    }

    fn send_stop(
        &mut self,
        shared: &mut Shared,
        verdict: StopVerdict,
        reason: String,
        at: Option<Version>,
        detail: &str,
    ) {
        self.send_own(shared, OwnMessage::Stop(Stop { verdict, reason, at, detail: bounded(detail) }));
    }

    fn on_stop(&mut self, shared: &mut Shared, stop: &Stop) {
        // Both sides may find out at once: then each keeps what it found.
        if core::mem::replace(&mut self.stop_said, true) {
            return;
        }
        let evidence = |reason| super::api::Divergence {
            at: stop.at.unwrap_or(self.acked),
            ours: alloc::format!("{}", shared.history.tail()),
            theirs: alloc::format!("the peer says: {}", bounded(&stop.detail)),
            reason,
        };
        let known = super::api::PairReason::parse(&stop.reason);
        let verdict = match stop.verdict {
            // The peer closes the link itself; its reason is already on our side's log.
            StopVerdict::Fault => None,
            StopVerdict::Gap | StopVerdict::Unknown => known.map(|reason| Verdict::Unknown { reason }),
            StopVerdict::Diverged => known.map(|reason| Verdict::Diverged(evidence(reason))),
        };
        self.halt_repair(shared);
        if let Some(verdict) = verdict {
            self.give_verdict(shared, verdict);
        }
    }

    /// The link is gone: what it held is released. Frames that are queued may still go out.
    pub(super) fn release(&mut self, shared: &mut Shared) {
        self.down = true;
        self.drop_source(shared);
        self.drop_receiving(shared);
        shared.blocked.remove(&self.link);
    }

    /// Whether the link's queue takes more; if not, the work is taken up again when it does.
    pub(super) fn has_room(&self, shared: &mut Shared) -> bool {
        let room = self.outbox.bytes() < shared.config.link_queue_bytes_max;
        if !room {
            shared.blocked.insert(self.link);
        }
        room
    }

    /// The link may have room again.
    pub(super) fn on_room(&mut self, shared: &mut Shared) {
        if self.down {
            return;
        }
        self.pump_source(shared);
        self.pump_push(shared);
        self.pump_questions(shared);
        self.pump_serve(shared);
        self.resume(shared);
    }

    /// A word for what the session is doing.
    fn state(&self) -> &'static str {
        if self.down {
            return "closing";
        }
        match (&self.receive, &self.source) {
            (Receive::Stopped, _) | (_, Source::Stopped) => "stopped",
            (Receive::Held(_), _) => "receiving",
            (Receive::Idle, _) if !self.arrivals.is_empty() => "receiving",
            (Receive::Idle, Source::Waiting) => "judging",
            (Receive::Idle, Source::Planning(_) | Source::Framing | Source::Pushing(_) | Source::Sent) => {
                "sending"
            }
            (Receive::Idle, Source::Snapshot(_)) => "sending a snapshot",
            (Receive::Idle, Source::Idle) if !self.flight.is_empty() => "sending",
            (Receive::Idle, Source::Idle | Source::Off) => "live",
        }
    }

    pub(super) fn status(&self, shared: &Shared) -> LinkStatus {
        LinkStatus {
            link: self.link,
            identity: self.peer.identity.clone(),
            incarnation: self.peer.incarnation,
            role: self.role,
            state: self.state(),
            acked: self.acked,
            lag: shared.lag(self.acked),
            peer_tail: self.evidence.stood.then_some(self.evidence.peer_tail),
            verdict: self.verdict.clone(),
        }
    }

    /// How far the common history was verified, for the next complete verdict.
    pub(super) fn verified(&self) -> Verified {
        match &self.verdict {
            Some(Verdict::Complete { verified, .. }) => *verified,
            Some(Verdict::Gap { .. } | Verdict::Unknown { .. } | Verdict::Diverged(_)) | None => {
                Verified::VersionOnly
            }
        }
    }
}

/// Longest blob that goes whole: in base64 it must fit a frame.
pub(super) fn blob_put_bytes_max(config: &ReplicaConfig) -> u32 {
    let fits = (FRAME_PAYLOAD_BYTES_MAX - 1024) / 4 * 3;
    config.wire.blob.data_bytes_max.min(fits)
}

/// A peer's words, short enough to be shown.
fn bounded(text: &str) -> String {
    text.chars().take(200).collect()
}
