//! Tests of many clients, with separate connections, that wait for one lock.

use crate::{SOON, builder, client, eventually, ms};
use kit::{Cluster, Server};
use quorlock::ReleaseOutcome;
use tokio::time::{sleep, timeout};

const CLIENTS: u64 = 100;

/// Checks the number of commands per hand-over. The design goal is 3 x nodes x sqrt(waiters) = 150 commands. When every
/// waiter reacted to every release, a hand-over needed 1,400 commands.
// Two threads, because the test blocks one of them while it reads statistics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_on_one_key_need_few_commands() {
    let cluster = Cluster::start(5);
    let held = client(&cluster).acquire("r").await.expect("the lock is free");
    let waiting = (0..CLIENTS).map(|_| {
        let redlock = builder(&cluster).wait(SOON * 3).build().expect("valid settings");
        tokio::spawn(async move {
            let lease = redlock.acquire("r").await.expect("the lock becomes free");
            sleep(ms(5)).await;
            assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        })
    });
    let waiting: Vec<_> = waiting.collect();
    // Each attempt ends once three nodes have refused it. The second attempt requests the pushes.
    let asked = || cluster.iter().map(|node| node.calls("pttl")).sum::<u64>();
    let all_wait = || asked() >= 3 * 2 * CLIENTS;
    eventually("all clients wait", all_wait).await;
    cluster.iter().for_each(Server::reset_stats);
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    for waiter in waiting {
        timeout(SOON * 3, waiter).await.expect("all clients are served").expect("no panic");
    }
    let cost = cluster.iter().map(Server::all_calls).sum::<u64>() / CLIENTS;
    assert!(cost <= 500, "{cost} commands for each hand-over");
    eventually("no key is left", || cluster.is_empty()).await;
}
