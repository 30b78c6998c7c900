//! Nodes that have forgotten their locks in a restart or a flush.
#![cfg(target_os = "linux")]

use crate::clocks::clocked;
use crate::errors::{FEW_RIGHTS, told};
use crate::{MAX_TTL, SOON, builder, builder_of, eventually, granted_by_all, ms, warm_up};
use futures::FutureExt;
use kit::{Cluster, Server};
use quorlock::{
    AcquireError, ConfigError, ExtendError, Finding, Lease, NodeFailure, NodeState, NodeVote,
    Redlock, ReleaseError, ReleaseOutcome, RestartGuard, RetryPolicy, VoteEligibility,
};
use std::time::{Duration, Instant};

/// Older than any guard waits for.
const AGE: Duration = Duration::from_hours(3);

/// Servers that have been up for long, as they tell: their wall clocks say so.
pub(crate) async fn old(nodes: usize) -> Cluster {
    let cluster = clocked(nodes);
    grow_old(&cluster).await;
    cluster
}

/// Moves the clocks so far that all tell that they have been up for long.
pub(crate) async fn grow_old(cluster: &Cluster) {
    cluster.iter().for_each(|node| node.clock().jump(AGE));
    let uptime = |node: &Server| {
        node.info("server")["uptime_in_seconds"].parse::<u64>().expect("whole seconds")
    };
    eventually("they are old", || cluster.iter().all(|node| uptime(node) > 10_000)).await;
}

/// What a node's vote was, as a text.
fn reason(refused: &AcquireError, node: usize) -> String {
    let report = refused.report().expect("nodes were asked");
    let NodeVote::Failed(failure) = report.nodes()[node].vote() else { panic!("{report}") };
    failure.to_string()
}

/// 1. A holds the lock on a bare quorum: the nodes 0, 1 and 2 of five. 2. Node 2 comes back empty.
///
/// Returns A's lease, and what B gets then, who has used the nodes before or not.
async fn restarted_between(
    cluster: &Cluster,
    guard: RestartGuard,
    has_seen: bool,
) -> (Lease, Result<Lease, AcquireError>) {
    let [a, b] = [(); 2].map(|()| builder(cluster).restart_guard(guard).build().expect("good"));
    if has_seen {
        warm_up(&b).await;
    }
    warm_up(&a).await;
    for node in &cluster.servers()[3..] {
        node.set("r", "somebody else's");
    }
    let lease = a.acquire("r").await.expect("three of five are free");
    assert_eq!(lease.report().granted(), 3);
    for node in &cluster.servers()[3..] {
        node.del("r");
    }
    cluster[2].restart();
    assert_eq!(cluster[2].get("r"), None, "it has forgotten the lock");
    if guard == RestartGuard::Off {
        // As soon as it is connected again.
        return (lease, b.acquire("r").wait(SOON).await);
    }
    if has_seen {
        eventually("it is back, and known to be another process", || {
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
async fn without_a_guard_a_restart_lets_two_hold_the_lock() {
    for has_seen in [true, false] {
        let cluster = old(5).await;
        let (lease, second) = restarted_between(&cluster, RestartGuard::Off, has_seen).await;
        let second = second.expect("three of five know of no lock");
        assert!(lease.is_valid() && second.is_valid(), "two hold it");
    }
}

#[tokio::test]
async fn with_a_guard_a_restart_lets_nobody_in() {
    for guard in [RestartGuard::Observed, RestartGuard::Strict] {
        for has_seen in [true, false] {
            let cluster = old(5).await;
            let (lease, second) = restarted_between(&cluster, guard, has_seen).await;
            let refused = second.expect_err("one of three has forgotten the lock");
            let case = format!("{guard:?}, {has_seen}: {}", told(&refused));
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
async fn a_restarted_node_takes_extensions_and_releases_and_they_count() {
    let cluster = old(5).await;
    let redlock = builder(&cluster).build().expect("good settings");
    let lease = granted_by_all(&redlock, "r").await;
    cluster[2].restart();
    eventually("it gets the key back", || {
        let _ = lease.extend(ms(40_000)).now_or_never();
        cluster[2].get("r").is_some()
    })
    .await;
    for dead in &cluster.servers()[3..] {
        dead.kill();
    }
    let refused = redlock.try_acquire("s").await.expect_err("two count");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    assert!(reason(&refused, 2).starts_with("restarted "), "{refused}");
    lease.extend(ms(50_000)).await.expect("three hold it");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "by three");
    eventually("what it granted in vain is gone", || cluster[2].keys().is_empty()).await;
}

#[tokio::test]
async fn a_new_deployment_works_at_once_unless_the_guard_is_strict() {
    let cluster = Cluster::start(3);
    let observed = builder(&cluster).build().expect("good settings");
    let lease = observed.try_acquire("r").await.expect("a free lock");
    eventually("all count", || lease.report().granted() == 3).await;
    let counts = |node: &quorlock::NodeInfo| *node.eligibility() == VoteEligibility::Counted;
    assert!(observed.nodes().iter().all(counts), "{:?}", observed.nodes());
    lease.release().await.expect("nodes are up");

    let strict = || builder(&cluster).restart_guard(RestartGuard::Strict);
    let refused = strict().build().expect("good").try_acquire("r").await.expect_err("too new");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    // Two were enough to decide.
    assert!(refused.to_string().matches(" restarted ").count() >= 2, "{refused}");
    let short = strict().max_ttl(ms(1_000)).ttl(ms(1_000)).node_timeout(ms(200)).build();
    let lease = short.expect("good settings").acquire("r").wait(SOON).await;
    drop(lease.expect("it waits until the nodes are old enough"));
}

#[tokio::test]
async fn a_durable_node_counts_whatever_the_guard_if_somebody_vouches_for_it() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let strict = || builder(&cluster).restart_guard(RestartGuard::Strict);
    let redlock = strict().trust_persistence(true).build().expect("good settings");
    warm_up(&redlock).await;
    for node in &cluster {
        node.restart();
    }
    warm_up(&redlock).await;
    let lease = redlock.try_acquire("r").await.expect("nothing was forgotten");
    eventually("all count", || lease.report().granted() == 3).await;
    assert!(redlock.nodes().iter().all(|node| *node.eligibility() == VoteEligibility::Counted));
    drop(lease);
    let refused = strict().build().expect("good").try_acquire("r").await.expect_err("it is young");
    // Two were enough to decide.
    assert!(refused.to_string().matches(" restarted ").count() >= 2, "{refused}");
}

#[tokio::test]
async fn whoever_is_vouched_for_and_says_that_it_forgets_is_not_trusted() {
    let cluster = Cluster::start(3);
    let settings = builder(&cluster).trust_persistence(true).restart_guard(RestartGuard::Strict);
    let refused = settings.build().expect("good").try_acquire("r").await.expect_err("too young");
    assert!(refused.to_string().matches(" restarted ").count() >= 2, "{refused}");
}

#[tokio::test]
async fn a_quarantine_ends_and_whoever_waits_is_let_in_by_then() {
    let cluster = old(3).await;
    let settings = builder(&cluster).max_ttl(ms(1_000)).ttl(ms(1_000)).node_timeout(ms(200));
    let redlock = settings.build().expect("good settings");
    warm_up(&redlock).await;
    let begun = Instant::now();
    for node in &cluster.servers()[..2] {
        node.restart();
    }
    let excluded = |node: usize| {
        let info = redlock.nodes().swap_remove(node);
        matches!(info.eligibility(), VoteEligibility::Excluded(NodeFailure::Restarted { .. }))
    };
    eventually("both are noticed", || excluded(0) && excluded(1)).await;
    // Its retry policy alone would not wake it in time.
    let never = RetryPolicy::fixed(Duration::from_mins(10));
    let lease = redlock.acquire("r").wait(SOON).retry(never).await.expect("they count again");
    assert!(begun.elapsed() > ms(2_000), "not before max_ttl + drift + 1 s: {:?}", begun.elapsed());
    lease.release().await.expect("nodes are up");
    let all_count = || redlock.nodes().iter().all(|node| node.eligibility().counts_in().is_zero());
    eventually("all count again", all_count).await;
}

#[tokio::test]
async fn a_flush_is_noticed_by_a_key_that_is_missing() {
    let cluster = old(3).await;
    let redlock = builder(&cluster).build().expect("good settings");
    let standing = || redlock.nodes()[0].eligibility().clone();
    let lease = granted_by_all(&redlock, "r").await;
    // The push comes before the answer to the next command, but may be read after it.
    cluster[0].cmd(&["EVAL", "redis.call('SELECT', 1) redis.call('FLUSHDB')", "0"]);
    lease.extend(ms(40_000)).await.expect("all hold it");
    tokio::time::sleep(ms(50)).await;
    assert_eq!(standing(), VoteEligibility::Counted, "those of another database");

    cluster[0].flushall();
    lease.extend(ms(50_000)).await.expect("two hold it");
    let is_flushed =
        || matches!(standing(), VoteEligibility::Excluded(NodeFailure::Flushed { .. }));
    eventually("it is noticed", is_flushed).await;
    let other = redlock.try_acquire("other").await.expect("two count");
    eventually("it says so", || other.report().to_string().contains(" flushed ")).await;
}

#[tokio::test]
async fn a_flush_is_noticed_by_a_release_too() {
    let cluster = old(3).await;
    let redlock = builder(&cluster).build().expect("good settings");
    let lease = granted_by_all(&redlock, "r").await;
    cluster[0].flushall();
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "by two");
    eventually("it is noticed", || {
        let node = redlock.nodes().swap_remove(0);
        matches!(node.eligibility(), VoteEligibility::Excluded(NodeFailure::Flushed { .. }))
    })
    .await;
}

#[tokio::test]
async fn a_key_that_somebody_takes_away_is_no_flush() {
    let cluster = old(3).await;
    let redlock = builder(&cluster).build().expect("good settings");
    let lease = granted_by_all(&redlock, "r").await;
    cluster[0].del("r");
    lease.extend(ms(40_000)).await.expect("two hold it");
    eventually("it is there again", || cluster[0].get("r").is_some()).await;
    assert!(redlock.nodes().iter().all(|node| *node.eligibility() == VoteEligibility::Counted));
}

#[tokio::test]
async fn a_node_that_does_not_tell_may_have_been_restarted() {
    let setup = Server::builder().arg("--user").arg("few").arg("on").arg(">secret");
    let setup = FEW_RIGHTS.split(' ').fold(setup, kit::ServerBuilder::arg);
    let cluster = Cluster::start_with(3, &setup);
    let urls = cluster.iter().map(|node| format!("redis://few:secret@{}", node.addr()));
    let redlock = builder_of(urls).build().expect("good settings");
    warm_up(&redlock).await;
    cluster[..2].iter().for_each(|node| drop(node.cmd(&["CLIENT", "KILL", "USER", "few"])));
    let maybe = "maybe restarted ";
    eventually("both are back", || {
        let nodes = redlock.nodes();
        nodes[..2].iter().all(|node| node.eligibility().to_string().starts_with(maybe))
    })
    .await;
    let refused = redlock.try_acquire("r").await.expect_err("one is left");
    assert!(reason(&refused, 0).starts_with(maybe), "{refused}");
    assert!(reason(&refused, 1).contains("(INFO is not permitted)"), "{refused}");
    let checks = redlock.check().await.expect("a client that works");
    for check in &checks[..2] {
        let finding = check.findings().iter().find(|it| matches!(it, Finding::Quarantined { .. }));
        let finding = finding.expect("it is in quarantine").to_string();
        assert!(finding.contains("; permit +info, so that "), "{finding}");
    }
}

#[tokio::test]
async fn a_ttl_that_the_guard_does_not_wait_for_is_refused_wherever_it_is_given() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build().expect("good settings");
    let ttl = MAX_TTL + ms(1);
    let refusal = ConfigError::TtlExceedsMax { ttl, max_ttl: MAX_TTL };
    let lease = redlock.acquire("r").ttl(MAX_TTL).await.expect("not too long");
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

/// The finding of the restart guard for each node: how long until it counts again.
async fn quarantined(redlock: &Redlock) -> Vec<Option<Duration>> {
    let nodes = redlock.check().await.expect("a client that works");
    let counts_in = |finding: &Finding| match finding {
        Finding::Quarantined { counts_in, .. } => Some(*counts_in),
        _ => None,
    };
    nodes.iter().map(|node| node.findings().iter().find_map(counts_in)).collect()
}

#[tokio::test]
async fn check_and_status_report_how_long_restarted_nodes_do_not_count() {
    let cluster = old(3).await;
    let client = |guard| builder(&cluster).restart_guard(guard).build().expect("good settings");
    let known = client(RestartGuard::Observed);
    warm_up(&known).await;
    assert_eq!(quarantined(&known).await, [None; 3]);
    cluster[0].restart();
    cluster[1].restart();
    let is_known =
        || known.nodes()[..2].iter().all(|node| !node.eligibility().counts_in().is_zero());
    eventually("both are known to be other processes", is_known).await;
    for redlock in [known, client(RestartGuard::Observed), client(RestartGuard::Strict)] {
        let found = quarantined(&redlock).await;
        let is_found = |found: &Option<Duration>| found.is_some_and(|it| it > ms(1_000));
        assert!(is_found(&found[0]) && is_found(&found[1]) && found[2].is_none(), "{found:?}");
        redlock.ready().await.expect("nodes are up");
        let status = redlock.status("r").await.expect("a client that works");
        assert!(status.acquirable_in().is_some_and(|it| it > ms(1_000)), "{status}");
        assert!(status.to_string().starts_with("not held, cannot be acquired for "), "{status}");
        let refused = redlock.try_acquire("r").await.expect_err("two do not count");
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    }
    let off = client(RestartGuard::Off);
    assert_eq!(quarantined(&off).await, [None; 3]);
    off.ready().await.expect("nodes are up");
    let status = off.status("r").await.expect("a client that works");
    assert_eq!(status.acquirable_in(), Some(Duration::ZERO), "{status}");
    drop(off.try_acquire("r").await.expect("all count"));
}

/// `check` uses separate connections, and attempts do not depend on its results.
#[tokio::test]
async fn check_changes_nothing_for_the_restart_guard() {
    let cluster = old(3).await;
    let redlock = builder(&cluster).build().expect("good settings");
    cluster[0].restart();
    assert!(quarantined(&redlock).await[0].is_some());
    let is_untouched = |node: &quorlock::NodeInfo| {
        *node.state() == NodeState::Connecting && node.eligibility().counts_in().is_zero()
    };
    assert!(redlock.nodes().iter().all(is_untouched), "{:?}", redlock.nodes());
}
