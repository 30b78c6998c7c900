//! Tests with servers that are still loading their data when a client reconnects.

use crate::{SOON, builder, eventually, is_down, is_up, ms, state};
use kit::{Cluster, Server};
use quorlock::{NodeState, ReleaseOutcome};
use std::sync::Arc;

/// The number of keys that a server loads. Loading takes about 3 s, which is `KEYS` times `DELAY_US`. While it loads,
/// the server answers clients after every 1,024 keys.
const KEYS: usize = 20_000;
const DELAY_US: &str = "150";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_server_is_retried_and_counts_once_loaded() {
    let setup = Server::builder().durable().arg("--key-load-delay").arg(DELAY_US);
    let cluster = Arc::new(Cluster::start_with(3, &setup));
    let fill = format!("for i = 1, {KEYS} do redis.call('SET', 'k' .. i, 'x') end");
    cluster[0].cmd(&["EVAL", &fill, "0"]);
    let redlock =
        builder(&cluster).ttl(ms(50_000)).trust_persistence(true).build().expect("valid settings");
    let kept = redlock.acquire("kept").wait(SOON).await.expect("free");
    let dropped = redlock.acquire("dropped").wait(SOON).await.expect("free");
    for lease in [&kept, &dropped] {
        eventually("all nodes have granted", || lease.report().granted() == 3).await;
    }

    cluster[0].kill();
    eventually("the node is down", || is_down(&redlock, 0)).await;
    // The release is pending, and the durable node still has the key after its restart.
    drop(dropped);
    let servers = cluster.clone();
    let restarting = tokio::task::spawn_blocking(move || servers[0].restart());
    let is_loading = |why: String| why.contains("LOADING");
    eventually(
        "the node is reported as loading",
        || matches!(state(&redlock, 0), NodeState::Down(why) if is_loading(why.to_string())),
    )
    .await;
    let concurrent = redlock.try_acquire("concurrent").await.expect("two nodes are up");
    kept.extend(ms(55_000)).await.expect("two nodes have the key");

    restarting.await.expect("the server restarts");
    eventually("the node is up", || is_up(&redlock, 0)).await;
    assert!(redlock.nodes()[0].version().is_some(), "the node has reported its version");
    eventually("the release is delivered", || cluster[0].get("dropped").is_none()).await;
    let lease = redlock.try_acquire("r").await.expect("free");
    eventually("the node counts, because it is durable", || lease.report().granted() == 3).await;
    for lease in [kept, concurrent, lease] {
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    redlock.close().await.expect("nodes are up");
    for node in cluster.iter() {
        let own_keys =
            ["kept", "dropped", "concurrent", "r"].iter().filter(|key| node.get(key).is_some());
        assert_eq!(own_keys.count(), 0, "a key is left");
    }
}
