//! Takes connections of peers, as many as the limits allow.

use crate::config::ms;
use crate::gate::Entered;
use crate::greet::{Greeted, greet_as_listener};
use crate::network::Context;
use crate::runtime::Runtime;
use crate::session::{self, LinkHost};
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

/// Lets one connection in, or drops it.
fn take<R: Runtime, N: LinkHost>(
    context: &Arc<Context<R, N>>,
    connection: R::Connection,
    from: SocketAddr,
    stop: &Stop,
) {
    match context.gate.enter(from.ip()) {
        Ok(entered) => {
            let task = serve(Arc::clone(context), connection, from, entered, stop.clone());
            context.runtime.spawn(Box::pin(task));
        }
        Err(turned) => tracing::warn!(%from, reason = %turned, "connection turned away"),
    }
}

async fn serve<R: Runtime, N: LinkHost>(
    context: Arc<Context<R, N>>,
    connection: R::Connection,
    from: SocketAddr,
    _entered: Entered,
    stop: Stop,
) {
    let Some(greeting) = stop.or(greet_as_listener(&context, connection)).await else { return };
    let Greeted { connection, peer, role, early } = match greeting {
        Ok(greeted) => greeted,
        Err(error) => return tracing::warn!(%from, %error, "called: no handshake"),
    };
    let identity = peer.identity().clone();
    tracing::info!(peer = %identity, %from, "called: authenticated");
    let Context { runtime, config, node, .. } = &*context;
    let session = session::run(runtime, config, node, connection, peer, role, early);
    match stop.or_given_up(session).await {
        Some(end) => tracing::info!(peer = %identity, %from, %end, "called: link has ended"),
        None => tracing::info!(peer = %identity, %from, "called: link was given up"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NetConfig;
    use crate::stop::{Stopper, stopper};
    use crate::testing::{FakeNode, Memory, context, hello};
    use futures::{AsyncReadExt, AsyncWriteExt};

    const ADDRESS: &str = "10.0.0.9:1";

    /// A listener that runs on its own, and what stops it.
    struct Listening {
        runtime: Memory,
        node: FakeNode,
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
            runtime.spawn(Box::pin(run(context, incoming, stop)));
            Self { runtime, node, stopper }
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
    async fn who_is_silent_delays_nobody_and_takes_a_place() {
        let config = NetConfig { connections_per_address_max: 2, ..NetConfig::default() };
        let listening = Listening::start(config).await;
        let silent = listening.call(b"").await;
        let _b = listening.call(&hello("token-of-b")).await;
        listening.node.until(|told| told.ups == 1).await;
        let mut heard = Vec::new();
        listening.call(b"").await.read_to_end(&mut heard).await.expect("turned away");
        drop(silent);
    }

    #[tokio::test]
    async fn a_stop_ends_the_listener_and_handshakes() {
        let listening = Listening::start(NetConfig::default()).await;
        let mut silent = listening.call(b"").await;
        listening.stopper.stop().await;
        let mut heard = Vec::new();
        silent.read_to_end(&mut heard).await.expect("hung up");
        assert!(heard.is_empty());
    }

    #[tokio::test]
    async fn links_that_stand_outlive_a_stop_and_end_when_it_is_given_up() {
        let listening = Listening::start(NetConfig::default()).await;
        let mut b = listening.call(&hello("token-of-b")).await;
        listening.node.until(|told| told.ups == 1).await;
        let stopping = listening.stopper.stop();
        b.write_all(b"goes on").await.expect("written");
        listening.node.until(|told| told.received == b"goes on").await;
        drop(stopping);
        listening.node.until(|told| told.downs == 1).await;
        let mut heard = Vec::new();
        b.read_to_end(&mut heard).await.expect("hung up");
    }

    #[tokio::test]
    async fn links_end_with_a_network_that_is_dropped() {
        let listening = Listening::start(NetConfig::default()).await;
        let mut b = listening.call(&hello("token-of-b")).await;
        listening.node.until(|told| told.ups == 1).await;
        drop(listening.stopper);
        listening.node.until(|told| told.downs == 1).await;
        let mut heard = Vec::new();
        b.read_to_end(&mut heard).await.expect("hung up");
    }
}
