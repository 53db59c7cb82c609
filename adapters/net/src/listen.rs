//! Takes connections of peers, as many as the limits allow.

use crate::config::ms;
use crate::counters::Refusal;
use crate::gate::{Handshaking, Linked};
use crate::greet::{Greeted, greet_as_listener};
use crate::hold::hold;
use crate::network::Context;
use crate::runtime::Runtime;
use crate::session::LinkHost;
use crate::stop::Stop;
use futures::StreamExt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Rest after the system could not give a connection: it is mostly out of descriptors, and asking
/// again at once would only spin.
const ACCEPT_REST_MS: u64 = 100;

/// Takes connections until it is told to stop.
pub(crate) async fn run<R: Runtime, N: LinkHost>(
    context: Arc<Context<R, N>>,
    mut incoming: R::Incoming,
    stop: Stop,
) {
    while let Some(Some(arrived)) = stop.or(incoming.next()).await {
        match arrived {
            Ok((connection, from)) => take(&context, connection, from, &stop),
            Err(error) => {
                tracing::warn!(%error, "cannot take a connection");
                if stop.or(context.runtime.sleep(ms(ACCEPT_REST_MS))).await.is_none() {
                    return;
                }
            }
        }
    }
}

/// Lets one connection in.
fn take<R: Runtime, N: LinkHost>(
    context: &Arc<Context<R, N>>,
    connection: R::Connection,
    from: SocketAddr,
    stop: &Stop,
) {
    context.counters.accepted.add(1);
    let handshaking = context.gate.enter(from.ip());
    let task = serve(Arc::clone(context), connection, from, handshaking, stop.clone());
    context.runtime.spawn(Box::pin(task));
}

async fn serve<R: Runtime, N: LinkHost>(
    context: Arc<Context<R, N>>,
    connection: R::Connection,
    from: SocketAddr,
    handshaking: Handshaking,
    stop: Stop,
) {
    let Some(greeting) = stop.or(greet(&context, connection, handshaking)).await else { return };
    let (greeted, _linked) = match greeting {
        Ok(greeted) => greeted,
        Err((refusal, error)) => {
            context.counters.refused(refusal);
            return tracing::warn!(%from, reason = refusal.label(), error, "called: no link");
        }
    };
    let identity = greeted.peer.identity().clone();
    tracing::info!(peer = %identity, %from, "called: authenticated");
    let end = hold(&context, greeted, &stop).await;
    tracing::info!(peer = %identity, %from, %end, "called: link has ended");
}

/// The handshake, and a link's place for one of a stranger's.
async fn greet<R: Runtime, N: LinkHost>(
    context: &Context<R, N>,
    connection: R::Connection,
    mut handshaking: Handshaking,
) -> Result<(Greeted<R::Connection>, Linked), (Refusal, String)> {
    let rules = context.door.rules();
    match handshaking.or(greet_as_listener(context, &rules, connection)).await {
        Some(Ok(greeted)) => match handshaking.into_link() {
            Ok(linked) => Ok((greeted, linked)),
            Err(turned) => Err((turned.into(), turned.to_string())),
        },
        Some(Err(error)) => Err((Refusal::from(&error), error.to_string())),
        None => Err((Refusal::Displaced, "a newer connection needed its place".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NetConfig;
    use crate::counters::NetStatus;
    use crate::stop::{Stopper, stopper};
    use crate::testing::{FakeNode, Memory, context, hello, rules};
    use futures::{AsyncReadExt, AsyncWriteExt};

    const ADDRESS: &str = "10.0.0.9:1";

    /// A listener that runs on its own, and what stops it.
    struct Listening {
        runtime: Memory,
        node: FakeNode,
        context: Arc<Context<Memory, FakeNode>>,
        stopper: Stopper,
    }

    impl Listening {
        async fn start(config: NetConfig) -> Self {
            let runtime = Memory::default();
            let context = context(&runtime, "a", "", config);
            let node = context.node.clone();
            let address = ADDRESS.parse().expect("an address");
            let (incoming, _) = runtime.listen(address).await.expect("listening");
            let (stopper, stop) = stopper();
            runtime.spawn(Box::pin(run(Arc::clone(&context), incoming, stop)));
            Self { runtime, node, context, stopper }
        }

        fn status(&self) -> NetStatus {
            self.context.counters.status(&self.context.gate)
        }

        async fn until_refused(&self, reason: Refusal, times: u64) {
            let waited = tokio::time::timeout(ms(20_000), async {
                while self.status().refused(reason) < times {
                    tokio::time::sleep(ms(1)).await;
                }
            });
            waited.await.unwrap_or_else(|_| panic!("{reason:?} {times} times, found {:?}", self.status()));
        }

        async fn call(&self, say: &[u8]) -> <Memory as Runtime>::Connection {
            let mut connection = self.runtime.connect(ADDRESS).await.expect("a listener");
            connection.write_all(say).await.expect("written");
            connection
        }

        /// Calls, and reads until the listener hangs up.
        async fn called_off(&self, say: &[u8]) -> Vec<u8> {
            let mut heard = Vec::new();
            self.call(say).await.read_to_end(&mut heard).await.expect("read");
            assert_eq!(self.node.told().ups, 0);
            heard
        }
    }

    #[tokio::test]
    async fn the_right_token_gets_a_link_and_what_follows_it_arrives() {
        let listening = Listening::start(NetConfig::default()).await;
        let _b = listening.call(&[&hello("token-of-b")[..], b"what follows"].concat()).await;
        listening.node.until(|told| told.received == b"what follows").await;
    }

    #[tokio::test]
    async fn a_wrong_token_is_told_so_and_gets_nothing() {
        let listening = Listening::start(NetConfig::default()).await;
        let heard = listening.called_off(&hello("a guess")).await;
        assert!(heard.windows(11).any(|part| part == b"peer.auth.r"), "a rejection");
    }

    #[tokio::test]
    async fn who_says_nothing_is_given_up() {
        let listening = Listening::start(NetConfig { handshake_ms: 20, ..NetConfig::default() }).await;
        assert!(listening.called_off(b"").await.is_empty());
        assert!(listening.called_off(&hello("token-of-b")[..9]).await.is_empty(), "half a message");
    }

    #[tokio::test]
    async fn an_oversize_frame_is_refused_by_its_length() {
        let listening = Listening::start(NetConfig::default()).await;
        assert!(listening.called_off(b"SHV1\xff\xff\xff\xff").await.is_empty());
    }

    #[tokio::test]
    async fn too_many_bytes_before_authentication_are_refused() {
        let config = NetConfig { handshake_bytes_max: 64, ..NetConfig::default() };
        let listening = Listening::start(config).await;
        let mut long = b"SHV1\0\0\x0f\xff".to_vec();
        long.resize(200, b' ');
        assert!(listening.called_off(&long).await.is_empty());
        listening.until_refused(Refusal::Bytes, 1).await;
    }

    #[tokio::test]
    async fn a_flood_that_says_nothing_leaves_room_for_a_peer_and_for_the_link_it_has() {
        let config = NetConfig { handshakes_per_address_max: 4, links_max: 2, ..NetConfig::default() };
        let listening = Listening::start(config).await;
        let _first = listening.call(&hello("token-of-b")).await;
        listening.node.until(|told| told.ups == 1).await;
        let mut flood = Vec::new();
        for _ in 0..1_000 {
            flood.push(listening.call(b"").await);
        }
        listening.until_refused(Refusal::Displaced, 996).await;
        assert_eq!(listening.status().handshakes_open, 4);
        let _second = listening.call(&hello("token-of-b")).await;
        listening.node.until(|told| told.ups == 2 && told.downs == 0).await;
        assert_eq!(listening.status().links_open, 2);
        let _third = listening.call(&hello("token-of-b")).await;
        listening.until_refused(Refusal::Links, 1).await;
    }

    #[tokio::test]
    async fn refusals_are_counted_by_reason() {
        let listening = Listening::start(NetConfig { handshake_ms: 200, ..NetConfig::default() }).await;
        let silent = listening.call(b"").await;
        listening.called_off(&hello("a guess")).await;
        listening.called_off(b"GET / HTTP/1.1\r\n\r\n").await;
        drop(listening.call(&hello("token-of-b")[..9]).await);
        for reason in [Refusal::Token, Refusal::Protocol, Refusal::Lost, Refusal::Late] {
            listening.until_refused(reason, 1).await;
        }
        let status = listening.status();
        assert_eq!((status.accepted, status.linked, status.handshakes_open), (4, 0, 0));
        drop(silent);
    }

    #[tokio::test]
    async fn a_token_revoked_ends_the_link_that_it_made() {
        let listening = Listening::start(NetConfig::default()).await;
        let mut b = listening.call(&hello("token-of-b")).await;
        listening.node.until(|told| told.ups == 1).await;
        assert_eq!(listening.context.door.replace(rules("a", "", "token-of-b")), 0, "nothing changed");
        assert_eq!(listening.context.door.replace(rules("a", "", "another")), 1);
        b.read_to_end(&mut Vec::new()).await.expect("hung up");
        listening.node.until(|told| told.downs == 1).await;
        assert_eq!(listening.status().revoked, 1);
        let mut heard = Vec::new();
        listening.call(&hello("token-of-b")).await.read_to_end(&mut heard).await.expect("hung up");
        listening.until_refused(Refusal::Token, 1).await;
    }

    #[tokio::test]
    async fn a_cut_ends_links_and_a_stop_does_not() {
        let listening = Listening::start(NetConfig::default()).await;
        let _b = listening.call(&hello("token-of-b")).await;
        listening.node.until(|told| told.ups == 1).await;
        let mut stopping = listening.stopper.stop();
        assert!(tokio::time::timeout(ms(30), stopping.ended()).await.is_err(), "the link goes on");
        stopping.cut();
        stopping.ended().await;
        assert_eq!(listening.node.told().downs, 1);
    }

    #[tokio::test]
    async fn a_stopper_that_is_dropped_ends_links() {
        let listening = Listening::start(NetConfig::default()).await;
        let mut b = listening.call(&hello("token-of-b")).await;
        listening.node.until(|told| told.ups == 1).await;
        drop(listening.stopper);
        listening.node.until(|told| told.downs == 1).await;
        b.read_to_end(&mut Vec::new()).await.expect("hung up");
    }

    #[tokio::test]
    async fn a_stop_ends_the_listener_and_handshakes() {
        let listening = Listening::start(NetConfig::default()).await;
        let mut silent = listening.call(b"").await;
        listening.stopper.stop().ended().await;
        let mut heard = Vec::new();
        silent.read_to_end(&mut heard).await.expect("hung up");
        assert!(heard.is_empty());
    }
}
