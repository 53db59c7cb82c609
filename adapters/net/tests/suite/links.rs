//! How many links stand, and that they end with their network.

use super::{
    Outcome, TOKEN_OF_B, TOKEN_OF_C, access_of_a, access_of_caller, any_port, called, caller, hello, key,
    limits, links, node, reaches, serve, serve_at, until,
};
use futures::{AsyncReadExt, AsyncWriteExt};
use std::time::Duration;
use strandline_core::seed::Seed;
use strandline_core::wire::admission::Terms;
use strandline_net::{Access, NetConfig, Network, NetworkConfig, Peer, Runtime, ServeConfig, Server};

/// Finding j19: each calls the other, and of the two links the one dialed by the smaller name stays.
pub(crate) async fn two_nodes_that_call_each_other_keep_one_link<R: Runtime>(runtime: R) -> Outcome {
    let folder = tempfile::tempdir()?;
    let both = |peer: Peer, token: &str| Peer { token: Some(token.into()), ..peer };
    let access = |token: &str, peers| Access { token: token.into(), peers, tls: None, plaintext: false };
    // Nobody is there yet: b calls in vain until it learns where a listens.
    let b = serve(&runtime, folder.path(), "b", access(TOKEN_OF_B, vec![caller("a", "of a")])).await?;
    let of_b = Peer { address: Some(b.local_addr().to_string()), ..caller("b", TOKEN_OF_B) };
    let a = serve(&runtime, folder.path(), "a", access("of a", vec![of_b])).await?;
    let of_a = both(called(a.local_addr()), "of a");
    b.steer().replace(access(TOKEN_OF_B, vec![of_a]))?;

    let mut version = a.handle().put(key("0"), "0").await?;
    reaches(&runtime, b.handle(), version).await;
    // Both have called by now, or do so soon: whatever comes, one link is left on each side.
    until(&runtime, "the call of b", || async { b.steer().status().called > 0 }).await;
    for n in 1..20 {
        version = a.handle().put(key(&n.to_string()), n.to_string()).await?;
        reaches(&runtime, b.handle(), version).await;
        // One that another took the place of is listed until its connection has ended.
        until(&runtime, "one link at most", || async {
            links(a.handle()).await <= 1 && links(b.handle()).await <= 1
        })
        .await;
    }
    until(&runtime, "the link of a's call", || async { b.steer().status().links_open == 1 }).await;
    until(&runtime, "the end of b's call", || async { a.steer().status().links_open == 0 }).await;
    assert_eq!((links(a.handle()).await, links(b.handle()).await), (1, 1));
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

pub(crate) async fn a_network_that_is_dropped_ends_its_links<R: Runtime>(runtime: R) -> Outcome {
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let a = node(&folder.path().join("a"), "a")?;
    let config = NetworkConfig {
        limits: limits(),
        listen: Some(any_port()),
        access: access_of_a(None, &free),
        seed: Seed::new([1; 32]),
    };
    let network = Network::start(runtime.clone(), a.handle().clone(), config).await?;
    let address = network.local_addr().expect("it listens");
    let handle = network.handle().clone();
    let b = serve(&runtime, folder.path(), "b", access_of_caller(TOKEN_OF_B, address, None, &free)).await?;
    until(&runtime, "the link", || async { links(&handle).await == 1 && links(b.handle()).await == 1 }).await;
    let steer = network.steer();
    drop(network);
    until(&runtime, "the end of the link", || async {
        links(&handle).await == 0 && links(b.handle()).await == 0
    })
    .await;
    // The node runs on, and nobody listens.
    handle.put(key("one"), "1").await?;
    assert!(runtime.connect(&address.to_string()).await.is_err());
    assert!(steer.replace(access_of_a(None, &free)).is_err(), "it has ended");
    b.shutdown().await?;
    Ok(a.close()?)
}

pub(crate) async fn a_shutdown_cuts_off_a_peer_that_takes_nothing<R: Runtime>(runtime: R) -> Outcome {
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let limits = NetConfig { shutdown_ms: 50, write_ms: 600_000, ..limits() };
    let node = node(&folder.path().join("a"), "a")?;
    let config = ServeConfig { node, listen: any_port(), access: access_of_a(None, &free), limits };
    let a = Server::start(runtime.clone(), config).await?;
    for n in 0..8_u8 {
        a.handle().put(key(&n.to_string()), vec![n; 2 << 20]).await?;
    }
    let mut dead = runtime.connect(&a.local_addr().to_string()).await?;
    dead.write_all(&hello("c", TOKEN_OF_C)?).await?;
    until(&runtime, "the link", || async { links(a.handle()).await == 1 }).await;
    // So much is asked for that what a has to say fills the connection.
    runtime.sleep(Duration::from_millis(100)).await;
    let steer = a.steer();
    a.shutdown().await?;
    assert_eq!(steer.status().links_open, 0, "nothing is left behind");
    // What was on its way comes, and then the end, whichever.
    let _ = dead.read_to_end(&mut Vec::new()).await;
    // The directory was released.
    let a = serve_at(&runtime, folder.path(), "a", access_of_a(None, &free), any_port()).await??;
    Ok(a.shutdown().await?)
}
