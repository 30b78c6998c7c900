//! Tests of the reported state and eligibility of nodes.

use crate::{SOON, all_up, client, eventually};
use kit::Cluster;
use quorlock::{NodeInfo, VoteEligibility};

fn states(nodes: &[NodeInfo]) -> Vec<String> {
    nodes.iter().map(|node| format!("{}, {}", node.state(), node.eligibility())).collect()
}

#[tokio::test]
async fn node_that_is_not_up_is_not_reported_as_counting() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    assert_eq!(
        states(&redlock.nodes()),
        ["connecting, not available"; 3],
        "no connection was needed yet"
    );
    let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
    eventually("all nodes are up", || all_up(&redlock)).await;
    let is_available = |node: &NodeInfo| *node.eligibility() != VoteEligibility::Unavailable;
    assert!(redlock.nodes().iter().all(is_available), "{:?}", states(&redlock.nodes()));
    cluster[0].kill();
    let first = || states(&redlock.nodes()).swap_remove(0);
    eventually("a node is down", || first() == "down: connection refused, not available").await;
    cluster[1].stop();
    lease.release().await.expect_err("only one node is up");
    eventually("a node is stalled", || states(&redlock.nodes())[1] == "stalled, not available")
        .await;
    cluster[1].cont();
}
