//! Fencing tokens on which the nodes agree, or not, once more of them have answered than a quorum.

use crate::fencing::tomorrow_us;
use crate::{builder, granted_by_all, ms, through};
use futures::future::join_all;
use kit::{Cluster, Direction, Server};
use quorlock::{FencingToken, Lease};
use std::time::{Duration, Instant};

/// Lets the next number that `node` draws for this lock be this one.
fn will_draw(node: &Server, key: &str, number: u64) {
    node.set(format!("{key}#quorlock:token:{{{key}}}"), (number - 1).to_string());
}

/// Two of the first three nodes say the same, and so do the others, a little later.
#[tokio::test]
async fn an_answer_that_comes_soon_makes_a_second_round_needless() {
    let cluster = Cluster::start(5);
    let proxies = cluster.proxies();
    let builder = through(&proxies).ttl(ms(60_000));
    let redlock = builder.node_timeout(ms(5_000)).build().expect("good settings");
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
        async move { acquire.await.expect("a free lock") }
    });
    let leases = join_all(acquires).await;
    let is_at_once = |lease: &&Lease| lease.token().expect("fenced").get() < tomorrow;
    let at_once = leases.iter().filter(is_at_once).count();
    assert!(at_once > 0, "each token was confirmed in a round of its own");
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
