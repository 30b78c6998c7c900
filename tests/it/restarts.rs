//! Tests with nodes that have lost their locks in a restart or a flush.
#![cfg(target_os = "linux")]

use crate::clocks::clocked;
use crate::errors::{FEW_RIGHTS, display};
use crate::{MAX_TTL, SOON, builder, builder_of, eventually, granted_by_all, ms, warm_up};
use futures::FutureExt;
use kit::{Cluster, Server};
use quorlock::{
    AcquireError, ConfigError, ExtendError, Finding, Lease, NodeFailure, NodeState, NodeVote,
    Redlock, ReleaseError, ReleaseOutcome, RestartGuard, RetryPolicy, VoteEligibility,
};
use std::time::{Duration, Instant};

/// A duration longer than the quarantine period of every guard.
const AGE: Duration = Duration::from_hours(3);

pub(crate) async fn past_quarantine(nodes: usize) -> Cluster {
    let cluster = clocked(nodes);
    advance_past_quarantine(&cluster).await;
    cluster
}

pub(crate) async fn advance_past_quarantine(cluster: &Cluster) {
    cluster.iter().for_each(|node| node.clock().jump(AGE));
    let uptime = |node: &Server| {
        node.info("server")["uptime_in_seconds"].parse::<u64>().expect("whole seconds")
    };
    eventually("the uptimes exceed the quarantine period", || {
        cluster.iter().all(|node| uptime(node) > 10_000)
    })
    .await;
}

fn reason(refused: &AcquireError, node: usize) -> String {
    let report = refused.report().expect("nodes were asked");
    let NodeVote::Failed(failure) = report.nodes()[node].vote() else { panic!("{report}") };
    failure.to_string()
}

/// Restarts a node between the acquires of clients A and B. Returns A's lease and the result of B's acquire.
///
/// 1. If `has_seen` is true, B uses the nodes before the restart.
/// 2. A acquires the lock on a bare quorum: nodes 0, 1 and 2 of five.
/// 3. Node 2 restarts without data.
/// 4. B tries to acquire the lock.
async fn restarted_between(
    cluster: &Cluster,
    guard: RestartGuard,
    has_seen: bool,
) -> (Lease, Result<Lease, AcquireError>) {
    let [a, b] =
        [(); 2].map(|()| builder(cluster).restart_guard(guard).build().expect("valid settings"));
    if has_seen {
        warm_up(&b).await;
    }
    warm_up(&a).await;
    for node in &cluster.servers()[3..] {
        node.set("r", "other");
    }
    let lease = a.acquire("r").await.expect("three of five nodes grant");
    assert_eq!(lease.report().granted(), 3);
    for node in &cluster.servers()[3..] {
        node.del("r");
    }
    cluster[2].restart();
    assert_eq!(cluster[2].get("r"), None, "the key is lost");
    if guard == RestartGuard::Off {
        // B acquires the lock once node 2 is connected.
        return (lease, b.acquire("r").wait(SOON).await);
    }
    if has_seen {
        eventually("the node is up and known to be restarted", || {
            let node = b.nodes().swap_remove(2);
            let is_restarted = matches!(
                node.eligibility(),
                VoteEligibility::Excluded(NodeFailure::Restarted { .. })
            );
            is_restarted && *node.state() == NodeState::Up
        })
        .await;
    }
    (lease, b.try_acquire("r").await)
}

#[tokio::test]
async fn restart_without_guard_allows_two_holders() {
    for has_seen in [true, false] {
        let cluster = past_quarantine(5).await;
        let (lease, second) = restarted_between(&cluster, RestartGuard::Off, has_seen).await;
        let second = second.expect("three of five nodes have no key");
        assert!(lease.is_valid() && second.is_valid(), "two clients hold the lock");
    }
}

#[tokio::test]
async fn restart_with_guard_keeps_exclusion() {
    for guard in [RestartGuard::Observed, RestartGuard::Strict] {
        for has_seen in [true, false] {
            let cluster = past_quarantine(5).await;
            let (lease, second) = restarted_between(&cluster, guard, has_seen).await;
            let refused = second.expect_err("the restarted node does not count");
            let case = format!("{guard:?}, {has_seen}: {}", display(&refused));
            assert!(lease.is_valid(), "{case}");
            let reason = reason(&refused, 2);
            assert!(reason.starts_with("restarted ") && reason.contains(" ago, counts"), "{case}");
            let counts_in = refused.report().map(|report| report.nodes()[2].vote().clone());
            let Some(NodeVote::Failed(NodeFailure::Restarted { counts_in, .. })) = counts_in else {
                panic!("{case}")
            };
            assert!(counts_in > MAX_TTL / 2 && counts_in < MAX_TTL * 2, "{case}");
        }
    }
}

#[tokio::test]
async fn extensions_and_releases_of_a_restarted_node_count() {
    let cluster = past_quarantine(5).await;
    let redlock = builder(&cluster).build().expect("valid settings");
    let lease = granted_by_all(&redlock, "r").await;
    cluster[2].restart();
    eventually("the key is restored", || {
        let _ = lease.extend(ms(40_000)).now_or_never();
        cluster[2].get("r").is_some()
    })
    .await;
    for dead in &cluster.servers()[3..] {
        dead.kill();
    }
    let refused = redlock.try_acquire("s").await.expect_err("only two nodes count");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    assert!(reason(&refused, 2).starts_with("restarted "), "{refused}");
    lease.extend(ms(50_000)).await.expect("three nodes hold the key");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "three nodes delete the key");
    eventually("the refused attempt's key is deleted", || cluster[2].keys().is_empty()).await;
}

#[tokio::test]
async fn new_deployment_works_at_once_unless_guard_is_strict() {
    let cluster = Cluster::start(3);
    let observed = builder(&cluster).build().expect("valid settings");
    let lease = observed.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes count", || lease.report().granted() == 3).await;
    let counts = |node: &quorlock::NodeInfo| *node.eligibility() == VoteEligibility::Counted;
    assert!(observed.nodes().iter().all(counts), "{:?}", observed.nodes());
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));

    let strict = || builder(&cluster).restart_guard(RestartGuard::Strict);
    let refused = strict()
        .build()
        .expect("valid settings")
        .try_acquire("r")
        .await
        .expect_err("the nodes have just started");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    // Two nodes are enough for the decision.
    assert!(refused.to_string().matches(" restarted ").count() >= 2, "{refused}");
    let short = strict().max_ttl(ms(1_000)).ttl(ms(1_000)).node_timeout(ms(200)).build();
    let lease = short.expect("valid settings").acquire("r").wait(SOON).await;
    drop(lease.expect("the quarantine ends"));
}

#[tokio::test]
async fn trusted_durable_node_counts_with_strict_guard() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let strict = || builder(&cluster).restart_guard(RestartGuard::Strict);
    let redlock = strict().trust_persistence(true).build().expect("valid settings");
    warm_up(&redlock).await;
    for node in &cluster {
        node.restart();
    }
    warm_up(&redlock).await;
    let lease = redlock.try_acquire("r").await.expect("the nodes are durable");
    eventually("all nodes count", || lease.report().granted() == 3).await;
    assert!(redlock.nodes().iter().all(|node| *node.eligibility() == VoteEligibility::Counted));
    drop(lease);
    let refused = strict()
        .build()
        .expect("valid settings")
        .try_acquire("r")
        .await
        .expect_err("the nodes have just started");
    // Two nodes are enough for the decision.
    assert!(refused.to_string().matches(" restarted ").count() >= 2, "{refused}");
}

#[tokio::test]
async fn trusted_node_without_persistence_does_not_count() {
    let no_fsync = Server::builder().durable().arg("--no-appendfsync-on-rewrite").arg("yes");
    for setup in [Server::builder(), no_fsync] {
        let cluster = Cluster::start_with(3, &setup);
        let settings = builder(&cluster).trust_persistence(true);
        let settings = settings.restart_guard(RestartGuard::Strict);
        let refused = settings
            .build()
            .expect("valid settings")
            .try_acquire("r")
            .await
            .expect_err("the nodes are not durable");
        assert!(refused.to_string().matches(" restarted ").count() >= 2, "{refused}");
    }
}

#[tokio::test]
async fn waiting_acquire_succeeds_when_the_quarantine_ends() {
    let cluster = past_quarantine(3).await;
    let settings = builder(&cluster).max_ttl(ms(1_000)).ttl(ms(1_000)).node_timeout(ms(200));
    let redlock = settings.build().expect("valid settings");
    warm_up(&redlock).await;
    let started = Instant::now();
    for node in &cluster.servers()[..2] {
        node.restart();
    }
    let excluded = |node: usize| {
        let info = redlock.nodes().swap_remove(node);
        matches!(info.eligibility(), VoteEligibility::Excluded(NodeFailure::Restarted { .. }))
    };
    eventually("both restarts are noticed", || excluded(0) && excluded(1)).await;
    // With this retry delay, the acquire succeeds before its wait ends only if the end of the quarantine wakes it.
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    let lease = redlock.acquire("r").wait(SOON).retry(never).await.expect("the quarantine ends");
    assert!(
        started.elapsed() > ms(2_000),
        "not before max_ttl + drift + 1 s: {:?}",
        started.elapsed()
    );
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let all_count = || redlock.nodes().iter().all(|node| node.eligibility().counts_in().is_zero());
    eventually("all nodes count", all_count).await;
}

#[tokio::test]
async fn flush_is_noticed_by_a_missing_key() {
    let cluster = past_quarantine(3).await;
    let redlock = builder(&cluster).build().expect("valid settings");
    let eligibility = || redlock.nodes()[0].eligibility().clone();
    let lease = granted_by_all(&redlock, "r").await;
    // The node sends its push before the reply to the next command, but the client may read the push later.
    cluster[0].cmd(&["EVAL", "redis.call('SELECT', 1) redis.call('FLUSHDB')", "0"]);
    lease.extend(ms(40_000)).await.expect("all nodes hold the key");
    tokio::time::sleep(ms(50)).await;
    assert_eq!(
        eligibility(),
        VoteEligibility::Counted,
        "a flush of another database does not count"
    );

    cluster[0].flushall();
    lease.extend(ms(50_000)).await.expect("two nodes hold the key");
    let is_flushed =
        || matches!(eligibility(), VoteEligibility::Excluded(NodeFailure::Flushed { .. }));
    eventually("the flush is noticed", is_flushed).await;
    let other = redlock.try_acquire("other").await.expect("two nodes count");
    eventually("the report shows the flush", || other.report().to_string().contains(" flushed "))
        .await;
}

#[tokio::test]
async fn flush_is_noticed_by_a_release() {
    let cluster = past_quarantine(3).await;
    let redlock = builder(&cluster).build().expect("valid settings");
    let lease = granted_by_all(&redlock, "r").await;
    cluster[0].flushall();
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "two nodes delete the key");
    eventually("the flush is noticed", || {
        let node = redlock.nodes().swap_remove(0);
        matches!(node.eligibility(), VoteEligibility::Excluded(NodeFailure::Flushed { .. }))
    })
    .await;
}

#[tokio::test]
async fn deleted_key_is_not_taken_for_a_flush() {
    let cluster = past_quarantine(3).await;
    let redlock = builder(&cluster).build().expect("valid settings");
    let lease = granted_by_all(&redlock, "r").await;
    cluster[0].del("r");
    lease.extend(ms(40_000)).await.expect("two nodes hold the key");
    eventually("the key is restored", || cluster[0].get("r").is_some()).await;
    assert!(redlock.nodes().iter().all(|node| *node.eligibility() == VoteEligibility::Counted));
}

#[tokio::test]
async fn node_without_info_may_have_been_restarted() {
    let setup = Server::builder().arg("--user").arg("few").arg("on").arg(">secret");
    let setup = FEW_RIGHTS.split(' ').fold(setup, kit::ServerBuilder::arg);
    let cluster = Cluster::start_with(3, &setup);
    let urls = cluster.iter().map(|node| format!("redis://few:secret@{}", node.addr()));
    let redlock = builder_of(urls).build().expect("valid settings");
    warm_up(&redlock).await;
    cluster[..2].iter().for_each(|node| drop(node.cmd(&["CLIENT", "KILL", "USER", "few"])));
    let maybe = "maybe restarted ";
    eventually("both nodes may have been restarted", || {
        let nodes = redlock.nodes();
        nodes[..2].iter().all(|node| node.eligibility().to_string().starts_with(maybe))
    })
    .await;
    let refused = redlock.try_acquire("r").await.expect_err("only one node counts");
    assert!(reason(&refused, 0).starts_with(maybe), "{refused}");
    assert!(reason(&refused, 1).contains("(INFO is not permitted)"), "{refused}");
    let checks = redlock.check().await.expect("the client is open");
    for check in &checks[..2] {
        let finding = check.findings().iter().find(|it| matches!(it, Finding::Quarantined { .. }));
        let finding = finding.expect("the node is in quarantine").to_string();
        assert!(finding.contains("; permit +info, so that "), "{finding}");
    }
}

#[tokio::test]
async fn ttl_above_max_ttl_is_refused_by_every_operation() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("valid settings");
    let ttl = MAX_TTL + ms(1);
    let refusal = ConfigError::TtlExceedsMax { ttl, max_ttl: MAX_TTL };
    let lease = redlock.acquire("r").ttl(MAX_TTL).await.expect("max_ttl is allowed");
    let acquired = redlock.try_acquire("s").ttl(ttl).await.err();
    assert_eq!(acquired, Some(AcquireError::Invalid(refusal.clone())));
    let adopted = redlock.adopt("r", lease.value()).ttl(ttl).await.err();
    assert_eq!(adopted, Some(AcquireError::Invalid(refusal.clone())));
    let extended = lease.extend(ttl).await;
    assert_eq!(extended, Err(ExtendError::Invalid(refusal.clone())));
    let refusal = ConfigError::CoolDownExceedsMax { cool_down: ttl, max_ttl: MAX_TTL };
    let released = lease.release_after(ttl).await;
    assert_eq!(released, Err(ReleaseError::Invalid(refusal)));
}

/// Returns each node's remaining quarantine according to `check`, or `None` for a node that is not in quarantine.
async fn quarantined(redlock: &Redlock) -> Vec<Option<Duration>> {
    let nodes = redlock.check().await.expect("the client is open");
    let counts_in = |finding: &Finding| match finding {
        Finding::Quarantined { counts_in, .. } => Some(*counts_in),
        _ => None,
    };
    nodes.iter().map(|node| node.findings().iter().find_map(counts_in)).collect()
}

#[tokio::test]
async fn check_and_status_report_the_quarantine_of_restarted_nodes() {
    let cluster = past_quarantine(3).await;
    let client = |guard| builder(&cluster).restart_guard(guard).build().expect("valid settings");
    let known = client(RestartGuard::Observed);
    warm_up(&known).await;
    assert_eq!(quarantined(&known).await, [None; 3]);
    cluster[0].restart();
    cluster[1].restart();
    let is_known =
        || known.nodes()[..2].iter().all(|node| !node.eligibility().counts_in().is_zero());
    eventually("both restarts are noticed", is_known).await;
    for redlock in [known, client(RestartGuard::Observed), client(RestartGuard::Strict)] {
        let found = quarantined(&redlock).await;
        let is_found = |found: &Option<Duration>| found.is_some_and(|it| it > ms(1_000));
        assert!(is_found(&found[0]) && is_found(&found[1]) && found[2].is_none(), "{found:?}");
        redlock.ready().await.expect("nodes are up");
        let status = redlock.status("r").await.expect("the client is open");
        assert!(status.acquirable_in().is_some_and(|it| it > ms(1_000)), "{status}");
        assert!(status.to_string().starts_with("not held, cannot be acquired for "), "{status}");
        let refused = redlock.try_acquire("r").await.expect_err("two nodes do not count");
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    }
    let off = client(RestartGuard::Off);
    assert_eq!(quarantined(&off).await, [None; 3]);
    off.ready().await.expect("nodes are up");
    let status = off.status("r").await.expect("the client is open");
    assert_eq!(status.acquirable_in(), Some(Duration::ZERO), "{status}");
    drop(off.try_acquire("r").await.expect("all nodes count"));
}

/// Checks that `check` does not influence later attempts. It uses separate connections, and the restart guard ignores
/// its results.
#[tokio::test]
async fn check_changes_nothing_for_the_restart_guard() {
    let cluster = past_quarantine(3).await;
    let redlock = builder(&cluster).build().expect("valid settings");
    cluster[0].restart();
    assert!(quarantined(&redlock).await[0].is_some());
    let is_unchanged = |node: &quorlock::NodeInfo| {
        *node.state() == NodeState::Connecting && node.eligibility().counts_in().is_zero()
    };
    assert!(redlock.nodes().iter().all(is_unchanged), "{:?}", redlock.nodes());
}
