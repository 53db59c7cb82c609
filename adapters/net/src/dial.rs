//! Calls one peer again and again, and holds a link with it.

use crate::access::Rules;
use crate::backoff::{AttemptEnd, Backoff};
use crate::calling::Calling;
use crate::config::ms;
use crate::counters::Refusal;
use crate::greet::{GreetError, greet_as_dialer};
use crate::hold::hold;
use crate::network::Context;
use crate::peers::Peer;
use crate::runtime::{Runtime, within};
use crate::session::{LinkHost, SessionEnd};
use crate::stop::Stop;
use futures::future::select;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use strandline_core::lifecycle::api::{CloseReason, LinkRefused};

/// Calls the peer called `identity` where the rules say, until it is told to stop, or the rules say
/// nowhere.
pub(crate) async fn run<R: Runtime, N: LinkHost>(
    context: Arc<Context<R, N>>,
    identity: String,
    mut calling: Calling,
    stop: Stop,
) {
    let mut backoff = Backoff::new(&context.config, context.seed.clone(), format!("dial {identity}"));
    loop {
        let rules = context.door.rules();
        let Some((peer, address)) = rules.called(&identity) else {
            // It may be listed anew in this moment: then somebody must go on calling.
            match calling.go_on_if(|| context.door.rules().called(&identity).is_some()) {
                Some(on) => calling = on,
                None => return,
            }
            continue;
        };
        let Some(end) = attempt(&context, &rules, peer, address, &stop).await else { return };
        let delay = backoff.after(end);
        tracing::debug!(peer = identity, ?end, delay_ms = delay.as_millis(), "will call again");
        // Other rules are a reason to call now, whatever ended the last attempt: they may let it through. It is
        // one call, and its end counts as any other.
        let rest = select(context.runtime.sleep(delay), rules.superseded.clone());
        if stop.or(rest).await.is_none() {
            return;
        }
    }
}

/// One call, and the link that comes of it; `None` if the stop came before it was up.
async fn attempt<R: Runtime, N: LinkHost>(
    context: &Context<R, N>,
    rules: &Rules,
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
    context.counters.called.add(1);
    match stop.or(greet_as_dialer(context, rules, peer, connection)).await? {
        Ok(greeted) => {
            let start = Instant::now();
            tracing::info!(peer = peer.identity, address, "calling: authenticated");
            let end = hold(context, greeted, stop).await;
            tracing::info!(peer = peer.identity, address, %end, "calling: link has ended");
            // A clock that went back gives no time, and so an early end.
            Some(judge(&end, start.elapsed() >= ms(context.config.settled_ms)))
        }
        Err(error) => {
            let refusal = Refusal::from(&error);
            context.counters.refused(refusal);
            let reason = refusal.label();
            tracing::warn!(peer = peer.identity, address, reason, %error, "calling: no link");
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
        // Called again at once it would be let in by the new rules, or not at all.
        SessionEnd::Revoked(_) => AttemptEnd::LostSettled,
        SessionEnd::Closed(CloseReason::Fault(_)) => AttemptEnd::Fault,
        SessionEnd::Refused(LinkRefused::Full { .. } | LinkRefused::Closing)
        | SessionEnd::Closed(CloseReason::Storage(_) | CloseReason::Idle | CloseReason::Closing)
        | SessionEnd::Ended
        | SessionEnd::Failed(_)
        | SessionEnd::Stalled
        | SessionEnd::Cut => {
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
        GreetError::Tls(_) | GreetError::Bytes { .. } | GreetError::Handshake(_) | GreetError::Dial(_) => {
            AttemptEnd::Rejected
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::calling::Callings;
    use crate::config::NetConfig;
    use crate::stop::{Stopper, stopper};
    use crate::testing::{CALLED as ADDRESS, FakeNode, Memory, context, rules};
    use strandline_core::error::StorageFault;
    use strandline_core::id::LogId;
    use strandline_core::lifecycle::api::{PeerFault, PeerFaultKind};
    use strandline_core::lifecycle::standing::Revoked;
    use strandline_core::wire::auth::AuthTooLarge;
    use strandline_core::wire::handshake::{DialRefused, HandshakeError};
    use strandline_core::wire::identity::PeerIdentity;

    /// `b` calls `a`, which may not listen yet.
    fn call(runtime: &Memory) -> (FakeNode, Stopper) {
        let config = NetConfig { retry_ms: 2, retry_ms_max: 8, ..NetConfig::default() };
        let context = context(runtime, "b", "token-of-b", config);
        let node = context.node.clone();
        let (stopper, stop) = stopper();
        let calling = Callings::default().begin("a").expect("the first");
        runtime.spawn(Box::pin(run(context, "a".into(), calling, stop)));
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
        stopper.stop().ended().await;
    }

    #[tokio::test]
    async fn a_stop_ends_a_caller_that_nobody_answers() {
        let runtime = Memory::default();
        let (_b, stopper) = call(&runtime);
        stopper.stop().ended().await;
        let calls = runtime.calls();
        tokio::time::sleep(ms(20)).await;
        assert_eq!(runtime.calls(), calls);
    }

    async fn until_calls(runtime: &Memory, calls: usize) {
        let waited = tokio::time::timeout(ms(20_000), async {
            while runtime.calls() < calls {
                tokio::time::sleep(ms(1)).await;
            }
        });
        waited.await.expect("it calls");
    }

    #[tokio::test]
    async fn other_rules_are_tried_at_once_and_an_address_taken_away_ends_the_calls() {
        let runtime = Memory::default();
        let config = NetConfig { retry_ms: 600_000, retry_ms_max: 600_000, ..NetConfig::default() };
        let context = context(&runtime, "b", "token-of-b", config);
        let door = context.door.clone();
        let (stopper, stop) = stopper();
        let callings = Callings::default();
        let calling = callings.begin("a").expect("the first");
        runtime.spawn(Box::pin(run(context, "a".into(), calling, stop)));
        until_calls(&runtime, 1).await;
        door.replace(rules("b", "token-of-b", "token-of-b"));
        until_calls(&runtime, 2).await;
        let nobody = Rules::new("b", &rules("b", "", "").0.dial.capabilities, Access::default());
        door.replace(nobody.expect("valid"));
        stopper.ended().await;
        assert!(callings.begin("a").is_some(), "it is called no more");
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
    fn revoked_is_called_again_as_if_it_had_settled() {
        let identity = PeerIdentity::parse("b").expect("valid");
        let end = SessionEnd::Revoked(Revoked::Unlisted { identity });
        assert_eq!(judge(&end, false), AttemptEnd::LostSettled);
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
            SessionEnd::Cut,
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
        for disagreed in [
            GreetError::Tls(rustls::Error::DecryptError),
            GreetError::Bytes { bytes_max: 1 },
            GreetError::Handshake(HandshakeError::IdentityUnknown),
            GreetError::Dial(DialRefused::TooLarge(AuthTooLarge { bytes: 5000 })),
        ] {
            assert_eq!(judge_greeting(&disagreed), AttemptEnd::Rejected);
        }
    }
}
