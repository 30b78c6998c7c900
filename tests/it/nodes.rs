//! What a client tells of its nodes.

use crate::{SOON, all_up, client, eventually};
use kit::Cluster;
use quorlock::{NodeInfo, VoteEligibility};

/// What is told of each node, in short.
fn told(nodes: &[NodeInfo]) -> Vec<String> {
    nodes.iter().map(|node| format!("{}, {}", node.state(), node.eligibility())).collect()
}

#[tokio::test]
async fn a_node_that_is_not_up_is_not_said_to_count() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    assert_eq!(told(&redlock.nodes()), ["connecting, not available"; 3], "nobody has asked yet");
    let lease = redlock.acquire("r").wait(SOON).await.expect("a free lock");
    eventually("all are up", || all_up(&redlock)).await;
    let is_available = |node: &NodeInfo| *node.eligibility() != VoteEligibility::Unavailable;
    assert!(redlock.nodes().iter().all(is_available), "{:?}", told(&redlock.nodes()));
    cluster[0].kill();
    let first = || told(&redlock.nodes()).swap_remove(0);
    eventually("one is down", || first() == "down: connection refused, not available").await;
    cluster[1].stop();
    lease.release().await.expect_err("one is left");
    eventually("one hangs", || told(&redlock.nodes())[1] == "stalled, not available").await;
    cluster[1].cont();
}
