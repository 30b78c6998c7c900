//! Tests of a network fault in which the connections to all nodes lose every packet at the same time.

use crate::{SOON, all_up, builder_of, eventually, granted_by_all, ms, through};
use kit::{Cluster, Direction, Proxy};
use quorlock::{NodeFailure, NodeState, ReleaseOutcome};

#[tokio::test]
async fn silent_connections_of_all_nodes_are_replaced_early() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    // The client closes a silent connection after ten node timeouts. Here they exceed the time limit of the test.
    let builder = through(&proxies).node_timeout(ms(2_500));
    let redlock = builder.connect_timeout(SOON).ttl(ms(300_000)).build().expect("valid settings");
    let held = granted_by_all(&redlock, "held").await;
    let before: u64 = proxies.iter().map(Proxy::accepted).sum();
    proxies.iter().for_each(Proxy::forget);
    redlock.try_acquire("r").await.expect_err("no node replies");
    let is_stalled = |node: &quorlock::NodeInfo| *node.state() == NodeState::Stalled;
    eventually("all nodes are stalled", || redlock.nodes().iter().all(is_stalled)).await;
    eventually("all nodes are up", || all_up(&redlock)).await;
    let after: u64 = proxies.iter().map(Proxy::accepted).sum();
    assert_eq!(after - before, 3, "one new connection per node");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let lease = redlock.try_acquire("r").await.expect("the late command's key is released");
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Checks that a client opens no second connection if only one node is silent. The fault is then in the node and not in
/// the network, so a second connection would not help. Acquires do not wait for this node.
#[tokio::test]
async fn single_silent_node_gets_no_second_connection() {
    let cluster = Cluster::start(3);
    let proxy = Proxy::start(cluster[0].addr());
    let urls = [proxy.url(), cluster[1].url(), cluster[2].url()];
    let builder = builder_of(urls).node_timeout(ms(200));
    let redlock = builder.connect_timeout(SOON).ttl(ms(60_000)).build().expect("valid settings");
    let state = || redlock.nodes()[0].state().clone();
    drop(redlock.acquire("r").wait(SOON).await.expect("the lock is free"));
    eventually("the node is up and the lock is released", || {
        state() == NodeState::Up && cluster.is_empty()
    })
    .await;
    // The client replaces a broken connection without a pause if the connection had lasted this long.
    tokio::time::sleep(ms(1_300)).await;
    proxy.hold(Direction::Replies);
    drop(redlock.acquire("r").wait(SOON).await.expect("two nodes are up"));
    eventually("the node is stalled", || state() == NodeState::Stalled).await;
    let mut accepted = 0;
    let failure = loop {
        let current = proxy.accepted();
        match state() {
            NodeState::Stalled => accepted = accepted.max(current),
            NodeState::Down(failure) => break failure,
            other => panic!("{other}"),
        }
        tokio::time::sleep(ms(1)).await;
    };
    assert!(matches!(failure, NodeFailure::Stalled(_)), "{failure}");
    assert_eq!(accepted, 1, "connections before the first was closed");
    proxy.heal();
    eventually("the releases are delivered", || cluster.is_empty()).await;
}
