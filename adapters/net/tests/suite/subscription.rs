//! A subscriber of one node while another writes.

use super::{Outcome, TOKEN_OF_B, access_of_a, access_of_caller, key, serve};
use futures::StreamExt;
use futures::future::{Either, select};
use std::pin::pin;
use std::time::Duration;
use strandline_core::lifecycle::api::Page;
use strandline_core::wire::admission::Terms;
use strandline_net::Runtime;

pub(crate) async fn a_subscriber_of_the_follower_sees_each_change_of_the_authority_once<R: Runtime>(
    runtime: R,
) -> Outcome {
    let (folder, free) = (tempfile::tempdir()?, Terms::default());
    let a = serve(&runtime, folder.path(), "a", access_of_a(None, &free)).await?;
    let access = access_of_caller(TOKEN_OF_B, a.local_addr(), None, &free);
    let b = serve(&runtime, folder.path(), "b", access).await?;
    let mut subscription = b.handle().subscribe(b.handle().cursor().await?).await?;
    assert!(subscription.verdict().is_complete());
    let mut written = Vec::new();
    for n in 0..50 {
        written.push(a.handle().put(key(&format!("k{n}")), format!("v{n}")).await?);
    }
    let mut given = Vec::new();
    while given.len() < written.len() {
        // A future that is dropped before it ends loses no page.
        let soon = pin!(runtime.sleep(Duration::from_millis(1)));
        let Either::Left((page, _)) = select(subscription.next(), soon).await else { continue };
        let Some(Page::Changes { records, .. }) = page else { panic!("changes follow, found {page:?}") };
        given.extend(records.into_iter().map(|record| record.version));
    }
    assert_eq!(given, written);
    b.shutdown().await?;
    assert!(matches!(subscription.next().await, Some(Page::Ended(_))));
    assert_eq!(subscription.next().await, None);
    Ok(a.shutdown().await?)
}
