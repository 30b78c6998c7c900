//! Tests of `close()` in every state of a client.

use crate::{SOON, builder, eventually, granted_by_all, ms, through};
use futures::FutureExt;
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, CloseError, Loss, Redlock, ReleaseOutcome, RetryPolicy};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// A time limit much longer than `close()` ever takes.
pub(super) const LONG: Duration = Duration::from_mins(2);

/// The time limit of a `close()` that fails because a node does not confirm its releases. The limit is long enough for
/// the other nodes to confirm their releases on a busy machine.
const CLOSE_BOUND: Duration = Duration::from_secs(5);

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

pub(super) async fn close(redlock: &Redlock) -> Result<(), CloseError> {
    timeout(LONG, redlock.close()).await.expect("close() ends within its bound")
}

/// Closes a client whose nodes are reachable. Checks that no key, task or connection is left, although a handle to the
/// client still exists.
async fn expect_clean(cluster: &Cluster, redlock: &Redlock) {
    close(redlock).await.expect("all nodes can be reached");
    assert!(cluster.is_empty(), "a key is left: {:?}", cluster.keys_per_node());
    expect_nothing_runs(cluster).await;
    assert_eq!(redlock.try_acquire("r").await.expect_err("closed"), AcquireError::Closed);
    close(redlock).await.expect("the client is closed");
    expect_nothing_runs(cluster).await;
}

async fn expect_nothing_runs(cluster: &Cluster) {
    eventually("the client's tasks have ended", || tasks() == 0).await;
    let is_left = |node: &Server| node.is_running() && node.clients().is_empty();
    eventually("the connections are closed", || cluster.iter().all(is_left)).await;
}

/// Closes a client and checks the error: it must report `releases` pending releases for each node in `nodes`, and for
/// no other node.
async fn expect_pending(redlock: &Redlock, nodes: &[Server], releases: usize) {
    let error = close(redlock).await.expect_err("releases are pending");
    let expected: Vec<_> = nodes.iter().map(|node| (node.addr().to_string(), releases)).collect();
    assert_eq!(error.undelivered(), expected, "{error}");
    let names: Vec<_> = expected.iter().map(|(name, _)| format!("{name} ({releases})")).collect();
    let pending = names.join(", ");
    let text = format!("closed before all releases were delivered; pending: {pending}");
    assert_eq!(error.to_string(), text);
}

fn patient_through(proxies: &[Proxy]) -> Redlock {
    through(proxies).ttl(ms(60_000)).connect_timeout(LONG).build().expect("valid settings")
}

/// Creates a client whose `close()` may take a long time.
pub(super) fn client_with_long_connect_timeout(cluster: &Cluster) -> Redlock {
    builder(cluster).connect_timeout(LONG).build().expect("valid settings")
}

fn bounded(cluster: &Cluster) -> Redlock {
    builder(cluster).connect_timeout(CLOSE_BOUND).build().expect("valid settings")
}

#[tokio::test]
async fn close_of_an_unused_client_does_no_io() {
    let cluster = Cluster::start(3);
    let redlock = client_with_long_connect_timeout(&cluster);
    expect_clean(&cluster, &redlock).await;
    for node in &cluster {
        assert_eq!(node.calls("hello"), 0, "a client has connected");
    }
}

#[tokio::test]
async fn close_while_connecting_ends_waiting_acquires() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    for proxy in &proxies {
        proxy.hold_connects(true);
    }
    let redlock = patient_through(&proxies);
    let waits = [redlock.try_acquire("a"), redlock.acquire("b"), redlock.acquire_all(["c", "d"])];
    let waits = waits.map(|acquire| tokio::spawn(acquire));
    let ready = redlock.clone();
    let ready = tokio::spawn(async move { ready.ready().await });
    eventually("the client connects", || proxies.iter().all(|proxy| proxy.accepted() > 0)).await;
    close(&redlock).await.expect("nothing was sent");
    for waiting in waits {
        let refused =
            timeout(LONG / 2, waiting).await.expect("the acquire ends").expect("no panic");
        assert_eq!(refused.expect_err("closed"), AcquireError::Closed);
    }
    timeout(LONG / 2, ready).await.expect("ready() ends").expect("no panic").expect_err("closed");
    eventually("the client's tasks have ended", || tasks() == 0).await;
    proxies.iter().for_each(Proxy::heal);
    expect_clean(&cluster, &redlock).await;
}

#[tokio::test]
async fn close_while_connecting_to_stopped_nodes_sets_no_key() {
    let cluster = Cluster::start(3);
    let redlock = client_with_long_connect_timeout(&cluster);
    cluster.iter().for_each(Server::stop);
    let waits = [redlock.try_acquire("a"), redlock.acquire("b")].map(|one| tokio::spawn(one));
    sleep(ms(100)).await;
    close(&redlock).await.expect("nothing was sent");
    for waiting in waits {
        timeout(LONG / 2, waiting)
            .await
            .expect("the acquire ends")
            .expect("no panic")
            .expect_err("closed");
    }
    eventually("the client's tasks have ended", || tasks() == 0).await;
    cluster.iter().for_each(Server::cont);
    expect_clean(&cluster, &redlock).await;
}

#[tokio::test]
async fn close_reports_stopped_nodes_and_delivers_later() {
    for hung in [1, 3] {
        let cluster = Cluster::start(3);
        let redlock = bounded(&cluster);
        let held = redlock.acquire("held").wait(SOON).await.expect("free");
        let dropped = redlock.acquire("dropped").wait(SOON).await.expect("free");
        for lease in [&held, &dropped] {
            eventually("all nodes have granted", || lease.report().granted() == 3).await;
        }
        cluster.iter().take(hung).for_each(Server::stop);
        drop(dropped);
        expect_pending(&redlock, &cluster[..hung], 2).await;
        assert_eq!(held.loss(), Some(Loss::Closed));
        cluster.iter().take(hung).for_each(Server::cont);
        eventually("the releases are delivered", || cluster.is_empty()).await;
        eventually("close() reports no pending release", || {
            futures::FutureExt::now_or_never(redlock.close()) == Some(Ok(()))
        })
        .await;
        expect_clean(&cluster, &redlock).await;
    }
}

#[tokio::test]
async fn close_reports_a_dead_node_only_with_pending_releases() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let with_pending = bounded(&cluster);
    let lease = granted_by_all(&with_pending, "r").await;
    cluster[0].kill();
    drop(lease);
    expect_pending(&with_pending, &cluster[..1], 1).await;
    eventually("the other nodes have no key", || cluster.is_empty()).await;

    let clean = client_with_long_connect_timeout(&cluster);
    let lease = clean.acquire("r").wait(SOON).await.expect("two nodes are up");
    let waiting = tokio::spawn(clean.acquire("r").wait(LONG));
    sleep(ms(50)).await;
    close(&clean).await.expect("no command was written to the dead node");
    assert!(cluster.is_empty() && lease.loss() == Some(Loss::Closed));
    waiting.await.expect("no panic").expect_err("closed");

    cluster[0].restart();
    eventually("the release is delivered after the close", || cluster.is_empty()).await;
    eventually("close() reports no pending release", || {
        futures::FutureExt::now_or_never(with_pending.close()) == Some(Ok(()))
    })
    .await;
    expect_clean(&cluster, &with_pending).await;
}

#[tokio::test]
async fn close_ends_acquires_in_every_state() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let (redlock, other) = (patient_through(&proxies), client_with_long_connect_timeout(&cluster));
    let held = other.acquire("held").wait(SOON).await.expect("free");
    redlock.ready().await.expect("there is a runtime");
    let acquire = |resource: &str| redlock.acquire(resource).wait(LONG);
    let slowly = RetryPolicy::fixed(LONG);
    let mut waits = vec![
        tokio::spawn(acquire("held").retry(slowly.clone())),
        tokio::spawn(acquire("held").fenced()),
        tokio::spawn(acquire("held")),
        tokio::spawn(redlock.acquire_all(["held", "free"]).wait(LONG).retry(slowly)),
    ];
    sleep(ms(300)).await;
    // The next votes are slow, so the following acquires are in a round when the client closes.
    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(400));
    }
    waits.push(tokio::spawn(acquire("r")));
    waits.push(tokio::spawn(redlock.try_acquire("try")));
    waits.push(tokio::spawn(redlock.acquire_all(["x", "y"]).wait(LONG)));
    sleep(ms(50)).await;
    close(&redlock).await.expect("all nodes can be reached");
    for waiting in waits {
        let refused =
            timeout(LONG / 2, waiting).await.expect("the acquire ends").expect("no panic");
        assert_eq!(refused.expect_err("closed"), AcquireError::Closed);
    }
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    assert!(cluster.is_empty(), "a key is left: {:?}", cluster.keys_per_node());
    other.close().await.expect("all nodes can be reached");
    expect_clean(&cluster, &redlock).await;
}

#[tokio::test]
async fn close_ends_leases_in_every_state() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = patient_through(&proxies);
    let acquire = |resource: &str| redlock.acquire(resource).wait(SOON);
    let plain = acquire("plain").await.expect("free");
    let renewed = acquire("renewed").ttl(ms(20_000)).auto_extend_forever().await.expect("free");
    let fenced = acquire("fenced").fenced().await.expect("free");
    let set = redlock.acquire_all(["one", "two"]).wait(SOON).await.expect("free");
    let lost = acquire("lost").auto_extend_forever().await.expect("free");
    eventually("all nodes have granted", || lost.report().granted() == 3).await;
    for node in &cluster {
        node.del("lost");
    }
    timeout(SOON, lost.lost()).await.expect("the nodes push the deletion");
    let (extended, released) =
        (acquire("e").await.expect("free"), acquire("r").await.expect("free"));
    let view = extended.view();
    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(300));
    }
    let extending = tokio::spawn(async move { view.extend(ms(90_000)).await });
    let releasing = tokio::spawn(released.release());
    let ended = [plain.view(), renewed.view(), fenced.view(), set.view(), extended.view()];
    let losses = ended.map(|view| tokio::spawn(async move { view.lost().await }));
    sleep(ms(20)).await;
    close(&redlock).await.expect("all nodes can be reached");
    for loss in losses {
        let reason = timeout(SOON, loss).await.expect("the loss is reported").expect("no panic");
        assert_eq!(reason, Loss::Closed);
    }
    let extension = timeout(SOON, extending).await.expect("the extension ends").expect("no panic");
    extension.expect_err("the lease has ended");
    let release = timeout(SOON, releasing).await.expect("the release ends").expect("no panic");
    assert_eq!(release, Ok(ReleaseOutcome::Released));
    let is_counter = |key: &Vec<u8>| String::from_utf8_lossy(key).contains("#quorlock:");
    let locks = |node: &Server| node.keys().iter().filter(|key| !is_counter(key)).count();
    assert!(cluster.iter().all(|node| locks(node) == 0), "{:?}", cluster.keys_per_node());
    expect_nothing_runs(&cluster).await;
    for lease in [plain, renewed, fenced, set, extended, lost] {
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::AlreadyReleased));
    }
}

#[tokio::test]
async fn close_keeps_at_least_keys_without_an_owner() {
    let cluster = Cluster::start(3);
    let redlock = client_with_long_connect_timeout(&cluster);
    let lease = redlock.acquire("r").at_least(ms(25_000)).wait(SOON).await.expect("free");
    // `at_least` applies only to nodes that have granted the lock.
    eventually("all nodes have granted", || lease.report().granted() == 3).await;
    let value = lease.value().as_bytes().to_vec();
    close(&redlock).await.expect("all nodes can be reached");
    for node in &cluster {
        let left = node.get("r").expect("at_least has not passed");
        assert!(left != value && node.pttl("r") <= 25_000, "the key still has the lease's value");
    }
    expect_nothing_runs(&cluster).await;
}

#[tokio::test]
async fn concurrent_and_dropped_closes_complete() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let (thrice, dropped) = (patient_through(&proxies), patient_through(&proxies));
    let leases = [
        thrice.acquire("a").wait(SOON).await.expect("free"),
        dropped.acquire("b").wait(SOON).await.expect("free"),
    ];
    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(200));
    }
    let closing = [thrice.clone(), thrice.clone(), thrice.clone()];
    let closing = closing.map(|one| tokio::spawn(async move { close(&one).await }));
    for closing in closing {
        closing.await.expect("no panic").expect("all nodes can be reached");
    }
    assert!(leases[0].loss() == Some(Loss::Closed) && leases[1].is_valid());
    // The client is closed after the first poll. In that poll, no reply can arrive.
    assert!(dropped.close().now_or_never().is_none());
    assert_eq!(dropped.try_acquire("r").await.expect_err("closed"), AcquireError::Closed);
    assert_eq!(leases[1].loss(), Some(Loss::Closed));
    eventually("the releases are delivered", || cluster.is_empty()).await;
    // A later `close()` waits for the result of the dropped call.
    expect_clean(&cluster, &dropped).await;
    expect_clean(&cluster, &thrice).await;
}
