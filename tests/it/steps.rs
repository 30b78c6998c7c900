//! Tests with nodes whose clocks step forward by a small amount, as they do when a clock is corrected from time to
//! time.
#![cfg(target_os = "linux")]

use crate::restarts::past_quarantine;
use crate::{SOON, builder, eventually, granted_by_all, ms};
use futures::future::join_all;
use kit::Cluster;
use quorlock::{
    AcquireError, Lease, NodeFailure, NodeVote, Redlock, ReleaseOutcome, Report, VoteEligibility,
};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until, timeout};

const MINUTE: Duration = Duration::from_mins(1);
/// The time added to a step's length for a busy machine. It is far shorter than a quarantine period.
const GENEROUS: Duration = Duration::from_secs(6);

fn is_any_suspect(redlock: &Redlock) -> bool {
    let is_suspect = |eligibility: &VoteEligibility| {
        matches!(eligibility, VoteEligibility::Excluded(NodeFailure::Suspect { .. }))
    };
    redlock.nodes().iter().any(|node| is_suspect(node.eligibility()))
}

/// Returns true if a node is excluded for longer than [`GENEROUS`]. A small clock step must exclude it only briefly.
fn is_any_excluded(report: &Report) -> bool {
    let is_excluded = |vote: &NodeVote| match vote {
        NodeVote::Failed(NodeFailure::Suspect { counts_in, .. }) => *counts_in > GENEROUS,
        _ => false,
    };
    report.nodes().iter().any(|node| is_excluded(node.vote()))
}

async fn acquire_and_release_until(redlock: Redlock, resource: &str, until: Instant) {
    while Instant::now() < until {
        let lease = redlock.acquire(resource).wait(GENEROUS).await;
        let lease = lease.unwrap_or_else(|refused| panic!("{refused}"));
        assert!(!is_any_excluded(&lease.report()), "{}", lease.report());
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        sleep(ms(20)).await;
    }
}

/// Checks that small clock steps of two nodes disturb none of three clients.
///
/// 1. A holds a lock with auto-extension, B acquires and releases another lock, and C has used the nodes before.
/// 2. One node's clock steps forward by `step`. Another node's clock does the same after `apart`.
/// 3. A releases the lock, and every client can acquire it.
async fn two_small_steps(ttl: Duration, step: Duration, apart: Duration) {
    let cluster = past_quarantine(3).await;
    let client = || builder(&cluster).max_ttl(MINUTE).ttl(ttl).node_timeout(ms(300)).build();
    let [a, b, c] = [(); 3].map(|()| client().expect("valid settings"));
    for client in [&a, &b, &c] {
        drop(granted_by_all(client, "warm").await);
    }
    let lease = a.acquire("kept").auto_extend(MINUTE).await.expect("the lock is free");
    eventually("all nodes have granted", || lease.report().granted() == 3).await;
    let busy =
        tokio::spawn(acquire_and_release_until(b.clone(), "busy", Instant::now() + 3 * apart));
    sleep(apart / 2).await;
    cluster[0].clock().jump(step);
    sleep(apart).await;
    cluster[1].clock().jump(step);
    sleep(apart).await;
    assert!(lease.is_valid(), "{ttl:?}, {step:?}: {:?}", lease.loss());
    busy.await.expect("every acquire succeeded");
    for client in [&a, &b, &c] {
        assert!(!is_any_suspect(client), "{:?}", client.nodes());
    }
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    for (client, name) in [(&c, "C"), (&b, "B"), (&a, "A")] {
        let next = client.acquire("kept").wait(step + GENEROUS).await;
        let next = next.unwrap_or_else(|refused| panic!("{name}, {step:?}: {refused}"));
        assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_clock_steps_do_not_disturb_leases_or_acquires() {
    let short = two_small_steps(ms(4_000), ms(60), ms(4_000));
    let long = two_small_steps(ms(10_000), ms(150), ms(4_000));
    tokio::join!(short, long);
}

/// How B acquires the lock that A holds.
#[derive(Clone, Copy, Debug)]
enum SecondAcquire {
    /// B continuously tries to acquire the lock.
    Trying,
    /// B has used the nodes before, and tries to acquire the lock only shortly before it expires.
    Late,
    Waiting,
}

/// A step of one node's clock, which occurs `after` the start of the acquire.
#[derive(Clone, Copy)]
struct Step {
    after: Duration,
    node: usize,
    by: Duration,
    is_back: bool,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, node, by, is_back } = self;
        let sign = if *is_back { '-' } else { '+' };
        write!(f, "{node} {sign}{by:?} at {}ms", after.as_millis())
    }
}

#[derive(Debug)]
struct Plan {
    ttl: Duration,
    second: SecondAcquire,
    steps: Vec<Step>,
}

fn between(random: &mut StdRng, min: u64, max: u64) -> Duration {
    ms(random.random_range(min..=max))
}

fn random_time_within(random: &mut StdRng, ttl: Duration) -> Duration {
    ttl.mul_f64(random.random_range(0.2..0.9))
}

/// Returns the length of a clock step for each node. All lengths differ, because a client could mistake equal steps for
/// a stop of its own clock.
fn random_step_lengths(random: &mut StdRng) -> [Duration; 3] {
    let mut lengths = [(5, 50), (80, 125), (155, 200)].map(|(min, max)| between(random, min, max));
    if random.random_ratio(1, 3) {
        lengths[random.random_range(0..3)] = between(random, 1_000, 5_000);
    }
    lengths.shuffle(random);
    lengths
}

fn plan(random: &mut StdRng) -> Plan {
    let ttl = between(random, 600, 1_200);
    let (second, lengths) = (second(random), random_step_lengths(random));
    let skipped = random.random_range(0..6);
    let nodes = (0..3).filter(|node| *node != skipped);
    let forward = |after, node, by| Step { after, node, by, is_back: false };
    let steps = match random.random_range(0..10) {
        0..3 => {
            let at_once = random_time_within(random, ttl);
            nodes.map(|node| forward(at_once, node, lengths[node])).collect()
        }
        // A majority makes equal steps at the same time.
        3..5 => {
            let at_once = random_time_within(random, ttl);
            nodes.take(2).map(|node| forward(at_once, node, lengths[0])).collect()
        }
        // The steps happen at different times, and some go backwards.
        5..8 => {
            let step = |node| {
                let is_back = random.random_ratio(1, 5);
                let by = if is_back { between(random, 5, 200) } else { lengths[node] };
                Step { after: random_time_within(random, ttl), node, by, is_back }
            };
            nodes.map(step).collect()
        }
        // Many steps happen, each within the drift allowance.
        _ => {
            let small = |node: usize| [(2, 5), (5, 8), (8, 11)][node];
            let step = |node| {
                let (min, max) = small(node);
                forward(random_time_within(random, ttl), node, between(random, min, max))
            };
            nodes.flat_map(|node| [node; 8]).map(step).collect()
        }
    };
    Plan { ttl, second, steps }
}

/// Returns a random plan in which all clocks step by the same amount at the same time.
fn plan_alike(random: &mut StdRng) -> Plan {
    let ttl = between(random, 600, 1_200);
    let (second, [by, ..], after) =
        (second(random), random_step_lengths(random), random_time_within(random, ttl));
    let steps = (0..3).map(|node| Step { after, node, by, is_back: false }).collect();
    Plan { ttl, second, steps }
}

fn second(random: &mut StdRng) -> SecondAcquire {
    [SecondAcquire::Trying, SecondAcquire::Trying, SecondAcquire::Late, SecondAcquire::Waiting]
        [random.random_range(0..4)]
}

async fn step_all(cluster: Arc<Cluster>, mut steps: Vec<Step>, since: Instant) {
    steps.sort_by_key(|step| step.after);
    for Step { after, node, by, is_back } in steps {
        sleep_until((since + after).into()).await;
        let clock = cluster[node].clock();
        if is_back { clock.jump_back(by) } else { clock.jump(by) }
    }
}

async fn try_until_acquired(redlock: &Redlock) -> Lease {
    loop {
        match redlock.try_acquire("r").await {
            Ok(lease) => return lease,
            Err(AcquireError::Invalid(refused)) => panic!("{refused}"),
            Err(_) => sleep(ms(4)).await,
        }
    }
}

/// Runs a plan: A holds the lock on all nodes, B tries to acquire it, and the clocks step. Returns the duration for
/// which both leases were valid, or `None` if they did not overlap.
async fn run_plan(cluster: &Arc<Cluster>, plan: &Plan) -> Option<Duration> {
    let client = || {
        let builder = builder(cluster).max_ttl(ms(1_200)).ttl(plan.ttl);
        builder.node_timeout(ms(200)).build().expect("valid settings")
    };
    let [a, b] = [client(), client()];
    drop(granted_by_all(&b, "warm").await);
    let lease = granted_by_all(&a, "r").await;
    let since = Instant::now();
    let stepping = tokio::spawn(step_all(cluster.clone(), plan.steps.clone(), since));
    let next = async {
        match plan.second {
            SecondAcquire::Trying => try_until_acquired(&b).await,
            SecondAcquire::Late => {
                sleep(lease.validity().saturating_sub(ms(250))).await;
                try_until_acquired(&b).await
            }
            SecondAcquire::Waiting => b.acquire("r").wait(SOON).await.expect("the lock expires"),
        }
    };
    let next = timeout(SOON, next).await.expect("B acquires the lock after any steps");
    // If both leases are valid in this order, both were valid at the first check.
    let overlap = lease.valid_until().saturating_duration_since(Instant::now());
    let is_shared = lease.is_valid() && next.is_valid();
    stepping.await.expect("clocks step");
    assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    is_shared.then_some(overlap)
}

/// Runs `plays` random plans on each of six clusters. Panics if two leases overlapped.
async fn play_all(plays: u64, plan: fn(&mut StdRng) -> Plan) {
    const AT_ONCE: u64 = 6;
    let on_one_cluster = |seed| async move {
        let (cluster, mut random) =
            (Arc::new(past_quarantine(3).await), StdRng::seed_from_u64(seed));
        let mut shared = Vec::new();
        for round in 0..plays {
            let plan = plan(&mut random);
            if let Some(overlap) = run_plan(&cluster, &plan).await {
                shared.push(format!("{seed}/{round}, for {overlap:?}: {plan:?}"));
            }
        }
        shared
    };
    let shared = join_all((0..AT_ONCE).map(|seed| tokio::spawn(on_one_cluster(seed)))).await;
    let shared: Vec<_> = shared.into_iter().flat_map(|result| result.expect("no panic")).collect();
    let (count, all) = (shared.len(), AT_ONCE * plays);
    assert!(
        shared.is_empty(),
        "overlapping leases in {count} of {all} runs\n{}",
        shared.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_knew_the_clocks_waits_for_the_lease_to_end() {
    play_all(12, plan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_steps_of_all_clocks_keep_exclusion() {
    play_all(4, plan_alike).await;
}
