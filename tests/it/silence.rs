//! Connections that die in silence, all at once.

use crate::{SOON, all_up, builder_of, eventually, ms};
use kit::{Cluster, Direction, Proxy};
use quorlock::{NodeFailure, NodeState, ReleaseOutcome};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Stands before a server, and loses whatever is said on connections that were made before a time,
/// as a gateway does that has forgotten them.
struct Gateway {
    url: String,
    accepted: Arc<AtomicUsize>,
    /// The number of the first connection that is known.
    first_known: Arc<AtomicUsize>,
}

impl Gateway {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("it listens"));
        let (accepted, first_known) =
            (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (counted, known) = (accepted.clone(), first_known.clone());
        // The threads end with the connections, the listener's with the test process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let number = counted.fetch_add(1, Ordering::Relaxed);
                let Ok(server) = TcpStream::connect(target) else { continue };
                let copies = (client.try_clone(), server.try_clone());
                let copies = (copies.0.expect("a socket"), copies.1.expect("a socket"));
                for (from, to) in [(client, server), (copies.1, copies.0)] {
                    let known = known.clone();
                    thread::spawn(move || pass_on(from, to, number, &known));
                }
            }
        });
        Self { url, accepted, first_known }
    }

    fn forget_all(&self) {
        self.first_known.store(self.accepted.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, number: usize, first_known: &AtomicUsize) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let is_known = number >= first_known.load(Ordering::Relaxed);
        if is_known && to.write_all(&bytes[..length]).is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn where_all_connections_die_in_silence_new_ones_take_their_place_early() {
    let cluster = Cluster::start(3);
    let gateways: Vec<_> = cluster.iter().map(|node| Gateway::start(node.addr())).collect();
    let urls = gateways.iter().map(|gateway| &gateway.url);
    // Ten times as long is longer than anybody waits here.
    let builder = builder_of(urls).node_timeout(ms(2_500));
    let redlock = builder.connect_timeout(SOON).ttl(ms(300_000)).build().expect("good settings");
    let held = redlock.acquire("held").wait(SOON).await.expect("a free lock");
    eventually("on all", || held.report().granted() == 3).await;
    let before: usize = gateways.iter().map(|it| it.accepted.load(Ordering::Relaxed)).sum();
    gateways.iter().for_each(Gateway::forget_all);
    redlock.try_acquire("r").await.expect_err("nobody answers");
    let hangs = |node: &quorlock::NodeInfo| *node.state() == NodeState::Stalled;
    eventually("all hang", || redlock.nodes().iter().all(hangs)).await;
    eventually("all are back", || all_up(&redlock)).await;
    let after: usize = gateways.iter().map(|it| it.accepted.load(Ordering::Relaxed)).sum();
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
