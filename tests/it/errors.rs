//! Tests that errors distinguish their causes and contain no secrets.

use crate::{SOON, all_up, builder_of, client, eventually, ms, multi_thread, pending_acquire};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::{
    AcquireError, ConfigError, ExtendError, Lease, Loss, NodeFailure, NodeState, NodeVote, Redlock,
    ReleaseOutcome, RestartGuard,
};
use std::fmt::{Debug, Display};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::thread;
use std::time::Instant;

pub(crate) const USER: &str = "walter";
pub(crate) const PASSWORD: &str = "hunter2-hunter2";

/// Returns the debug output of `thing`. Panics if the output contains a lock value, the user or the password.
pub(crate) fn debug(thing: &impl Debug) -> String {
    let text = format!("{thing:?} {thing:#?}");
    // Some servers put a script's hash, which has 40 hex digits, into their errors.
    let runs = text.split(|c: char| !c.is_ascii_hexdigit()).map(str::len);
    let longest = runs.filter(|digits| *digits != 40).max();
    assert!(longest < Some(16), "(most of) a value: {text}");
    assert!(!text.contains(USER) && !text.contains(PASSWORD), "a user or password: {text}");
    text
}

/// Returns the display output of `thing`. Panics if its display or debug output contains a secret.
pub(crate) fn display(thing: &(impl Debug + Display)) -> String {
    debug(thing);
    let text = thing.to_string();
    debug(&text);
    text
}

#[tokio::test]
async fn settings_and_config_errors_hide_credentials() {
    let secret = format!("{USER}:{PASSWORD}@");
    let builder = Redlock::builder().nodes([format!("redis://{secret}127.0.0.1:1")]);
    debug(&builder);
    let unix = format!("unix:///tmp/redis.sock?user={USER}&pass={PASSWORD}");
    debug(&builder.clone().nodes([&unix]));
    debug(&builder.clone().build().expect("valid settings"));
    for bad in [
        format!("redis://{secret}127.0.0.1:port"),
        format!("redis://{secret}127.0.0.1:1/database"),
        format!("http://{secret}127.0.0.1"),
        format!("{secret}127.0.0.1"),
        format!("{unix}&db=first"),
        format!("redis://127.0.0.1:port?user={USER}&password={PASSWORD}"),
    ] {
        let refused = builder.clone().nodes([&bad]).build().expect_err("a bad address");
        assert!(matches!(refused, ConfigError::BadUrl { position: 2, .. }), "{refused}");
        display(&refused);
    }
    let refused = builder.clone().nodes(["redis://127.0.0.1:1"]).build().expect_err("twice");
    display(&refused);
    let redlock = builder.build().expect("valid settings");
    debug(&redlock.acquire("r"));
    display(&redlock.try_acquire("r").await.expect_err("port 1 is closed"));
    display(&redlock.try_acquire("r").ttl(ms(0)).await.expect_err("no ttl"));
    redlock.close().await.expect("no release is pending");
    display(&redlock.try_acquire("r").await.expect_err("closed"));
}

#[tokio::test]
async fn key_of_another_type_counts_as_held() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let put_hash = |server: &Server| drop(server.cmd(&["HSET", "r", "field", "value"]));
    let is_hash = |server: &Server| server.try_cmd(&["HGET", "r", "field"]).is_ok();
    cluster.iter().for_each(put_hash);
    let refused = redlock.try_acquire("r").await.expect_err("it is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{}", display(&refused));
    redlock.close().await.expect("the releases were delivered");
    assert!(cluster.iter().all(is_hash), "the hash is unchanged");
}

#[tokio::test]
async fn lease_is_taken_over_by_a_key_of_another_type() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("the lock is free");
    eventually("all nodes have the key", || lease.report().granted() == 3).await;
    let replace = |server: &Server| {
        assert!(server.del("r"));
        server.cmd(&["HSET", "r", "field", "value"]);
    };
    replace(&cluster[0]);
    lease.extend(ms(40_000)).await.expect("two of three nodes hold the key");
    replace(&cluster[1]);
    replace(&cluster[2]);
    let lost = lease.extend(ms(50_000)).await.expect_err("no node holds the key");
    assert!(
        matches!(lost, ExtendError::Lost { reason: Loss::TakenOver, .. }),
        "{}",
        display(&lost)
    );
    assert_eq!(lease.loss(), Some(Loss::TakenOver));
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::TakenOver);
    redlock.close().await.expect("releases are delivered");
    for server in &cluster {
        let reply = server.cmd(&["HGET", "r", "field"]);
        assert_eq!(reply, redis::Value::BulkString(b"value".into()), "the hash is unchanged");
        assert_eq!(server.pttl("r"), -1, "the expiry is unchanged");
    }
}

#[tokio::test]
async fn contention_and_outage_are_distinguished_if_both_occur() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    let held = |server: &Server| server.set("r", "other");
    cluster[..2].iter().for_each(held);
    drop(redlock.try_acquire("r").await.expect("three of five are free"));
    // Each case has the number of nodes that are down and the number of nodes on which the lock is held. The third
    // value is true if the error must report an outage.
    for (down, held, is_outage) in [(1, 2, false), (2, 1, false), (2, 3, false), (3, 1, true)] {
        cluster[5 - down].kill();
        cluster[..5 - down].iter().for_each(|server| {
            server.del("r");
        });
        cluster[..held.min(5 - down)].iter().for_each(|server| server.set("r", "other"));
        let case = format!("{down} down, {held} held");
        let refused = redlock.try_acquire("r").await.expect_err("too few nodes grant");
        let text = display(&refused);
        match refused {
            AcquireError::Contended { report, .. } if !is_outage => {
                assert!(report.nodes().iter().any(|node| *node.vote() == NodeVote::Held), "{text}");
            }
            AcquireError::NoQuorum { .. } if is_outage => {}
            _ => panic!("{case}: {text}"),
        }
    }
}

/// Returns settings with a TTL of one minute and a validity of only 600 ms. A lease ends soon, but a key that is not
/// deleted remains long enough for the test to notice it.
fn short_lived(urls: impl IntoIterator<Item = String>) -> quorlock::Builder {
    let builder = builder_of(urls).node_timeout(ms(300)).ttl(ms(60_000));
    builder.drift_factor(0.0).drift_constant(ms(59_400))
}

async fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    let mut future = future;
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[test]
fn quorum_polled_after_its_validity_gives_no_lease() {
    let cluster = Cluster::start(3);
    let runtime = multi_thread(1);
    let redlock = short_lived(cluster.urls()).runtime(runtime.handle().clone()).build();
    let redlock = redlock.expect("valid settings");
    futures::executor::block_on(async {
        redlock.ready().await.expect("the client has a runtime");
        let acquire = pending_acquire(|| redlock.try_acquire("r"));
        kit::eventually(SOON, "all nodes have the key", || {
            cluster.iter().all(|node| !node.keys().is_empty())
        });
        thread::sleep(ms(700));
        let refused = acquire.await.expect_err("the validity has ended");
        let AcquireError::NotPolled { report } = &refused else { panic!("{}", display(&refused)) };
        assert_eq!(report.granted(), 3, "{}", display(&refused));
    });
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

#[test]
fn grants_after_the_validity_give_no_lease() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let runtime = multi_thread(1);
    let redlock = short_lived(proxies.iter().map(Proxy::url)).runtime(runtime.handle().clone());
    let redlock = redlock.build().expect("valid settings");
    let all_are = |state: NodeState| {
        let what = format!("all nodes are {state:?}");
        kit::eventually(SOON, &what, || redlock.nodes().iter().all(|node| *node.state() == state));
    };
    futures::executor::block_on(async {
        let first = redlock.acquire("first").wait(SOON).await;
        drop(first.expect("the lock is free"));
        all_are(NodeState::Up);
        kit::eventually(SOON, "the lock is released", || cluster.is_empty());
        for proxy in &proxies {
            proxy.hold(Direction::Replies);
        }
        let mut acquire = pin!(redlock.try_acquire("r"));
        assert!(poll_once(acquire.as_mut()).await.is_pending());
        all_are(NodeState::Stalled);
        thread::sleep(ms(400));
        proxies.iter().for_each(Proxy::heal);
        all_are(NodeState::Up);
        let refused = acquire.await.expect_err("the validity has ended");
        // The node timeout ends before the validity, so no vote counts as granted.
        let AcquireError::NoQuorum { report } = &refused else { panic!("{}", display(&refused)) };
        assert_eq!(report.granted(), 0, "{report}");
    });
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

/// Checks that an acquire returns no lease whose validity ended while the runtime was blocked. The block begins after
/// each number of turns, in a different state of the attempt.
#[tokio::test]
async fn runtime_blocked_beyond_the_validity_gives_no_lease() {
    let cluster = Cluster::start(3);
    let redlock = short_lived(cluster.urls()).node_timeout(ms(50)).drift_constant(ms(59_900));
    let redlock = redlock.build().expect("valid settings");
    redlock.ready().await.expect("the client has a runtime");
    let mut refusals = 0;
    for turns in 0..12 {
        let mut acquire = pin!(redlock.try_acquire("r"));
        match poll_once(acquire.as_mut()).await {
            Poll::Ready(early) => drop(early),
            Poll::Pending => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                thread::sleep(ms(400));
                let polled_at = Instant::now();
                match acquire.await {
                    // On a busy machine, the attempt can begin near the end of the block, or after it.
                    Ok(lease) => {
                        let slack = ms(1); // `valid_until` reads two clocks.
                        assert!(lease.valid_until() + slack >= polled_at, "it had expired");
                    }
                    Err(refused) => {
                        let is_expected = matches!(
                            refused,
                            AcquireError::Expired { .. }
                                | AcquireError::NoQuorum { .. }
                                | AcquireError::NotPolled { .. }
                                | AcquireError::Overloaded { .. }
                        );
                        assert!(is_expected, "{}", display(&refused));
                        refusals += 1;
                    }
                }
            }
        }
        eventually("no key is left", || cluster.is_empty()).await;
    }
    assert!(refusals > 0, "no validity ended while the runtime was blocked");
}

#[tokio::test]
async fn late_extension_does_not_revive_an_expired_lease() {
    let cluster = Cluster::start(3);
    let redlock = short_lived(cluster.urls()).build().expect("valid settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
    {
        let mut extend = pin!(lease.extend(ms(61_000)));
        assert!(poll_once(extend.as_mut()).await.is_pending());
        tokio::task::yield_now().await;
        thread::sleep(ms(700));
        match extend.await {
            // The coordinator may have read the replies before the lease expired, because it does not need the runtime.
            Ok(()) => {
                assert!(lease.is_valid());
                thread::sleep(lease.validity());
            }
            Err(lost) => {
                let has_expired = matches!(lost, ExtendError::Lost { reason: Loss::Expired, .. });
                assert!(has_expired, "{}", display(&lost));
            }
        }
    }
    assert!(!lease.is_valid());
    let lost = lease.extend(ms(90_000)).await.expect_err("the lease stays lost");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::Expired, .. }), "{}", display(&lost));
    debug(&lease);
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn one_server_under_two_addresses_has_one_vote() {
    let cluster = Cluster::start(2);
    let proxy = Proxy::start(cluster[0].addr());
    let localhost = format!("redis://localhost:{}", cluster[0].port());
    // Behind the proxy, the report may name a broken connection instead, so its text is not checked.
    for (second_address, says) in [(localhost, "same server as"), (proxy.url(), "")] {
        let urls = [cluster[0].url(), second_address, cluster[1].url()];
        let redlock = builder_of(urls).build().expect("the addresses differ");
        for _ in 0..10 {
            let lease = redlock.acquire("r").wait(SOON).await.expect("two servers are up");
            let is_same =
                |it: &NodeState| matches!(it, NodeState::Down(NodeFailure::SameServer(_)));
            let is_down = || redlock.nodes().iter().any(|node| is_same(node.state()));
            let is_refused = || is_down() && display(&lease.report()).contains(says);
            eventually("the second address is refused", is_refused).await;
            assert_eq!(lease.report().granted(), 2);
            assert_eq!(lease.release().await.expect("both are up"), ReleaseOutcome::Released);
            proxy.reset();
        }
        cluster[1].kill();
        for _ in 0..10 {
            let refused = redlock.try_acquire("r").await.expect_err("one server has only one vote");
            let AcquireError::NoQuorum { report } = &refused else {
                panic!("{}", display(&refused))
            };
            assert!(report.granted() <= 1, "{}", display(&refused));
            proxy.reset();
        }
        eventually("no key is left", || cluster.is_empty()).await;
        cluster[1].restart();
    }
}

#[tokio::test]
async fn servers_that_swap_addresses_still_count_as_two() {
    let cluster = Cluster::start(3);
    let addresses = [Proxy::start(cluster[0].addr()), Proxy::start(cluster[1].addr())];
    let urls = [addresses[0].url(), addresses[1].url(), cluster[2].url()];
    // The restart guard is off, because each address leads to a different server after the exchange.
    let redlock = builder_of(urls).restart_guard(RestartGuard::Off);
    let redlock = redlock.build().expect("valid settings");
    for turn in 0..3 {
        let lease = redlock.acquire("r").wait(SOON).await.expect("three servers are up");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "three servers are up");
        eventually("all nodes are up", || all_up(&redlock)).await;
        addresses[turn % 2].set_target(cluster[1].addr());
        addresses[1 - turn % 2].set_target(cluster[0].addr());
        for node in &cluster[..2] {
            node.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        eventually("the client notices the change", || !all_up(&redlock)).await;
    }
    eventually("all nodes are up", || all_up(&redlock)).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

/// The ACL rules of a user with only the permissions that locking needs. The server refuses the optional commands of
/// the connection set-up.
pub(crate) const FEW_RIGHTS: &str =
    "-@all +set +evalsha +eval +get +del +pttl +pexpire +hello +auth +ping ~* resetchannels";

async fn retry_until_granted(redlock: &Redlock, nodes: usize) -> Lease {
    let started = Instant::now();
    loop {
        let lease = redlock.acquire("r").wait(SOON).await.expect("free");
        let asked = Instant::now();
        while asked.elapsed() < ms(300) {
            if lease.report().granted() == nodes {
                return lease;
            }
            tokio::time::sleep(ms(2)).await;
        }
        assert!(started.elapsed() < SOON, "{}", lease.report());
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "a quorum is up");
    }
}

#[tokio::test]
async fn user_with_minimal_permissions_can_lock() {
    let setup = Server::builder().arg("--user").arg(USER).arg("on").arg(format!(">{PASSWORD}"));
    let setup = FEW_RIGHTS.split(' ').fold(setup, kit::ServerBuilder::arg);
    let cluster = Cluster::start_with(3, &setup);
    let urls = cluster.iter().map(|node| format!("redis://{USER}:{PASSWORD}@{}", node.addr()));
    // Without `INFO`, a client cannot detect that a node restarted during a disconnection.
    let redlock = builder_of(urls).restart_guard(RestartGuard::Off);
    let (redlock, other_client) = (
        redlock.clone().build().expect("valid settings"),
        redlock.build().expect("valid settings"),
    );
    for connection in 0..3 {
        let lease = retry_until_granted(&redlock, 3).await;
        // The other client's connections were killed too, and may not be re-established yet.
        let started = Instant::now();
        let refused = loop {
            let refused = other_client.try_acquire("r").await.expect_err("it is held");
            let is_connected = !matches!(refused, AcquireError::NoQuorum { .. });
            if is_connected || started.elapsed() > SOON {
                break refused;
            }
            tokio::time::sleep(ms(5)).await;
        };
        assert!(matches!(refused, AcquireError::Contended { .. }), "{}", display(&refused));
        lease.extend(ms(40_000)).await.expect("still held");
        if connection == 1 {
            cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
        }
        assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
        eventually("no key is left", || cluster.is_empty()).await;
        cluster.iter().for_each(|node| drop(node.cmd(&["CLIENT", "KILL", "USER", USER])));
    }
    debug(&redlock);
    assert!(redlock.nodes().iter().all(|node| node.version().is_none()), "INFO is forbidden");
}
