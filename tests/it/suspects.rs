//! Nodes whose clocks have left ours, and clocks of ours that have not kept up.
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
/// Of locks whose keys outlive each jump, and each test.
const TTL: Duration = Duration::from_mins(10);
const JUMP: Duration = Duration::from_mins(5);
/// What can be left of it after the jump, and what is left of one that was renewed since.
const AFTER: Duration = Duration::from_mins(5);
const NEARLY: Duration = Duration::from_mins(8);

/// Moves a node's clock ahead, and waits until keys go by it: Valkey 9.1 may go by an earlier reading for
/// a moment.
async fn jump(node: &Server, by: Duration) {
    let before = node.pttl("r");
    node.clock().jump(by);
    let by_ms = i64::try_from(by.as_millis()).expect("not for ever");
    eventually("keys go by it", || node.pttl("r") <= before - by_ms).await;
}

fn is_suspect(redlock: &Redlock, node: usize) -> bool {
    let info = redlock.nodes().swap_remove(node);
    let standing = info.eligibility();
    let is_deferred = matches!(standing, VoteEligibility::Deferred { .. });
    is_deferred || matches!(standing, VoteEligibility::Excluded(NodeFailure::Suspect { .. }))
}

fn suspects(redlock: &Redlock) -> usize {
    (0..redlock.nodes().len()).filter(|node| is_suspect(redlock, *node)).count()
}

/// A lock that is free is not to be had, as what that node grants does not count.
async fn refused_for_suspect(redlock: &Redlock, node: usize) {
    let refused = redlock.try_acquire("third").await.expect_err("too few count");
    let AcquireError::NoQuorum { report } = &refused else { panic!("{refused}") };
    let vote = report.nodes()[node].vote();
    assert!(matches!(vote, NodeVote::Failed(NodeFailure::Suspect { .. })), "{report}");
}

#[tokio::test]
async fn a_node_whose_clock_jumps_ahead_grants_nothing_for_long_and_the_others_carry_the_lock() {
    let cluster = clocked(3);
    let redlock = builder(&cluster).ttl(TTL).build().expect("good settings");
    let lease = granted_by_all(&redlock, "r").await;
    lease.extend(TTL).await.expect("all hold it");
    assert_eq!(suspects(&redlock), 0);

    jump(&cluster[1], JUMP).await;
    lease.extend(TTL).await.expect("two hold it, and can be believed");
    eventually("it is noticed", || is_suspect(&redlock, 1)).await;
    assert_eq!(suspects(&redlock), 1);
    let VoteEligibility::Deferred { lag } = redlock.nodes()[1].eligibility().clone() else {
        panic!("{:?}", redlock.nodes())
    };
    assert!(lag > JUMP / 2 && lag < JUMP * 2, "{lag:?}");

    let other = redlock.acquire("other").await.expect("two count");
    let text = || other.report().to_string();
    eventually("it is named", || {
        text().contains(" suspect: its clock stepped forward or runs fast (by about ")
    })
    .await;
    // With it alone there is no quorum for a new lock any more.
    cluster[2].kill();
    refused_for_suspect(&redlock, 1).await;
    // But what it extends is set anew, and what it releases is gone: that counts.
    lease.extend(TTL).await.expect("two hold it");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    drop(other);
    eventually("no key is left", || cluster[..2].iter().all(|node| node.keys().is_empty())).await;
}

#[tokio::test]
async fn a_step_stays_known_when_the_node_does_not_tell_the_time_any_more() {
    let cluster = clocked(1);
    let node = &cluster[0];
    node.cmd(&["ACL", "SETUSER", "timed", "on", ">pw", "~*", "&*", "+@all"]);
    let url = format!("redis://timed:pw@{}", node.addr());
    let redlock = Redlock::builder().nodes([url]).node_timeout(ms(1_000)).max_ttl(HOUR).ttl(TTL);
    let redlock = redlock.build().expect("good settings");
    let _lease = granted_by_all(&redlock, "r").await;
    jump(node, JUMP).await;
    refused_for_suspect(&redlock, 0).await;
    node.cmd(&["ACL", "SETUSER", "timed", "-time"]);
    refused_for_suspect(&redlock, 0).await;
}

#[tokio::test]
async fn a_node_behind_a_slow_network_is_not_suspect() {
    let cluster = Cluster::start(3);
    let proxy = Proxy::start(cluster[0].addr());
    let urls = [proxy.url(), cluster[1].url(), cluster[2].url()];
    let redlock = Redlock::builder().nodes(urls).node_timeout(ms(5_000)).build();
    let redlock = redlock.expect("good settings");
    let lease = granted_by_all(&redlock, "r").await;
    // Far longer than the allowance for drift, which is a tenth of a second.
    for direction in [Direction::Requests, Direction::Replies] {
        let asked = Instant::now();
        proxy.delay(direction, ms(1_000));
        lease.extend(ms(10_000)).await.expect("two answer at once");
        eventually("the node extends", || cluster[0].pttl("r") > 9_000).await;
        // What comes after it is answered after it.
        eventually("the answer is there", || asked.elapsed() > ms(2_500)).await;
        assert_eq!(suspects(&redlock), 0, "{:?}", redlock.nodes());
        proxy.heal();
    }
    lease.extend(ms(10_000)).await.expect("all hold it");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(suspects(&redlock), 0, "{:?}", redlock.nodes());
}

#[tokio::test]
async fn a_suspicion_ends() {
    let cluster = clocked(3);
    let settings = builder(&cluster).max_ttl(ms(5_000)).ttl(ms(5_000)).node_timeout(ms(500));
    let redlock = settings.build().expect("good settings");
    let lease = granted_by_all(&redlock, "r").await;
    jump(&cluster[1], ms(2_000)).await;
    lease.extend(ms(5_000)).await.expect("two hold it");
    eventually("it is noticed", || is_suspect(&redlock, 1)).await;
    // Its clock runs as it should, so what it promised since is kept.
    while is_suspect(&redlock, 1) {
        lease.extend(ms(5_000)).await.expect("two hold it");
        sleep(ms(100)).await;
    }
    let next = granted_by_all(&redlock, "next").await;
    next.extend(ms(5_000)).await.expect("all hold it");
    sleep(ms(50)).await;
    assert_eq!(suspects(&redlock), 0);
}

#[tokio::test]
async fn when_all_clocks_jump_ours_may_have_stood_still_and_all_leases_are_renewed() {
    let cluster = clocked(5);
    let redlock = builder(&cluster).ttl(TTL).build().expect("good settings");
    let [asked, left_alone] =
        [granted_by_all(&redlock, "asked").await, granted_by_all(&redlock, "left alone").await];
    let kept_up = redlock.acquire("kept up").auto_extend(10 * TTL).await.expect("a free lock");
    eventually("all granted", || kept_up.report().granted() == 5).await;
    let until = kept_up.valid_until();
    let left = |key: &str| {
        let shortest = cluster.iter().map(|node| node.pttl(key)).min().expect("nodes");
        ms(u64::try_from(shortest).unwrap_or_default())
    };

    cluster.iter().map(Server::clock).for_each(|clock| clock.jump(JUMP));
    assert!(left("left alone") < AFTER && left("kept up") < AFTER);
    asked.extend(TTL).await.expect("it is noticed, and what they extend counts");
    eventually("it stands as long as it is valid", || left("left alone") > NEARLY).await;
    eventually("it is extended", || left("kept up") > NEARLY).await;
    // The next third of its validity is minutes away.
    eventually("it is extended at once", || kept_up.valid_until() > until + ms(1)).await;
    // They may have stepped, all of them: whoever had a lock before relies on it.
    eventually("all are found out", || suspects(&redlock) == 5).await;
    for lease in [asked, left_alone, kept_up] {
        lease.extend(TTL).await.expect("all hold it");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    eventually("no key is left", || cluster.is_empty()).await;
}

/// How this program is told to be a child, and what its nodes are.
const CHILD: &[&str] = &["--ignored", "--exact", "suspects::holder", "--nocapture"];
const NODES: &str = "QUORLOCK_HOLDER_NODES";

/// Holds two locks while its wall clock jumps an hour ahead, and then two hours back.
#[tokio::test]
#[ignore = "runs as a child process of the test below"]
async fn holder() {
    let Ok(nodes) = env::var(NODES) else { return };
    let redlock = Redlock::builder().nodes(nodes.split(',')).node_timeout(ms(1_000));
    let redlock = redlock.ttl(MINUTE).build().expect("good settings");
    let kept_up = redlock.acquire("kept up").auto_extend(HOUR).await.expect("a free lock");
    let plain = granted_by_all(&redlock, "plain").await;
    let (started, wall) = (Instant::now(), SystemTime::now());
    println!("held");
    for (jump, is_forward) in [("first", true), ("second", false)] {
        let has_jumped = || match SystemTime::now().duration_since(wall) {
            Ok(ahead) => is_forward && ahead > started.elapsed() + HOUR / 2,
            Err(_) => !is_forward,
        };
        eventually("the wall clock jumps", has_jumped).await;
        assert!(kept_up.is_valid() && plain.is_valid());
        let (validity, passed) = (plain.validity(), started.elapsed());
        assert!(validity <= MINUTE && validity + passed + SOON > MINUTE, "{validity:?}");
        kept_up.extend(MINUTE).await.expect("all hold it");
        assert_eq!(suspects(&redlock), 0, "{:?}", redlock.nodes());
        let another = granted_by_all(&redlock, jump).await;
        assert_eq!(another.release().await, Ok(ReleaseOutcome::Released));
        println!("{jump}");
    }
    plain.extend(MINUTE).await.expect("all hold it");
    assert_eq!(suspects(&redlock), 0, "{:?}", redlock.nodes());
    for lease in [plain, kept_up] {
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
}

/// Waits until the child has said so.
async fn said(child: &Rerun, word: &str) {
    let has_ended = || child.output().lines().any(|line| line == word) || child.has_ended();
    eventually(word, has_ended).await;
}

#[tokio::test]
async fn the_wall_clock_of_a_client_and_a_stop_of_it_change_nothing() {
    let cluster = Cluster::start(3);
    let child = Rerun::start_with_clock(CHILD, &[(NODES, &cluster.urls().join(","))]);
    said(&child, "held").await;
    child.clock().jump(HOUR);
    said(&child, "first").await;
    // Its keys go on ageing meanwhile, and so does the clock that its leases go by.
    child.stop();
    sleep(ms(4_000)).await;
    child.cont();
    child.clock().jump_back(2 * HOUR);
    said(&child, "second").await;
    child.finish(MINUTE);
    assert!(child.output().contains("1 passed"), "{}", child.output());
    eventually("no key is left", || cluster.is_empty()).await;
}
