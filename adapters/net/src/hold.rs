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
    let session = session::run(Host { runtime, config, node, counters }, connection, peer, role, early);
    match stop.or_cut(until_revoked(&mut standing, session)).await {
        Some(SessionEnd::Revoked(revoked)) => {
            context.counters.revoked.add(1);
            SessionEnd::Revoked(revoked)
        }
        Some(end) => end,
        None => SessionEnd::Cut,
    }
}

async fn until_revoked(standing: &mut Standing, session: impl Future<Output = SessionEnd>) -> SessionEnd {
    match select(&mut standing.revoked, pin!(session)).await {
        Either::Left((Ok(revoked), _)) => SessionEnd::Revoked(revoked),
        // The door goes with the network.
        Either::Left((Err(_), _)) => SessionEnd::Cut,
        Either::Right((end, _)) => end,
    }
}
