//! Tests of futures that are polled once and then leaked.

use crate::{SOON, builder, client, eventually, ms};
use futures::FutureExt;
use kit::Cluster;
use quorlock::ReleaseOutcome;
use std::mem;
use std::time::{Duration, Instant};

const TTL: Duration = ms(3_000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaked_futures_end_by_ttl_and_other_acquires_succeed() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).ttl(TTL).build().expect("good settings");
    let other = client(&cluster);
    redlock.ready().await.expect("nodes are up");
    let (mut leaked, mut n) = (0, 0);
    while leaked < 10_000 {
        n += 1;
        let acquire = redlock.acquire(format!("r{}", n % 5_000)).wait(SOON);
        let acquire = if n % 2 == 0 { acquire } else { acquire.auto_extend_forever() };
        let mut acquire = Box::pin(acquire.into_future());
        // On a busy machine, nodes can reply during the poll.
        if acquire.as_mut().now_or_never().is_none() {
            leaked += 1;
            mem::forget(acquire);
        }
        if n % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let leaked_at = Instant::now();
    for redlock in [&redlock, &other] {
        for n in 0..50 {
            // Unpolled futures of the same client lose their locks before the end of the TTL.
            let acquire = redlock.acquire(format!("r{n}")).wait(2 * SOON);
            assert_eq!(
                acquire.await.expect("not held for longer than a ttl").release().await,
                Ok(ReleaseOutcome::Released)
            );
            let acquire = redlock.acquire(format!("free/{n}")).wait(SOON);
            assert_eq!(
                acquire.await.expect("a free lock").release().await,
                Ok(ReleaseOutcome::Released)
            );
        }
    }
    println!("100 locks after {:?}", leaked_at.elapsed());
    eventually("no key is left", || cluster.is_empty()).await;
    println!("no key after {:?}", leaked_at.elapsed());
    let begun = Instant::now();
    while begun.elapsed() < TTL {
        assert!(cluster.is_empty(), "no lock reappears");
        tokio::time::sleep(ms(100)).await;
    }
}
