//! Who says nothing takes nothing from those who do.

use super::{
    Outcome, TOKEN_OF_B, TOKEN_OF_C, access_of_a, access_of_caller, key, limits, links, reaches, refuses,
    serve, until,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use strandline_core::wire::admission::Terms;
use strandline_net::{Refusal, Runtime};

const FLOOD: usize = 1_000;

/// Makes room for both ends of every connection, as far as the system allows.
fn raise_descriptors() -> Outcome {
    let wanted = 4 * FLOOD as u64;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if current.is_some_and(|current| current < raised) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum })?;
    }
    Ok(())
}

/// They come from the very address of the peers.
pub(crate) async fn a_thousand_silent_connections_leave_the_node_serving<R: Runtime>(runtime: R) -> Outcome {
    raise_descriptors()?;
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &free)).await?;
    let address = a.local_addr();
    let calls = |token| access_of_caller(token, address, None, &free);
    let b = serve(&runtime, folder.path(), "b", calls(TOKEN_OF_B)).await?;
    let first = a.handle().put(key("one"), "1").await?;
    reaches(&runtime, b.handle(), first).await;

    let mut flood = Vec::new();
    for _ in 0..FLOOD {
        flood.push(runtime.connect(&address.to_string()).await?);
    }
    let steer = a.steer();
    until(&runtime, "the flood", || async { steer.status().accepted > FLOOD as u64 }).await;
    let most = limits().handshakes_per_address_max as u64;
    assert!(steer.status().handshakes_open <= most);
    refuses(&runtime, &a, Refusal::Displaced).await;

    let second = a.handle().put(key("two"), "2").await?;
    reaches(&runtime, b.handle(), second).await;
    let c = serve(&runtime, folder.path(), "c", calls(TOKEN_OF_C)).await?;
    reaches(&runtime, c.handle(), second).await;
    assert_eq!(links(a.handle()).await, 2);
    drop(flood);
    for server in [a, b, c] {
        server.shutdown().await?;
    }
    Ok(())
}
