//! `close()` in every state that a client can be in.

use crate::{SOON, builder, client, eventually, granted_by_all, ms, through};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{AcquireError, CloseError, Loss, Redlock, ReleaseOutcome, RetryPolicy};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// Much longer than any close takes.
pub(super) const LONG: Duration = Duration::from_mins(2);

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

pub(super) async fn close(redlock: &Redlock) -> Result<(), CloseError> {
    timeout(LONG, redlock.close()).await.expect("close() ends within its bound")
}

/// Closes a client whose nodes can be reached: nothing is left then, though a handle is.
async fn expect_clean(cluster: &Cluster, redlock: &Redlock) {
    close(redlock).await.expect("all nodes can be reached");
    assert!(cluster.is_empty(), "a key is left: {:?}", cluster.keys_per_node());
    expect_nothing_runs(cluster).await;
    assert_eq!(redlock.try_acquire("r").await.expect_err("closed"), AcquireError::Closed);
    close(redlock).await.expect("it is closed");
    expect_nothing_runs(cluster).await;
}

async fn expect_nothing_runs(cluster: &Cluster) {
    eventually("its tasks have ended", || tasks() == 0).await;
    let is_left = |node: &Server| node.is_running() && node.clients().is_empty();
    eventually("its connections are closed", || cluster.iter().all(is_left)).await;
}

/// Closes a client with `releases` pending releases for each of exactly these nodes.
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
    through(proxies).ttl(ms(60_000)).connect_timeout(LONG).build().expect("good settings")
}

/// A client whose `close()` takes its time.
pub(super) fn patient(cluster: &Cluster) -> Redlock {
    builder(cluster).connect_timeout(LONG).build().expect("good settings")
}

#[tokio::test]
async fn one_that_was_never_used_asks_nobody() {
    let cluster = Cluster::start(3);
    let redlock = patient(&cluster);
    expect_clean(&cluster, &redlock).await;
    for node in &cluster {
        assert_eq!(node.calls("hello"), 0, "a client has connected");
    }
}

#[tokio::test]
async fn one_that_is_connecting_refuses_who_waits_for_that() {
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
    eventually("it connects", || proxies.iter().all(|proxy| proxy.accepted() > 0)).await;
    close(&redlock).await.expect("nothing was sent");
    for waiting in waits {
        let refused = timeout(LONG / 2, waiting).await.expect("it is told").expect("no panic");
        assert_eq!(refused.expect_err("closed"), AcquireError::Closed);
    }
    timeout(LONG / 2, ready).await.expect("it is told").expect("no panic").expect_err("closed");
    eventually("its tasks have ended", || tasks() == 0).await;
    proxies.iter().for_each(Proxy::heal);
    expect_clean(&cluster, &redlock).await;
}

#[tokio::test]
async fn one_that_connects_to_nodes_that_hang_is_closed_and_sets_nothing_later() {
    let cluster = Cluster::start(3);
    let redlock = patient(&cluster);
    cluster.iter().for_each(Server::stop);
    let waits = [redlock.try_acquire("a"), redlock.acquire("b")].map(|one| tokio::spawn(one));
    sleep(ms(100)).await;
    close(&redlock).await.expect("nothing was sent");
    for waiting in waits {
        timeout(LONG / 2, waiting)
            .await
            .expect("it is told")
            .expect("no panic")
            .expect_err("closed");
    }
    eventually("its tasks have ended", || tasks() == 0).await;
    cluster.iter().for_each(Server::cont);
    expect_clean(&cluster, &redlock).await;
}

#[tokio::test]
async fn one_whose_nodes_hang_names_them_and_delivers_when_they_go_on() {
    for hung in [1, 3] {
        let cluster = Cluster::start(3);
        let redlock = client(&cluster);
        let held = redlock.acquire("held").wait(SOON).await.expect("free");
        let dropped = redlock.acquire("dropped").wait(SOON).await.expect("free");
        for lease in [&held, &dropped] {
            eventually("all have granted", || lease.report().granted() == 3).await;
        }
        cluster.iter().take(hung).for_each(Server::stop);
        drop(dropped);
        expect_pending(&redlock, &cluster[..hung], 2).await;
        assert_eq!(held.loss(), Some(Loss::Closed));
        cluster.iter().take(hung).for_each(Server::cont);
        eventually("what was owed is delivered", || cluster.is_empty()).await;
        eventually("it is known to be", || {
            futures::FutureExt::now_or_never(redlock.close()) == Some(Ok(()))
        })
        .await;
        expect_clean(&cluster, &redlock).await;
    }
}

#[tokio::test]
async fn one_whose_node_is_gone_names_it_only_if_it_is_owed_something() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let owing = client(&cluster);
    let lease = granted_by_all(&owing, "r").await;
    cluster[0].kill();
    drop(lease);
    expect_pending(&owing, &cluster[..1], 1).await;
    eventually("the others are told", || cluster.is_empty()).await;

    let clean = patient(&cluster);
    let lease = clean.acquire("r").wait(SOON).await.expect("two are up");
    let waiting = tokio::spawn(clean.acquire("r").wait(LONG));
    sleep(ms(50)).await;
    close(&clean).await.expect("nothing was written to the node that is gone");
    assert!(cluster.is_empty() && lease.loss() == Some(Loss::Closed));
    waiting.await.expect("no panic").expect_err("closed");

    cluster[0].restart();
    eventually("what is owed is delivered after the close", || cluster.is_empty()).await;
    eventually("it is known to be", || {
        futures::FutureExt::now_or_never(owing.close()) == Some(Ok(()))
    })
    .await;
    expect_clean(&cluster, &owing).await;
}

#[tokio::test]
async fn whoever_waits_is_refused_wherever_it_stands() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let (redlock, theirs) = (patient_through(&proxies), patient(&cluster));
    let held = theirs.acquire("held").wait(SOON).await.expect("free");
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
    // From now on votes take a while: these are in their rounds, the set in none yet or in its own.
    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(400));
    }
    waits.push(tokio::spawn(acquire("r")));
    waits.push(tokio::spawn(redlock.try_acquire("try")));
    waits.push(tokio::spawn(redlock.acquire_all(["x", "y"]).wait(LONG)));
    sleep(ms(50)).await;
    close(&redlock).await.expect("all nodes can be reached");
    for waiting in waits {
        let refused = timeout(LONG / 2, waiting).await.expect("it is told").expect("no panic");
        assert_eq!(refused.expect_err("closed"), AcquireError::Closed);
    }
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    assert!(cluster.is_empty(), "a key is left: {:?}", cluster.keys_per_node());
    theirs.close().await.expect("all nodes can be reached");
    expect_clean(&cluster, &redlock).await;
}

#[tokio::test]
async fn leases_end_whatever_is_being_done_with_them() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = patient_through(&proxies);
    let acquire = |resource: &str| redlock.acquire(resource).wait(SOON);
    let plain = acquire("plain").await.expect("free");
    let kept_up = acquire("kept up").ttl(ms(20_000)).auto_extend_forever().await.expect("free");
    let fenced = acquire("fenced").fenced().await.expect("free");
    let set = redlock.acquire_all(["one", "two"]).wait(SOON).await.expect("free");
    let lost = acquire("lost").auto_extend_forever().await.expect("free");
    eventually("it is everywhere", || lost.report().granted() == 3).await;
    for node in &cluster {
        node.del("lost");
    }
    timeout(SOON, lost.lost()).await.expect("nodes push");
    let (extended, given_back) =
        (acquire("e").await.expect("free"), acquire("r").await.expect("free"));
    let view = extended.view();
    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(300));
    }
    let extending = tokio::spawn(async move { view.extend(ms(90_000)).await });
    let releasing = tokio::spawn(given_back.release());
    let ended = [plain.view(), kept_up.view(), fenced.view(), set.view(), extended.view()];
    let told = ended.map(|view| tokio::spawn(async move { view.lost().await }));
    sleep(ms(20)).await;
    close(&redlock).await.expect("all nodes can be reached");
    for told in told {
        let reason = timeout(SOON, told).await.expect("it is told").expect("no panic");
        assert_eq!(reason, Loss::Closed);
    }
    let extension = timeout(SOON, extending).await.expect("it ends").expect("no panic");
    extension.expect_err("the lease has ended");
    let release = timeout(SOON, releasing).await.expect("it ends").expect("no panic");
    assert_eq!(release, Ok(ReleaseOutcome::Released));
    let is_counter = |key: &Vec<u8>| String::from_utf8_lossy(key).contains("#quorlock:");
    let locks = |node: &Server| node.keys().iter().filter(|key| !is_counter(key)).count();
    assert!(cluster.iter().all(|node| locks(node) == 0), "{:?}", cluster.keys_per_node());
    expect_nothing_runs(&cluster).await;
    for lease in [plain, kept_up, fenced, set, extended, lost] {
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::AlreadyReleased));
    }
}

#[tokio::test]
async fn what_is_to_stand_for_a_time_stands_and_nobody_owns_it() {
    let cluster = Cluster::start(3);
    let redlock = patient(&cluster);
    let lease = redlock.acquire("r").at_least(ms(25_000)).wait(SOON).await.expect("free");
    // A node that was not connected in time has nothing to keep.
    eventually("it stands everywhere", || lease.report().granted() == 3).await;
    let value = lease.value().as_bytes().to_vec();
    close(&redlock).await.expect("all nodes can be reached");
    for node in &cluster {
        let stands = node.get("r").expect("it is kept");
        assert!(stands != value && node.pttl("r") <= 25_000, "it is still ours");
    }
    expect_nothing_runs(&cluster).await;
}

#[tokio::test]
async fn twice_at_once_and_dropped_half_way_it_is_closed_all_the_same() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let (twice, half) = (patient_through(&proxies), patient_through(&proxies));
    let leases = [
        twice.acquire("a").wait(SOON).await.expect("free"),
        half.acquire("b").wait(SOON).await.expect("free"),
    ];
    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(200));
    }
    let closing = [twice.clone(), twice.clone(), twice.clone()];
    let closing = closing.map(|one| tokio::spawn(async move { close(&one).await }));
    for closing in closing {
        closing.await.expect("no panic").expect("all nodes can be reached");
    }
    assert!(leases[0].loss() == Some(Loss::Closed) && leases[1].is_valid());
    timeout(ms(20), half.close()).await.expect_err("the answers take longer");
    assert_eq!(half.try_acquire("r").await.expect_err("closed"), AcquireError::Closed);
    assert_eq!(leases[1].loss(), Some(Loss::Closed));
    eventually("its releases go on", || cluster.is_empty()).await;
    // Whoever asks again is told when it is done.
    expect_clean(&cluster, &half).await;
    expect_clean(&cluster, &twice).await;
}
