//! Nodes whose clocks step ahead by little, as those of machines do that are put right now and then.
#![cfg(target_os = "linux")]

use crate::restarts::old;
use crate::{SOON, builder, eventually, granted_by_all, ms};
use futures::future::join_all;
use kit::Cluster;
use quorlock::{AcquireError, Lease, NodeFailure, NodeVote, Redlock, Report, VoteEligibility};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until, timeout};

const MINUTE: Duration = Duration::from_mins(1);
/// Above the step's length, to be free of a busy machine: far less than any quarantine here.
const GENEROUS: Duration = Duration::from_secs(6);

fn is_any_suspect(redlock: &Redlock) -> bool {
    let is_suspect = |standing: &VoteEligibility| {
        matches!(standing, VoteEligibility::Excluded(NodeFailure::Suspect { .. }))
    };
    redlock.nodes().iter().any(|node| is_suspect(node.eligibility()))
}

/// Whether a node is left out for longer than until the step's length is over.
fn is_any_barred(report: &Report) -> bool {
    let is_barred = |vote: &NodeVote| match vote {
        NodeVote::Failed(NodeFailure::Suspect { counts_in, .. }) => *counts_in > GENEROUS,
        _ => false,
    };
    report.nodes().iter().any(|node| is_barred(node.vote()))
}

/// Takes and gives back another lock, again and again, until `until`. Nobody is in the way.
async fn come_and_go(redlock: Redlock, resource: &str, until: Instant) {
    while Instant::now() < until {
        let lease = redlock.acquire(resource).wait(GENEROUS).await;
        let lease = lease.unwrap_or_else(|refused| panic!("{refused}"));
        assert!(!is_any_barred(&lease.report()), "{}", lease.report());
        lease.release().await.expect("nodes are up");
        sleep(ms(20)).await;
    }
}

/// 1. A holds a lock that it keeps up; B comes and goes; C has been there before. 2. One clock steps,
///    and a while later another. 3. A gives the lock up, and all get it.
async fn two_small_steps(ttl: Duration, step: Duration, apart: Duration) {
    let cluster = old(3).await;
    let client = || builder(&cluster).max_ttl(MINUTE).ttl(ttl).node_timeout(ms(300)).build();
    let [a, b, c] = [(); 3].map(|()| client().expect("good settings"));
    for client in [&a, &b, &c] {
        drop(granted_by_all(client, "warm").await);
    }
    let lease = a.acquire("kept").auto_extend(MINUTE).await.expect("a free lock");
    eventually("all granted", || lease.report().granted() == 3).await;
    let busy = tokio::spawn(come_and_go(b.clone(), "busy", Instant::now() + 3 * apart));
    sleep(apart / 2).await;
    cluster[0].clock().jump(step);
    sleep(apart).await;
    cluster[1].clock().jump(step);
    sleep(apart).await;
    assert!(lease.is_valid(), "{ttl:?}, {step:?}: {:?}", lease.loss());
    busy.await.expect("nobody was refused");
    for client in [&a, &b, &c] {
        assert!(!is_any_suspect(client), "{:?}", client.nodes());
    }
    lease.release().await.expect("nodes are up");
    for (client, name) in [(&c, "C"), (&b, "B"), (&a, "A")] {
        let next = client.acquire("kept").wait(step + GENEROUS).await;
        let next = next.unwrap_or_else(|refused| panic!("{name}, {step:?}: {refused}"));
        next.release().await.expect("nodes are up");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_steps_of_two_clocks_cost_no_lease_and_no_service() {
    let short = two_small_steps(ms(1_000), ms(20), ms(2_000));
    let long = two_small_steps(ms(10_000), ms(150), ms(4_000));
    tokio::join!(short, long);
}

/// How B comes for the lock that A holds.
#[derive(Clone, Copy, Debug)]
enum Comer {
    /// It tries all the time.
    Trying,
    /// It has been there before, and tries again only when the lock is about to end.
    Late,
    /// It waits.
    Waiting,
}

/// The clock of a node steps so long after the lock was taken.
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
    comer: Comer,
    steps: Vec<Step>,
}

fn up_to(random: &mut StdRng, least: u64, most: u64) -> Duration {
    ms(random.random_range(least..=most))
}

/// Within the ttl, but for its very beginning and end.
fn moment(random: &mut StdRng, ttl: Duration) -> Duration {
    ttl.mul_f64(random.random_range(0.2..0.9))
}

/// One for each node. No two are alike: that would speak for a client's clock that stood still.
fn lengths(random: &mut StdRng) -> [Duration; 3] {
    let mut lengths =
        [(5, 50), (80, 125), (155, 200)].map(|(least, most)| up_to(random, least, most));
    if random.random_ratio(1, 3) {
        lengths[random.random_range(0..3)] = up_to(random, 1_000, 5_000);
    }
    lengths.shuffle(random);
    lengths
}

/// The clocks of a majority step, or of all.
fn plan(random: &mut StdRng) -> Plan {
    let ttl = up_to(random, 600, 1_200);
    let (comer, lengths) = (comer(random), lengths(random));
    let skipped = random.random_range(0..6);
    let nodes = (0..3).filter(|node| *node != skipped);
    let forward = |after, node, by| Step { after, node, by, is_back: false };
    let steps = match random.random_range(0..10) {
        0..3 => {
            let at_once = moment(random, ttl);
            nodes.map(|node| forward(at_once, node, lengths[node])).collect()
        }
        // A majority, alike.
        3..5 => {
            let at_once = moment(random, ttl);
            nodes.take(2).map(|node| forward(at_once, node, lengths[0])).collect()
        }
        // One after the other; some go back.
        5..8 => {
            let step = |node| {
                let is_back = random.random_ratio(1, 5);
                let by = if is_back { up_to(random, 5, 200) } else { lengths[node] };
                Step { after: moment(random, ttl), node, by, is_back }
            };
            nodes.map(step).collect()
        }
        // Many, each of which the allowance for drift may explain.
        _ => {
            let small = |node: usize| [(2, 5), (5, 8), (8, 11)][node];
            let step = |node| {
                let (least, most) = small(node);
                forward(moment(random, ttl), node, up_to(random, least, most))
            };
            nodes.flat_map(|node| [node; 8]).map(step).collect()
        }
    };
    Plan { ttl, comer, steps }
}

/// All clocks step by as much, at once.
fn plan_alike(random: &mut StdRng) -> Plan {
    let ttl = up_to(random, 600, 1_200);
    let (comer, [by, ..], after) = (comer(random), lengths(random), moment(random, ttl));
    let steps = (0..3).map(|node| Step { after, node, by, is_back: false }).collect();
    Plan { ttl, comer, steps }
}

fn comer(random: &mut StdRng) -> Comer {
    [Comer::Trying, Comer::Trying, Comer::Late, Comer::Waiting][random.random_range(0..4)]
}

async fn step_all(cluster: Arc<Cluster>, mut steps: Vec<Step>, since: Instant) {
    steps.sort_by_key(|step| step.after);
    for Step { after, node, by, is_back } in steps {
        sleep_until((since + after).into()).await;
        let clock = cluster[node].clock();
        if is_back { clock.jump_back(by) } else { clock.jump(by) }
    }
}

/// Tries until it has the lock.
async fn try_on(redlock: &Redlock) -> Lease {
    loop {
        match redlock.try_acquire("r").await {
            Ok(lease) => return lease,
            Err(AcquireError::Invalid(refused)) => panic!("{refused}"),
            Err(_) => sleep(ms(4)).await,
        }
    }
}

/// A holds the lock on all nodes, B comes for it, and the clocks step: for how long two held it.
async fn play(cluster: &Arc<Cluster>, plan: &Plan) -> Option<Duration> {
    let client = || {
        let builder = builder(cluster).max_ttl(ms(1_200)).ttl(plan.ttl);
        builder.node_timeout(ms(200)).build().expect("good settings")
    };
    let [a, b] = [client(), client()];
    drop(granted_by_all(&b, "warm").await);
    let lease = granted_by_all(&a, "r").await;
    let since = Instant::now();
    let stepping = tokio::spawn(step_all(cluster.clone(), plan.steps.clone(), since));
    let next = async {
        match plan.comer {
            Comer::Trying => try_on(&b).await,
            Comer::Late => {
                sleep(lease.validity().saturating_sub(ms(250))).await;
                try_on(&b).await
            }
            Comer::Waiting => b.acquire("r").wait(SOON).await.expect("the lock ends"),
        }
    };
    let next = timeout(SOON, next).await.expect("the next gets the lock, whatever clocks did");
    // In this order: both were valid when the second was looked at.
    let overlap = lease.valid_until().saturating_duration_since(Instant::now());
    let is_shared = lease.is_valid() && next.is_valid();
    stepping.await.expect("clocks step");
    next.release().await.expect("nodes are up");
    is_shared.then_some(overlap)
}

/// So many plays on each of six clusters: nobody shares the lock.
async fn play_all(plays: u64, plan: fn(&mut StdRng) -> Plan) {
    const AT_ONCE: u64 = 6;
    let on_one_cluster = |seed| async move {
        let (cluster, mut random) = (Arc::new(old(3).await), StdRng::seed_from_u64(seed));
        let mut shared = Vec::new();
        for round in 0..plays {
            let plan = plan(&mut random);
            if let Some(overlap) = play(&cluster, &plan).await {
                shared.push(format!("{seed}/{round}, for {overlap:?}: {plan:?}"));
            }
        }
        shared
    };
    let shared = join_all((0..AT_ONCE).map(|seed| tokio::spawn(on_one_cluster(seed)))).await;
    let shared: Vec<_> = shared.into_iter().flat_map(|played| played.expect("no panic")).collect();
    let (count, all) = (shared.len(), AT_ONCE * plays);
    assert!(shared.is_empty(), "{count} of {all}: two held it\n{}", shared.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_knew_the_clocks_before_they_stepped_waits_for_the_end_of_the_lease() {
    play_all(12, plan).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_let_in_either_where_all_clocks_step_alike() {
    play_all(4, plan_alike).await;
}
