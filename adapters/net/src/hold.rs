//! Holds the link of a connection that is through the handshake, until either side or the rules end it.

use crate::counters::Refusal;
use crate::door::Standing;
use crate::greet::Greeted;
use crate::network::Context;
use crate::runtime::Runtime;
use crate::session::{self, Host, LinkHost, SessionEnd};
use crate::stop::Stop;
use futures::future::{Either, select};
use std::pin::pin;
use std::sync::OnceLock;
use strandline_core::lifecycle::api::CloseReason;
use strandline_core::lifecycle::standing::Revoked;

/// Holds the link; how it ended.
pub(crate) async fn hold<R: Runtime, N: LinkHost>(
    context: &Context<R, N>,
    greeted: Greeted<R::Connection>,
    stop: &Stop,
) -> SessionEnd {
    let Greeted { connection, peer, admitted, early } = greeted;
    let role = admitted.role;
    let mut standing = match context.door.admit(admitted) {
        Ok(standing) => standing,
        Err(revoked) => {
            context.counters.refused(Refusal::Revoked);
            return SessionEnd::Revoked(revoked);
        }
    };
    context.counters.linked.add(1);
    let Context { runtime, config, node, counters, .. } = context;
    let (host, closed) = (Host { runtime, config, node, counters }, OnceLock::new());
    let session = session::run(host, connection, peer, role, early, &closed);
    let ended = stop.or_cut(until_revoked(&mut standing, session)).await.unwrap_or(Err(Cause::Cut));
    let end = ended.unwrap_or_else(|cause| end(cause, closed.into_inner()));
    if let SessionEnd::Revoked(_) = end {
        context.counters.revoked.add(1);
    }
    end
}

/// What ends a link from outside.
enum Cause {
    /// The list of peers changed.
    Revoked(Revoked),
    /// The network has ended.
    Cut,
}

/// How a link ended that was ended from outside. One that the replica had closed before was over: only its
/// connection lingered, for the last words, and why it was closed decides when the peer is called again.
fn end(cause: Cause, closed: Option<CloseReason>) -> SessionEnd {
    match (cause, closed) {
        (Cause::Revoked(_) | Cause::Cut, Some(reason)) => SessionEnd::Closed(reason),
        (Cause::Revoked(revoked), None) => SessionEnd::Revoked(revoked),
        (Cause::Cut, None) => SessionEnd::Cut,
    }
}

async fn until_revoked(
    standing: &mut Standing,
    session: impl Future<Output = SessionEnd>,
) -> Result<SessionEnd, Cause> {
    match select(&mut standing.revoked, pin!(session)).await {
        Either::Left((Ok(revoked), _)) => Err(Cause::Revoked(revoked)),
        // The door goes with the network.
        Either::Left((Err(_), _)) => Err(Cause::Cut),
        Either::Right((end, _)) => Ok(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NetConfig;
    use crate::connection::{Allowance, Connection, Metered};
    use crate::stop::{Stopper, stopper};
    use crate::testing::{FakeNode, Memory, authenticated, context, identity, pipe, rules};
    use futures::AsyncReadExt as _;
    use std::sync::Arc;
    use std::time::Duration;
    use strandline_core::lifecycle::api::LinkRole;
    use strandline_core::lifecycle::standing::{Admitted, Proof};
    use strandline_core::wire::admission::Channel;
    use strandline_core::wire::handshake::token_sha256;
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;
    use tokio_util::compat::Compat;

    const LONG_MS: u64 = 600_000;

    fn revoked() -> Revoked {
        Revoked::Unlisted { identity: identity("b") }
    }

    #[test]
    fn revoked_or_cut_before_it_was_closed() {
        assert!(matches!(end(Cause::Revoked(revoked()), None), SessionEnd::Revoked(_)));
        assert!(matches!(end(Cause::Cut, None), SessionEnd::Cut));
    }

    #[test]
    fn revoked_or_cut_while_it_lingered_is_what_closed_it() {
        for cause in [Cause::Revoked(revoked()), Cause::Cut] {
            let end = end(cause, Some(CloseReason::Duplicate));
            assert!(matches!(end, SessionEnd::Closed(CloseReason::Duplicate)), "{end}");
        }
    }

    /// A link of `a` with `b`, and the means to end it from outside.
    struct Link {
        node: FakeNode,
        context: Arc<Context<Memory, FakeNode>>,
        held: JoinHandle<SessionEnd>,
        peer: Compat<DuplexStream>,
        stopper: Stopper,
    }

    async fn link() -> Link {
        let config = NetConfig { linger_ms: LONG_MS, idle_ms: LONG_MS, ..NetConfig::default() };
        let context = context(&Memory::default(), "a", "", config);
        let (ours, peer) = pipe();
        let metered = Metered::new(ours, Allowance::new(u64::MAX), context.counters.clone());
        let proof = Proof::Token(token_sha256("token-of-b"));
        let role = LinkRole::Both;
        let admitted = Admitted { identity: identity("b"), proof, channel: Channel::Plain, role };
        let connection = Connection::Plain(metered);
        let greeted = Greeted { connection, peer: authenticated(), admitted, early: Vec::new() };
        let (stopper, stop) = stopper();
        let (node, own) = (context.node.clone(), context.clone());
        let held = tokio::spawn(async move { hold(&own, greeted, &stop).await });
        node.until(|told| told.ups == 1).await;
        Link { node, context, held, peer, stopper }
    }

    impl Link {
        /// The replica closes it, and the peer hears so, but stays.
        async fn closed(mut self) -> Self {
            self.node.close(&CloseReason::Duplicate);
            self.peer.read_to_end(&mut Vec::new()).await.expect("the end of the last words");
            self
        }

        fn revoke(&self) {
            self.context.door.replace(rules("a", "", "another token of b"));
        }

        async fn end(self) -> (SessionEnd, u64) {
            let end = tokio::time::timeout(Duration::from_secs(60), self.held).await.expect("it ends");
            (end.expect("no panic"), self.context.counters.status(&self.context.gate).revoked)
        }
    }

    #[tokio::test]
    async fn a_revocation_ends_a_link_and_is_counted() {
        let link = link().await;
        link.revoke();
        let (end, revoked) = link.end().await;
        assert!(matches!(end, SessionEnd::Revoked(_)), "{end}");
        assert_eq!(revoked, 1);
    }

    #[tokio::test]
    async fn a_revocation_of_a_link_that_lingers_ends_the_lingering_and_changes_no_reason() {
        let link = link().await.closed().await;
        link.revoke();
        let (end, revoked) = link.end().await;
        assert!(matches!(end, SessionEnd::Closed(CloseReason::Duplicate)), "{end}");
        assert_eq!(revoked, 0);
    }

    #[tokio::test]
    async fn a_network_that_ends_while_a_link_lingers_changes_no_reason() {
        let Link { node, context, held, peer, stopper } = link().await.closed().await;
        stopper.stop().cut();
        let end = tokio::time::timeout(Duration::from_secs(60), held).await.expect("it ends");
        assert!(matches!(end, Ok(SessionEnd::Closed(CloseReason::Duplicate))), "{end:?}");
        drop((node, context, peer));
    }
}
