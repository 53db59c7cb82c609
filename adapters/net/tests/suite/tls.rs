//! What TLS lets in, and what it does not.

use super::pki::{Authority, Issued};
use super::{
    LOG, Outcome, TOKEN_OF_B, TOKEN_OF_C, access_of_a, access_of_caller, any_port, called, caller, hello,
    key, links, reaches, refuses, serve, serve_at, until,
};
use futures::{AsyncReadExt, AsyncWriteExt};
use futures_rustls::TlsConnector;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use std::sync::Arc;
use strandline_core::record::Version;
use strandline_core::wire::admission::{CertificateRule, LogRule, Terms};
use strandline_net::{
    Access, AccessError, NetworkError, Peer, Refusal, Runtime, ServeError, Server, TlsIdentity,
};

/// The certificate must name the peer.
pub(crate) fn named() -> Terms {
    Terms { certificate: CertificateRule::Named, logs: LogRule::Any }
}

fn pinned(to: &Issued) -> Terms {
    Terms { certificate: CertificateRule::Pinned(vec![to.sha256]), logs: LogRule::Any }
}

/// `a`, called by `b`, each with what it shows.
async fn pair<R: Runtime>(
    runtime: &R,
    folder: &tempfile::TempDir,
    a: Option<TlsIdentity>,
    b: Option<TlsIdentity>,
) -> Outcome<(Server<R>, Server<R>)> {
    let a = serve(runtime, folder.path(), "a", access_of_a(a, &named())).await?;
    a.handle().put(key("one"), "first").await?;
    let access = access_of_caller(TOKEN_OF_B, a.local_addr(), b, &named());
    let b = serve(runtime, folder.path(), "b", access).await?;
    Ok((a, b))
}

/// Nothing came about between the two, and both end.
async fn strangers<R: Runtime>(a: Server<R>, b: Server<R>) -> Outcome {
    assert_eq!((a.steer().status().linked, b.steer().status().linked), (0, 0));
    assert_eq!((links(a.handle()).await, links(b.handle()).await), (0, 0));
    assert_eq!(b.handle().status().await?.tail, Version::ZERO);
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

pub(crate) async fn nodes_with_certificates_replicate<R: Runtime>(runtime: R) -> Outcome {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new("one")?);
    let shown = |name| authority.issue(name)?.tls(&[&authority]);
    let (a, b) = pair(&runtime, &folder, shown("a")?, shown("b")?).await?;
    let large = a.handle().put(key("large"), vec![7; 3 << 20]).await?;
    reaches(&runtime, b.handle(), large).await;
    let (ours, theirs) = (a.handle().status().await?, b.handle().status().await?);
    assert_eq!(ours.tail_digest, theirs.tail_digest);
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

pub(crate) async fn a_caller_with_a_certificate_of_another_authority_is_refused<R: Runtime>(
    runtime: R,
) -> Outcome {
    let (folder, ours, theirs) = (tempfile::tempdir()?, Authority::new("one")?, Authority::new("two")?);
    let (of_a, of_b) = (ours.issue("a")?.tls(&[&ours])?, theirs.issue("b")?.tls(&[&ours])?);
    let (a, b) = pair(&runtime, &folder, of_a, of_b).await?;
    refuses(&runtime, &a, Refusal::Tls).await;
    strangers(a, b).await
}

pub(crate) async fn a_listener_with_a_certificate_of_another_authority_is_told_no_token<R: Runtime>(
    runtime: R,
) -> Outcome {
    let (folder, ours, theirs) = (tempfile::tempdir()?, Authority::new("one")?, Authority::new("two")?);
    let (of_a, of_b) = (theirs.issue("a")?.tls(&[&ours])?, ours.issue("b")?.tls(&[&ours])?);
    let (a, b) = pair(&runtime, &folder, of_a, of_b).await?;
    refuses(&runtime, &b, Refusal::Tls).await;
    assert_eq!(a.steer().status().refused(Refusal::Token), 0);
    strangers(a, b).await
}

pub(crate) async fn an_expired_certificate_is_refused_on_both_sides<R: Runtime>(runtime: R) -> Outcome {
    let authority = Authority::new("one")?;
    for of_the_caller in [true, false] {
        let folder = tempfile::tempdir()?;
        let shown = |name, expired| {
            let issued = if expired { authority.issue_expired(name) } else { authority.issue(name) };
            issued?.tls(&[&authority])
        };
        let (of_a, of_b) = (shown("a", !of_the_caller)?, shown("b", of_the_caller)?);
        let (a, b) = pair(&runtime, &folder, of_a, of_b).await?;
        refuses(&runtime, if of_the_caller { &a } else { &b }, Refusal::Tls).await;
        strangers(a, b).await?;
    }
    Ok(())
}

pub(crate) async fn a_revoked_certificate_is_refused_on_both_sides<R: Runtime>(runtime: R) -> Outcome {
    let authority = Authority::new("one")?;
    for of_the_caller in [true, false] {
        let folder = tempfile::tempdir()?;
        let (of_a, of_b) = (authority.issue("a")?, authority.issue("b")?);
        let lists = authority.revoke(&[if of_the_caller { &of_b } else { &of_a }])?;
        let shown = |issued: &Issued| {
            let identity = issued.tls(&[&authority])?.ok_or("with TLS")?;
            Ok::<_, Box<dyn std::error::Error>>(Some(identity.with_revoked(lists.as_bytes())?))
        };
        let (a, b) = pair(&runtime, &folder, shown(&of_a)?, shown(&of_b)?).await?;
        refuses(&runtime, if of_the_caller { &a } else { &b }, Refusal::Tls).await;
        strangers(a, b).await?;
    }
    Ok(())
}

pub(crate) async fn what_a_list_does_not_name_is_let_in_until_another_list_does<R: Runtime>(
    runtime: R,
) -> Outcome {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new("one")?);
    let (of_a, of_b, of_c) = (authority.issue("a")?, authority.issue("b")?, authority.issue("c")?);
    let shown = |issued: &Issued, revoked: &[&Issued]| {
        let identity = issued.tls(&[&authority])?.ok_or("with TLS")?;
        let lists = authority.revoke(revoked)?;
        Ok::<_, Box<dyn std::error::Error>>(Some(identity.with_revoked(lists.as_bytes())?))
    };
    let (a, b) = pair(&runtime, &folder, shown(&of_a, &[&of_c])?, shown(&of_b, &[&of_c])?).await?;
    let first = a.handle().status().await?.tail;
    reaches(&runtime, b.handle(), first).await;
    // Of a reload only who comes later hears.
    a.steer().replace(access_of_a(shown(&of_a, &[&of_b, &of_c])?, &named()))?;
    let second = a.handle().put(key("two"), "second").await?;
    reaches(&runtime, b.handle(), second).await;
    b.shutdown().await?;
    let access = access_of_caller(TOKEN_OF_B, a.local_addr(), shown(&of_b, &[])?, &named());
    let b = serve(&runtime, folder.path(), "b", access).await?;
    refuses(&runtime, &a, Refusal::Tls).await;
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

pub(crate) async fn a_stolen_token_is_of_no_use_with_another_certificate<R: Runtime>(runtime: R) -> Outcome {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new("one")?);
    // The thief has a certificate of its own, from the right authority, and the token of b.
    let (of_a, of_thief) = (authority.issue("a")?, authority.issue("c")?);
    let (a, thief) = pair(&runtime, &folder, of_a.tls(&[&authority])?, of_thief.tls(&[&authority])?).await?;
    refuses(&runtime, &a, Refusal::Certificate).await;
    strangers(a, thief).await
}

pub(crate) async fn a_listener_whose_certificate_names_another_is_told_no_token<R: Runtime>(
    runtime: R,
) -> Outcome {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new("one")?);
    let shown = |name| authority.issue(name)?.tls(&[&authority]);
    let (a, b) = pair(&runtime, &folder, shown("c")?, shown("b")?).await?;
    refuses(&runtime, &b, Refusal::Certificate).await;
    refuses(&runtime, &a, Refusal::Lost).await;
    assert_eq!(a.steer().status().refused(Refusal::Token), 0);
    strangers(a, b).await
}

/// Calls `a` without a certificate, says `hello`, and reads until `a` hangs up.
async fn calls_bare<R: Runtime>(runtime: &R, a: &Server<R>, authority: &Authority, hello: &[u8]) -> Outcome {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection = runtime.connect(&a.local_addr().to_string()).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut tls = connector.connect(ServerName::try_from("a")?, connection).await?;
    // The refusal may come before or after this.
    let _ = tls.write_all(hello).await;
    let _ = tls.flush().await;
    let _ = tls.read_to_end(&mut Vec::new()).await;
    Ok(())
}

pub(crate) async fn a_caller_without_a_certificate_is_refused<R: Runtime>(runtime: R) -> Outcome {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new("one")?);
    let shown = authority.issue("a")?;
    let hello = hello("b", TOKEN_OF_B)?;
    let access = access_of_a(shown.tls(&[&authority])?, &named());
    let a = serve(&runtime, folder.path(), "a", access).await?;
    calls_bare(&runtime, &a, &authority, &hello).await?;
    refuses(&runtime, &a, Refusal::Tls).await;

    // Where somebody else may come without one, b still may not.
    let mut access = access_of_a(shown.tls(&[&authority])?, &named());
    access.peers[1].terms = Terms::default();
    a.steer().replace(access)?;
    calls_bare(&runtime, &a, &authority, &hello).await?;
    refuses(&runtime, &a, Refusal::Certificate).await;
    assert_eq!(a.steer().status().linked, 0);
    Ok(a.shutdown().await?)
}

pub(crate) async fn plain_and_tls_do_not_mix<R: Runtime>(runtime: R) -> Outcome {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new("one")?);
    let access = access_of_a(authority.issue("a")?.tls(&[&authority])?, &named());
    let a = serve(&runtime, folder.path(), "a", access).await?;
    let mut plain = runtime.connect(&a.local_addr().to_string()).await?;
    plain.write_all(&hello("b", TOKEN_OF_B)?).await?;
    let _ = plain.read_to_end(&mut Vec::new()).await;
    refuses(&runtime, &a, Refusal::Tls).await;

    a.steer().replace(access_of_a(None, &Terms::default()))?;
    let with_tls = authority.issue("b")?.tls(&[&authority])?;
    let access = access_of_caller(TOKEN_OF_B, a.local_addr(), with_tls, &named());
    let b = serve(&runtime, folder.path(), "b", access).await?;
    refuses(&runtime, &a, Refusal::Protocol).await;
    strangers(a, b).await
}

pub(crate) async fn pinned_certificates_need_no_authority_and_stand_for_one_peer<R: Runtime>(
    runtime: R,
) -> Outcome {
    let folder = tempfile::tempdir()?;
    let (of_a, of_b) = (Issued::self_signed("a")?, Issued::self_signed("b")?);
    // The owner of c wrote the name of b into it.
    let of_c = Issued::self_signed("b")?;
    let access = |for_b: Terms| Access {
        token: "of a".into(),
        peers: vec![
            Peer { terms: for_b, ..caller("b", TOKEN_OF_B) },
            Peer { terms: pinned(&of_c), ..caller("c", TOKEN_OF_C) },
        ],
        tls: of_a.tls(&[]).expect("PEM"),
        plaintext: false,
    };
    let a = serve(&runtime, folder.path(), "a", access(pinned(&of_b))).await?;
    let first = a.handle().put(key("one"), "first").await?;
    let calls = |shown: &Issued| {
        Ok::<_, Box<dyn std::error::Error>>(Access {
            token: TOKEN_OF_B.into(),
            peers: vec![Peer { terms: pinned(&of_a), ..called(a.local_addr()) }],
            tls: shown.tls(&[])?,
            plaintext: false,
        })
    };
    let b = serve(&runtime, folder.path(), "b", calls(&of_b)?).await?;
    reaches(&runtime, b.handle(), first).await;
    b.shutdown().await?;

    // c is believed to be c, whatever its certificate says.
    let thief = serve(&runtime, folder.path(), "b", calls(&of_c)?).await?;
    refuses(&runtime, &a, Refusal::Certificate).await;
    a.steer().replace(access(named()))?;
    let refused = a.steer().status().refused(Refusal::Certificate);
    until(&runtime, "the next refusal", || async {
        a.steer().status().refused(Refusal::Certificate) > refused + 1
    })
    .await;
    thief.shutdown().await?;

    // Nobody pinned this one.
    let stranger = serve(&runtime, folder.path(), "b", calls(&Issued::self_signed("b")?)?).await?;
    refuses(&runtime, &a, Refusal::Tls).await;
    assert_eq!(a.steer().status().linked, 1);
    a.shutdown().await?;
    Ok(stranger.shutdown().await?)
}

pub(crate) async fn what_is_not_this_machine_needs_tls_or_plaintext_in_so_many_words<R: Runtime>(
    runtime: R,
) -> Outcome {
    let (folder, authority) = (tempfile::tempdir()?, Authority::new("one")?);
    let everywhere = "0.0.0.0:0".parse()?;
    let plain = || access_of_a(None, &Terms::default());
    let refused = serve_at(&runtime, folder.path(), "a", plain(), everywhere).await?;
    let Err(ServeError::Network(NetworkError::Access(AccessError::Plaintext { address }))) = refused else {
        panic!("expected it to be refused, found {refused:?}");
    };
    assert_eq!(address, "0.0.0.0:0");
    let in_so_many_words = Access { plaintext: true, ..plain() };
    let a = serve_at(&runtime, folder.path(), "a", in_so_many_words, everywhere).await??;
    assert!(a.steer().replace(plain()).is_err(), "not taken back while it listens there");
    a.shutdown().await?;
    let tls = authority.issue("a")?.tls(&[&authority])?;
    let a = serve_at(&runtime, folder.path(), "a", access_of_a(tls, &named()), everywhere).await??;
    a.shutdown().await?;

    let access = Access {
        peers: vec![Peer { address: Some("b.example:1".into()), ..caller("b", TOKEN_OF_B) }],
        ..Access::default()
    };
    let refused = serve_at(&runtime, folder.path(), "a", access, any_port()).await?;
    assert!(refused.is_err(), "a token would go out in the clear, for log {LOG}");
    Ok(())
}
