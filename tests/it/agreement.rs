//! Tests of fencing tokens whose counters differ between the nodes.

use crate::fencing::tomorrow_us;
use crate::{builder, granted_by_all, ms};
use kit::{Cluster, Server};
use quorlock::{FencingToken, ReleaseOutcome};
use std::time::{Duration, Instant};

/// Sets the fencing counter of `key` on `node` to one below `number`, so that the node's next token is `number`.
fn will_draw(node: &Server, key: &str, number: u64) {
    node.set(format!("{key}#quorlock:token:{{{key}}}"), (number - 1).to_string());
}

/// Checks that the client does not wait for stopped nodes. Three nodes report different tokens, and the replies of the
/// two stopped nodes could complete a quorum for any of them.
#[tokio::test]
async fn disagreement_is_resolved_without_stopped_nodes() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).node_timeout(ms(20_000)).build().expect("valid settings");
    let lease = granted_by_all(&redlock, "r").await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
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
