//! One static client for all tests of a program. Every `#[tokio::test]` has its own runtime, and the client works in
//! each of them. If `QUORLOCK_NODES` is set, it names real servers. Otherwise, the nodes run inside the test process.

use quorlock::{Builder, Redlock, ReleaseOutcome};
use quorlock_test::Nodes;
use std::sync::LazyLock;

static REDLOCK: LazyLock<Redlock> = LazyLock::new(|| {
    let builder = match std::env::var_os("QUORLOCK_NODES") {
        Some(_) => Builder::from_env("QUORLOCK").expect("QUORLOCK_* are valid settings"),
        None => Nodes::start(3).client(),
    };
    builder.build().expect("the settings fit together")
});

#[tokio::test]
async fn lock_is_exclusive() {
    // Tests run concurrently, so each test uses its own resource names.
    let lease = REDLOCK.acquire("exclusive").await.expect("the lock is free");
    let refused = REDLOCK.try_acquire("exclusive").await.expect_err("the lock is held");
    assert!(refused.is_contended());
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
}

#[tokio::test]
async fn lock_is_free_after_release() {
    for _ in 0..2 {
        let lease = REDLOCK.acquire("released").await.expect("the lock is free");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}
