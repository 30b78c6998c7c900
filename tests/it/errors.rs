//! What went wrong, told apart, and told without secrets.

use crate::{SOON, all_up, begun, builder_of, client, eventually, ms, multi_thread};
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

/// What `thing` shows to a developer; panics if a value, the user or the password is in it.
pub(crate) fn shown(thing: &impl Debug) -> String {
    let text = format!("{thing:?} {thing:#?}");
    // The hash of a script, which some servers put into their errors, has 40 digits.
    let runs = text.split(|c: char| !c.is_ascii_hexdigit()).map(str::len);
    let longest = runs.filter(|digits| *digits != 40).max();
    assert!(longest < Some(16), "(most of) a value: {text}");
    assert!(!text.contains(USER) && !text.contains(PASSWORD), "a user or password: {text}");
    text
}

/// What `thing` tells a user; panics like [`shown`], also for what it shows to a developer.
pub(crate) fn told(thing: &(impl Debug + Display)) -> String {
    shown(thing);
    let text = thing.to_string();
    shown(&text);
    text
}

#[tokio::test]
async fn no_setting_and_no_refusal_of_one_shows_a_user_or_password() {
    let secret = format!("{USER}:{PASSWORD}@");
    let builder = Redlock::builder().nodes([format!("redis://{secret}127.0.0.1:1")]);
    shown(&builder);
    let unix = format!("unix:///tmp/redis.sock?user={USER}&pass={PASSWORD}");
    shown(&builder.clone().nodes([&unix]));
    shown(&builder.clone().build().expect("good settings"));
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
        told(&refused);
    }
    let refused = builder.clone().nodes(["redis://127.0.0.1:1"]).build().expect_err("twice");
    told(&refused);
    let redlock = builder.build().expect("good settings");
    shown(&redlock.acquire("r"));
    told(&redlock.try_acquire("r").await.expect_err("nobody listens on port 1"));
    told(&redlock.try_acquire("r").ttl(ms(0)).await.expect_err("no ttl"));
    redlock.close().await.expect("nothing is owed");
    told(&redlock.try_acquire("r").await.expect_err("closed"));
}

#[tokio::test]
async fn a_key_of_another_type_is_held_by_another() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let put_hash = |server: &Server| drop(server.cmd(&["HSET", "r", "field", "value"]));
    let is_hash = |server: &Server| server.try_cmd(&["HGET", "r", "field"]).is_ok();
    cluster.iter().for_each(put_hash);
    let refused = redlock.try_acquire("r").await.expect_err("it is held");
    assert!(matches!(refused, AcquireError::Contended { .. }), "{}", told(&refused));
    redlock.close().await.expect("the releases were delivered");
    assert!(cluster.iter().all(is_hash), "nobody's but its owner's");
}

#[tokio::test]
async fn a_key_of_another_type_under_a_lease_has_taken_it_over() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = redlock.try_acquire("r").await.expect("a free lock");
    eventually("it is on all nodes", || lease.report().granted() == 3).await;
    let replace = |server: &Server| {
        assert!(server.del("r"));
        server.cmd(&["HSET", "r", "field", "value"]);
    };
    replace(&cluster[0]);
    lease.extend(ms(40_000)).await.expect("two of three still hold it");
    replace(&cluster[1]);
    replace(&cluster[2]);
    let lost = lease.extend(ms(50_000)).await.expect_err("none holds it");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::TakenOver, .. }), "{}", told(&lost));
    assert_eq!(lease.loss(), Some(Loss::TakenOver));
    assert_eq!(lease.release().await.expect("all are up"), ReleaseOutcome::TakenOver);
    redlock.close().await.expect("all is delivered");
    for server in &cluster {
        let reply = server.cmd(&["HGET", "r", "field"]);
        assert_eq!(reply, redis::Value::BulkString(b"value".into()), "untouched");
        assert_eq!(server.pttl("r"), -1, "not even its expiry");
    }
}

#[tokio::test]
async fn contention_and_outage_are_told_apart_also_when_both_are_there() {
    let cluster = Cluster::start(5);
    let redlock = client(&cluster);
    let held = |server: &Server| server.set("r", "somebody else's");
    cluster[..2].iter().for_each(held);
    drop(redlock.try_acquire("r").await.expect("three of five are free"));
    // Down, held, refused because of.
    for (down, held, is_outage) in [(1, 2, false), (2, 1, false), (2, 3, false), (3, 1, true)] {
        cluster[5 - down].kill();
        cluster[..5 - down].iter().for_each(|server| {
            server.del("r");
        });
        cluster[..held.min(5 - down)].iter().for_each(|server| server.set("r", "another's"));
        let case = format!("{down} down, {held} held");
        let refused = redlock.try_acquire("r").await.expect_err("two or three are left");
        let text = told(&refused);
        match refused {
            AcquireError::Contended { report, .. } if !is_outage => {
                assert!(report.nodes().iter().any(|node| *node.vote() == NodeVote::Held), "{text}");
            }
            AcquireError::NoQuorum { .. } if is_outage => {}
            _ => panic!("{case}: {text}"),
        }
    }
}

/// Keys that stay for a minute, but a validity of 600 ms: what is left over would be seen.
fn short_lived(urls: impl IntoIterator<Item = String>) -> quorlock::Builder {
    let builder = builder_of(urls).node_timeout(ms(300)).ttl(ms(60_000));
    builder.drift_factor(0.0).drift_constant(ms(59_400))
}

async fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    let mut future = future;
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[test]
fn a_quorum_whose_caller_slept_through_the_validity_is_no_lease() {
    let cluster = Cluster::start(3);
    let runtime = multi_thread(1);
    let redlock = short_lived(cluster.urls()).runtime(runtime.handle().clone()).build();
    let redlock = redlock.expect("good settings");
    futures::executor::block_on(async {
        redlock.ready().await.expect("it has a runtime");
        let acquire = begun(|| redlock.try_acquire("r"));
        kit::eventually(SOON, "granted by all", || {
            cluster.iter().all(|node| !node.keys().is_empty())
        });
        thread::sleep(ms(700));
        let refused = acquire.await.expect_err("its validity has ended");
        let AcquireError::NotPolled { report } = &refused else { panic!("{}", told(&refused)) };
        assert_eq!(report.granted(), 3, "{}", told(&refused));
    });
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

#[test]
fn grants_that_come_after_the_validity_are_no_lease() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let runtime = multi_thread(1);
    let redlock = short_lived(proxies.iter().map(Proxy::url)).runtime(runtime.handle().clone());
    let redlock = redlock.build().expect("good settings");
    let all_are = |state: NodeState| {
        let what = format!("all nodes are {state:?}");
        kit::eventually(SOON, &what, || redlock.nodes().iter().all(|node| *node.state() == state));
    };
    futures::executor::block_on(async {
        let first = redlock.acquire("first").wait(SOON).await;
        drop(first.expect("a free lock"));
        all_are(NodeState::Up);
        kit::eventually(SOON, "it is free again", || cluster.is_empty());
        for proxy in &proxies {
            proxy.hold(Direction::Replies);
        }
        let mut acquire = pin!(redlock.try_acquire("r"));
        assert!(poll_once(acquire.as_mut()).await.is_pending());
        all_are(NodeState::Stalled);
        thread::sleep(ms(400));
        proxies.iter().for_each(Proxy::heal);
        all_are(NodeState::Up);
        let refused = acquire.await.expect_err("its validity has ended");
        // The node timeout has ended before.
        let AcquireError::NoQuorum { report } = &refused else { panic!("{}", told(&refused)) };
        assert_eq!(report.granted(), 0, "{report}");
    });
    kit::eventually(SOON, "no key is left", || cluster.is_empty());
}

#[tokio::test]
async fn on_a_runtime_that_was_blocked_beyond_the_validity_nothing_is_held() {
    let cluster = Cluster::start(3);
    let redlock = short_lived(cluster.urls()).node_timeout(ms(50)).drift_constant(ms(59_900));
    let redlock = redlock.build().expect("good settings");
    redlock.ready().await.expect("it has a runtime");
    for turns in 0..12 {
        let mut acquire = pin!(redlock.try_acquire("r"));
        match poll_once(acquire.as_mut()).await {
            Poll::Ready(early) => drop(early),
            Poll::Pending => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                thread::sleep(ms(120));
                let refused = acquire.await.expect_err("its validity has ended");
                let is_honest = matches!(
                    refused,
                    AcquireError::Expired { .. }
                        | AcquireError::NoQuorum { .. }
                        | AcquireError::NotPolled { .. }
                        | AcquireError::Overloaded { .. }
                );
                assert!(is_honest, "{}", told(&refused));
            }
        }
        eventually("no key is left", || cluster.is_empty()).await;
    }
}

#[tokio::test]
async fn an_extension_that_was_slept_through_does_not_bring_a_lease_back() {
    let cluster = Cluster::start(3);
    let redlock = short_lived(cluster.urls()).build().expect("good settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("a free lock");
    {
        let mut extend = pin!(lease.extend(ms(61_000)));
        assert!(poll_once(extend.as_mut()).await.is_pending());
        tokio::task::yield_now().await;
        thread::sleep(ms(700));
        match extend.await {
            // The coordinator may have read the replies in time, without the runtime.
            Ok(()) => {
                assert!(lease.is_valid());
                thread::sleep(lease.validity());
            }
            Err(lost) => {
                let has_expired = matches!(lost, ExtendError::Lost { reason: Loss::Expired, .. });
                assert!(has_expired, "{}", told(&lost));
            }
        }
    }
    assert!(!lease.is_valid());
    let lost = lease.extend(ms(90_000)).await.expect_err("it stays lost");
    assert!(matches!(lost, ExtendError::Lost { reason: Loss::Expired, .. }), "{}", told(&lost));
    shown(&lease);
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn one_server_under_two_addresses_has_one_vote() {
    let cluster = Cluster::start(2);
    let proxy = Proxy::start(cluster[0].addr());
    let localhost = format!("redis://localhost:{}", cluster[0].port());
    // Where there is a proxy, the report may name what it did to the connection instead.
    for (second_address, says) in [(localhost, "same server as"), (proxy.url(), "")] {
        let urls = [cluster[0].url(), second_address, cluster[1].url()];
        let redlock = builder_of(urls).build().expect("nobody can know before they are asked");
        for _ in 0..10 {
            let lease = redlock.acquire("r").wait(SOON).await.expect("two servers are up");
            let is_same =
                |it: &NodeState| matches!(it, NodeState::Down(NodeFailure::SameServer(_)));
            let is_down = || redlock.nodes().iter().any(|node| is_same(node.state()));
            let is_refused = || is_down() && told(&lease.report()).contains(says);
            eventually("the second address is refused", is_refused).await;
            assert_eq!(lease.report().granted(), 2);
            assert_eq!(lease.release().await.expect("both are up"), ReleaseOutcome::Released);
            proxy.reset();
        }
        cluster[1].kill();
        for _ in 0..10 {
            let refused = redlock.try_acquire("r").await.expect_err("one server is no quorum");
            let AcquireError::NoQuorum { report } = &refused else { panic!("{}", told(&refused)) };
            assert!(report.granted() <= 1, "{}", told(&refused));
            proxy.reset();
        }
        eventually("no key is left", || cluster.is_empty()).await;
        cluster[1].restart();
    }
}

#[tokio::test]
async fn servers_that_swap_their_addresses_are_still_two() {
    let cluster = Cluster::start(3);
    let addresses = [Proxy::start(cluster[0].addr()), Proxy::start(cluster[1].addr())];
    let urls = [addresses[0].url(), addresses[1].url(), cluster[2].url()];
    // Each of the two is, under its address, another server than before.
    let redlock = builder_of(urls).restart_guard(RestartGuard::Off);
    let redlock = redlock.build().expect("good settings");
    for turn in 0..3 {
        let lease = redlock.acquire("r").wait(SOON).await.expect("three servers are up");
        lease.release().await.expect("three servers are up");
        eventually("all nodes are up", || all_up(&redlock)).await;
        addresses[turn % 2].set_target(cluster[1].addr());
        addresses[1 - turn % 2].set_target(cluster[0].addr());
        for node in &cluster[..2] {
            node.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        eventually("it is noticed", || !all_up(&redlock)).await;
    }
    eventually("all nodes are up again", || all_up(&redlock)).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

/// What locking itself needs, and nothing of what the set-up asks for.
pub(crate) const FEW_RIGHTS: &str =
    "-@all +set +evalsha +eval +get +del +pttl +pexpire +hello +auth +ping ~* resetchannels";

/// A lease on "r" that all nodes granted, once all are connected.
async fn retry_until_granted(redlock: &Redlock, nodes: usize) -> Lease {
    let begun = Instant::now();
    loop {
        let lease = redlock.acquire("r").wait(SOON).await.expect("free");
        let asked = Instant::now();
        while asked.elapsed() < ms(300) {
            if lease.report().granted() == nodes {
                return lease;
            }
            tokio::time::sleep(ms(2)).await;
        }
        assert!(begun.elapsed() < SOON, "{}", lease.report());
        lease.release().await.expect("a quorum is up");
    }
}

#[tokio::test]
async fn a_user_with_few_rights_can_lock() {
    let setup = Server::builder().arg("--user").arg(USER).arg("on").arg(format!(">{PASSWORD}"));
    let setup = FEW_RIGHTS.split(' ').fold(setup, kit::ServerBuilder::arg);
    let cluster = Cluster::start_with(3, &setup);
    let urls = cluster.iter().map(|node| format!("redis://{USER}:{PASSWORD}@{}", node.addr()));
    // It cannot know whether a node whose connection was lost has been restarted.
    let redlock = builder_of(urls).restart_guard(RestartGuard::Off);
    let (ours, theirs) = (redlock.clone().build().expect("good"), redlock.build().expect("good"));
    for connection in 0..3 {
        let lease = retry_until_granted(&ours, 3).await;
        // Its connections have been closed as well, and it may not be back yet.
        let begun = Instant::now();
        let refused = loop {
            let refused = theirs.try_acquire("r").await.expect_err("it is held");
            let is_back = !matches!(refused, AcquireError::NoQuorum { .. });
            if is_back || begun.elapsed() > SOON {
                break refused;
            }
            tokio::time::sleep(ms(5)).await;
        };
        assert!(matches!(refused, AcquireError::Contended { .. }), "{}", told(&refused));
        lease.extend(ms(40_000)).await.expect("still held");
        if connection == 1 {
            cluster.iter().for_each(|node| drop(node.cmd(&["SCRIPT", "FLUSH"])));
        }
        assert_eq!(lease.release().await.expect("all are up"), ReleaseOutcome::Released);
        eventually("no key is left", || cluster.is_empty()).await;
        cluster.iter().for_each(|node| drop(node.cmd(&["CLIENT", "KILL", "USER", USER])));
    }
    shown(&ours);
    assert!(ours.nodes().iter().all(|node| node.version().is_none()), "INFO is forbidden");
}
