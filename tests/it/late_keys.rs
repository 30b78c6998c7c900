//! Tests that a late key is deleted. A node sets the key after the client has sent the release, because the node is
//! stopped or its replies are delayed.

use crate::hung::short_timeout;
use crate::{eventually, ms, state, warm_up};
use kit::{Cluster, Direction, Proxy};
use quorlock::{NodeState, ReleaseOutcome};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_key_is_released_after_a_stop_longer_than_its_ttl() {
    let cluster = Cluster::start(3);
    let proxy = Proxy::start(cluster[0].addr());
    let urls = [proxy.url(), cluster[1].url(), cluster[2].url()];
    // The node is stopped for less than ten node timeouts, after which the client would replace the connection.
    let redlock = short_timeout(urls).node_timeout(ms(800)).ttl(ms(5_000)).build();
    let redlock = redlock.expect("valid settings");
    warm_up(&redlock).await;
    // Every earlier command has a reply, so the next bytes are the acquire.
    eventually("the warm-up lock is released", || cluster.is_empty()).await;
    let written = proxy.bytes(Direction::Requests);
    cluster[0].stop();
    let lease = redlock.acquire("r").await.expect("two nodes are up");
    // If the lease were dropped earlier, the client would write no command to this node.
    eventually("the acquire is sent", || proxy.bytes(Direction::Requests) > written).await;
    eventually("the node is stalled", || state(&redlock, 0) == NodeState::Stalled).await;
    drop(lease);
    tokio::time::sleep(ms(5_300)).await;
    assert_eq!(state(&redlock, 0), NodeState::Stalled, "the connection has not been replaced");
    cluster[0].cont();
    eventually("the command runs late", || cluster[0].calls("set") >= 2).await;
    let resumed = Instant::now();
    eventually("no key is left", || cluster.is_empty()).await;
    assert!(resumed.elapsed() < ms(3_500), "the key expired instead of being released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_with_withheld_reply_is_released_later() {
    let cluster = Cluster::start(5);
    for (withheld, is_reset) in [(1, false), (1, true), (3, false), (3, true)] {
        let case = format!("{withheld} nodes, reset {is_reset}");
        let proxies = cluster.proxies();
        let redlock = short_timeout(proxies.iter().map(Proxy::url)).node_timeout(ms(500)).build();
        let redlock = redlock.expect("valid settings");
        warm_up(&redlock).await;
        for proxy in &proxies[..withheld] {
            proxy.hold(Direction::Replies);
        }
        let acquired = redlock.try_acquire("r").await;
        assert_eq!(acquired.is_ok(), withheld == 1, "{case}: {acquired:?}");
        if let Ok(lease) = acquired {
            // The other nodes grant the lock. This node has the key, and the release on this node stays pending.
            eventually("the command runs", || cluster[0].get("r").is_some()).await;
            eventually("the node is stalled", || state(&redlock, 0) == NodeState::Stalled).await;
            let value = lease.value().as_bytes().to_vec();
            let released = lease.release().await;
            // On a busy machine, the release may exceed the node timeout of 500 ms.
            assert!(released.is_err() || released == Ok(ReleaseOutcome::Released), "{released:?}");
            assert_eq!(cluster[0].get("r"), Some(value), "{case}");
        }
        for proxy in &proxies[..withheld] {
            if is_reset {
                proxy.reset();
            }
            proxy.heal();
        }
        eventually(&case, || cluster.is_empty()).await;
        redlock.close().await.expect("nodes are up");
        assert!(cluster.is_empty(), "{case}: a late command left a key");
    }
}
