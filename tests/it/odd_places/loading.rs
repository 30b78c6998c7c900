//! Servers that read their data back when a connection to them is made anew.

use crate::{SOON, builder, eventually, is_down, is_up, ms, state};
use kit::{Cluster, Server};
use quorlock::{NodeState, ReleaseOutcome};
use std::sync::Arc;

/// So many keys, each of which takes so long to be read: about 3 s. Clients are answered after every
/// 1024 of them.
const KEYS: usize = 20_000;
const DELAY_US: &str = "150";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_at_the_set_up_is_tried_again_and_counts_once_it_has_its_data() {
    let setup = Server::builder().durable().arg("--key-load-delay").arg(DELAY_US);
    let cluster = Arc::new(Cluster::start_with(3, &setup));
    let fill = format!("for i = 1, {KEYS} do redis.call('SET', 'k' .. i, 'x') end");
    cluster[0].cmd(&["EVAL", &fill, "0"]);
    let redlock =
        builder(&cluster).ttl(ms(50_000)).trust_persistence(true).build().expect("good settings");
    let kept = redlock.acquire("kept").wait(SOON).await.expect("free");
    let dropped = redlock.acquire("dropped").wait(SOON).await.expect("free");
    for lease in [&kept, &dropped] {
        eventually("all have granted", || lease.report().granted() == 3).await;
    }

    cluster[0].kill();
    eventually("it is gone", || is_down(&redlock, 0)).await;
    // The release is owed to it, and it has the key when it comes back.
    drop(dropped);
    let servers = cluster.clone();
    let restarting = tokio::task::spawn_blocking(move || servers[0].restart());
    let is_loading = |why: String| why.contains("LOADING");
    eventually(
        "it loads, and is said to",
        || matches!(state(&redlock, 0), NodeState::Down(why) if is_loading(why.to_string())),
    )
    .await;
    let meanwhile = redlock.try_acquire("meanwhile").await.expect("two others");
    kept.extend(ms(55_000)).await.expect("two others hold it");

    restarting.await.expect("it comes back");
    eventually("it is up", || is_up(&redlock, 0)).await;
    assert!(redlock.nodes()[0].version().is_some(), "it has told what it is");
    eventually("what was owed is delivered", || cluster[0].get("dropped").is_none()).await;
    let lease = redlock.try_acquire("r").await.expect("free");
    eventually("it counts: nothing was lost", || lease.report().granted() == 3).await;
    for lease in [kept, meanwhile, lease] {
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    }
    redlock.close().await.expect("all are up");
    for node in cluster.iter() {
        let ours =
            ["kept", "dropped", "meanwhile", "r"].iter().filter(|key| node.get(key).is_some());
        assert_eq!(ours.count(), 0, "a key is left");
    }
}
