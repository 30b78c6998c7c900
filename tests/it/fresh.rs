//! Deployments that are new, or only look as if they were.
#![cfg(target_os = "linux")]

use crate::restarts::{grow_old, old};
use crate::{SOON, all_up, builder, builder_of, eventually, granted_by_all, is_up, ms, warm_up};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, NodeFailure, NodeVote, Redlock, Report};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

/// Above a connect timeout, to be free of a busy machine.
const GENEROUS: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_new_deployment_works_at_once_also_without_one_of_its_nodes() {
    let (alive, timeout) = (Server::is_running as fn(&Server) -> bool, ms(1_000));
    for (name, hurt) in [
        ("all are there", None),
        ("one is dead", Some(Server::kill as fn(&Server))),
        ("one hangs", Some(Server::stop as fn(&Server))),
    ] {
        for nodes in [3, 5] {
            let cluster = Cluster::start(nodes);
            if let Some(hurt) = hurt {
                hurt(&cluster[nodes - 1]);
            }
            assert!(cluster[..nodes - 1].iter().all(alive));
            let redlock = builder(&cluster).connect_timeout(timeout).build().expect("good");
            let begun = Instant::now();
            let lease = redlock.acquire("r").wait(SOON).await;
            let lease = lease.unwrap_or_else(|refused| panic!("{name}, {nodes}: {refused}"));
            let took = begun.elapsed();
            assert!(took < timeout + GENEROUS, "{name}, {nodes}: {took:?}");
            lease.release().await.expect("a quorum is up");
            drop(redlock.try_acquire("r").await.expect("it goes on"));
        }
    }
}

/// Servers that do not run yet.
async fn planned(nodes: usize) -> Arc<Cluster> {
    let cluster = spawn_blocking(move || Cluster::start(nodes)).await.expect("servers start");
    cluster.iter().for_each(Server::kill);
    Arc::new(cluster)
}

fn start_apart(cluster: Arc<Cluster>, apart: Duration) -> JoinHandle<()> {
    spawn_blocking(move || {
        for (node, place) in cluster.iter().zip(0..) {
            if place > 0 {
                std::thread::sleep(apart);
            }
            node.restart();
        }
    })
}

/// Whether nothing but a busy machine speaks against the nodes.
fn is_only_late(report: &Report, dead: &[usize]) -> bool {
    report.nodes().iter().enumerate().all(|(node, said)| match said.vote() {
        NodeVote::Failed(NodeFailure::Timeout(_) | NodeFailure::Stalled(_)) => true,
        NodeVote::Failed(NodeFailure::Restarted { .. }) => false,
        NodeVote::Failed(_) => dead.contains(&node),
        _ => true,
    })
}

/// Has the lock again and again until `until`; panics if it is refused because of what nodes are,
/// unless those are `dead`.
async fn come_and_go(redlock: &Redlock, dead: &[usize], until: Instant) -> usize {
    let mut had = 0;
    while Instant::now() < until {
        match redlock.try_acquire("r").await {
            Ok(lease) => {
                had += 1;
                // Too late, on a busy machine.
                drop(lease.release().await);
            }
            Err(AcquireError::NoQuorum { report }) => {
                assert!(is_only_late(&report, dead), "{had} had it before: {report}");
            }
            Err(AcquireError::Expired { .. }) => {}
            Err(refused) => panic!("nobody else is there, and {had} had it before: {refused}"),
        }
        sleep(ms(20)).await;
    }
    had
}

/// Nodes start so far apart, a client is there from the start: once it has had the lock it has it
/// again, also when the first nodes are old and the last are not; and then without two of the old.
async fn serve_from_the_start(nodes: usize, apart: Duration, deaths: usize) {
    const SHORT: Duration = Duration::from_secs(3);
    let term = SHORT.mul_f64(1.02) + ms(1_000);
    let cluster = planned(nodes).await;
    let last = apart * u32::try_from(nodes - 1).expect("few");
    assert!(last < term, "this would be no new deployment");
    let settings = builder(&cluster).max_ttl(SHORT).ttl(SHORT);
    let redlock = settings.build().expect("good settings");
    let begun = Instant::now();
    let starting = start_apart(cluster.clone(), apart);
    drop(redlock.acquire("r").wait(SOON).await.expect("a quorum starts"));
    let not_yet: Vec<_> = (0..nodes).collect();
    let turns_old = |place: usize| begun + apart * u32::try_from(place).expect("few") + term;
    // Nodes that have not been started are refused, until all are there.
    let had = come_and_go(&redlock, &not_yet, begun + last).await;
    starting.await.expect("all start");
    eventually("all nodes are up", || all_up(&redlock)).await;
    let had = had + come_and_go(&redlock, &[], turns_old(nodes - 3) + ms(200)).await;
    // Those that are left are old and young, half and half.
    let dead: Vec<_> = (0..deaths).collect();
    cluster[..deaths].iter().for_each(Server::kill);
    let still = come_and_go(&redlock, &dead, turns_old(nodes - 1) + ms(500)).await;
    assert!(had > 10 && still > 10, "{had}, {still}: this shows nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_started_one_after_the_other_serve_on_when_the_first_turn_old() {
    tokio::join!(
        serve_from_the_start(5, ms(900), 0),
        // Within the term with what the client may take to see that one is there, a second.
        serve_from_the_start(5, ms(500), 2),
        serve_from_the_start(3, ms(1_000), 1),
    );
}

/// What a client tries until all that it is connected to are `up`, and then some more: it must not get
/// the lock.
async fn is_refused(case: &str, redlock: &Redlock, up: &[usize]) {
    let are_up = || up.iter().all(|node| is_up(redlock, *node));
    let (begun, mut seen) = (Instant::now(), 0);
    while seen < 5 {
        assert!(begun.elapsed() < SOON, "{case}: {:?}", redlock.nodes());
        if let Ok(lease) = redlock.try_acquire("r").await {
            panic!("{case}: two hold it: {}", lease.report());
        }
        seen += usize::from(are_up());
        sleep(ms(10)).await;
    }
}

/// 1. B sees one node that is old, and none of the others, which are down. 2. That one hangs or dies. 3.
///    The others come back empty, and young.
async fn one_was_old(nodes: usize, hurt: fn(&Server), case: &str) {
    let cluster = old(nodes).await;
    let [a, b, knew_all] = [(); 3].map(|()| {
        let builder = builder(&cluster).node_timeout(ms(300)).connect_timeout(ms(500));
        builder.build().expect("good settings")
    });
    warm_up(&knew_all).await;
    let lease = granted_by_all(&a, "r").await;
    let majority = nodes / 2 + 1;
    cluster[..majority].iter().for_each(Server::kill);
    b.try_acquire("r").await.expect_err("too few are there");
    eventually("the old one is seen", || is_up(&b, majority)).await;
    cluster[majority..].iter().for_each(hurt);
    cluster[..majority].iter().for_each(Server::restart);
    let up: Vec<_> = (0..majority).collect();
    is_refused(&format!("{case}, {nodes}, knew one"), &b, &up).await;
    is_refused(&format!("{case}, {nodes}, knew all"), &knew_all, &up).await;
    assert!(lease.is_valid(), "this shows nothing");
}

#[tokio::test]
async fn an_old_node_speaks_against_a_new_deployment_also_when_it_hangs() {
    for nodes in [3, 5] {
        one_was_old(nodes, Server::stop, "hangs").await;
    }
}

#[tokio::test]
async fn an_old_node_speaks_against_a_new_deployment_also_when_it_has_died() {
    for nodes in [3, 5] {
        one_was_old(nodes, Server::kill, "died").await;
    }
}

#[tokio::test]
async fn the_first_attempt_waits_for_an_old_node_that_is_far_away() {
    let cluster = old(3).await;
    let far = Proxy::start(cluster[2].addr());
    let urls = [cluster[0].url(), cluster[1].url(), far.url()];
    let client = || {
        let builder = builder_of(&urls).node_timeout(ms(2_000)).connect_timeout(SOON);
        builder.build().expect("good settings")
    };
    let [a, b] = [client(), client()];
    let lease = granted_by_all(&a, "r").await;
    cluster[..2].iter().for_each(Server::restart);
    far.delay(Direction::Replies, ms(300));
    is_refused("far away", &b, &[0, 1, 2]).await;
    assert!(lease.is_valid(), "this shows nothing");
}

#[tokio::test]
async fn a_durable_node_that_is_old_speaks_against_a_new_deployment() {
    let young = Server::builder().clock();
    let mut cluster = Cluster::start_with(3, &young);
    cluster.servers_mut()[2] = Server::builder().durable().clock().start();
    grow_old(&cluster).await;
    let [a, b] = [(); 2].map(|()| builder(&cluster).build().expect("good settings"));
    let lease = granted_by_all(&a, "r").await;
    cluster[..2].iter().for_each(Server::restart);
    is_refused("durable", &b, &[0, 1, 2]).await;
    assert!(lease.is_valid(), "this shows nothing");
}
