//! Fencing tokens when more nodes than a quorum have replied, with equal or different numbers.

use crate::fencing::tomorrow_us;
use crate::{builder, granted_by_all, ms, through};
use futures::future::join_all;
use kit::{Cluster, Direction, Server};
use quorlock::{FencingToken, Lease};
use std::time::{Duration, Instant};

/// Sets the counter of `key` on `node`, so that the next drawn number is `number`.
fn will_draw(node: &Server, key: &str, number: u64) {
    node.set(format!("{key}#quorlock:token:{{{key}}}"), (number - 1).to_string());
}

/// Of the first three nodes, two reply with the same number. The other two nodes reply with it 150 ms later.
#[tokio::test]
async fn agreeing_reply_after_quorum_avoids_a_second_round() {
    let cluster = Cluster::start(5);
    let proxies = cluster.proxies();
    let builder = through(&proxies).ttl(ms(60_000));
    let redlock = builder.node_timeout(ms(5_000)).build().expect("valid settings");
    let _first = granted_by_all(&redlock, "first").await;
    let keys: Vec<_> = (0..8).map(|number| format!("lock-{number}")).collect();
    let tomorrow = tomorrow_us();
    for key in &keys {
        will_draw(&cluster[0], key, tomorrow);
    }
    for (proxy, delay) in proxies.iter().zip([300, 300, 300, 450, 450]) {
        proxy.delay(Direction::Replies, ms(delay));
    }
    let acquires = keys.iter().map(|key| {
        let acquire = redlock.acquire(key).fenced();
        async move { acquire.await.expect("the lock is free") }
    });
    let leases = join_all(acquires).await;
    let is_at_once = |lease: &&Lease| lease.token().expect("fenced").get() < tomorrow;
    let at_once = leases.iter().filter(is_at_once).count();
    assert!(at_once > 0, "each token needed a second round");
}

/// The numbers of the silent nodes cannot give a quorum that agrees, so a second round is needed in any case.
#[tokio::test]
async fn disagreement_is_resolved_without_stopped_nodes() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).node_timeout(ms(20_000)).build().expect("valid settings");
    let lease = granted_by_all(&redlock, "r").await;
    lease.release().await.expect("nodes are up");
    let tomorrow = tomorrow_us();
    for (node, more) in cluster.iter().zip([10, 20, 30]) {
        will_draw(node, "r", tomorrow + more);
    }
    cluster.servers()[3..].iter().for_each(Server::stop);
    let started = Instant::now();
    let lease = redlock.acquire("r").fenced().await.expect("the lock is free");
    let took = started.elapsed();
    assert_eq!(lease.token().map(FencingToken::get), Some(tomorrow + 30));
    assert!(took < Duration::from_secs(10), "the acquire waited for stopped nodes: {took:?}");
}
