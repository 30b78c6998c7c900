//! Nodes that are configured to keep what they were told, and do not: another server takes over the
//! address, or the disk is lost.
#![cfg(target_os = "linux")]

use crate::restarts::grow_old;
use crate::{builder_of, eventually, ms, warm_up};
use futures::future::join_all;
use kit::{Cluster, Proxy, Server, ServerBuilder};
use quorlock::{Lease, NodeFailure, NodeVote, Redlock, RestartGuard};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How often each is played, and how many at once.
const SCENES: usize = 20;
const AT_ONCE: usize = 5;

const TTL: Duration = Duration::from_secs(30);

fn durable() -> ServerBuilder {
    let builder = Server::builder().durable().clock();
    builder.arg("--repl-diskless-sync-delay").arg("0")
}

async fn old(nodes: usize) -> Cluster {
    let cluster = spawn_blocking(move || Cluster::start_with(nodes, &durable())).await;
    let cluster = cluster.expect("servers start");
    grow_old(&cluster).await;
    cluster
}

fn client(urls: &[String], guard: RestartGuard) -> Redlock {
    builder_of(urls).ttl(TTL).restart_guard(guard).build().expect("good settings")
}

/// A holds the lock on a bare quorum: on the first two of three, of which `third` is the last.
async fn hold_on_two(urls: &[String], third: &Server) -> Lease {
    let a = client(urls, RestartGuard::Observed);
    warm_up(&a).await;
    third.set("r", "somebody else's");
    let lease = a.acquire("r").await.expect("two of three are free");
    assert_eq!(lease.report().granted(), 2);
    third.del("r");
    lease
}

/// Whether the first node grants nothing that counts, as it was restarted.
fn knows(vote: &NodeVote) -> bool {
    matches!(vote, NodeVote::Failed(NodeFailure::Restarted { .. }))
}

/// Tries until it knows what has become of the first node, and then some more: what it was, if it got
/// the lock beside A.
async fn try_for(redlock: &Redlock, holder: &Lease) -> Option<String> {
    let mut known = 0;
    // The bound is that of `eventually`: it may take as long until a busy machine is connected again.
    for _ in 0..4_000 {
        match redlock.try_acquire("r").await {
            Ok(lease) => {
                let is_shared = holder.is_valid() && lease.is_valid();
                assert!(is_shared, "A's lock ended: this shows nothing");
                return Some(lease.report().to_string());
            }
            Err(refused) => {
                let report = refused.report().expect("nodes were asked");
                known += usize::from(knows(report.nodes()[0].vote()));
                if known == 5 {
                    return None;
                }
            }
        }
        sleep(ms(5)).await;
    }
    panic!("it was not seen that the node was restarted: {:?}", redlock.nodes()[0]);
}

/// 1. `B` and `C` know a node that has a replica. 2. The replica falls behind, A takes the lock, and the
///    replica takes over the address.
async fn fail_over() -> Vec<String> {
    let cluster = Arc::new(old(4).await);
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
    assert!(master.get("r").is_some() && replica.get("r").is_none(), "it lags");
    address.set_target(replica.addr());
    master.kill();
    let [observed, strict] = &knowing;
    let (b, c) = tokio::join!(try_for(observed, &lease), try_for(strict, &lease));
    assert!(lease.is_valid(), "this shows nothing");
    [b, c].into_iter().flatten().collect()
}

/// 1. B knows three nodes that forget nothing. 2. A takes the lock on two, and one of them loses its
///    disk. 3. C, which is new, sees it among two that are old.
async fn lose_disk() -> Vec<String> {
    let cluster = Arc::new(old(3).await);
    let urls = cluster.urls();
    let b = client(&urls, RestartGuard::Observed);
    warm_up(&b).await;
    let lease = hold_on_two(&urls, &cluster[2]).await;
    let lost = cluster.clone();
    let lost = spawn_blocking(move || {
        lost[0].lose_disk();
        lost[0].restart();
    });
    lost.await.expect("it comes back");
    assert_eq!(cluster[0].get("r"), None, "it has forgotten the lock");
    let c = client(&urls, RestartGuard::Observed);
    let (b, c) = tokio::join!(try_for(&b, &lease), try_for(&c, &lease));
    assert!(lease.is_valid(), "this shows nothing");
    [b, c].into_iter().flatten().collect()
}

/// Plays all scenes, so many at once.
async fn play<F>(scene: impl Fn() -> F)
where
    F: Future<Output = Vec<String>> + Send + 'static,
{
    let mut shared = Vec::new();
    for _ in 0..SCENES / AT_ONCE {
        let played = join_all((0..AT_ONCE).map(|_| tokio::spawn(scene()))).await;
        shared.extend(played.into_iter().flat_map(|played| played.expect("no panic")));
    }
    assert!(shared.is_empty(), "{} got the lock beside A:\n{}", shared.len(), shared.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_an_address_may_lack_locks_whatever_it_writes_to_disk() {
    play(fail_over).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_disk_may_lack_locks_whatever_it_writes_to_disk() {
    play(lose_disk).await;
}
