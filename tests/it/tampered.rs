//! Tests with servers and proxies of other vendors. They are simulated by real servers behind a proxy that changes
//! commands or replies.

use crate::tampering::{Action, TamperingProxy};
use crate::{SOON, builder, builder_of, eventually, ms, through};
use kit::{Cluster, Direction, Server};
use quorlock::{
    AcquireError, Builder, ConfigError, LockState, NodeState, Redlock, ReleaseOutcome,
    RestartGuard, RetryPolicy, VoteEligibility,
};

/// Starts a proxy for each server of `cluster`. Returns the proxies, and settings of a client that connects through the
/// proxies.
fn behind(
    cluster: &Cluster,
    decide: impl Fn(&[String]) -> Action + Send + Sync + Copy + 'static,
) -> (Vec<TamperingProxy>, Builder) {
    let proxies: Vec<_> =
        cluster.iter().map(|node| TamperingProxy::start(node.addr(), decide)).collect();
    let builder = builder_of(proxies.iter().map(|proxy| &proxy.url));
    (proxies, builder)
}

#[tokio::test]
async fn release_that_closes_connections_does_not_block_others() {
    let cluster = Cluster::start(3);
    let names_poison = |words: &[String]| words.iter().any(|word| word == "poison");
    let decide =
        move |words: &[String]| if names_poison(words) { Action::Close } else { Action::Pass };
    let (_proxies, builder) = behind(&cluster, decide);
    let redlock = builder.build().expect("valid settings");
    redlock.ready().await.expect("nodes are up");
    let refused =
        redlock.try_acquire("poison").ttl(ms(1_500)).await.expect_err("the connection is closed");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    let mut failed = 0;
    for _ in 0..20 {
        let lease = redlock.acquire("other").wait(SOON).await.expect("the lock is free");
        failed += usize::from(lease.release().await.is_err());
    }
    // The client isolates the release of "poison" after it has closed two connections to a node.
    assert!(failed <= 2, "{failed} of 20");
    // The release stays pending until the key must have expired.
    let started = std::time::Instant::now();
    while let Err(error) = redlock.close().await {
        assert!(started.elapsed() < 3 * SOON, "{error}");
    }
}

#[tokio::test]
async fn server_without_run_id_counts_until_a_restart() {
    let mut cluster = Cluster::start(3);
    let without_run = |reply: &str| {
        let (_, text) = reply.split_once("\r\n").unwrap_or(("", reply));
        let lines = text.lines().filter(|line| !line.starts_with("run_id:"));
        let text = lines.collect::<Vec<_>>().join("\r\n");
        format!("${}\r\n{text}\r\n", text.len())
    };
    let decide = move |words: &[String]| match words[0].as_str() {
        "INFO" => Action::Edit(without_run),
        _ => Action::Pass,
    };
    let uptime = |node: &Server| {
        let info = format!("{:?}", node.cmd(&["INFO", "server"])).replace("\\r\\n", "\n");
        let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        line.and_then(|line| line.trim().parse::<u64>().ok()).expect("an uptime")
    };
    eventually("the uptimes exceed two seconds", || cluster.iter().all(|node| uptime(node) > 2))
        .await;
    let (proxies, builder) = behind(&cluster, decide);
    let redlock = builder.build().expect("valid settings");
    assert_eq!(
        redlock.acquire("r").wait(SOON).await.expect("a new deployment").release().await,
        Ok(ReleaseOutcome::Released)
    );
    proxies.iter().for_each(TamperingProxy::cut);
    let lease = redlock.acquire("r").wait(SOON).await.expect("no server was restarted");
    drop(lease);
    cluster.servers_mut().iter_mut().for_each(|node| {
        node.kill();
        node.restart();
    });
    let is_excluded =
        |node: &quorlock::NodeInfo| matches!(node.eligibility(), VoteEligibility::Excluded(_));
    eventually("the restarts are noticed", || redlock.nodes().iter().all(is_excluded)).await;
    let refused = redlock.try_acquire("r").await.expect_err("the nodes may have lost locks");
    assert!(refused.to_string().contains("restarted "), "{refused}");
}

#[tokio::test]
async fn proxy_that_answers_unsupported_command_has_votes() {
    let cluster = Cluster::start(3);
    let decide = |words: &[String]| match words[0].as_str() {
        "HELLO" | "SET" | "EVALSHA" | "EVAL" | "GETRANGE" | "PTTL" => Action::Pass,
        _ => Action::Answer("-unsupported command\r\n"),
    };
    let (proxies, builder) = behind(&cluster, decide);
    let redlock = builder.build().expect("valid settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("a new deployment");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let unnamed = "(the server does not support INFO)";
    let strict = Redlock::builder().nodes(proxies.iter().map(|proxy| &proxy.url));
    let strict = strict.restart_guard(RestartGuard::Strict).build().expect("valid settings");
    let refused = strict.try_acquire("r").await.expect_err("the nodes may have been restarted");
    assert!(refused.to_string().contains(unnamed), "{refused}");
}

#[tokio::test]
async fn endless_reply_ends_the_connection_and_is_reported() {
    let cluster = Cluster::start(1);
    let decide = |words: &[String]| if words[0] == "SET" { Action::Flood } else { Action::Pass };
    let (_proxies, builder) = behind(&cluster, decide);
    let redlock = builder.node_timeout(ms(20_000)).build().expect("valid settings");
    redlock.ready().await.expect("the node is up");
    // After a connection of this duration, the client reconnects without a pause if the server only closed the
    // connection.
    tokio::time::sleep(ms(1_200)).await;
    let refused = redlock.try_acquire("r").await.expect_err("the reply does not end");
    assert!(refused.to_string().contains("reply longer than its command allows"), "{refused}");
    let state = redlock.nodes()[0].state().clone();
    assert!(matches!(state, NodeState::Down(_)), "{state:?}");
}

#[tokio::test]
async fn long_foreign_value_is_not_fetched() {
    const LONG: usize = 8 << 20;
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = through(&proxies).node_timeout(ms(10_000)).build().expect("valid settings");
    redlock.ready().await.expect("nodes are up");
    let value = "x".repeat(LONG);
    for node in &cluster {
        node.cmd(&["SET", "r", &value]);
    }
    for acquire in
        [redlock.acquire("r"), redlock.acquire("r").fenced(), redlock.acquire_all(["r", "s"])]
    {
        // The acquire's last attempt reads the holder.
        let refused =
            acquire.wait(SOON).retry(RetryPolicy::none()).await.expect_err("the key is taken");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{refused}");
    }
    let status = redlock.status("r").await.expect("nodes are up");
    let is_foreign =
        |node: &quorlock::NodeStatus| matches!(node.state(), LockState::Foreign { .. });
    assert!(status.nodes().iter().all(is_foreign), "{status}");
    redlock.force_release("r").await.expect("nodes are up");
    assert!(cluster.iter().all(|node| node.get("r").is_some_and(|value| value.len() == LONG)));
    let fetched: u64 = proxies.iter().map(|proxy| proxy.bytes(Direction::Replies)).sum();
    assert!(fetched < 1 << 20, "{fetched} bytes");
}

#[tokio::test]
async fn too_long_name_is_refused_by_every_operation() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).key_prefix("lock:").build().expect("valid settings");
    let longest = "x".repeat((64 << 10) - 5);
    let lease = redlock.acquire(&longest).wait(SOON).fenced().await.expect("not too long");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let long = format!("{longest}x");
    let error = redlock.status(&long).await.expect_err("too long");
    let quorlock::ClientError::Invalid(reason) = error else { panic!("{error}") };
    assert!(matches!(reason, ConfigError::LongResource { length: 65_537, most: 65_536, .. }));
    let invalid = AcquireError::Invalid(reason.clone());
    assert_eq!(redlock.try_acquire(&long).await.expect_err("too long"), invalid);
    assert_eq!(redlock.try_acquire_all(["a", &long]).await.expect_err("too long"), invalid);
    assert_eq!(redlock.adopt(&long, "v").await.expect_err("too long"), invalid);
    let forced = redlock.force_release(&long).await.expect_err("too long");
    assert_eq!(forced, quorlock::ClientError::Invalid(reason));
    let set = |length: usize| (0..4).map(move |name| format!("{name}{}", "x".repeat(length)));
    let largest = redlock.try_acquire_all(set((64 << 10) - 6)).await.expect("exactly the limit");
    assert_eq!(largest.release().await, Ok(ReleaseOutcome::Released));
    let many = (0..5).map(|name| format!("{name}{}", "x".repeat((64 << 10) - 6)));
    let refused = redlock.try_acquire_all(many).await.expect_err("too long together");
    let (resources, length, most) = (5, 5 << 16, 4 << 16);
    let reason = ConfigError::LongResources { resources, length, most };
    assert_eq!(refused, AcquireError::Invalid(reason));
    let adopted =
        redlock.adopt("r", "v".repeat(4_201)).await.expect_err("longer than any lease's value");
    let reason = ConfigError::LongValue { length: 4_201, most: 4_200 };
    assert_eq!(adopted, AcquireError::Invalid(reason));
}
