//! Calls one peer again and again, and holds a link with it.

use crate::backoff::{AttemptEnd, Backoff};
use crate::config::ms;
use crate::greet::{GreetError, Greeted, greet_as_dialer};
use crate::network::Context;
use crate::peers::Peer;
use crate::runtime::{Runtime, within};
use crate::session::{self, LinkHost, SessionEnd};
use crate::stop::Stop;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use strandline_core::lifecycle::api::{CloseReason, LinkRefused};

/// Calls `peer` at `address` until it is told to stop.
pub(crate) async fn run<R: Runtime, N: LinkHost>(
    context: Arc<Context<R, N>>,
    peer: Peer,
    address: String,
    stop: Stop,
) {
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

/// One call, and the link that comes of it; `None` if the stop came before it was up, or it was
/// given up.
async fn attempt<R: Runtime, N: LinkHost>(
    context: &Context<R, N>,
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
            let session = session::run(runtime, config, node, connection, authenticated, role, early);
            let end = stop.or_given_up(session).await?;
            tracing::info!(peer = %peer.identity, address, %end, "calling: link has ended");
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
        SessionEnd::Closed(CloseReason::Fault(_)) => AttemptEnd::Fault,
        SessionEnd::Refused(LinkRefused::Full { .. } | LinkRefused::Closing)
        | SessionEnd::Closed(CloseReason::Storage(_) | CloseReason::Idle | CloseReason::Closing)
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

const fn judge_greeting(error: &GreetError) -> AttemptEnd {
    match error {
        GreetError::Connection(_) | GreetError::Late { .. } => AttemptEnd::Unreachable,
        GreetError::Handshake(_) | GreetError::Token(_) | GreetError::NotConfigured { .. } => {
            AttemptEnd::Rejected
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NetConfig;
    use crate::stop::{Stopper, stopper};
    use crate::testing::{FakeNode, Memory, context};
    use strandline_core::error::StorageFault;
    use strandline_core::id::LogId;
    use strandline_core::lifecycle::api::{LinkRole, PeerFault, PeerFaultKind};
    use strandline_core::wire::auth::AuthTooLarge;
    use strandline_core::wire::handshake::HandshakeError;
    use strandline_core::wire::identity::PeerIdentity;

    const ADDRESS: &str = "10.0.0.9:1";

    /// `b` calls `a`, which may not listen yet.
    fn call(runtime: &Memory) -> (FakeNode, Stopper) {
        let config = NetConfig { retry_ms: 2, retry_ms_max: 8, ..NetConfig::default() };
        let context = context(runtime, "b", "token-of-b", config);
        let node = context.node.clone();
        let peer = Peer { identity: "a".into(), address: None, token: None, role: LinkRole::Both };
        let (stopper, stop) = stopper();
        runtime.spawn(Box::pin(run(context, peer, ADDRESS.into(), stop)));
        (node, stopper)
    }

    async fn listen(runtime: &Memory) -> (FakeNode, Stopper) {
        let context = context(runtime, "a", "", NetConfig::default());
        let node = context.node.clone();
        let (incoming, _) = runtime.listen(ADDRESS.parse().expect("an address")).await.expect("listening");
        let (stopper, stop) = stopper();
        runtime.spawn(Box::pin(crate::listen::run(context, incoming, stop)));
        (node, stopper)
    }

    #[tokio::test]
    async fn a_peer_is_called_until_it_listens_and_again_when_it_is_lost() {
        let runtime = Memory::default();
        let (b, stopper) = call(&runtime);
        while runtime.calls() < 4 {
            tokio::time::sleep(ms(1)).await;
        }
        let (a, _listening) = listen(&runtime).await;
        b.until(|told| told.ups == 1).await;
        a.until(|told| told.ups == 1).await;
        a.close(&CloseReason::Closing);
        b.until(|told| told.ups == 2 && told.downs == 1).await;
        a.until(|told| told.ups == 2).await;
        a.close(&CloseReason::Closing);
        stopper.stop().await;
    }

    #[tokio::test]
    async fn a_stop_ends_a_caller_that_nobody_answers() {
        let runtime = Memory::default();
        let (_b, stopper) = call(&runtime);
        stopper.stop().await;
        let calls = runtime.calls();
        tokio::time::sleep(ms(20)).await;
        assert_eq!(runtime.calls(), calls);
    }

    #[tokio::test]
    async fn a_link_that_stands_ends_with_a_network_that_is_dropped() {
        let runtime = Memory::default();
        let (a, _listening) = listen(&runtime).await;
        let (b, stopper) = call(&runtime);
        b.until(|told| told.ups == 1).await;
        drop(stopper);
        b.until(|told| told.downs == 1).await;
        a.until(|told| told.downs == 1).await;
    }

    #[test]
    fn refused_duplicate_and_closed_duplicate_are_duplicate() {
        let refused = SessionEnd::Refused(LinkRefused::Duplicate { identity: "b".into() });
        assert_eq!(judge(&refused, true), AttemptEnd::Duplicate);
        assert_eq!(judge(&SessionEnd::Closed(CloseReason::Duplicate), true), AttemptEnd::Duplicate);
    }

    #[test]
    fn refused_log_role_and_own_name_are_rejected() {
        let identity = || String::from("b");
        let log = LinkRefused::Log { identity: identity(), expected: LogId([1; 16]), found: LogId([2; 16]) };
        let role = LinkRefused::RoleNeeded { identity: identity() };
        let own = LinkRefused::OwnName { identity: identity() };
        for refused in [log, role, own] {
            assert_eq!(judge(&SessionEnd::Refused(refused), true), AttemptEnd::Rejected);
        }
    }

    #[test]
    fn closed_fault_is_fault() {
        let fault = PeerFault { what: PeerFaultKind::Frame, expected: "a".into(), found: "b".into() };
        assert_eq!(judge(&SessionEnd::Closed(CloseReason::Fault(fault)), true), AttemptEnd::Fault);
    }

    #[test]
    fn every_other_end_depends_on_how_long_the_link_stood() {
        for end in [
            SessionEnd::Refused(LinkRefused::Full { links_max: 1 }),
            SessionEnd::Refused(LinkRefused::Closing),
            SessionEnd::Closed(CloseReason::Storage(StorageFault::damaged("checkpoint", 0, "test"))),
            SessionEnd::Closed(CloseReason::Idle),
            SessionEnd::Closed(CloseReason::Closing),
            SessionEnd::Ended,
            SessionEnd::Failed(io::ErrorKind::ConnectionReset.into()),
            SessionEnd::Stalled,
        ] {
            assert_eq!(judge(&end, true), AttemptEnd::LostSettled, "{end}");
            assert_eq!(judge(&end, false), AttemptEnd::LostEarly, "{end}");
        }
    }

    #[test]
    fn a_failed_greeting_is_unreachable_if_the_connection_failed_and_rejected_if_we_disagree() {
        assert_eq!(judge_greeting(&GreetError::Late { ms_max: 1 }), AttemptEnd::Unreachable);
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(judge_greeting(&GreetError::Connection(reset)), AttemptEnd::Unreachable);
        let identity = PeerIdentity::parse("b").expect("valid");
        for disagreed in [
            GreetError::NotConfigured { identity },
            GreetError::Handshake(HandshakeError::IdentityUnknown),
            GreetError::Token(AuthTooLarge { bytes: 5000 }),
        ] {
            assert_eq!(judge_greeting(&disagreed), AttemptEnd::Rejected);
        }
    }
}
