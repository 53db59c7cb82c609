//! A peer whose every frame a test writes by hand.

use super::cluster::{Cluster, LOG, small_config};
use super::handshake::authenticate_with;
use sha2::{Digest, Sha256};
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{CloseReason, Event, Flow, LinkRole, LinkStatus, PeerFaultKind};
use strandline_core::lifecycle::checkpoint::{CheckpointHeader, CheckpointWriter};
use strandline_core::record::{AuthorityId, Record, RecordLimits, State, Version};
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::frame::{FrameDecoder, write_frame};
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, decode_message, encode};
use strandline_core::wire::own::{EpochMark, Mark, OwnMessage, Position, SnapshotOffer};

/// The peer at the other end of `link` of node `at`.
pub(crate) struct Peer {
    at: usize,
    pub(crate) link: LinkId,
    of_node: Capabilities,
    decoder: FrameDecoder,
}

impl Peer {
    /// Takes up a link as `identity` (a node of the cluster that lends its name), which declares
    /// `capabilities`.
    pub(crate) fn connect(
        cluster: &mut Cluster,
        at: usize,
        identity: &str,
        capabilities: &Capabilities,
        role: LinkRole,
    ) -> Self {
        let mut lender = Cluster::new(9);
        lender.add(identity, false, small_config());
        let of_node = cluster.replica(at).capabilities();
        let lent = lender.replica(0);
        let (for_node, _) = authenticate_with(cluster.replica(at), lent, &of_node, capabilities);
        let now = cluster.now;
        let link = cluster.replica(at).handle_link_up(now, &for_node, role).expect("taken up");
        Self { at, link, of_node, decoder: FrameDecoder::default() }
    }

    /// A Strandline peer of the same log which has one batch out at a time, and no record without its
    /// blob.
    pub(crate) fn native(cluster: &mut Cluster, at: usize, identity: &str) -> Self {
        let later = [Capability::BlobWait, Capability::Window];
        Self::without(cluster, at, identity, &later)
    }

    /// Everything a Strandline peer of the same log declares, but for some.
    pub(crate) fn without(cluster: &mut Cluster, at: usize, identity: &str, left_out: &[Capability]) -> Self {
        let mut lender = Cluster::new(9);
        lender.add(identity, false, small_config());
        let left_out: Vec<String> = left_out.iter().map(Capability::to_string).collect();
        let texts = lender.replica(0).capabilities().texts();
        let kept = texts.iter().filter(|text| !left_out.contains(text)).map(String::as_str);
        let capabilities = Capabilities::parse(kept).expect("fewer than all");
        Self::connect(cluster, at, identity, &capabilities, LinkRole::Both)
    }

    pub(crate) fn send(&self, cluster: &mut Cluster, message: &Message) -> Flow {
        let (mut payload, mut frame) = (Vec::new(), Vec::new());
        encode(message, &WireLimits::default(), &mut payload).expect("within limits");
        write_frame(&payload, &mut frame).expect("small");
        self.send_bytes(cluster, &frame)
    }

    pub(crate) fn send_own(&self, cluster: &mut Cluster, message: OwnMessage) -> Flow {
        self.send(cluster, &Message::Own(message))
    }

    pub(crate) fn send_bytes(&self, cluster: &mut Cluster, bytes: &[u8]) -> Flow {
        let now = cluster.now;
        cluster.replica(self.at).handle_received(now, self.link, bytes)
    }

    /// Says that this peer stands at `tail`, with a history nobody can check.
    pub(crate) fn stand(&self, cluster: &mut Cluster, floor: Version, tail: Version) {
        let mark = |version| Mark { version, digest: None };
        let position = Position { floor: mark(floor), tail: mark(tail), epochs: Vec::new() };
        self.send_own(cluster, OwnMessage::Position(position));
    }

    pub(crate) fn ack(&self, cluster: &mut Cluster, watermark: Version) {
        self.send(cluster, &Message::Ack { watermark });
    }

    /// What the node said since the last call; its commands are not executed.
    pub(crate) fn heard(&mut self, cluster: &mut Cluster) -> Vec<Message> {
        cluster.drain(self.at);
        let wires = &mut cluster.nodes[self.at].host.wires;
        let bytes: Vec<u8> = wires.out.remove(&self.link).unwrap_or_default().into();
        let (mut taken, mut messages) = (0, Vec::new());
        loop {
            taken += self.decoder.push(&bytes[taken..]);
            match self.decoder.next_frame().expect("frames") {
                Some(payload) => messages
                    .push(decode_message(payload, &WireLimits::default(), &self.of_node).expect("a message")),
                None if taken == bytes.len() => return messages,
                None => {}
            }
        }
    }

    /// As [`Peer::heard`], after everything the node had to do is done.
    pub(crate) fn settled(&mut self, cluster: &mut Cluster) -> Vec<Message> {
        cluster.settle();
        self.heard(cluster)
    }

    /// What it is told once everything is done, but where the node stands.
    pub(crate) fn settled_but_position(&mut self, cluster: &mut Cluster) -> Vec<Message> {
        let mut heard = self.settled(cluster);
        heard.retain(|message| !matches!(message, Message::Own(OwnMessage::Position(_))));
        heard
    }

    pub(crate) fn status(&self, cluster: &mut Cluster) -> LinkStatus {
        let links = cluster.replica(self.at).status().links;
        links.into_iter().find(|l| l.link == self.link).expect("a live link")
    }

    /// Which of our rules the peer broke, if the node said so.
    pub(crate) fn fault(&self, cluster: &mut Cluster) -> Option<PeerFaultKind> {
        cluster.drain(self.at);
        let events = &cluster.nodes[self.at].host.events;
        events.iter().find_map(|event| {
            let Event::CloseLink { link, reason: CloseReason::Fault(fault) } = event else { return None };
            (*link == self.link).then_some(fault.what)
        })
    }
}

/// A record as node `a` would write it.
pub(crate) fn record(key: &str, state: State, sequence: u64) -> Record {
    let limits = RecordLimits::default();
    let key = limits.key(b"files", key.as_bytes()).expect("a key");
    limits.record(key, state, Version::new(1, sequence), AuthorityId::from_text("a")).expect("a record")
}

/// A snapshot at `cut`, as a Strandline peer would offer it.
pub(crate) fn snapshot(cut: Version, records: &[Record]) -> (SnapshotOffer, Vec<u8>) {
    snapshot_with(cut, Vec::new(), records)
}

/// A snapshot that tells of `epochs`, whatever they are, with every checksum right.
pub(crate) fn snapshot_with(
    cut: Version,
    epochs: Vec<EpochMark>,
    records: &[Record],
) -> (SnapshotOffer, Vec<u8>) {
    let header = CheckpointHeader { log: LOG, cut, cut_digest: [5; 32], epochs };
    let mut writer = CheckpointWriter::new(&header);
    let mut bytes = Vec::new();
    for record in records {
        writer.push(record).expect("in order");
        while let Some((_, piece)) = writer.take_output() {
            bytes.extend(piece);
        }
    }
    let (_, last, _) = writer.finish();
    bytes.extend(last);
    let sha256 = Sha256::digest(&bytes).into();
    let (length, count) = (bytes.len() as u64, records.len() as u64);
    (SnapshotOffer { cut, cut_digest: None, bytes: length, sha256, records: count }, bytes)
}
