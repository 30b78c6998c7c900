//! Fencing tokens on which the nodes do not agree.

use crate::fencing::tomorrow_us;
use crate::{builder, granted_by_all, ms};
use kit::{Cluster, Server};
use quorlock::FencingToken;
use std::time::{Duration, Instant};

/// Lets the next number that `node` draws for this lock be this one.
fn will_draw(node: &Server, key: &str, number: u64) {
    node.set(format!("{key}#quorlock:token:{{{key}}}"), (number - 1).to_string());
}

/// Whichever number the silent nodes would say, it could be that of a quorum.
#[tokio::test]
async fn nodes_that_hang_are_not_waited_for_where_the_others_disagree() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).node_timeout(ms(20_000)).build().expect("good settings");
    let lease = granted_by_all(&redlock, "r").await;
    lease.release().await.expect("nodes are up");
    let tomorrow = tomorrow_us();
    for (node, more) in cluster.iter().zip([10, 20, 30]) {
        will_draw(node, "r", tomorrow + more);
    }
    cluster.servers()[3..].iter().for_each(Server::stop);
    let begun = Instant::now();
    let lease = redlock.acquire("r").fenced().await.expect("a free lock");
    let took = begun.elapsed();
    assert_eq!(lease.token().map(FencingToken::get), Some(tomorrow + 30));
    assert!(took < Duration::from_secs(10), "it waited for nodes that hang: {took:?}");
}
