//! How many batches are on their way to a peer, and how often the journal is read for many of them. The
//! peers are sockets of the test, which say frame by frame what they want to.

use super::{LOG, Outcome, access_of_a, any_port, caller, key, serve, until};
use futures::{AsyncReadExt, AsyncWriteExt};
use strandline_core::id::Incarnation;
use strandline_core::lifecycle::api::{Change, Mutation};
use strandline_core::record::Version;
use strandline_core::wire::admission::Terms;
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::frame::{FrameDecoder, write_frame};
use strandline_core::wire::handshake::{DialAuth, Handshake, Progress};
use strandline_core::wire::identity::PeerIdentity;
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, decode_message, encode};
use strandline_core::wire::own::{Acknowledgement, DigestGet, Mark, OwnMessage, Position};
use strandline_file::node::WaitPolicy;
use strandline_net::{Access, Handle, Runtime};

/// More than the window and one batch more hold.
const RECORDS: u64 = 1300;

/// Peers that are served at once.
const PEERS: usize = 10;

/// What the peers declare besides the log's name, but for the window.
const WITHOUT_WINDOW: [Capability; 3] = [Capability::History, Capability::BlobRanges, Capability::BlobWait];

/// The same with the window.
const WITH_WINDOW: [Capability; 4] =
    [Capability::History, Capability::BlobRanges, Capability::BlobWait, Capability::Window];

/// A peer of the log whose every message a test says.
struct Peer<C> {
    connection: C,
    capabilities: Capabilities,
    decoder: FrameDecoder,
    /// Bytes that came and were not looked at.
    rest: Vec<u8>,
}

impl<C: futures::AsyncRead + futures::AsyncWrite + Unpin> Peer<C> {
    /// Is let in as `identity`, with nothing of the log, and with these capabilities besides those that
    /// name the log.
    async fn call<R: Runtime<Connection = C>>(
        runtime: &R,
        address: std::net::SocketAddr,
        identity: &str,
        more: &[Capability],
    ) -> Outcome<Self> {
        let incarnation = Incarnation { counter: 1, nonce: [7; 8] };
        let named = [Capability::Lifecycle, Capability::Log(LOG), Capability::Incarnation(incarnation)];
        let capabilities = Capabilities::new(named.into_iter().chain(more.iter().cloned()))?;
        let auth = DialAuth {
            token: token(identity),
            identity: Some(PeerIdentity::parse(identity)?),
            capabilities: capabilities.clone(),
            expect: None,
        };
        let mut hello = Vec::new();
        let mut handshake = Handshake::dial(auth, &mut hello)?;
        let mut connection = runtime.connect(&address.to_string()).await?;
        connection.write_all(&hello).await?;
        loop {
            let mut piece = [0; 4096];
            let count = connection.read(&mut piece).await?;
            match handshake.handle_received(&piece[..count], &mut Vec::new())? {
                Progress::More(more) => handshake = more,
                Progress::Done { rest, .. } => {
                    let decoder = FrameDecoder::default();
                    return Ok(Self { connection, capabilities, decoder, rest });
                }
            }
        }
    }

    async fn say(&mut self, message: &Message) -> Outcome {
        let (mut payload, mut frame) = (Vec::new(), Vec::new());
        encode(message, &WireLimits::default(), &mut payload)?;
        write_frame(&payload, &mut frame)?;
        Ok(self.connection.write_all(&frame).await?)
    }

    /// Says that it has nothing.
    async fn stand(&mut self) -> Outcome {
        let nothing = || Mark { version: Version::ZERO, digest: None };
        let position = Position { floor: nothing(), tail: nothing(), epochs: Vec::new() };
        self.say(&Message::Own(OwnMessage::Position(position))).await
    }

    async fn hear(&mut self) -> Outcome<Message> {
        loop {
            let taken = self.decoder.push(&self.rest);
            self.rest.drain(..taken);
            if let Some(payload) = self.decoder.next_frame()? {
                return Ok(decode_message(payload, &WireLimits::default(), &self.capabilities)?);
            }
            let mut piece = vec![0; 64 << 10];
            let count = self.connection.read(&mut piece).await?;
            assert!(count > 0 || !self.rest.is_empty(), "the node has ended the link");
            self.rest.extend_from_slice(&piece[..count]);
        }
    }

    /// The ends of the batches that are on their way: what comes before the answer to a question is out.
    async fn batches(&mut self) -> Outcome<Vec<Version>> {
        self.say(&Message::Own(OwnMessage::DigestGet(DigestGet { version: Version::new(1, 1) }))).await?;
        let mut ends = Vec::new();
        loop {
            match self.hear().await? {
                Message::Batch(batch) => ends.push(batch.to),
                Message::Own(OwnMessage::Digest(_)) => return Ok(ends),
                Message::Record(_) | Message::Snapshot(_) | Message::Ack { .. } => {}
                Message::Blob(_) | Message::Own(_) => {}
            }
        }
    }

    /// The next `count` batches, which are known to come.
    async fn next_batches(&mut self, count: usize) -> Outcome<Vec<Version>> {
        let mut ends = Vec::new();
        while ends.len() < count {
            if let Message::Batch(batch) = self.hear().await? {
                ends.push(batch.to);
            }
        }
        Ok(ends)
    }

    async fn acknowledge(&mut self, watermark: Version) -> Outcome {
        let ack = Acknowledgement { watermark, complete: watermark };
        self.say(&Message::Own(OwnMessage::Ack(ack))).await
    }
}

fn token(identity: &str) -> String {
    format!("the token of {identity}")
}

async fn write(handle: &Handle, records: u64, name: impl Fn(u64) -> String) -> Outcome<Version> {
    let delete = |n| Mutation { key: key(&name(n)), change: Change::Delete, if_version: None };
    let mut last = Version::ZERO;
    for first in (0..records).step_by(100) {
        let mutations = (first..records.min(first + 100)).map(delete).collect();
        let accepted = handle.batch(mutations, WaitPolicy::Wait).await?;
        last = accepted.last().ok_or("none accepted")?.version;
    }
    Ok(last)
}

pub(crate) async fn eight_batches_are_on_their_way_and_an_acknowledgement_lets_more_go<R: Runtime>(
    runtime: R,
) -> Outcome {
    let folder = tempfile::tempdir()?;
    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &Terms::default())).await?;
    let tail = write(a.handle(), RECORDS, |n| n.to_string()).await?;
    let mut peer = Peer::call(&runtime, a.local_addr(), "b", &WITH_WINDOW).await?;
    peer.stand().await?;
    let out = peer.next_batches(8).await?;
    assert_eq!(peer.batches().await?, [], "eight are out, and nothing was acknowledged");
    peer.acknowledge(out[2]).await?;
    let more = peer.next_batches(3).await?;
    assert_eq!(peer.batches().await?, [], "three were acknowledged");
    assert_eq!(more.last(), Some(&tail), "eleven batches hold all");
    drop(peer);
    Ok(a.shutdown().await?)
}

pub(crate) async fn one_batch_is_on_its_way_to_a_peer_without_the_window<R: Runtime>(runtime: R) -> Outcome {
    let folder = tempfile::tempdir()?;
    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &Terms::default())).await?;
    let tail = write(a.handle(), RECORDS, |n| n.to_string()).await?;
    let mut peer = Peer::call(&runtime, a.local_addr(), "b", &WITHOUT_WINDOW).await?;
    peer.stand().await?;
    let mut acked = Version::ZERO;
    while acked < tail {
        let out = peer.next_batches(1).await?;
        assert_eq!(peer.batches().await?, [], "one is out");
        acked = out[0];
        peer.acknowledge(acked).await?;
    }
    drop(peer);
    Ok(a.shutdown().await?)
}

/// Brings `peers` peers to the tail, all of them step by step together; how many reads that took.
async fn reads_for<R: Runtime>(runtime: &R, peers: usize) -> Outcome<u64> {
    let folder = tempfile::tempdir()?;
    let names: Vec<String> = (0..peers).map(|n| format!("p{n}")).collect();
    let access = Access {
        token: "of a".into(),
        peers: names.iter().map(|name| caller(name, &token(name))).collect(),
        ..Access::default()
    };
    let a = super::serve_at(runtime, folder.path(), "a", access, any_port()).await??;
    // Long names: the journal holds more than one read brings.
    let tail = write(a.handle(), 4000, |n| format!("{n:0>900}")).await?;
    let mut links = Vec::new();
    for name in &names {
        let mut peer = Peer::call(runtime, a.local_addr(), name, &WITH_WINDOW).await?;
        peer.stand().await?;
        links.push((peer, Version::ZERO));
    }
    while links.iter().any(|(_, acked)| *acked < tail) {
        for (peer, acked) in &mut links {
            let ends = peer.next_batches(1).await?;
            *acked = ends[0];
        }
        for (peer, acked) in &mut links {
            peer.acknowledge(*acked).await?;
        }
    }
    until(runtime, "the acknowledgements", || async {
        let status = a.handle().status().await;
        status.is_ok_and(|status| status.links.iter().all(|link| link.acked == tail))
    })
    .await;
    let reads = a.handle().status().await?.reads_for_peers;
    drop(links);
    a.shutdown().await?;
    Ok(reads)
}

pub(crate) async fn ten_peers_cost_the_reads_of_one<R: Runtime>(runtime: R) -> Outcome {
    let (one, ten) = (reads_for(&runtime, 1).await?, reads_for(&runtime, PEERS).await?);
    assert!(one >= 4, "the journal is longer than one read: {one}");
    assert_eq!(ten, one, "each part of the journal is read once");
    Ok(())
}
