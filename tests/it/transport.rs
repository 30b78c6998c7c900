//! Ways to reach a node: TCP, Unix sockets, users, passwords, databases. TLS has a file of its own.

use crate::{eventually, ms};
use kit::Server;
use quorlock::{AcquireError, Builder, Redlock, ReleaseOutcome};

fn builder() -> Builder {
    Redlock::builder().node_timeout(ms(1_000)).ttl(ms(30_000))
}

/// Locks, extends and releases on a single node; says where its key was seen.
async fn lock_and_release(redlock: &Redlock, is_set: impl Fn() -> bool) {
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    assert!(is_set(), "the key is where it belongs");
    lease.extend(ms(40_000)).await.expect("still held");
    assert_eq!(lease.release().await.expect("the node is up"), ReleaseOutcome::Released);
    eventually("the key is gone", || !is_set()).await;
}

#[tokio::test]
async fn locks_over_unix_sockets() {
    let server = Server::builder().unix_socket().start();
    let redlock = builder().nodes([server.url_unix()]).build().expect("good settings");
    lock_and_release(&redlock, || server.get("r").is_some()).await;
    assert!(redlock.nodes()[0].name().starts_with('/'), "its name is the path");
}

#[tokio::test]
async fn locks_as_a_user_with_a_password_that_is_never_shown() {
    let server = Server::builder().password("default-pw").user("wörker", "s3cret@:/ ü").start();
    let redlock = builder().nodes([server.url_with_auth()]).build().expect("good settings");
    lock_and_release(&redlock, || server.get("r").is_some()).await;
    let shown = format!("{redlock:?} {:?}", redlock.try_acquire("r").await.expect("free"));
    assert!(!shown.contains("s3cret") && !shown.contains("rker"), "{shown}");

    let refused = builder().nodes([server.url()]).build().expect("good settings");
    let refused = refused.acquire("r").wait(ms(3_000)).await.expect_err("no password");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused:?}") };
    assert!(report.to_string().contains("NOAUTH"), "{report}");

    let wrong = format!("redis://user:guess1@{}", server.addr());
    let wrong = builder().nodes([wrong]).build().expect("good settings");
    let refused = wrong.acquire("r").wait(ms(3_000)).await.expect_err("a wrong password");
    let shown = format!("{refused} {refused:?}");
    assert!(shown.contains("WRONGPASS") && !shown.contains("guess1"), "{shown}");
}

#[tokio::test]
async fn locks_in_the_database_of_the_url() {
    let server = Server::start();
    let url = format!("{}/3", server.url());
    let redlock = builder().nodes([url]).build().expect("good settings");
    let in_database_3 = || {
        let keyspace = server.info("keyspace");
        keyspace.get("db3").is_some_and(|keys| keys.starts_with("keys=1,"))
    };
    lock_and_release(&redlock, in_database_3).await;
    assert!(server.get("r").is_none());
}
