//! Tests with nodes whose clocks differ from the client's clock, and with clients whose clocks have stopped.
#![cfg(target_os = "linux")]

use crate::clocks::clocked;
use crate::{SOON, builder, eventually, granted_by_all, ms};
use kit::{Cluster, Direction, Proxy, Rerun, Server};
use quorlock::{AcquireError, NodeFailure, NodeVote, Redlock, ReleaseOutcome, VoteEligibility};
use std::env;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);
/// A TTL for keys that outlive each jump and each test.
const TTL: Duration = Duration::from_mins(10);
const JUMP: Duration = Duration::from_mins(5);
/// The maximum remaining TTL of a key that was not renewed since the jump. `MIN_RENEWED_TTL` is the minimum remaining
/// TTL of a key that was renewed.
const MAX_TTL_AFTER_JUMP: Duration = Duration::from_mins(5);
const MIN_RENEWED_TTL: Duration = Duration::from_mins(8);

/// Advances a node's clock and waits until its keys expire by the new time. Valkey 9.1 may use an earlier clock reading
/// for a short time.
async fn jump(node: &Server, by: Duration) {
    let before = node.pttl("r");
    node.clock().jump(by);
    let by_ms = i64::try_from(by.as_millis()).expect("within i64");
    eventually("keys expire by the new time", || node.pttl("r") <= before - by_ms).await;
}

fn is_suspect(redlock: &Redlock, node: usize) -> bool {
    let info = redlock.nodes().swap_remove(node);
    let eligibility = info.eligibility();
    let is_deferred = matches!(eligibility, VoteEligibility::Deferred { .. });
    is_deferred || matches!(eligibility, VoteEligibility::Excluded(NodeFailure::Suspect { .. }))
}

fn suspects(redlock: &Redlock) -> usize {
    (0..redlock.nodes().len()).filter(|node| is_suspect(redlock, *node)).count()
}

/// Checks that a free lock cannot be acquired while the grant of `node` does not count.
async fn expect_refused_for_suspect(redlock: &Redlock, node: usize) {
    let refused = redlock.try_acquire("third").await.expect_err("too few nodes count");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused}") };
    let vote = report.nodes()[node].vote();
    assert!(matches!(vote, NodeVote::Failed(NodeFailure::Suspect { .. })), "{report}");
}

#[tokio::test]
async fn node_whose_clock_jumps_forward_does_not_grant() {
    let cluster = clocked(3);
    let redlock = builder(&cluster).ttl(TTL).build().expect("valid settings");
    let lease = granted_by_all(&redlock, "r").await;
    lease.extend(TTL).await.expect("all nodes hold the key");
    assert_eq!(suspects(&redlock), 0);

    jump(&cluster[1], JUMP).await;
    lease.extend(TTL).await.expect("two nodes hold the key and count");
    eventually("the node is suspect", || is_suspect(&redlock, 1)).await;
    assert_eq!(suspects(&redlock), 1);
    let VoteEligibility::Deferred { lag } = redlock.nodes()[1].eligibility().clone() else {
        panic!("{:?}", redlock.nodes())
    };
    assert!(lag > JUMP / 2 && lag < JUMP * 2, "{lag:?}");

    let other = redlock.acquire("other").await.expect("two nodes count");
    let text = || other.report().to_string();
    eventually("the report names the reason", || {
        text().contains(" suspect: its clock stepped forward or runs fast (by about ")
    })
    .await;
    // With only this node and one other, a new lock has no quorum.
    cluster[2].kill();
    expect_refused_for_suspect(&redlock, 1).await;
    // Extensions and releases on this node count, because they write or delete the key.
    lease.extend(TTL).await.expect("two nodes hold the key");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    drop(other);
    eventually("no key is left", || cluster[..2].iter().all(|node| node.keys().is_empty())).await;
}

#[tokio::test]
async fn clock_step_is_remembered_without_time_replies() {
    let cluster = clocked(1);
    let node = &cluster[0];
    node.cmd(&["ACL", "SETUSER", "timed", "on", ">pw", "~*", "&*", "+@all"]);
    let url = format!("redis://timed:pw@{}", node.addr());
    let redlock = Redlock::builder().nodes([url]).node_timeout(ms(1_000)).max_ttl(HOUR).ttl(TTL);
    let redlock = redlock.build().expect("valid settings");
    let _lease = granted_by_all(&redlock, "r").await;
    jump(node, JUMP).await;
    expect_refused_for_suspect(&redlock, 0).await;
    node.cmd(&["ACL", "SETUSER", "timed", "-time"]);
    expect_refused_for_suspect(&redlock, 0).await;
}

#[tokio::test]
async fn node_behind_a_slow_network_is_not_suspect() {
    let cluster = Cluster::start(3);
    let proxy = Proxy::start(cluster[0].addr());
    let urls = [proxy.url(), cluster[1].url(), cluster[2].url()];
    let redlock = Redlock::builder().nodes(urls).node_timeout(ms(5_000)).build();
    let redlock = redlock.expect("valid settings");
    let lease = granted_by_all(&redlock, "r").await;
    // The delay is far longer than the drift allowance of 0.1 s.
    for direction in [Direction::Requests, Direction::Replies] {
        let asked = Instant::now();
        proxy.delay(direction, ms(1_000));
        lease.extend(ms(10_000)).await.expect("two nodes reply");
        eventually("the node extends", || cluster[0].pttl("r") > 9_000).await;
        // Replies arrive in order, so the delayed reply was read before this time.
        eventually("the reply has arrived", || asked.elapsed() > ms(2_500)).await;
        assert_eq!(suspects(&redlock), 0, "{:?}", redlock.nodes());
        proxy.heal();
    }
    lease.extend(ms(10_000)).await.expect("all nodes hold the key");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(suspects(&redlock), 0, "{:?}", redlock.nodes());
}

#[tokio::test]
async fn node_stops_being_suspect() {
    let cluster = clocked(3);
    let settings = builder(&cluster).max_ttl(ms(5_000)).ttl(ms(5_000)).node_timeout(ms(500));
    let redlock = settings.build().expect("valid settings");
    let lease = granted_by_all(&redlock, "r").await;
    jump(&cluster[1], ms(2_000)).await;
    lease.extend(ms(5_000)).await.expect("two nodes hold the key");
    eventually("the node is suspect", || is_suspect(&redlock, 1)).await;
    // The clock runs at normal speed, so keys set after the step do not expire early.
    while is_suspect(&redlock, 1) {
        lease.extend(ms(5_000)).await.expect("two nodes hold the key");
        sleep(ms(100)).await;
    }
    let next = granted_by_all(&redlock, "next").await;
    next.extend(ms(5_000)).await.expect("all nodes hold the key");
    sleep(ms(50)).await;
    assert_eq!(suspects(&redlock), 0);
}

#[tokio::test]
async fn equal_jumps_of_all_clocks_renew_all_leases() {
    let cluster = clocked(5);
    let redlock = builder(&cluster).ttl(TTL).build().expect("valid settings");
    let [extended, untouched] =
        [granted_by_all(&redlock, "extended").await, granted_by_all(&redlock, "untouched").await];
    let renewed = redlock.acquire("renewed").auto_extend(10 * TTL).await.expect("the lock is free");
    eventually("all nodes have granted", || renewed.report().granted() == 5).await;
    let until = renewed.valid_until();
    let left = |key: &str| {
        let shortest = cluster.iter().map(|node| node.pttl(key)).min().expect("nodes");
        ms(u64::try_from(shortest).unwrap_or_default())
    };

    cluster.iter().map(Server::clock).for_each(|clock| clock.jump(JUMP));
    assert!(left("untouched") < MAX_TTL_AFTER_JUMP && left("renewed") < MAX_TTL_AFTER_JUMP);
    extended.extend(TTL).await.expect("the extension counts");
    eventually("the key's expiry is restored", || left("untouched") > MIN_RENEWED_TTL).await;
    eventually("the lease is extended", || left("renewed") > MIN_RENEWED_TTL).await;
    // The next regular renewal is minutes away.
    eventually("the lease is renewed at once", || renewed.valid_until() > until + ms(1)).await;
    // All nodes may have stepped, so the keys of earlier leases may expire early.
    eventually("all nodes are suspect", || suspects(&redlock) == 5).await;
    for lease in [extended, untouched, renewed] {
        lease.extend(TTL).await.expect("all nodes hold the key");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

/// The arguments with which this program runs as a child. `NODES` is the environment variable that passes the nodes'
/// URLs to the child.
const CHILD: &[&str] = &["--ignored", "--exact", "suspects::holder", "--nocapture"];
const NODES: &str = "QUORLOCK_HOLDER_NODES";

/// Holds two locks while the wall clock of this process jumps one hour forward and then two hours back.
#[tokio::test]
#[ignore = "runs as a child process of the test below"]
async fn holder() {
    let Ok(nodes) = env::var(NODES) else { return };
    let redlock = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(1_000));
    let redlock = redlock.ttl(MINUTE).build().expect("valid settings");
    let renewed = redlock.acquire("renewed").auto_extend(HOUR).await.expect("the lock is free");
    let plain = granted_by_all(&redlock, "plain").await;
    let (started, wall) = (Instant::now(), SystemTime::now());
    println!("held");
    for (jump, is_forward) in [("first", true), ("second", false)] {
        let has_jumped = || match SystemTime::now().duration_since(wall) {
            Ok(ahead) => is_forward && ahead > started.elapsed() + HOUR / 2,
            Err(_) => !is_forward,
        };
        eventually("the wall clock jumps", has_jumped).await;
        assert!(renewed.is_valid() && plain.is_valid());
        let (validity, passed) = (plain.validity(), started.elapsed());
        assert!(validity <= MINUTE && validity + passed + SOON > MINUTE, "{validity:?}");
        renewed.extend(MINUTE).await.expect("all nodes hold the key");
        assert_eq!(suspects(&redlock), 0, "{:?}", redlock.nodes());
        let another = granted_by_all(&redlock, jump).await;
        assert_eq!(another.release().await, Ok(ReleaseOutcome::Released));
        println!("{jump}");
    }
    plain.extend(MINUTE).await.expect("all nodes hold the key");
    assert_eq!(suspects(&redlock), 0, "{:?}", redlock.nodes());
    for lease in [plain, renewed] {
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}

async fn printed(child: &Rerun, word: &str) {
    let has_ended = || child.output().lines().any(|line| line == word) || child.has_ended();
    eventually(word, has_ended).await;
}

#[tokio::test]
async fn wall_clock_jumps_of_a_client_have_no_effect() {
    let cluster = Cluster::start(3);
    let child = Rerun::start_with_clock(CHILD, &[(NODES, &cluster.urls().join(","))]);
    printed(&child, "held").await;
    child.clock().jump(HOUR);
    printed(&child, "first").await;
    // While the child is stopped, its keys age, and the monotonic clock of its leases continues.
    child.stop();
    sleep(ms(4_000)).await;
    child.cont();
    child.clock().jump_back(2 * HOUR);
    printed(&child, "second").await;
    child.finish(MINUTE);
    assert!(child.output().contains("1 passed"), "{}", child.output());
    eventually("no key is left", || cluster.is_empty()).await;
}
