//! What a client leaves running when its last handle is gone.

use crate::{SOON, eventually, ms, natives};
use kit::Server;
use quorlock::Redlock;
use std::time::Instant;

/// A client, and a server that may have run a `SET` late and refuses its release for good.
async fn refused_for_good() -> (Server, Redlock) {
    let server = Server::start();
    let builder = Redlock::builder().nodes([server.url()]).node_timeout(ms(200)).ttl(ms(500));
    let redlock = builder.build().expect("good settings");
    drop(redlock.acquire("first").wait(SOON).await.expect("a free lock"));
    eventually("it is released", || server.keys().is_empty()).await;
    let native = natives::native(&server).map(|command| format!("-{command}"));
    let forbidden = ["ACL", "SETUSER", "default", "-evalsha", "-eval"].into_iter();
    server.cmd(&forbidden.chain(native.as_deref()).collect::<Vec<_>>());
    server.stop();
    let refused = redlock.try_acquire("r").await;
    refused.expect_err("the node hangs");
    server.cont();
    // What ran there late was to be released: the node says no, again and again.
    eventually("the release is refused", || server.rejected_calls("evalsha") >= 2).await;
    (server, redlock)
}

#[tokio::test]
async fn a_release_that_is_not_permitted_ends_when_nothing_can_come_late_any_more() {
    let (server, redlock) = refused_for_good().await;
    let begun = Instant::now();
    while let Err(error) = redlock.close().await {
        assert!(begun.elapsed() < SOON * 2, "{error}");
    }
    eventually("the client's task has ended", || server.clients().is_empty()).await;
}

#[tokio::test]
async fn a_release_that_is_not_permitted_does_not_keep_a_dropped_client_alive() {
    let (server, redlock) = refused_for_good().await;
    drop(redlock);
    eventually("the client's task has ended", || server.clients().is_empty()).await;
}
