//! Connections that die in silence, all at once.

use crate::{SOON, all_up, builder_of, eventually, granted_by_all, ms, through};
use kit::{Cluster, Direction, Proxy};
use quorlock::{NodeFailure, NodeState, ReleaseOutcome};

#[tokio::test]
async fn where_all_connections_die_in_silence_new_ones_take_their_place_early() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    // Ten times as long is longer than anybody waits here.
    let builder = through(&proxies).node_timeout(ms(2_500));
    let redlock = builder.connect_timeout(SOON).ttl(ms(300_000)).build().expect("good settings");
    let held = granted_by_all(&redlock, "held").await;
    let before: u64 = proxies.iter().map(Proxy::accepted).sum();
    proxies.iter().for_each(Proxy::forget);
    redlock.try_acquire("r").await.expect_err("nobody answers");
    let hangs = |node: &quorlock::NodeInfo| *node.state() == NodeState::Stalled;
    eventually("all hang", || redlock.nodes().iter().all(hangs)).await;
    eventually("all are back", || all_up(&redlock)).await;
    let after: u64 = proxies.iter().map(Proxy::accepted).sum();
    assert_eq!(after - before, 3, "one new connection to each");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let lease = redlock.try_acquire("r").await.expect("what was lost is not held");
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

/// It is the node that hangs, and not the network: another connection would hang as well. And who asks
/// does not wait for one.
#[tokio::test]
async fn one_node_that_is_silent_gets_no_second_connection_and_is_down_when_the_first_is_given_up()
{
    let cluster = Cluster::start(3);
    let proxy = Proxy::start(cluster[0].addr());
    let urls = [proxy.url(), cluster[1].url(), cluster[2].url()];
    let builder = builder_of(urls).node_timeout(ms(200));
    let redlock = builder.connect_timeout(SOON).ttl(ms(60_000)).build().expect("good settings");
    let state = || redlock.nodes()[0].state().clone();
    drop(redlock.acquire("r").wait(SOON).await.expect("a free lock"));
    eventually("it is up, and free again", || state() == NodeState::Up && cluster.is_empty()).await;
    // A connection that has lasted is replaced at once where it just breaks.
    tokio::time::sleep(ms(1_300)).await;
    proxy.hold(Direction::Replies);
    drop(redlock.acquire("r").wait(SOON).await.expect("two others"));
    eventually("it is silent", || state() == NodeState::Stalled).await;
    let mut accepted = 0;
    let failure = loop {
        let seen = proxy.accepted();
        match state() {
            NodeState::Stalled => accepted = accepted.max(seen),
            NodeState::Down(failure) => break failure,
            other => panic!("{other}"),
        }
        tokio::time::sleep(ms(1)).await;
    };
    assert!(matches!(failure, NodeFailure::Stalled(_)), "{failure}");
    assert_eq!(accepted, 1, "connections before the first was given up");
    proxy.heal();
    eventually("what was owed is delivered", || cluster.is_empty()).await;
}
