//! Two nodes on real directories and real sockets.

use super::{
    Outcome, TOKEN_OF_B, TOKEN_OF_C, access_of_a, access_of_caller, any_port, hello, key, links, reaches,
    refuses, serve, serve_at, until,
};
use futures::AsyncWriteExt;
use futures::channel::oneshot;
use std::time::Duration;
use strandline_core::record::{State, Version};
use strandline_core::wire::admission::Terms;
use strandline_file::node::{Unavailable, WriteError};
use strandline_net::{Refusal, Runtime};

pub(crate) async fn a_follower_gets_what_the_authority_writes_across_a_restart<R: Runtime>(
    runtime: R,
) -> Outcome {
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let folder = folder.path();
    let a = serve(&runtime, folder, "a", access_of_a(None, &free)).await?;
    let address = a.local_addr();
    let first = a.handle().put(key("one"), "first").await?;
    let b = serve(&runtime, folder, "b", access_of_caller(TOKEN_OF_B, address, None, &free)).await?;
    reaches(&runtime, b.handle(), first).await;
    a.shutdown().await?;

    let a = serve_at(&runtime, folder, "a", access_of_a(None, &free), address).await??;
    a.handle().delete(key("one")).await?;
    let last = a.handle().put(key("two"), "second").await?;
    reaches(&runtime, b.handle(), last).await;
    let gone = b.handle().get(key("one")).await?.expect("a tombstone");
    assert_eq!(gone.state, State::Deleted);
    let State::Present { blob } = b.handle().get(key("two")).await?.expect("there").state else {
        panic!("it was put");
    };
    assert_eq!(b.handle().node().blobs().read(blob, 0, 100)?.expect("its blob is there").bytes, b"second");
    let (ours, theirs) = (a.handle().status().await?, b.handle().status().await?);
    assert_eq!((ours.tail, ours.tail_digest), (theirs.tail, theirs.tail_digest));
    let status = a.steer().status();
    assert!(status.linked > 0 && status.frames_out > 0 && status.bytes_in > 0 && status.bytes_out > 0);
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

pub(crate) async fn a_wrong_token_gets_nothing<R: Runtime>(runtime: R) -> Outcome {
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &free)).await?;
    a.handle().put(key("one"), "first").await?;
    let access = access_of_caller("a guess", a.local_addr(), None, &free);
    let b = serve(&runtime, folder.path(), "b", access).await?;
    refuses(&runtime, &a, Refusal::Token).await;
    assert_eq!(b.handle().status().await?.tail, Version::ZERO);
    assert_eq!((links(a.handle()).await, a.steer().status().linked), (0, 0));
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

pub(crate) async fn a_dead_peer_delays_neither_a_write_nor_another_peer<R: Runtime>(runtime: R) -> Outcome {
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &free)).await?;
    // Authenticates as an empty replica, and then never reads.
    let mut dead = runtime.connect(&a.local_addr().to_string()).await?;
    dead.write_all(&hello("c", TOKEN_OF_C)?).await?;
    until(&runtime, "the link", || async { links(a.handle()).await == 1 }).await;
    let access = access_of_caller(TOKEN_OF_B, a.local_addr(), None, &free);
    let b = serve(&runtime, folder.path(), "b", access).await?;
    let mut last = Version::ZERO;
    for n in 0..8_u8 {
        last = a.handle().put(key(&n.to_string()), vec![n; 2 << 20]).await?;
    }
    reaches(&runtime, b.handle(), last).await;
    let identities: Vec<_> = a.handle().status().await?.links.into_iter().map(|l| l.identity).collect();
    assert!(identities.iter().any(|identity| identity == "c"), "it still hangs there: {identities:?}");
    drop(dead);
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

pub(crate) async fn a_shutdown_loses_nothing_that_was_answered<R: Runtime>(runtime: R) -> Outcome {
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let a = serve_at(&runtime, folder.path(), "a", access_of_a(None, &free), any_port()).await??;
    let mut writers = Vec::new();
    for writer in 0..8 {
        let (handle, (tx, answered)) = (a.handle().clone(), oneshot::channel());
        writers.push(answered);
        runtime.spawn(Box::pin(async move {
            let mut answered = Vec::new();
            for n in 0.. {
                match handle.delete(key(&format!("{writer}.{n}"))).await {
                    Ok(version) => answered.push((format!("{writer}.{n}"), version)),
                    Err(WriteError::Unavailable(Unavailable::Closed)) => break,
                    Err(other) => panic!("expected the node to be closed, found {other}"),
                }
            }
            let _ = tx.send(answered);
        }));
    }
    runtime.sleep(Duration::from_millis(50)).await;
    a.shutdown().await?;

    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &free)).await?;
    for writer in writers {
        for (name, version) in writer.await? {
            let entry = a.handle().get(key(&name)).await?.expect("it was answered");
            assert_eq!(entry.version, version);
        }
    }
    Ok(a.shutdown().await?)
}
