//! Tests with nodes that are configured as durable but lose data, because a replica takes over the address or the disk
//! is lost.
#![cfg(target_os = "linux")]

use crate::restarts::advance_past_quarantine;
use crate::{builder_of, eventually, ms, warm_up};
use futures::future::join_all;
use kit::{Cluster, Proxy, Server, ServerBuilder};
use quorlock::{Lease, NodeFailure, NodeVote, Redlock, RestartGuard};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// The number of runs of each scenario. At most `AT_ONCE` runs are concurrent.
const SCENARIOS: usize = 20;
const AT_ONCE: usize = 5;

const TTL: Duration = Duration::from_secs(30);

fn durable() -> ServerBuilder {
    let builder = Server::builder().durable().clock();
    builder.arg("--repl-diskless-sync-delay").arg("0")
}

async fn past_quarantine(nodes: usize) -> Cluster {
    let cluster = spawn_blocking(move || Cluster::start_with(nodes, &durable())).await;
    let cluster = cluster.expect("servers start");
    advance_past_quarantine(&cluster).await;
    cluster
}

fn client(urls: &[String], guard: RestartGuard) -> Redlock {
    builder_of(urls).ttl(TTL).restart_guard(guard).build().expect("valid settings")
}

/// Acquires the lock as client A on the first two of three nodes, which are a bare quorum. `third` is the last node.
async fn hold_on_two(urls: &[String], third: &Server) -> Lease {
    let a = client(urls, RestartGuard::Observed);
    warm_up(&a).await;
    third.set("r", "other");
    let lease = a.acquire("r").await.expect("two of three nodes grant");
    assert_eq!(lease.report().granted(), 2);
    third.del("r");
    lease
}

fn is_restarted(vote: &NodeVote) -> bool {
    matches!(vote, NodeVote::Failed(NodeFailure::Restarted { .. }))
}

/// Tries to acquire the lock with another client while A is its holder. Stops after five attempts that reported the
/// first node's restart. Returns a report if the lock was acquired while A held it, and `None` if it was not acquired.
async fn try_for(redlock: &Redlock, holder: &Lease) -> Option<String> {
    let mut known = 0;
    // The same limit as in `eventually`, because a busy machine may need this long to reconnect.
    for _ in 0..4_000 {
        match redlock.try_acquire("r").await {
            Ok(lease) => {
                let is_shared = holder.is_valid() && lease.is_valid();
                assert!(is_shared, "A's lease ended before B acquired the lock: repeat the test");
                return Some(lease.report().to_string());
            }
            Err(refused) => {
                let report = refused.report().expect("nodes were asked");
                known += usize::from(is_restarted(report.nodes()[0].vote()));
                if known == 5 {
                    return None;
                }
            }
        }
        sleep(ms(5)).await;
    }
    panic!("the restart was not reported: {:?}", redlock.nodes()[0]);
}

/// Replaces a node by its replica while A holds the lock. Returns a report for each other client that acquired the
/// lock.
///
/// 1. B and C connect to a node that has a replica.
/// 2. The replica falls behind, A acquires the lock, and the replica takes over the address.
async fn fail_over() -> Vec<String> {
    let cluster = Arc::new(past_quarantine(4).await);
    let [master, second, third, replica] = cluster.servers() else { panic!("four") };
    let port = master.port().to_string();
    replica.cmd(&["REPLICAOF", "127.0.0.1", &port]);
    let follows = || {
        let link = replica.info("replication");
        link.get("master_link_status").is_some_and(|status| status == "up")
    };
    eventually("the replica follows", follows).await;
    let address = Proxy::start(master.addr());
    let urls = [address.url(), second.url(), third.url()];
    let knowing = [RestartGuard::Observed, RestartGuard::Strict].map(|guard| client(&urls, guard));
    for redlock in &knowing {
        warm_up(redlock).await;
    }
    replica.cmd(&["REPLICAOF", "NO", "ONE"]);
    let lease = hold_on_two(&urls, third).await;
    assert!(master.get("r").is_some() && replica.get("r").is_none(), "the replica lags");
    address.set_target(replica.addr());
    master.kill();
    let [observed, strict] = &knowing;
    let (b, c) = tokio::join!(try_for(observed, &lease), try_for(strict, &lease));
    assert!(lease.is_valid(), "A's lease ended early: repeat the test");
    [b, c].into_iter().flatten().collect()
}

/// Deletes a node's disk while A holds the lock. Returns a report for each other client that acquired the lock.
///
/// 1. B connects to three durable nodes.
/// 2. A acquires the lock on two nodes, and one of them loses its disk.
/// 3. C, a new client, connects to this node and to two nodes with a long uptime.
async fn lose_disk() -> Vec<String> {
    let cluster = Arc::new(past_quarantine(3).await);
    let urls = cluster.urls();
    let b = client(&urls, RestartGuard::Observed);
    warm_up(&b).await;
    let lease = hold_on_two(&urls, &cluster[2]).await;
    let lost = cluster.clone();
    let lost = spawn_blocking(move || {
        lost[0].lose_disk();
        lost[0].restart();
    });
    lost.await.expect("the server restarts");
    assert_eq!(cluster[0].get("r"), None, "the key is lost");
    let c = client(&urls, RestartGuard::Observed);
    let (b, c) = tokio::join!(try_for(&b, &lease), try_for(&c, &lease));
    assert!(lease.is_valid(), "A's lease ended early: repeat the test");
    [b, c].into_iter().flatten().collect()
}

async fn run_scenarios<F>(scenario: impl Fn() -> F)
where
    F: Future<Output = Vec<String>> + Send + 'static,
{
    let mut shared = Vec::new();
    for _ in 0..SCENARIOS / AT_ONCE {
        let results = join_all((0..AT_ONCE).map(|_| tokio::spawn(scenario()))).await;
        shared.extend(results.into_iter().flat_map(|result| result.expect("no panic")));
    }
    assert!(
        shared.is_empty(),
        "{} acquired the lock beside A:\n{}",
        shared.len(),
        shared.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promoted_replica_is_quarantined_even_if_durable() {
    run_scenarios(fail_over).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_lost_its_disk_is_quarantined_even_if_durable() {
    run_scenarios(lose_disk).await;
}
