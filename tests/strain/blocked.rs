//! Tests of leases that are held while all threads of the runtime are blocked.

#[cfg(feature = "rustls-0-23")]
use crate::secure;
use crate::{
    SOON, builder, builder_of, client, current_thread, eventually, ms, multi_thread, unless_stalled,
};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, Builder, Lease, Loss, Redlock, ReleaseOutcome};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::time::sleep;

const TTL: Duration = ms(3_000);

async fn acquire_lease(redlock: &Redlock, cluster: &Cluster) -> Lease {
    let lease = redlock.acquire("r").wait(SOON).auto_extend_forever().await.expect("a free lock");
    eventually("the key is on all nodes", || cluster.all_have("r")).await;
    lease
}

/// Blocks the only thread of `runtime` for three TTLs, during which the proxies delay the replies. Checks that a lease
/// stays valid during this time, and that another client cannot acquire the lock.
fn assert_lease_kept(
    case: &str,
    runtime: &Runtime,
    builder: impl Fn() -> Builder,
    nodes: (&Cluster, &[Proxy]),
) {
    unless_stalled(|| keep_lease(case, runtime, builder(), nodes));
}

fn keep_lease(
    case: &str,
    runtime: &Runtime,
    builder: Builder,
    (cluster, proxies): (&Cluster, &[Proxy]),
) {
    // With 2.7 s, replies that are read only at the node timeout are too late.
    let builder = builder.ttl(TTL).node_timeout(ms(2_700));
    let redlock = builder.build().expect("good settings");
    let lease = runtime.block_on(acquire_lease(&redlock, cluster));
    // The delayed replies arrive after the turn that notices the late task.
    for proxy in proxies {
        proxy.delay(Direction::Replies, ms(300));
    }
    let rival = thread::scope(|scope| {
        let rival = scope.spawn(|| {
            let rival = client(cluster);
            current_thread().block_on(async { rival.acquire("r").wait(TTL * 5 / 2).await })
        });
        let block = async {
            tokio::spawn(async { thread::sleep(3 * TTL) }).await.expect("no panic");
            assert!(lease.is_valid(), "{case}: {:?}", lease.loss());
        };
        runtime.block_on(block);
        rival.join().expect("no panic")
    });
    assert!(matches!(rival, Err(AcquireError::Contended { .. })), "{case}: {rival:?}");
    runtime.block_on(async {
        sleep(ms(50)).await;
        lease.extend(TTL).await.expect("the connections are good");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    });
    drop(redlock);
}

#[test]
fn lease_is_extended_while_its_runtime_is_blocked() {
    let cluster = Cluster::start_with(5, &Server::builder().unix_socket());
    let (one, other) = (current_thread(), multi_thread(1));
    let proxies: Vec<_> = cluster.iter().map(|server| Proxy::start(server.addr())).collect();
    let delayed = || {
        proxies.iter().for_each(Proxy::heal);
        builder_of(proxies.iter().map(Proxy::url))
    };
    let by_proxies = (&cluster, &proxies[..]);
    assert_lease_kept("current_thread", &one, delayed, by_proxies);
    assert_lease_kept("multi_thread", &other, delayed, by_proxies);
    let pinned = || delayed().runtime(other.handle().clone());
    assert_lease_kept("pinned", &other, pinned, by_proxies);
    let by_sockets = || builder_of(cluster.iter().map(Server::url_unix));
    assert_lease_kept("Unix sockets", &one, by_sockets, (&cluster, &[]));
}

#[cfg(feature = "rustls-0-23")]
#[test]
fn lease_on_tls_nodes_is_extended_while_its_runtime_is_blocked() {
    let dir = tempfile::tempdir().expect("a directory");
    let Some((cluster, builder)) = secure::cluster(5, dir.path()) else { return };
    assert_lease_kept("TLS", &current_thread(), || builder.clone(), (&cluster, &[]));
}

#[test]
fn loss_is_reported_in_time_while_the_runtime_is_blocked() {
    let cluster = Cluster::start(5);
    let redlock = builder(&cluster).ttl(TTL).node_timeout(ms(200)).build().expect("good settings");
    let runtime = current_thread();
    let lease = runtime.block_on(acquire_lease(&redlock, &cluster));
    cluster.servers().iter().for_each(Server::stop);
    // Extensions in flight may still succeed.
    runtime.block_on(async { sleep(ms(300)).await });
    let (valid_until, view) = (lease.valid_until(), lease.view());
    let waiting = thread::spawn(move || {
        let why = futures::executor::block_on(view.lost());
        (why, Instant::now())
    });
    let was_valid_late = runtime.block_on(async {
        thread::sleep(valid_until.saturating_duration_since(Instant::now()) + ms(5));
        let was_valid_late = lease.is_valid();
        thread::sleep(3 * TTL);
        was_valid_late
    });
    let (why, at) = waiting.join().expect("no panic");
    cluster.servers().iter().for_each(Server::cont);
    assert!(!was_valid_late);
    assert_eq!(why, Loss::Expired);
    assert!(at < valid_until + TTL, "{:?} late", at.saturating_duration_since(valid_until));
}
