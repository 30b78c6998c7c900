//! Tests of a client under load: many tasks, a long reply, and many new TLS connections.
#![cfg(feature = "rustls-0-23")]

use crate::{SOON, all_up, eventually, ms, multi_thread, secure};
use futures::future::{join_all, try_join_all};
use kit::{Cluster, Server};
use quorlock::event::Event;
use quorlock::{Builder, Lease, Loss, Observer, Redlock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const TTL: Duration = ms(10_000);

const NODE_TIMEOUT: Duration = ms(3_000);

#[derive(Default)]
struct HealthRecorder(Mutex<Vec<String>>);

impl Observer for HealthRecorder {
    fn on_event(&self, event: &Event) {
        if let Event::NodeHealthChanged { .. } = event {
            self.0.lock().expect("no panic").push(format!("{event:?}"));
        }
    }
}

fn work(redlock: &Redlock, is_over: &Arc<AtomicBool>) {
    for n in 0..2_000 {
        let (redlock, is_over) = (redlock.clone(), is_over.clone());
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                if n % 2 == 0 {
                    drop(redlock.acquire(format!("work/{n}")).wait(SOON).await);
                }
                tokio::task::yield_now().await;
            }
        });
    }
}

fn reconnect(builder: &Builder, is_over: &Arc<AtomicBool>) {
    for _ in 0..100 {
        let (builder, is_over) = (builder.clone(), is_over.clone());
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let redlock = builder.clone().build().expect("good settings");
                let _ = tokio::time::timeout(ms(2_000), redlock.ready()).await;
                drop(redlock);
                sleep(ms(300)).await;
            }
        });
    }
}

/// Repeatedly reads the value of the lock `long`, which has 64 MB.
fn read_long_reply(redlock: &Redlock, is_over: &Arc<AtomicBool>) {
    let (redlock, is_over) = (redlock.clone(), is_over.clone());
    tokio::spawn(async move {
        while !is_over.load(Ordering::Relaxed) {
            let _ = redlock.status("long").await;
            sleep(ms(500)).await;
        }
    });
}

fn slowest_reply(cluster: &Cluster, is_over: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        for node in cluster {
            let begun = Instant::now();
            // On a busy machine, this command fails after some seconds.
            let _ = node.try_cmd(&["PING"]);
            slowest = slowest.max(begun.elapsed());
        }
        thread::sleep(ms(5));
    }
    slowest
}

/// Waits until every lease has reported its loss. Returns how long after the end of its validity each lease reported
/// the loss.
async fn loss_delays(leases: &[Lease]) -> Vec<Duration> {
    let each = leases.iter().map(|lease| async {
        let valid_until = lease.valid_until();
        assert_eq!(lease.lost().await, Loss::Expired);
        Instant::now().saturating_duration_since(valid_until)
    });
    join_all(each).await
}

#[test]
fn losses_are_reported_and_no_node_stalls_under_load() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some((cluster, builder)) = secure::cluster(5, dir.path()) else { return };
    let cluster = Arc::new(cluster);
    cluster[0].cmd(&["SETRANGE", "long", "67108863", "x"]);
    let builder = builder.ttl(TTL).node_timeout(NODE_TIMEOUT);
    let health_recorder = Arc::new(HealthRecorder::default());
    let redlock = builder.clone().observer(health_recorder.clone()).build().expect("good settings");
    let is_over = Arc::<AtomicBool>::default();
    multi_thread(2).block_on(async {
        redlock.ready().await.expect("nodes are up");
        eventually("all nodes are up", || all_up(&redlock)).await;
        let acquire = |n| redlock.acquire(format!("{n}")).wait(SOON).auto_extend_forever();
        let leases = try_join_all((0..100).map(acquire)).await.expect("free locks");
        work(&redlock, &is_over);
        reconnect(&builder, &is_over);
        read_long_reply(&redlock, &is_over);
        let is_loaded = Arc::new(AtomicBool::new(false));
        let slowest = {
            let (cluster, is_loaded) = (cluster.clone(), is_loaded.clone());
            thread::spawn(move || slowest_reply(&cluster, &is_loaded))
        };
        sleep(ms(10_000)).await;
        is_loaded.store(true, Ordering::Relaxed);
        let slowest = slowest.join().expect("no panic");
        let lost: Vec<_> = leases.iter().filter_map(|lease| lease.loss()).collect();
        let changes = health_recorder.0.lock().expect("no panic").clone();
        assert!(lost.is_empty(), "{} are lost: {:?}, {changes:?}", lost.len(), lost[0]);
        println!("nodes have replied within {slowest:?} to another client");
        // On a busy machine, nodes can be too slow for every client.
        let has_stalled = changes.iter().any(|it| it.contains("Stalled"));
        assert!(!has_stalled || slowest > NODE_TIMEOUT / 2, "{changes:#?}");

        cluster.servers().iter().for_each(Server::stop);
        // Extensions in flight may still succeed.
        sleep(ms(500)).await;
        let views: Vec<_> = leases.iter().map(Lease::view).collect();
        let elsewhere = thread::spawn(move || {
            let each = views.iter().map(|view| async {
                let valid_until = view.valid_until();
                view.lost().await;
                Instant::now().saturating_duration_since(valid_until)
            });
            futures::executor::block_on(join_all(each))
        });
        let here = loss_delays(&leases).await;
        let elsewhere = elsewhere.join().expect("no panic");
        for (place, late) in [("under load", here), ("on another thread", elsewhere)] {
            let in_time = late.iter().filter(|late| late.is_zero()).count();
            let most = late.iter().max().expect("100 leases");
            println!("{place}: {in_time} of 100 in time, at most {most:?} late");
            assert!(*most < ms(2_000), "{place}: {most:?} late");
        }
        is_over.store(true, Ordering::Relaxed);
        cluster.servers().iter().for_each(Server::cont);
    });
}
