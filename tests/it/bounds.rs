//! Bounds of an acquire and of what is left of it: the first connections, the client's own overload,
//! holders without an end, locks that are kept from others for a while, and clients that close.

use crate::errors::told;
use crate::{SOON, all_up, builder, client, eventually, ms, through};
use futures::FutureExt;
use futures::future::join_all;
use kit::{Cluster, Direction, Proxy};
use quorlock::{
    AcquireError, ConfigError, Lease, NodeFailure, NodeState, NodeVote, Redlock, ReleaseOutcome,
    RetryPolicy,
};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_mins(2);

fn failures(refused: &AcquireError) -> Vec<NodeFailure> {
    let nodes = refused.report().expect("the nodes were asked").nodes().iter();
    let failure = |vote: &NodeVote| match vote {
        NodeVote::Failed(failure) => Some(failure.clone()),
        _ => None,
    };
    nodes.filter_map(|node| failure(node.vote())).collect()
}

#[tokio::test]
async fn the_first_attempt_of_a_client_waits_for_its_connections() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    for proxy in &proxies {
        proxy.delay(Direction::Requests, ms(40));
        proxy.delay(Direction::Replies, ms(40));
    }
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    let fresh = || {
        let builder = Redlock::builder().nodes(&urls).node_timeout(ms(200));
        builder.connect_timeout(SOON).build().expect("good settings")
    };
    // Several round trips for the set-up, and one for the lock: more than a node timeout in all.
    for _ in 0..3 {
        let lease = fresh().try_acquire("r").await.expect("nodes are well");
        lease.release().await.expect("nodes are well");
    }
    let redlock = fresh();
    timeout(SOON, redlock.ready()).await.expect("nodes are well").expect("there is a runtime");
    let up = redlock.nodes().iter().filter(|node| *node.state() == NodeState::Up).count();
    assert!(up >= 2, "{up} are up");
}

#[tokio::test]
async fn a_node_that_is_being_connected_to_is_said_to_be() {
    let cluster = Cluster::start(3);
    for node in &cluster {
        node.stop();
    }
    let redlock = builder(&cluster).node_timeout(ms(100)).connect_timeout(SOON);
    let redlock = redlock.build().expect("good settings");
    let ready = timeout(ms(100), redlock.ready()).await;
    assert!(ready.is_err(), "none can be connected to: {ready:?}");
    let refused = redlock.acquire("r").wait(ms(300)).await.expect_err("none can be asked");
    assert!(matches!(refused, AcquireError::Timeout { .. }), "{refused:?}");
    let connecting = |failure: &NodeFailure| matches!(failure, NodeFailure::Connecting(_));
    assert!(failures(&refused).iter().all(connecting), "{refused}");
    assert!(refused.to_string().contains(" connecting for "), "{refused}");
    for node in &cluster {
        node.cont();
    }
    timeout(SOON, redlock.ready()).await.expect("connected").expect("there is a runtime");
    redlock.try_acquire("r").await.expect("all is well").release().await.expect("all is well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_acquires_than_a_client_can_send_are_its_own_overload_and_no_outage() {
    const CROWD: usize = 40_000;
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).node_timeout(ms(50)).build().expect("good settings");
    redlock.ready().await.expect("there is a runtime");
    eventually("all nodes are up", || all_up(&redlock)).await;
    let each = (0..CROWD).map(|n| tokio::spawn(redlock.try_acquire(format!("r{n}"))));
    let (mut won, mut overloaded, mut others) = (0, 0, Vec::new());
    for tried in join_all(each.collect::<Vec<_>>()).await {
        match tried.expect("no panic") {
            Ok(lease) => drop((lease, won += 1)),
            Err(AcquireError::Overloaded { .. }) => overloaded += 1,
            Err(other) => others.push(other.to_string()),
        }
    }
    let few = others.iter().take(3).collect::<Vec<_>>();
    let counted = format!("{won} won, {overloaded} overloaded, {} others: {few:?}", others.len());
    // A machine that is too busy to run this process may well make nodes look slow.
    assert!(others.len() < CROWD / 20, "{counted}");
    assert!(overloaded > 0 && won > 0, "{counted}");
    let closing = Redlock::close(&redlock);
    drop(timeout(SOON, closing).await.expect("it is bounded"));
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn giving_up_early_does_not_wait_for_a_key_that_has_no_end() {
    let cluster = Cluster::start(3);
    cluster.iter().for_each(|node| node.set("r", "for ever"));
    let redlock = client(&cluster);
    for acquire in [redlock.acquire("r"), redlock.acquire_all(["q", "r"])] {
        let begun = Instant::now();
        let refused = acquire.wait(LONG).give_up_early().await.expect_err("held for ever");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{refused:?}");
        assert!(begun.elapsed() < LONG / 2, "it waited");
    }
}

#[tokio::test]
async fn a_single_attempt_that_is_told_to_try_again_is_bounded_by_the_clients_wait() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).wait(ms(400)).build().expect("good settings");
    let held = redlock.try_acquire("r").await.expect("free");
    let retried = redlock.try_acquire("r").retry(RetryPolicy::fixed(ms(20)));
    let refused = timeout(SOON, retried).await.expect("it is bounded").expect_err("held");
    assert!(matches!(refused, AcquireError::Contended { held_here: true, .. }), "{refused:?}");
    drop(held);
}

#[tokio::test]
async fn who_stands_behind_a_holder_is_told_so_however_short_the_wait() {
    let cluster = Cluster::start(3);
    let (redlock, theirs) = (client(&cluster), client(&cluster));
    let held = redlock.try_acquire("r").await.expect("free");
    let others = theirs.try_acquire("s").await.expect("free");
    // The first in line of each is refused by the nodes.
    let first = ["r", "s"].map(|resource| tokio::spawn(redlock.acquire(resource).wait(SOON)));
    sleep(ms(300)).await;
    for wait in [0, 1, 5, 40].map(ms) {
        for resource in ["r", "s"] {
            let refused = redlock.acquire(resource).wait(wait).await.expect_err("held");
            assert!(matches!(refused, AcquireError::Contended { .. }), "{wait:?}: {refused:?}");
        }
    }
    drop((held, others));
    for waiting in first {
        drop(waiting.await.expect("no panic").expect("free by now"));
    }
}

#[tokio::test]
async fn a_lock_that_is_kept_for_a_time_is_kept_by_release_and_by_drop() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let (kept, stands) =
        (ms(20_000), |key: &str| cluster.iter().filter(|n| n.get(key).is_some()).count());
    drop(redlock.acquire("warm-up").await.expect("free"));
    eventually("a node is asked that is connected", || all_up(&redlock)).await;
    let dropped = redlock.acquire("dropped").at_least(kept).await.expect("free");
    let released = redlock.acquire("released").at_least(kept).await.expect("free");
    let value = released.value().to_owned();
    let by_all = |lease: &Lease| lease.report().granted() == 3;
    eventually("all have them", || by_all(&dropped) && by_all(&released)).await;
    drop(dropped);
    assert_eq!(released.release().await, Ok(ReleaseOutcome::Released));
    let set = redlock.acquire_all(["one", "two"]).at_least(kept).await.expect("free");
    eventually("all have it", || by_all(&set)).await;
    drop(set);
    let is_ours = || cluster.iter().any(|node| node.get("released") == Some(value.clone().into()));
    eventually("nobody owns it", || !is_ours()).await;
    for key in ["dropped", "released", "one", "two"] {
        eventually("it stands on every node", || stands(key) == 3).await;
        let refused = redlock.try_acquire(key).await.expect_err("it is kept");
        assert!(matches!(refused, AcquireError::Contended { .. }), "{key}: {refused:?}");
        // From the acquisition on, and not from the release.
        assert!(cluster.iter().all(|node| node.pttl(key) <= 20_000), "{key}");
    }

    let brief = redlock.acquire("brief").at_least(ms(30)).await.expect("free");
    sleep(ms(60)).await;
    drop(brief);
    eventually("its time was over", || stands("brief") == 0).await;

    let refused = redlock.acquire("r").ttl(ms(5_000)).at_least(ms(5_001)).await;
    let (at_least, ttl) = (ms(5_001), ms(5_000));
    let longer = ConfigError::AtLeastExceedsTtl { at_least, ttl };
    assert_eq!(refused.expect_err("it could not be kept"), AcquireError::Invalid(longer));
    assert_eq!(stands("r"), 0, "nothing was asked");
}

#[tokio::test]
async fn closing_gives_up_what_futures_have_won_that_nobody_polls() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    redlock.ready().await.expect("there is a runtime");
    let won = || cluster.all_have("r");
    let mut forgotten = redlock.acquire("r").wait(LONG);
    assert!((&mut forgotten).now_or_never().is_none());
    eventually("it has won", won).await;
    redlock.close().await.expect("all nodes are well");
    eventually("it was given up", || cluster.is_empty()).await;
    assert_eq!(forgotten.await.expect_err("closed"), AcquireError::Closed);

    // An acquire that does not wait is ended as well.
    let redlock = client(&cluster);
    redlock.ready().await.expect("there is a runtime");
    let mut forgotten = redlock.try_acquire("r");
    assert!((&mut forgotten).now_or_never().is_none());
    eventually("it has won", won).await;
    redlock.close().await.expect("all nodes are well");
    assert_eq!(forgotten.await.expect_err("closed"), AcquireError::Closed);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn closing_wakes_everybody_who_waits_also_in_an_outage() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    redlock.ready().await.expect("there is a runtime");
    cluster[0].kill();
    cluster[1].kill();
    let never = RetryPolicy::fixed(LONG);
    let waits = [redlock.acquire("r"), redlock.acquire("r"), redlock.acquire_all(["a", "b"])];
    let waits = waits.map(|acquire| tokio::spawn(acquire.retry(never.clone()).wait(LONG)));
    sleep(ms(1_500)).await;
    let begun = Instant::now();
    // What had been written to those that were killed is owed.
    drop(redlock.close().await);
    for waiting in waits {
        let refused = waiting.await.expect("no panic").expect_err("closed");
        assert_eq!(refused, AcquireError::Closed);
    }
    assert!(begun.elapsed() < LONG / 2, "they sat it out");
}

#[tokio::test]
async fn a_refusal_tells_when_to_come_back_and_who_is_in_the_way() {
    let cluster = Cluster::start(3);
    let (redlock, theirs) = (client(&cluster), client(&cluster));
    let held = theirs.acquire("r").ttl(ms(25_000)).metadata("worker\n7").await.expect("free");
    let set = theirs.acquire_all(["a", "b"]).ttl(ms(25_000)).metadata("both").await.expect("free");
    let once = redlock.acquire("r").max_attempts(1);
    let again = redlock.acquire("r").wait(ms(600)).retry(RetryPolicy::fixed(ms(50)));
    let fenced = redlock.acquire("r").fenced().max_attempts(1);
    let sets = redlock.acquire_all(["b", "c"]).max_attempts(1);
    for (acquire, told) in
        [(once, "worker\\n7"), (again, "worker\\n7"), (fenced, "worker\\n7"), (sets, "both")]
    {
        let refused = acquire.await.expect_err("it is held");
        assert!(refused.is_contended(), "{refused}");
        let retry_after = refused.retry_after().expect("the nodes have told");
        assert!((ms(1_000)..=ms(25_000)).contains(&retry_after), "{retry_after:?}");
        assert!(refused.to_string().contains(&format!(" held by {told} ")), "{refused}");
        let nodes = refused.report().expect("they were asked").nodes();
        assert!(nodes.iter().filter(|node| node.holder().is_some()).count() >= 2, "{refused}");
        for lease in [&held, &set] {
            assert!(!refused.to_string().contains(&lease.value()[..32]), "it shows a value");
        }
    }
    let brief = redlock.try_acquire("r").await.expect_err("it is held");
    assert_eq!(brief.retry_after(), None, "it asks for nothing that it does not need");

    cluster.iter().for_each(|node| node.set("for-ever", "x"));
    let refused = redlock.acquire("for-ever").max_attempts(1).await.expect_err("held for ever");
    assert_eq!(refused.retry_after(), None);
    drop((held, set));
}

/// Closes a client, or drops it, once an idle node hangs as `is_so` waits for: nothing is kept for that node.
async fn ends_while_a_node_hangs(is_closed: bool, is_so: impl AsyncFnOnce(&Redlock)) {
    let cluster = Cluster::start(3);
    // A connection that is silent is given up after ten times the node timeout.
    let builder = builder(&cluster).node_timeout(ms(5_000)).ttl(ms(60_000));
    let redlock = builder.build().expect("good settings");
    redlock.try_acquire("r").await.expect("free").release().await.expect("nodes are up");
    redlock.ready().await.expect("there is a runtime");
    let is_owed = || quorlock_test::pending_work(&redlock).releases > 0;
    eventually("nothing is owed", || !is_owed()).await;
    cluster[2].stop();
    is_so(&redlock).await;
    if is_closed {
        redlock.close().await.expect("nothing is owed");
    } else {
        drop(redlock);
    }
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("its tasks have ended", || tasks() == 0).await;
}

#[tokio::test]
async fn a_closed_client_does_not_wait_for_a_node_that_hangs_to_tell_the_time() {
    // Idle connections are asked for the time every five seconds.
    ends_while_a_node_hangs(true, async |_| tokio::time::sleep(ms(6_000)).await).await;
}

#[tokio::test]
async fn a_dropped_client_does_not_wait_for_a_node_that_hangs_to_tell_the_time() {
    ends_while_a_node_hangs(false, async |_| tokio::time::sleep(ms(6_000)).await).await;
}

#[tokio::test]
async fn a_closed_client_does_not_wait_for_a_node_that_is_known_to_hang() {
    let is_known = async |redlock: &Redlock| {
        let is_stalled = |node: &quorlock::NodeInfo| *node.state() == NodeState::Stalled;
        eventually("it is known", || redlock.nodes().iter().any(is_stalled)).await;
        // Until after its task has looked whether others are silent, too.
        tokio::time::sleep(ms(11_000)).await;
    };
    ends_while_a_node_hangs(true, is_known).await;
}

/// A node that has refused a lock is asked to raise its counter all the same. Nobody needs its answer.
#[tokio::test]
async fn a_closed_client_does_not_wait_for_a_node_that_others_have_outvoted() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    // A connection that is silent is given up after ten times the node timeout.
    let redlock =
        through(&proxies).ttl(ms(60_000)).node_timeout(ms(5_000)).build().expect("good settings");
    redlock.ready().await.expect("there is a runtime");
    eventually("all are connected", || all_up(&redlock)).await;
    // One counter is ahead, so that the token has to be confirmed in a second round; and one node refuses.
    cluster[0].set("r#quorlock:token:{r}", "9000000000000000");
    cluster[2].set("r", "theirs");
    proxies[..2].iter().for_each(|proxy| proxy.delay(Direction::Replies, ms(1_000)));
    let asked = cluster[2].calls("evalsha");
    let acquiring = tokio::spawn(redlock.try_acquire("r").fenced().into_future());
    eventually("one has refused", || cluster[2].calls("evalsha") > asked).await;
    tokio::time::sleep(ms(200)).await;
    proxies[2].hold(Direction::Replies);
    let lease = acquiring.await.expect("no panic").expect("two of three grant");
    assert_eq!(lease.token().map(u64::from), Some(9_000_000_000_000_001));
    lease.release().await.expect("two are up");
    redlock.close().await.expect("nothing is owed");
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("its tasks have ended", || tasks() == 0).await;
}

#[tokio::test]
async fn a_wait_that_is_shorter_than_an_answer_ends_in_timeout() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let urls = || proxies.iter().map(Proxy::url);
    let redlock = Redlock::builder().nodes(urls()).node_timeout(ms(5_000)).ttl(ms(60_000));
    let (warm, cold) = (redlock.clone().build().expect("good"), redlock.build().expect("good"));
    drop(warm.try_acquire("r").await.expect("a free lock"));
    eventually("it is free again", || cluster.is_empty()).await;

    for proxy in &proxies {
        proxy.delay(Direction::Replies, ms(400));
        proxy.hold_connects(true);
    }
    for redlock in [&warm, &cold] {
        let begun = Instant::now();
        let refused = redlock.acquire("r").wait(ms(80)).await.expect_err("no answer in time");
        assert!(begun.elapsed() >= ms(80), "it tried for as long as it may");
        let AcquireError::Timeout { report: Some(report) } = &refused else {
            panic!("{}", told(&refused));
        };
        let text = told(&refused);
        for node in report.nodes() {
            let NodeVote::Failed(NodeFailure::Timeout(after) | NodeFailure::Connecting(after)) =
                node.vote()
            else {
                panic!("{text}")
            };
            // Counted from when it was begun, which a busy machine can put off.
            assert!(*after >= ms(40), "{text}");
        }
    }
    proxies.iter().for_each(Proxy::heal);
    for redlock in [warm, cold] {
        let lease = redlock.acquire("r").wait(SOON).await.expect("it was only slow");
        assert_eq!(lease.release().await.expect("all are up"), ReleaseOutcome::Released);
    }
    eventually("no key is left", || cluster.is_empty()).await;
}
