//! Calls one peer again and again, and holds a link with it.

use crate::backoff::{AttemptEnd, Backoff};
use crate::config::ms;
use crate::greet::{Greeted, GreetError, greet_as_dialer};
use crate::network::Context;
use crate::peers::Peer;
use crate::runtime::{Runtime, within};
use crate::session::{self, SessionEnd};
use crate::stop::Stop;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strandline_core::lifecycle::api::{CloseReason, LinkRefused};

/// Calls `peer` at `address` until it is told to stop.
pub(crate) async fn run<R: Runtime>(context: Arc<Context<R>>, peer: Peer, address: String, stop: Stop) {
    let mut backoff = Backoff::new(&context.config, context.seed.clone(), format!("dial {}", peer.identity));
    loop {
        let Some(end) = attempt(&context, &peer, &address, &stop).await else { return };
        let delay = backoff.after(end);
        tracing::debug!(peer = %peer.identity, ?end, delay_ms = delay.as_millis(), "will call again");
        if stop.or(context.runtime.sleep(delay)).await.is_none() {
            return;
        }
    }
}

/// One call, and the link that comes of it; `None` if the stop came before it was up.
async fn attempt<R: Runtime>(
    context: &Context<R>,
    peer: &Peer,
    address: &str,
    stop: &Stop,
) -> Option<AttemptEnd> {
    let connected = within(&context.runtime, ms(context.config.connect_ms), context.runtime.connect(address));
    let connection = match stop.or(connected).await? {
        Some(Ok(connection)) => connection,
        Some(Err(error)) => return Some(unreachable(peer, address, &error)),
        None => return Some(unreachable(peer, address, &io::ErrorKind::TimedOut.into())),
    };
    match stop.or(greet_as_dialer(context, peer, connection)).await? {
        Ok(greeted) => {
            let start = Instant::now();
            let Greeted { connection, peer: authenticated, role, early } = greeted;
            tracing::info!(peer = %peer.identity, address, "calling: authenticated");
            let Context { runtime, config, node, .. } = context;
            let end = session::run(runtime, config, node, connection, authenticated, role, early).await;
            tracing::info!(peer = %peer.identity, address, ?end, "calling: link has ended");
            Some(judge(&end, start.elapsed() >= ms(config.settled_ms)))
        }
        Err(error) => {
            tracing::warn!(peer = %peer.identity, address, %error, "calling: no handshake");
            Some(judge_greeting(&error))
        }
    }
}

fn unreachable(peer: &Peer, address: &str, error: &io::Error) -> AttemptEnd {
    tracing::debug!(peer = %peer.identity, address, %error, "calling: no connection");
    AttemptEnd::Unreachable
}

const fn judge(end: &SessionEnd, settled: bool) -> AttemptEnd {
    match end {
        SessionEnd::Refused(LinkRefused::Duplicate { .. }) | SessionEnd::Closed(CloseReason::Duplicate) => {
            AttemptEnd::Duplicate
        }
        SessionEnd::Refused(
            LinkRefused::Log { .. } | LinkRefused::RoleNeeded { .. } | LinkRefused::OwnName { .. },
        ) => AttemptEnd::Rejected,
        SessionEnd::Closed(CloseReason::Stopped(_)) => AttemptEnd::Stopped,
        SessionEnd::Closed(CloseReason::Fault(_)) => AttemptEnd::Fault,
        SessionEnd::Refused(LinkRefused::Full { .. } | LinkRefused::Closing)
        | SessionEnd::Closed(CloseReason::Idle | CloseReason::Closing)
        | SessionEnd::Ended
        | SessionEnd::Failed(_)
        | SessionEnd::Stalled => {
            if settled {
                AttemptEnd::LostSettled
            } else {
                AttemptEnd::LostEarly
            }
        }
    }
}
