//! Tests of the recorded metrics in scenarios whose correct numbers are known.

mod documented;
mod recorder;

use crate::{SOON, builder, connected, eventually, ms, pending_acquire};
use kit::Cluster;
use metrics::set_default_local_recorder;
use quorlock::{Loss, ReleaseOutcome, RestartGuard, RetryPolicy};
use recorder::Recorder;
use std::time::Duration;
use tokio::time::timeout;

const HOUR: Duration = Duration::from_hours(1);

#[tokio::test]
async fn held_leases_are_counted_by_class() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster)).await;
    let account = [("class", "account")];
    let first = redlock.acquire("a").class("account").await.expect("free");
    let second = redlock.acquire("b").class("account").await.expect("free");
    let third = redlock.acquire("c").await.expect("free");
    assert_eq!(recorder.count("quorlock_leases_held", &account), 2);
    assert_eq!(recorder.count("quorlock_leases_held", &[("class", "none")]), 1);
    first.extend(HOUR).await.expect("nodes are up");
    assert_eq!(first.release().await, Ok(ReleaseOutcome::Released));
    drop(second);
    assert_eq!(recorder.count("quorlock_leases_held", &account), 0);
    let held = recorder.recorded("quorlock_hold_seconds", &account);
    assert!(held.len() == 2 && held.iter().all(|secs| (0.0..20.0).contains(secs)), "{held:?}");
    let class = "account";
    let ended = |name, label, word| recorder.count(name, &[("class", class), (label, word)]);
    assert_eq!(ended("quorlock_acquires_total", "outcome", "won"), 2);
    assert_eq!(ended("quorlock_extends_total", "outcome", "extended"), 1);
    assert_eq!(ended("quorlock_releases_total", "result", "released"), 1);
    assert_eq!(ended("quorlock_releases_total", "result", "in_background"), 1);
    let waits = recorder.recorded("quorlock_acquire_wait_seconds", &[("won", "true")]);
    assert!(waits.len() == 3 && waits.iter().all(|secs| (0.0..20.0).contains(secs)), "{waits:?}");

    redlock.try_acquire("c").class("account").await.expect_err("it is held");
    assert_eq!(ended("quorlock_acquires_total", "outcome", "contended"), 1);
    assert_eq!(recorder.count("quorlock_leases_held", &[]), 1);
    drop(third);
    assert_eq!(recorder.count("quorlock_leases_held", &[]), 0);
}

#[tokio::test]
async fn votes_are_counted_by_node_and_command() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster)).await;
    let lease = redlock.acquire("r").await.expect("free");
    redlock.try_acquire("r").await.expect_err("it is held");
    lease.extend(HOUR).await.expect("nodes are up");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let held = recorder.count("quorlock_votes_total", &[("asked", "acquire"), ("vote", "held")]);
    assert!(held >= 2, "a quorum refused: {held}");
    for node in redlock.nodes() {
        let votes = |asked, vote| {
            let labels = [("node", node.name()), ("asked", asked), ("vote", vote)];
            recorder.count("quorlock_votes_total", &labels)
        };
        let of_it = [("node", node.name())];
        let expected = [("acquire", "granted"), ("extend", "granted"), ("release", "granted")];
        // The last of three nodes may not have replied when the acquire was refused. Such a node either receives a
        // release or never received the acquire.
        eventually("the node has replied to every command", || {
            let held = votes("acquire", "held");
            let clean_ups = votes("release", "missing") + votes("release", "held");
            held <= 1
                && clean_ups <= held
                && expected.iter().all(|(asked, vote)| votes(asked, vote) == 1)
                && recorder.count("quorlock_votes_total", &of_it) == 3 + held + clean_ups
        })
        .await;
        let answered = recorder.count("quorlock_votes_total", &of_it);
        let trips = recorder.recorded("quorlock_round_trip_seconds", &of_it);
        assert_eq!(i64::try_from(trips.len()), Ok(answered), "one round trip per reply: {trips:?}");
        assert!(trips.iter().all(|secs| (0.0..20.0).contains(secs) && *secs > 0.0), "{trips:?}");
    }
}

#[tokio::test]
async fn node_gauges_follow_a_crash_and_restart() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster).restart_guard(RestartGuard::Off)).await;
    let name = redlock.nodes()[2].name().to_owned();
    let of_it = [("node", name.as_str())];
    let gauges = || {
        ["quorlock_node_counted", "quorlock_node_clients", "quorlock_connections"]
            .map(|gauge| recorder.count(gauge, &of_it))
    };
    eventually("the node counts", || gauges() == [1, 1, 1]).await;
    cluster[2].kill();
    eventually("the node is down", || gauges() == [0, 1, 0]).await;
    let failures = || recorder.count("quorlock_connect_failures_total", &of_it);
    eventually("an attempt to connect fails", || failures() > 0).await;
    drop(redlock.acquire("r").await.expect("two of three nodes grant"));
    let failed = [of_it[0], ("vote", "failed")];
    eventually("the node's vote fails", || recorder.count("quorlock_votes_total", &failed) > 0)
        .await;
    cluster[2].restart();
    eventually("the node is up", || gauges() == [1, 1, 1]).await;
    assert_eq!(recorder.count("quorlock_connections_opened_total", &of_it), 2);
    let closed = [of_it[0], ("reason", "disconnected")];
    assert_eq!(recorder.count("quorlock_connections_closed_total", &closed), 1);
    let others = recorder.count("quorlock_node_counted", &[]);
    assert_eq!(others, 3, "all nodes count");

    redlock.close().await.expect("no release is pending");
    drop(redlock);
    eventually("the client's gauges are zero", || gauges() == [0, 0, 0]).await;
    let closed = [("reason", "closed")];
    assert_eq!(recorder.count("quorlock_connections_closed_total", &closed), 3);
}

#[tokio::test]
async fn pending_releases_of_a_stopped_node_are_counted() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster).node_timeout(ms(300))).await;
    let name = redlock.nodes()[0].name().to_owned();
    let lease = redlock.acquire("r").await.expect("free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    cluster[0].stop();
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released), "two of three nodes reply");
    let pending = || recorder.count("quorlock_releases_owed", &[("node", name.as_str())]);
    eventually("one release is pending", || pending() == 1).await;
    assert_eq!(recorder.count("quorlock_releases_owed", &[]), 1, "no other release is pending");
    eventually("the node does not count", || recorder.count("quorlock_node_counted", &[]) == 2)
        .await;
    cluster[0].cont();
    eventually("no release is pending", || pending() == 0).await;
    eventually("the node counts", || recorder.count("quorlock_node_counted", &[]) == 3).await;
}

#[tokio::test]
async fn loss_is_counted_by_reason_and_lowers_the_gauge_once() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster).node_timeout(ms(300))).await;
    let job = [("class", "job")];
    let lease = redlock.acquire("r").class("job").auto_extend(HOUR).await.expect("free");
    eventually("all nodes have the key", || cluster.all_have("r")).await;
    cluster.iter().for_each(|node| {
        node.del("r");
    });
    assert_eq!(timeout(SOON, lease.lost()).await.expect("the loss is reported"), Loss::QuorumLost);
    let lost = |reason| recorder.count("quorlock_leases_lost_total", &[job[0], ("reason", reason)]);
    eventually("the loss is counted", || lost("quorum_lost") == 1).await;
    assert_eq!(recorder.count("quorlock_leases_held", &job), 0);
    drop(lease);
    assert_eq!(
        recorder.count("quorlock_leases_held", &job),
        0,
        "the drop of a lost lease is not counted"
    );

    let short = redlock.acquire("s").class("job").ttl(ms(500)).await.expect("free");
    tokio::time::sleep(ms(700)).await;
    assert_eq!(recorder.count("quorlock_leases_held", &job), 1, "the expiry has not been noticed");
    drop(short);
    eventually("the expiry is counted", || lost("expired") == 1).await;
    assert_eq!(lost("quorum_lost"), 1);
    let closed = redlock.acquire("t").class("job").await.expect("free");
    redlock.close().await.expect("nodes are up");
    drop(closed);
    assert_eq!(lost("closed"), 1);
    assert_eq!(recorder.count("quorlock_leases_lost_total", &[]), 3);
    assert_eq!(recorder.count("quorlock_leases_held", &[]), 0);
    assert_eq!(recorder.recorded("quorlock_hold_seconds", &job).len(), 3);
}

#[tokio::test]
async fn waiting_acquires_are_counted() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster)).await;
    let class = [("class", "account")];
    let waiters = || recorder.count("quorlock_waiters", &class);
    let held = redlock.acquire("r").class("account").await.expect("free");
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let acquire = redlock.acquire("r").class("account").wait(HOUR);
            tokio::spawn(
                async move { acquire.await.expect("the lock becomes free").release().await },
            )
        })
        .collect();
    eventually("three acquires wait", || waiters() == 3).await;
    let dropped = tokio::time::timeout(ms(20), redlock.acquire("r").class("account"));
    dropped.await.expect_err("it is held");
    assert_eq!(waiters(), 3, "a dropped acquire is not counted");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    for one in waiting {
        assert_eq!(one.await.expect("no panic").expect("nodes are up"), ReleaseOutcome::Released);
    }
    assert_eq!(waiters(), 0);
    let won = [class[0], ("outcome", "won")];
    assert_eq!(recorder.count("quorlock_acquires_total", &won), 4);
    let dropped = [class[0], ("outcome", "dropped")];
    assert_eq!(recorder.count("quorlock_acquires_total", &dropped), 1);
    let mut alone = pending_acquire(|| redlock.acquire("s").class("account"));
    drop((&mut alone).await.expect("free"));
    assert_eq!(waiters(), 0, "the lock was free");
}

#[tokio::test]
async fn repeatedly_refused_acquire_counts_as_one_waiter() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(3);
    let (redlock, other) = (connected(builder(&cluster)).await, connected(builder(&cluster)).await);
    let held = other.acquire("r").await.expect("free");
    let acquire = redlock.acquire("r").class("job").wait(HOUR).retry(RetryPolicy::fixed(ms(10)));
    let waiting = tokio::spawn(async move { acquire.await.map(drop) });
    let refused = || recorder.count("quorlock_votes_total", &[("vote", "held")]);
    eventually("the acquire is refused three times", || refused() >= 9).await;
    assert_eq!(recorder.count("quorlock_waiters", &[]), 1);
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    waiting.await.expect("no panic").expect("the lock is released");
    assert_eq!(recorder.count("quorlock_waiters", &[]), 0);
}

#[tokio::test]
async fn renewals_record_slack_and_failures() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster).node_timeout(ms(300)).ttl(ms(6_000))).await;
    let lease = redlock.acquire("r").auto_extend(HOUR).await.expect("free");
    let renewals = |result| recorder.count("quorlock_renewals_total", &[("result", result)]);
    eventually("the lease is renewed", || renewals("renewed") > 0).await;
    assert_eq!(renewals("failed"), 0);
    let slack = recorder.recorded("quorlock_renewal_slack_seconds", &[("class", "none")]);
    assert!(slack.iter().all(|secs| (0.0..6.0).contains(secs) && *secs > 0.0), "{slack:?}");
    cluster.iter().take(2).for_each(kit::Server::stop);
    eventually("a renewal fails", || renewals("failed") > 0).await;
    assert_eq!(timeout(SOON, lease.lost()).await.expect("the loss is reported"), Loss::Expired);
    cluster.iter().take(2).for_each(kit::Server::cont);
}

#[tokio::test]
async fn gauges_sum_clients_and_return_to_zero() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(3);
    let (one, other) = (connected(builder(&cluster)).await, connected(builder(&cluster)).await);
    let leases = [one.acquire("a").await.expect("free"), other.acquire("b").await.expect("free")];
    let gauges = || {
        ["quorlock_leases_held", "quorlock_node_counted", "quorlock_connections"]
            .map(|gauge| recorder.count(gauge, &[]))
    };
    eventually("both clients are counted", || gauges() == [2, 6, 6]).await;
    drop(leases);
    one.close().await.expect("nodes are up");
    drop(one);
    eventually("one client is closed", || gauges() == [0, 3, 3]).await;
    drop(other);
    eventually("both clients are closed", || gauges() == [0, 0, 0]).await;
    assert_eq!(recorder.count("quorlock_node_clients", &[]), 0);
}

#[tokio::test]
async fn excess_classes_are_counted_as_other() {
    let recorder = Recorder::default();
    let _guard = set_default_local_recorder(&recorder);
    let cluster = Cluster::start(1);
    let redlock = connected(builder(&cluster)).await;
    for number in 0..103 {
        let class = Box::leak(format!("class-{number}").into_boxed_str());
        drop(redlock.acquire(format!("r{number}")).class(class).await.expect("free"));
    }
    let won = |class| {
        let labels = [("class", class), ("outcome", "won")];
        recorder.count("quorlock_acquires_total", &labels)
    };
    assert_eq!(["class-0", "class-99", "other", "none"].map(won), [1, 1, 3, 0]);
    let classes = recorder.labels("quorlock_leases_held");
    assert_eq!(classes.len(), 102, "100 classes, \"none\" and \"other\"");
}
