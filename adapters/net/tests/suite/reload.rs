//! Another access while the node runs.

use super::pki::Authority;
use super::tls::named;
use super::{
    LOG, Outcome, TOKEN_OF_B, TOKEN_OF_C, access_of_a, access_of_caller, caller, key, links, reaches,
    refuses, serve, until,
};
use std::time::Duration;
use strandline_core::id::LogId;
use strandline_core::record::Version;
use strandline_core::wire::admission::{CertificateRule, LogRule, Terms};
use strandline_net::{Access, Peer, Refusal, Replaced, Runtime};

const NOTHING: Replaced = Replaced { links_ended: 0, peers_called: 0 };

pub(crate) async fn certificates_are_replaced_while_links_stand<R: Runtime>(runtime: R) -> Outcome {
    let (folder, old, new) = (tempfile::tempdir()?, Authority::new("old")?, Authority::new("new")?);
    let of_a = old.issue("a")?.tls(&[&old])?;
    let a = serve(&runtime, folder.path(), "a", access_of_a(of_a, &named())).await?;
    let address = a.local_addr();
    let calls = |token, tls| access_of_caller(token, address, tls, &named());
    let of_b = old.issue("b")?.tls(&[&old])?;
    let b = serve(&runtime, folder.path(), "b", calls(TOKEN_OF_B, of_b)).await?;
    let first = a.handle().put(key("one"), "1").await?;
    reaches(&runtime, b.handle(), first).await;

    // Both take up the new authority alone; the link began under the old one, and stands.
    let (of_a, of_b) = (new.issue("a")?.tls(&[&new])?, new.issue("b")?.tls(&[&new])?);
    assert_eq!(a.steer().replace(access_of_a(of_a, &named()))?, NOTHING);
    assert_eq!(b.steer().replace(calls(TOKEN_OF_B, of_b))?, NOTHING);
    let second = a.handle().put(key("two"), "2").await?;
    reaches(&runtime, b.handle(), second).await;
    assert_eq!(a.steer().status().linked, 1, "still the same link");

    // Who comes now needs the new one.
    let late = serve(&runtime, folder.path(), "c", calls(TOKEN_OF_C, old.issue("c")?.tls(&[&new])?)).await?;
    refuses(&runtime, &a, Refusal::Tls).await;
    late.steer().replace(calls(TOKEN_OF_C, new.issue("c")?.tls(&[&new])?))?;
    reaches(&runtime, late.handle(), second).await;
    for server in [a, b, late] {
        server.shutdown().await?;
    }
    Ok(())
}

pub(crate) async fn a_token_revoked_ends_the_link_and_another_one_lets_it_in<R: Runtime>(
    runtime: R,
) -> Outcome {
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &free)).await?;
    let address = a.local_addr();
    let calls = |token| access_of_caller(token, address, None, &free);
    let b = serve(&runtime, folder.path(), "b", calls(TOKEN_OF_B)).await?;
    let c = serve(&runtime, folder.path(), "c", calls(TOKEN_OF_C)).await?;
    let first = a.handle().put(key("one"), "1").await?;
    reaches(&runtime, b.handle(), first).await;
    reaches(&runtime, c.handle(), first).await;

    let with_token = |token| {
        let peers = vec![caller("b", token), caller("c", TOKEN_OF_C)];
        Access { token: "the token of a".into(), peers, ..Access::default() }
    };
    let replaced = a.steer().replace(with_token("the next token of b"))?;
    assert_eq!(replaced, Replaced { links_ended: 1, ..NOTHING });
    until(&runtime, "the end of its link", || async { links(b.handle()).await == 0 }).await;
    refuses(&runtime, &a, Refusal::Token).await;
    let second = a.handle().put(key("two"), "2").await?;
    reaches(&runtime, c.handle(), second).await;
    assert_eq!(b.handle().status().await?.tail, first, "nothing reaches it any more");
    assert_eq!(a.steer().status().revoked, 1);

    b.steer().replace(calls("the next token of b"))?;
    reaches(&runtime, b.handle(), second).await;
    for server in [a, b, c] {
        server.shutdown().await?;
    }
    Ok(())
}

pub(crate) async fn a_log_that_a_peer_may_not_have_is_refused_and_then_ended<R: Runtime>(
    runtime: R,
) -> Outcome {
    let folder = tempfile::tempdir()?;
    let only = |log| Terms { certificate: CertificateRule::NotAsked, logs: LogRule::Only(vec![log]) };
    let other = only(LogId([1; 16]));
    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &other)).await?;
    let first = a.handle().put(key("one"), "1").await?;
    let access = access_of_caller(TOKEN_OF_B, a.local_addr(), None, &Terms::default());
    let b = serve(&runtime, folder.path(), "b", access).await?;
    refuses(&runtime, &a, Refusal::Log).await;
    assert_eq!(b.handle().status().await?.tail, Version::ZERO);
    a.steer().replace(access_of_a(None, &only(LOG)))?;
    reaches(&runtime, b.handle(), first).await;
    assert_eq!(a.steer().replace(access_of_a(None, &other))?.links_ended, 1);
    until(&runtime, "the end of its link", || async { links(b.handle()).await == 0 }).await;
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

pub(crate) async fn an_access_that_cannot_be_used_changes_nothing<R: Runtime>(runtime: R) -> Outcome {
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &free)).await?;
    let access = access_of_caller(TOKEN_OF_B, a.local_addr(), None, &free);
    let b = serve(&runtime, folder.path(), "b", access).await?;
    let first = a.handle().put(key("one"), "1").await?;
    reaches(&runtime, b.handle(), first).await;
    let twice = vec![caller("b", "1"), caller("b", "2")];
    let certified = vec![Peer { terms: named(), ..caller("b", "1") }];
    for peers in [twice, certified] {
        assert!(a.steer().replace(Access { peers, ..Access::default() }).is_err());
    }
    runtime.sleep(Duration::from_millis(20)).await;
    let second = a.handle().put(key("two"), "2").await?;
    reaches(&runtime, b.handle(), second).await;
    assert_eq!((a.steer().status().linked, a.steer().status().revoked), (1, 0));
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}
