//! Bringing a history to a replica of this process, over a link without a wire.

use crate::exit::Failure;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use strandline_core::compat::streamhive::migrate::{Feed, History};
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{CloseReason, LinkRole};
use strandline_core::machine::Sent;
use strandline_core::wire::capability::Capabilities;
use strandline_core::wire::handshake::{
    Authenticated, DialAuth, Handshake, ListenAuth, PeerCredential, Progress,
};
use strandline_core::wire::identity::PeerIdentity;
use strandline_file::node::{LinkSink, NodeHandle};

/// The name of who brings it; no replica may have it.
const SOURCE: &str = "streamhive-v1";

/// Longest wait for a disk that makes something durable.
const ANSWER: Duration = Duration::from_secs(120);

/// What the replica sends on the link.
enum Said {
    Frame(Vec<u8>),
    Closed(String),
}

struct Sink(Sender<Said>);

impl LinkSink for Sink {
    fn send(&mut self, frame: &[u8]) -> Sent {
        // Who brings the history may have given up; then the link is closed as well.
        let _ = self.0.send(Said::Frame(frame.to_vec()));
        Sent::More
    }

    fn close(&mut self, reason: &CloseReason) {
        let _ = self.0.send(Said::Closed(format!("{reason:?}")));
    }
}

/// Brings all of `history` to the node, a new replica that follows `log` under the name `identity`.
pub(crate) fn bring(node: &NodeHandle, identity: &str, log: LogId, history: &History) -> Result<(), Failure> {
    let (answer, answered) = channel();
    node.read(move |replica| drop(answer.send(replica.map(|replica| replica.capabilities()))));
    let of_replica = answered
        .recv()
        .expect("the node answers every call")
        .map_err(|error| Failure::refused(error.to_string()))?;
    let mut feed =
        Feed::new(history, log, &of_replica).map_err(|error| Failure::storage(error.to_string()))?;
    let peer = introduce(identity, &of_replica, &Feed::capabilities(log))?;
    let (said, says) = channel();
    let (up, taken_up) = channel();
    node.link_up(peer, LinkRole::Receiver, Box::new(Sink(said)), move |link| drop(up.send(link)));
    let link = taken_up
        .recv()
        .expect("the node answers every call")
        .map_err(|error| Failure::refused(error.to_string()))?;
    while !feed.is_done() {
        let frame = match says.recv_timeout(ANSWER) {
            Ok(Said::Frame(frame)) => frame,
            Ok(Said::Closed(reason)) => {
                return Err(Failure::storage(format!("the new replica refuses the history: {reason}")));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(Failure::storage(format!("the new replica said nothing for {ANSWER:?}")));
            }
        };
        let mut frames = Vec::new();
        feed.received(&frame, &mut frames).map_err(|error| Failure::storage(error.to_string()))?;
        if !frames.is_empty() {
            node.received(link, frames, || ());
        }
    }
    node.link_down(link);
    Ok(())
}

/// The two ends of the link, known to each other.
fn introduce(
    identity: &str,
    of_replica: &Capabilities,
    declared: &Capabilities,
) -> Result<Authenticated, Failure> {
    let name = |text: &str| {
        PeerIdentity::parse(text).map_err(|error| Failure::usage(format!("identity {text:?}: {error}")))
    };
    let (ours, theirs) = (name(identity)?, name(SOURCE)?);
    let mut hello = Vec::new();
    let dial = DialAuth {
        token: SOURCE.into(),
        identity: Some(theirs.clone()),
        capabilities: declared.clone(),
        expect: Some(ours.clone()),
    };
    let failed = |text: String| Failure::usage(format!("the link without a wire is refused: {text}"));
    Handshake::dial(dial, &mut hello).map_err(|error| failed(error.to_string()))?;
    let listener = Handshake::listen(ListenAuth {
        identity: Some(ours),
        capabilities: of_replica.clone(),
        credentials: vec![PeerCredential::of_token(theirs, SOURCE)],
    });
    match listener.handle_received(&hello, &mut Vec::new()) {
        Ok(Progress::Done { peer, .. }) => Ok(peer),
        Ok(Progress::More(_)) => Err(failed("its first word is cut".into())),
        Err(error) => Err(failed(format!("{error:?}"))),
    }
}
