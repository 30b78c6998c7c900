//! Failures outside the guarantee: each test checks that two clients hold one lock, as docs/SAFETY.md states. If such a
//! test fails because the second client is refused, the guarantee has become stronger: correct the document.
#![cfg(target_os = "linux")]

use crate::clocks::clocked;
use crate::once::{COUNTER, job};
use crate::restarts::past_quarantine;
use crate::{SOON, builder, builder_of, eventually, ms, warm_up};
use kit::{Cluster, Proxy, Server};
use quorlock::{AcquireError, ExtendError, Lease, Redlock, ReleaseOutcome, RestartGuard};
use std::time::Duration;

const MINUTE: Duration = Duration::from_mins(1);
const HOURS: Duration = Duration::from_hours(3);

fn client(cluster: &Cluster, guard: RestartGuard) -> Redlock {
    builder(cluster).restart_guard(guard).build().expect("valid settings")
}

/// Acquires the lock `r` on the first `holders` nodes only. The lease is not renewed.
async fn hold_on(cluster: &Cluster, redlock: &Redlock, resource: &str, holders: usize) -> Lease {
    warm_up(redlock).await;
    let others = &cluster.servers()[holders..];
    for node in others {
        node.set(resource, "other");
    }
    let lease = redlock.acquire(resource).await.expect("a quorum of nodes grants");
    let is_set = || cluster[..holders].iter().all(|node| node.get(resource).is_some());
    eventually("the nodes have the key", is_set).await;
    for node in others {
        node.del(resource);
    }
    lease
}

#[track_caller]
fn assert_both_hold(first: &Lease, second: &Result<Lease, AcquireError>) {
    let second = second.as_ref().expect("the second client acquires the lock");
    assert!(first.is_valid() && second.is_valid(), "two clients hold the lock");
}

/// Deletes the key on `lost` of the `holders` nodes that have it, as a flush or an eviction that no client notices does.
/// With five nodes, another client needs three nodes without the key.
#[tokio::test]
async fn lock_survives_as_many_lost_keys_as_the_formula_allows() {
    let cluster = Cluster::start(5);
    let (first, second) =
        (client(&cluster, RestartGuard::Observed), client(&cluster, RestartGuard::Observed));
    warm_up(&second).await;
    let (nodes, quorum) = (5, 3);
    for holders in quorum..=nodes {
        for lost in 0..=holders {
            let resource = format!("r/{holders}/{lost}");
            let lease = hold_on(&cluster, &first, &resource, holders).await;
            cluster[..lost].iter().for_each(|node| _ = node.del(&resource));
            let acquired = second.try_acquire(&resource).await;
            assert!(lease.is_valid());
            let survives = lost + nodes < holders + quorum;
            assert_eq!(acquired.is_err(), survives, "{holders} holders, {lost} lost: {acquired:?}");
        }
    }
}

/// The clock of node 2 is wrong when its server starts, as after a boot without a battery, and is set later. The server
/// computes its uptime from the wall clock, so the clock's step makes the server look old.
#[tokio::test]
async fn node_that_starts_before_its_clock_is_set_counts_at_once() {
    for guard in [RestartGuard::Observed, RestartGuard::Strict] {
        let cluster = past_quarantine(3).await;
        let lease = hold_on(&cluster, &client(&cluster, guard), "r", 2).await;
        cluster[1].kill();
        cluster[1].clock().jump_back(HOURS);
        cluster[1].restart();
        let second = client(&cluster, guard).try_acquire("r").await;
        assert!(second.is_err(), "{guard:?}: the uptime is still right");

        cluster[1].clock().jump(HOURS);
        let uptime = || cluster[1].info("server")["uptime_in_seconds"].parse::<u64>().ok();
        eventually("the uptime follows the clock", || uptime() > Some(10_000)).await;
        let second = client(&cluster, guard).acquire("r").wait(SOON).await;
        assert_both_hold(&lease, &second);
    }
}

/// In the first quarantine period of a deployment, a new client cannot distinguish a restarted node from a new one.
#[tokio::test]
async fn restart_in_the_first_period_of_a_deployment_is_seen_by_old_clients_only() {
    let cluster = clocked(3);
    let known = client(&cluster, RestartGuard::Observed);
    warm_up(&known).await;
    let lease = hold_on(&cluster, &client(&cluster, RestartGuard::Observed), "r", 2).await;
    cluster[1].restart();
    known.ready().await.expect("nodes are up");
    assert!(known.try_acquire("r").await.is_err(), "it has seen the restart");
    let strict = client(&cluster, RestartGuard::Strict);
    assert!(strict.try_acquire("r").await.is_err(), "no node counts");
    let new = client(&cluster, RestartGuard::Observed).acquire("r").wait(SOON).await;
    assert_both_hold(&lease, &new);
}

/// Two of three nodes restart, and the third one, which shows that the deployment is old, does not answer a new client.
/// The same applies if all nodes restart.
#[tokio::test]
async fn restarted_majority_looks_like_a_new_deployment_if_the_old_node_is_silent() {
    for is_silent in [true, false] {
        let cluster = past_quarantine(3).await;
        let lease = hold_on(&cluster, &client(&cluster, RestartGuard::Observed), "r", 3).await;
        cluster[1].restart();
        cluster[2].restart();
        if is_silent {
            cluster[0].stop();
        } else {
            let refused = client(&cluster, RestartGuard::Observed).try_acquire("r").await;
            assert!(refused.is_err(), "one node is old");
            cluster[0].restart();
        }
        let strict = client(&cluster, RestartGuard::Strict).try_acquire("r").await;
        assert!(strict.is_err(), "no node counts");
        let new = client(&cluster, RestartGuard::Observed).acquire("r").wait(SOON).await;
        assert_both_hold(&lease, &new);
    }
}

/// The new nodes look restarted beside the old one. This costs availability, not safety.
#[tokio::test]
async fn two_nodes_added_to_one_count_after_a_quarantine_period() {
    let old = past_quarantine(1).await;
    let added = Cluster::start(2);
    let urls = || old.urls().into_iter().chain(added.urls());
    let refused = builder_of(urls()).build().expect("valid settings").try_acquire("r").await;
    assert!(matches!(refused, Err(AcquireError::NoQuorum { .. })), "{refused:?}");
    let short = builder_of(urls()).max_ttl(ms(300)).ttl(ms(300)).node_timeout(ms(250));
    let short = short.build().expect("valid settings");
    drop(short.acquire("r").wait(SOON).await.expect("the quarantine ends"));
}

/// An address leads to another server, such as a promoted replica that did not receive the lock. A server does not
/// report when it was promoted.
#[tokio::test]
async fn new_client_counts_a_server_that_took_over_an_address() {
    let cluster = past_quarantine(4).await;
    let address = Proxy::start(cluster[1].addr());
    let urls = || [cluster[0].url(), address.url(), cluster[2].url()];
    let client = |guard| builder_of(urls()).restart_guard(guard).build().expect("valid settings");
    let first = client(RestartGuard::Observed);
    warm_up(&first).await;
    cluster[2].set("r", "other");
    let lease = first.acquire("r").await.expect("two of three nodes grant");
    cluster[2].del("r");
    address.set_target(cluster[3].addr());
    address.reset();
    for guard in [RestartGuard::Observed, RestartGuard::Strict] {
        let new = client(guard).try_acquire("r").await;
        assert_both_hold(&lease, &new);
        let released = new.expect("acquired").release().await;
        assert_eq!(released, Ok(ReleaseOutcome::Released));
    }
}

/// The clock steps forward, the keys expire, and the clock steps back before any client reads it.
#[tokio::test]
async fn clock_that_steps_forward_and_back_between_readings_is_not_noticed() {
    // A client reads an idle node's clock every 5 s, which may be during the step.
    for _ in 0..10 {
        let cluster = clocked(3);
        let second = client(&cluster, RestartGuard::Observed);
        warm_up(&second).await;
        let lease = hold_on(&cluster, &client(&cluster, RestartGuard::Observed), "r", 3).await;
        cluster.iter().map(Server::clock).for_each(|clock| clock.jump(MINUTE));
        eventually("the keys expire", || cluster.none_has("r")).await;
        cluster.iter().map(Server::clock).for_each(|clock| clock.jump_back(MINUTE));
        let second = second.try_acquire("r").await;
        if lease.is_valid() && second.is_ok_and(|second| second.is_valid()) {
            return;
        }
    }
    panic!("the clients noticed ten steps");
}

/// The second client has used the nodes before the step, but may not read their clocks.
#[tokio::test]
async fn clock_step_of_nodes_without_permission_for_time_is_not_noticed() {
    let cluster = clocked(3);
    let second = client(&cluster, RestartGuard::Observed);
    for node in &cluster {
        node.cmd(&["ACL", "SETUSER", "default", "-time"]);
    }
    warm_up(&second).await;
    let lease = hold_on(&cluster, &client(&cluster, RestartGuard::Observed), "r", 3).await;
    cluster.iter().map(Server::clock).for_each(|clock| clock.jump(MINUTE));
    eventually("the keys expire", || cluster.none_has("r")).await;
    assert_both_hold(&lease, &second.try_acquire("r").await);
}

/// While a virtual machine is paused, or after it is restored from a snapshot, its boot-time clock is behind. The clocks
/// of all nodes are ahead of it, which this test does to the nodes. Another client acquires the lock. The validity of
/// the first lease has not ended on its client's clock, and `ensure` asks no node while enough of it remains.
#[tokio::test]
async fn paused_machine_has_a_valid_lease_until_it_asks_the_nodes() {
    // The client reads an idle node's clock every 5 s, which may be before the second client has the lock.
    for _ in 0..10 {
        let cluster = clocked(3);
        let lease = hold_on(&cluster, &client(&cluster, RestartGuard::Observed), "r", 3).await;
        cluster.iter().map(Server::clock).for_each(|clock| clock.jump(MINUTE));
        eventually("the keys expire", || cluster.none_has("r")).await;
        let second = client(&cluster, RestartGuard::Observed).try_acquire("r").await;
        let second = second.expect("the keys have expired");
        if lease.ensure(ms(1_000)).await == Ok(()) {
            assert!(second.is_valid(), "two clients hold the lock");
            let ended = lease.extend(ms(30_000)).await;
            assert!(matches!(ended, Err(ExtendError::Lost { .. })), "{ended:?}");
            assert!(!lease.is_valid());
            return;
        }
    }
    panic!("the client noticed ten pauses");
}

/// A lease that is neither renewed nor watched stays valid until its client asks the nodes.
#[tokio::test]
async fn forced_release_and_adoption_leave_the_old_lease_valid() {
    let cluster = Cluster::start(3);
    let clients = [(); 2].map(|()| client(&cluster, RestartGuard::Observed));
    let [first, second] = &clients;
    let lease = hold_on(&cluster, first, "forced", 3).await;
    let report = second.force_release("forced").await.expect("the client is open");
    assert_eq!(report.granted(), 3, "{report}");
    assert_both_hold(&lease, &second.try_acquire("forced").await);

    let lease = hold_on(&cluster, first, "adopted", 3).await;
    assert_both_hold(&lease, &second.adopt("adopted", lease.value()).await);
}

/// The first client uses TTLs of `MAX_TTL`. The second one has a `max_ttl` of 0.3 s, so it counts a restarted node after
/// 1.3 s.
#[tokio::test]
async fn smaller_max_ttl_of_another_client_ends_the_quarantine_too_early() {
    let cluster = past_quarantine(3).await;
    let short = builder(&cluster).max_ttl(ms(300)).ttl(ms(300)).node_timeout(ms(250));
    let short = short.build().expect("valid settings");
    warm_up(&short).await;
    let lease = hold_on(&cluster, &client(&cluster, RestartGuard::Observed), "r", 2).await;
    cluster[1].restart();
    let equal = client(&cluster, RestartGuard::Observed).try_acquire("r").await;
    assert!(equal.is_err(), "clients with the same max_ttl wait");
    let second = short.acquire("r").wait(SOON).await.expect("the quarantine ends");
    assert!(lease.is_valid(), "two clients have held the lock");
    drop(second);
}

/// A job has run on two of three nodes. After two roll-outs without a call in between, three of five nodes have no
/// counter. With one call after the first roll-out, they have it.
#[tokio::test]
async fn job_repeats_after_two_added_nodes_unless_a_call_restored_its_counter() {
    for is_called in [false, true] {
        let cluster = Cluster::start(5);
        let runs = async |nodes: usize| {
            let urls = cluster[..nodes].iter().map(Server::url);
            let (job, _) = job(&builder_of(urls).build().expect("valid settings"));
            let outcome = job.wait(SOON).run(async |_| ()).await;
            !outcome.expect("a quorum of nodes counts").is_skipped()
        };
        cluster[2].kill();
        assert!(runs(3).await, "the first run");
        cluster[2].restart();
        if is_called {
            assert!(!runs(4).await, "the call restores the counter");
            let restored = || cluster[..4].iter().all(|node| node.get(COUNTER).is_some());
            eventually("the counter is restored", restored).await;
        }
        cluster[0].kill();
        cluster[1].kill();
        assert_eq!(runs(5).await, !is_called, "called after the first roll-out: {is_called}");
    }
}

/// `FLUSHALL` on one node, before its client extends or releases a lease that has a key there.
#[tokio::test]
async fn flush_of_one_node_breaks_a_lock_on_a_bare_quorum() {
    for holders in [2, 3] {
        let cluster = Cluster::start(3);
        let lease =
            hold_on(&cluster, &client(&cluster, RestartGuard::Observed), "r", holders).await;
        cluster[0].flushall();
        let second = client(&cluster, RestartGuard::Observed).try_acquire("r").await;
        assert!(lease.is_valid());
        assert_eq!(second.is_ok(), holders == 2, "{holders} holders: {second:?}");
    }
}
