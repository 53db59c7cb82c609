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
    let identity = peer.identity().to_owned();
    tracing::info!(peer = %identity, %from, "called: authenticated");
    let Context { runtime, config, node, .. } = &*context;
    let end = session::run(runtime, config, node, connection, peer, role, early).await;
    tracing::info!(peer = %identity, %from, %end, "called: link has ended");
}
