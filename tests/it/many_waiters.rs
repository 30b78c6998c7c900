//! Many clients, each with connections of its own, that wait for one lock.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use tokio::time::{sleep, timeout};

const CLIENTS: u64 = 100;

/// At most 3 x nodes x the square root of the waiters is wanted: 150 commands for each hand-over. It was 1,400 when each
/// waiter reacted to each release.
// The test blocks while it reads statistics, and the clients must go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_clients_on_one_key_finish_with_few_commands() {
    let cluster = Cluster::start(5);
    let held = client(&cluster).acquire("r").await.expect("a free lock");
    let waiting = (0..CLIENTS).map(|_| {
        let redlock = builder(&cluster).wait(SOON * 3).build().expect("good settings");
        tokio::spawn(async move {
            let lease = redlock.acquire("r").await.expect("its turn comes");
            sleep(ms(5)).await;
            lease.release().await.expect("nodes are up");
        })
    });
    let waiting: Vec<_> = waiting.collect();
    // An attempt ends once three nodes have refused it, and the second one arms their pushes.
    let asked = || cluster.iter().map(|node| node.calls("pttl")).sum::<u64>();
    let all_wait = || asked() >= 3 * 2 * CLIENTS;
    eventually("all wait", all_wait).await;
    cluster.iter().for_each(Server::reset_stats);
    held.release().await.expect("nodes are up");
    for waiter in waiting {
        timeout(SOON * 3, waiter).await.expect("in time").expect("no panic");
    }
    let cost = cluster.iter().map(Server::all_calls).sum::<u64>() / CLIENTS;
    assert!(cost <= 500, "{cost} commands for each hand-over");
    eventually("no key is left", || cluster.is_empty()).await;
}
