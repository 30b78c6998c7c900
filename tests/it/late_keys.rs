//! Keys that a node sets after everybody has given it up: it hangs, or its replies do not come.

use crate::hung::hasty;
use crate::{eventually, ms, state, warm_up};
use kit::{Cluster, Direction, Proxy};
use quorlock::{NodeState, ReleaseOutcome};
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_set_after_a_hang_longer_than_its_ttl_is_released_too() {
    let cluster = Cluster::start(3);
    let proxy = Proxy::start(cluster[0].addr());
    let urls = [proxy.url(), cluster[1].url(), cluster[2].url()];
    // The hang is shorter than the ten timeouts after which the connection is replaced.
    let redlock = hasty(urls).node_timeout(ms(800)).ttl(ms(5_000)).build();
    let redlock = redlock.expect("good settings");
    warm_up(&redlock).await;
    // All that was asked is answered: what is written from here on is the acquire.
    eventually("the release of the warm-up ran everywhere", || cluster.is_empty()).await;
    let written = proxy.bytes(Direction::Requests);
    cluster[0].stop();
    let lease = redlock.acquire("r").await.expect("two nodes are well");
    // A lease that is dropped before is not asked for there at all.
    eventually("it is asked", || proxy.bytes(Direction::Requests) > written).await;
    eventually("it is noticed", || state(&redlock, 0) == NodeState::Stalled).await;
    drop(lease);
    tokio::time::sleep(ms(5_300)).await;
    assert_eq!(state(&redlock, 0), NodeState::Stalled, "on its old connection");
    cluster[0].cont();
    eventually("the command runs late", || cluster[0].calls("set") >= 2).await;
    let resumed = Instant::now();
    eventually("no key is left", || cluster.is_empty()).await;
    assert!(resumed.elapsed() < ms(3_500), "it was not released, it expired");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_whose_reply_is_withheld_is_released_when_replies_flow_or_the_connection_breaks() {
    let cluster = Cluster::start(5);
    for (withheld, is_reset) in [(1, false), (1, true), (3, false), (3, true)] {
        let case = format!("{withheld} nodes, reset {is_reset}");
        let proxies = cluster.proxies();
        let redlock = hasty(proxies.iter().map(Proxy::url)).node_timeout(ms(500)).build();
        let redlock = redlock.expect("good settings");
        warm_up(&redlock).await;
        for proxy in &proxies[..withheld] {
            proxy.hold(Direction::Replies);
        }
        let acquired = redlock.try_acquire("r").await;
        assert_eq!(acquired.is_ok(), withheld == 1, "{case}: {acquired:?}");
        if let Ok(lease) = acquired {
            // Won by the others: the key is there, and its release can only be owed.
            eventually("the command runs", || cluster[0].get("r").is_some()).await;
            eventually("it is noticed", || state(&redlock, 0) == NodeState::Stalled).await;
            let value = lease.value().as_bytes().to_vec();
            let released = lease.release().await;
            // A busy machine may use up 500 ms.
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
        redlock.close().await.expect("all nodes are well");
        assert!(cluster.is_empty(), "{case}: nothing came late");
    }
}
