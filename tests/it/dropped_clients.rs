//! Tests that a client's tasks end after its last handle is dropped, even if a server refuses every release.

use crate::{SOON, eventually, ms, native_commands};
use kit::Server;
use quorlock::Redlock;
use std::time::Instant;

/// Starts a server that refuses every release and may have executed a `SET` after the client's timeout. Returns the
/// server and the client, whose release is still pending.
async fn with_refused_release() -> (Server, Redlock) {
    let server = Server::start();
    let builder = Redlock::builder().nodes([server.url()]).node_timeout(ms(200)).ttl(ms(500));
    let redlock = builder.build().expect("valid settings");
    drop(redlock.acquire("first").wait(SOON).await.expect("the lock is free"));
    eventually("the lock is released", || server.keys().is_empty()).await;
    let native = native_commands::native(&server).map(|command| format!("-{command}"));
    let forbidden = ["ACL", "SETUSER", "default", "-evalsha", "-eval"].into_iter();
    server.cmd(&forbidden.chain(native.as_deref()).collect::<Vec<_>>());
    server.stop();
    let refused = redlock.try_acquire("r").await;
    refused.expect_err("the node is stopped");
    server.cont();
    // The client repeats the release of the late `SET`, and the node refuses it each time.
    eventually("the release is refused", || server.rejected_calls("evalsha") >= 2).await;
    (server, redlock)
}

#[tokio::test]
async fn refused_release_ends_after_the_stale_window() {
    let (server, redlock) = with_refused_release().await;
    let started = Instant::now();
    while let Err(error) = redlock.close().await {
        assert!(started.elapsed() < SOON * 2, "{error}");
    }
    eventually("the client's task has ended", || server.clients().is_empty()).await;
}

#[tokio::test]
async fn refused_release_does_not_keep_a_dropped_client_alive() {
    let (server, redlock) = with_refused_release().await;
    drop(redlock);
    eventually("the client's task has ended", || server.clients().is_empty()).await;
}
