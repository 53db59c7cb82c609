//! The tests of every runtime: written once over [`Runtime`], run by each adapter through
//! [`tests!`](crate::suite::tests).

pub(crate) mod flood;
pub(crate) mod flow;
pub(crate) mod links;
pub(crate) mod pki;
pub(crate) mod reload;
pub(crate) mod subscription;
pub(crate) mod tls;
pub(crate) mod two_nodes;

use futures::future::{Either, select};
use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use strandline_core::id::{Incarnation, LogId};
use strandline_core::lifecycle::api::LinkRole;
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, Key, Version};
use strandline_core::wire::admission::Terms;
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::handshake::{DialAuth, Handshake};
use strandline_core::wire::identity::PeerIdentity;
use strandline_file::node::{Node, NodeConfig, StartError};
use strandline_net::{
    Access, Handle, NetConfig, Peer, Refusal, Runtime, ServeConfig, ServeError, Server, TlsIdentity,
};

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Longest wait for anything; only what hangs reaches it.
const WAIT: Duration = Duration::from_secs(60);

pub(crate) const LOG: LogId = LogId([9; 16]);
pub(crate) const TOKEN_OF_B: &str = "the token of b";
pub(crate) const TOKEN_OF_C: &str = "the token of c";

/// Makes a test of each function of the suite; `$run` gives it the runtime.
macro_rules! tests {
    ($run:ident: $($module:ident: [$($name:ident),* $(,)?])*) => {
        $(mod $module {
            $(#[test]
            fn $name() -> $crate::suite::Outcome {
                $crate::$run(|runtime| $crate::suite::$module::$name(runtime))
            })*
        })*
    };
    ($run:ident) => {
        $crate::suite::tests! { $run:
            two_nodes: [
                a_follower_gets_what_the_authority_writes_across_a_restart,
                a_wrong_token_gets_nothing,
                a_dead_peer_delays_neither_a_write_nor_another_peer,
                a_shutdown_loses_nothing_that_was_answered,
            ]
            flow: [
                eight_batches_are_on_their_way_and_an_acknowledgement_lets_more_go,
                one_batch_is_on_its_way_to_a_peer_without_the_window,
                ten_peers_cost_the_reads_of_one,
            ]
            subscription: [
                a_subscriber_of_the_follower_sees_each_change_of_the_authority_once,
            ]
            links: [
                two_nodes_that_call_each_other_keep_one_link,
                a_network_that_is_dropped_ends_its_links,
                a_shutdown_cuts_off_a_peer_that_takes_nothing,
            ]
            tls: [
                nodes_with_certificates_replicate,
                a_caller_with_a_certificate_of_another_authority_is_refused,
                a_listener_with_a_certificate_of_another_authority_is_told_no_token,
                an_expired_certificate_is_refused_on_both_sides,
                a_revoked_certificate_is_refused_on_both_sides,
                what_a_list_does_not_name_is_let_in_until_another_list_does,
                a_stolen_token_is_of_no_use_with_another_certificate,
                a_listener_whose_certificate_names_another_is_told_no_token,
                a_caller_without_a_certificate_is_refused,
                plain_and_tls_do_not_mix,
                pinned_certificates_need_no_authority_and_stand_for_one_peer,
                what_is_not_this_machine_needs_tls_or_plaintext_in_so_many_words,
            ]
            reload: [
                certificates_are_replaced_while_links_stand,
                a_token_revoked_ends_the_link_and_another_one_lets_it_in,
                a_log_that_a_peer_may_not_have_is_refused_and_then_ended,
                an_access_that_cannot_be_used_changes_nothing,
            ]
            flood: [
                a_thousand_silent_connections_leave_the_node_serving,
            ]
        }
    };
}
pub(crate) use tests;

/// Where a node listens: any free port.
pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn key(name: &str) -> Key {
    Key::from_parts(b"n", name.as_bytes()).expect("short")
}

/// A node of the log; `a` is its authority.
pub(crate) fn node(path: &Path, identity: &str) -> Result<Node, StartError> {
    let authority = (identity == "a").then(|| AuthorityId::from_text(identity));
    let init = Init { log: LOG, identity: identity.into(), namespaces: vec![b"n".to_vec()], authority };
    let config = NodeConfig::default();
    Ok(if path.exists() { Node::open(path, config)?.0 } else { Node::create(path, init, config)?.0 })
}

/// Short periods, so that a link that is lost comes back soon.
pub(crate) fn limits() -> NetConfig {
    NetConfig { retry_ms: 10, retry_ms_max: 50, ..NetConfig::default() }
}

/// A peer that calls us.
pub(crate) fn caller(identity: &str, token: &str) -> Peer {
    let (identity, token) = (identity.into(), Some(token.into()));
    Peer { identity, address: None, token, role: LinkRole::Both, terms: Terms::default() }
}

/// `a`, which is called.
pub(crate) fn called(address: SocketAddr) -> Peer {
    let (identity, address) = ("a".into(), Some(address.to_string()));
    Peer { identity, address, token: None, role: LinkRole::Both, terms: Terms::default() }
}

/// The access of `a`: `b` and `c` call it.
pub(crate) fn access_of_a(tls: Option<TlsIdentity>, terms: &Terms) -> Access {
    let with = |peer: Peer| Peer { terms: terms.clone(), ..peer };
    let peers = vec![with(caller("b", TOKEN_OF_B)), with(caller("c", TOKEN_OF_C))];
    Access { token: "the token of a".into(), peers, tls, plaintext: false }
}

/// The access of a node that calls `a`.
pub(crate) fn access_of_caller(
    token: &str,
    address: SocketAddr,
    tls: Option<TlsIdentity>,
    terms: &Terms,
) -> Access {
    let peers = vec![Peer { terms: terms.clone(), ..called(address) }];
    Access { token: token.into(), peers, tls, plaintext: false }
}

/// Serves the node called `identity` in a folder of its name.
pub(crate) async fn serve<R: Runtime>(
    runtime: &R,
    folder: &Path,
    identity: &str,
    access: Access,
) -> Outcome<Server<R>> {
    Ok(serve_at(runtime, folder, identity, access, any_port()).await??)
}

/// As [`serve`], at an address; inside: what the network says.
pub(crate) async fn serve_at<R: Runtime>(
    runtime: &R,
    folder: &Path,
    identity: &str,
    access: Access,
    listen: SocketAddr,
) -> Outcome<Result<Server<R>, ServeError>> {
    let node = node(&folder.join(identity), identity)?;
    let config = ServeConfig { node, listen, access, limits: limits() };
    Ok(Server::start(runtime.clone(), config).await)
}

/// Waits until something holds.
pub(crate) async fn until<R: Runtime, F: Future<Output = bool>>(
    runtime: &R,
    what: &str,
    mut holds: impl FnMut() -> F,
) {
    let waiting = async {
        while !holds().await {
            runtime.sleep(Duration::from_millis(2)).await;
        }
    };
    if let Either::Right(_) = select(pin!(waiting), runtime.sleep(WAIT)).await {
        panic!("waited in vain for {what}");
    }
}

/// Waits until a replica has durably reached `version`.
pub(crate) async fn reaches<R: Runtime>(runtime: &R, handle: &Handle, version: Version) {
    until(runtime, &format!("the tail {version}"), || async {
        handle.status().await.is_ok_and(|status| status.tail >= version)
    })
    .await;
}

/// Waits until connections were refused for this reason, and says how often they were.
pub(crate) async fn refuses<R: Runtime>(runtime: &R, server: &Server<R>, reason: Refusal) {
    let steer = server.steer();
    until(runtime, reason.label(), || async { steer.status().refused(reason) > 0 }).await;
}

/// How many links a node has.
pub(crate) async fn links(handle: &Handle) -> usize {
    handle.status().await.map_or(0, |status| status.links.len())
}

/// What a replica of the log says first when it calls.
pub(crate) fn hello(identity: &str, token: &str) -> Outcome<Vec<u8>> {
    let incarnation = Incarnation { counter: 1, nonce: [7; 8] };
    let declared = [Capability::Lifecycle, Capability::Log(LOG), Capability::Incarnation(incarnation)];
    let auth = DialAuth {
        token: token.into(),
        identity: Some(PeerIdentity::parse(identity)?),
        capabilities: Capabilities::new(declared)?,
        expect: None,
    };
    let mut hello = Vec::new();
    Handshake::dial(auth, &mut hello)?;
    Ok(hello)
}
