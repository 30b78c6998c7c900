//! Tests of the ways to connect to a node: TCP, Unix sockets, users, passwords and databases. The tests of TLS are in
//! `tls.rs`.

use crate::{eventually, ms};
use kit::Server;
use quorlock::{AcquireError, Builder, Redlock, ReleaseOutcome};

fn builder() -> Builder {
    Redlock::builder().node_timeout(ms(1_000)).ttl(ms(30_000))
}

/// Checks that a lock on a single node can be acquired, extended and released. `is_set` returns true while the key
/// exists.
async fn lock_and_release(redlock: &Redlock, is_set: impl Fn() -> bool) {
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    assert!(is_set(), "the key exists");
    lease.extend(ms(40_000)).await.expect("the lease is held");
    assert_eq!(lease.release().await.expect("the node is up"), ReleaseOutcome::Released);
    eventually("the key is deleted", || !is_set()).await;
}

#[tokio::test]
async fn lock_over_unix_sockets() {
    let server = Server::builder().unix_socket().start();
    let redlock = builder().nodes([server.url_unix()]).build().expect("valid settings");
    lock_and_release(&redlock, || server.get("r").is_some()).await;
    assert!(redlock.nodes()[0].name().starts_with('/'), "the node's name is the path");
}

#[tokio::test]
async fn lock_with_user_and_password_hides_them() {
    let server = Server::builder().password("default-pw").user("wörker", "s3cret@:/ ü").start();
    let redlock = builder().nodes([server.url_with_auth()]).build().expect("valid settings");
    lock_and_release(&redlock, || server.get("r").is_some()).await;
    let shown = format!("{redlock:?} {:?}", redlock.try_acquire("r").await.expect("free"));
    assert!(!shown.contains("s3cret") && !shown.contains("rker"), "{shown}");

    let refused = builder().nodes([server.url()]).build().expect("valid settings");
    let refused = refused.acquire("r").wait(ms(3_000)).await.expect_err("no password");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    assert!(report.to_string().contains("NOAUTH"), "{report}");

    let wrong = format!("redis://user:guess1@{}", server.addr());
    let wrong = builder().nodes([wrong]).build().expect("valid settings");
    let refused = wrong.acquire("r").wait(ms(3_000)).await.expect_err("a wrong password");
    let shown = format!("{refused} {refused:?}");
    assert!(shown.contains("WRONGPASS") && !shown.contains("guess1"), "{shown}");
}

#[tokio::test]
async fn lock_uses_the_database_of_the_url() {
    let server = Server::start();
    let url = format!("{}/3", server.url());
    let redlock = builder().nodes([url]).build().expect("valid settings");
    let in_database_3 = || {
        let keyspace = server.info("keyspace");
        keyspace.get("db3").is_some_and(|keys| keys.starts_with("keys=1,"))
    };
    lock_and_release(&redlock, in_database_3).await;
    assert!(server.get("r").is_none());
}
