//! Tests of invariant I8: no key may remain because of a command that the network delivers after the client has closed
//! the connection.

use crate::errors::{FEW_RIGHTS, PASSWORD, USER};
use crate::native_commands::native;
use crate::{
    MAX_TTL, SOON, all_up, builder_of, current_thread, eventually, granted_by_all, is_up, ms,
    through,
};
use kit::{Cluster, Direction, Proxy, Server, ServerBuilder};
use quorlock::{AcquireError, Lease, NodeState, NodeVote, Redlock, ReleaseOutcome, RestartGuard};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;
use tokio::task::block_in_place;

/// A relay in front of a server. It can withhold the bytes of the client's first connection, as a slow network may. The
/// withheld bytes are delivered even if the client has closed the connection, and bytes of later connections can
/// overtake them.
struct DelayingRelay {
    addr: SocketAddr,
    gate: Arc<PacketGate>,
}

#[derive(Default)]
struct PacketGate {
    is_shut: Mutex<bool>,
    opened: Condvar,
    client: Mutex<Option<TcpStream>>,
    /// True after the withheld bytes were delivered, or their delivery failed.
    has_delivered: AtomicBool,
}

impl DelayingRelay {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("the socket is bound");
        let gate = Arc::new(PacketGate::default());
        let first = gate.clone();
        // The forwarding threads end with their connections. The accepting thread ends with the test process.
        thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                let Ok(server) = TcpStream::connect(target) else { continue };
                let (from, to) = (client.try_clone(), server.try_clone());
                let (mut from, to) = (from.expect("a socket"), to.expect("a socket"));
                let gate = if number == 0 { first.clone() } else { Arc::default() };
                *gate.client.lock().expect("no panic") = client.try_clone().ok();
                thread::spawn(move || gate.forward(&mut from, to));
                thread::spawn(move || {
                    // If the server's connection ends for any reason, the relay closes the client's connection.
                    let _ = io::copy(&mut &server, &mut &client);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Self { addr, gate }
    }

    fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    fn shut(&self) {
        *self.gate.is_shut.lock().expect("no panic") = true;
    }

    /// Closes the client's first connection and keeps the server's connection open.
    fn hang_up(&self) {
        if let Some(client) = &*self.gate.client.lock().expect("no panic") {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Delivers the withheld bytes. Returns when the delivery has ended.
    fn open(&self) {
        *self.gate.is_shut.lock().expect("no panic") = false;
        self.gate.opened.notify_all();
        let has_delivered = || self.gate.has_delivered.load(Ordering::Acquire);
        kit::eventually(SOON, "the withheld bytes are delivered", has_delivered);
    }
}

impl PacketGate {
    fn forward(&self, from: &mut TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let is_shut = self.is_shut.lock().expect("no panic");
            let was_shut = *is_shut;
            drop(self.opened.wait_while(is_shut, |is_shut| *is_shut).expect("no panic"));
            let written = to.write_all(&buffer[..count]);
            self.has_delivered.fetch_or(was_shut, Ordering::AcqRel);
            if written.is_err() {
                break;
            }
        }
    }
}

/// Closes the client to deliver all pending releases. Retries a close that fails, because it can time out on a busy
/// machine.
pub(crate) async fn deliver_all(redlock: &Redlock) {
    let started = Instant::now();
    while let Err(error) = redlock.close().await {
        assert!(started.elapsed() < SOON, "{error}");
    }
}

/// Drops a lease while the relay withholds the lease's `SET` for the first node. Returns when the client has a new
/// connection to that node.
async fn leave_a_set_behind(cluster: &Cluster, relay: &DelayingRelay, redlock: &Redlock) {
    let lease = granted_by_all(redlock, "r").await;
    drop(lease);
    eventually("the lock is released", || cluster.is_empty()).await;

    relay.shut();
    let lease = redlock.acquire("r").wait(SOON).await.expect("two of three nodes reply");
    assert!(cluster[0].get("r").is_none(), "the SET is withheld");
    eventually("the first node is not up", || !is_up(redlock, 0)).await;
    // The lease is dropped only after the connection failed, so that the release does not follow the `SET` on it.
    drop(lease);
    eventually("the first node has a new connection", || is_up(redlock, 0)).await;
}

#[tokio::test]
async fn late_set_of_a_replaced_connection_never_runs() {
    let cluster = Cluster::start(3);
    let relay = DelayingRelay::start(cluster[0].addr());
    let urls = [relay.url(), cluster[1].url(), cluster[2].url()];
    let redlock = builder_of(urls).node_timeout(ms(100)).ttl(ms(120_000)).build();
    let redlock = redlock.expect("valid settings");
    leave_a_set_behind(&cluster, &relay, &redlock).await;
    eventually("the release is delivered", || cluster.is_empty()).await;
    deliver_all(&redlock).await;

    let before = cluster[0].calls("set");
    relay.open();
    let started = Instant::now();
    while started.elapsed() < ms(500) {
        assert!(cluster[0].get("r").is_none(), "a late SET has run");
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(cluster[0].calls("set"), before, "the connection was killed on the server");
}

/// Starts servers whose user has no permission for `CLIENT KILL`, with a relay in front of the first server.
fn without_kill() -> (Cluster, DelayingRelay, [String; 3]) {
    let setup = Server::builder().arg("--user").arg(USER).arg("on").arg(format!(">{PASSWORD}"));
    let setup = FEW_RIGHTS.split(' ').fold(setup, ServerBuilder::arg);
    let cluster = Cluster::start_with(3, &setup);
    let relay = DelayingRelay::start(cluster[0].addr());
    let addrs = [relay.addr, cluster[1].addr(), cluster[2].addr()];
    let urls = addrs.map(|addr| format!("redis://{USER}:{PASSWORD}@{addr}"));
    (cluster, relay, urls)
}

/// Checks that a late `SET` leaves no key if the connection breaks before the node timeout. In the next test, the node
/// timeout ends first.
#[tokio::test]
async fn late_set_of_a_broken_connection_is_released_without_kill() {
    let (cluster, relay, urls) = without_kill();
    let redlock = builder_of(urls).node_timeout(SOON).ttl(ms(300_000)).build();
    let redlock = redlock.expect("valid settings");
    let warm_up = granted_by_all(&redlock, "warm-up").await;
    relay.shut();
    let lease = redlock.acquire("r").wait(SOON).await.expect("two of three nodes reply");
    relay.hang_up();
    let vote = || lease.report().nodes()[0].vote().clone();
    eventually("the first node's vote has failed", || matches!(vote(), NodeVote::Failed(_))).await;
    eventually("the first node has a new connection", || is_up(&redlock, 0)).await;
    drop(lease);
    tokio::time::sleep(ms(300)).await;

    let before = cluster[0].calls("set");
    relay.open();
    eventually("the late SET runs", || cluster[0].calls("set") > before).await;
    drop(warm_up);
    eventually("the key is deleted long before its expiry", || cluster.is_empty()).await;
}

#[tokio::test]
async fn late_set_is_released_without_kill() {
    let (cluster, relay, urls) = without_kill();
    let redlock = builder_of(urls).node_timeout(ms(100)).ttl(ms(120_000)).build();
    let redlock = redlock.expect("valid settings");
    leave_a_set_behind(&cluster, &relay, &redlock).await;

    let before = cluster[0].calls("set");
    tokio::time::sleep(ms(300)).await;
    assert_eq!(cluster[0].calls("set"), before, "the release runs before the SET");
    relay.open();
    eventually("the late SET runs", || cluster[0].calls("set") > before).await;
    eventually("the key is deleted long before its expiry", || cluster.is_empty()).await;
}

#[tokio::test]
async fn commands_delayed_by_the_network_leave_no_keys() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = through(&proxies).node_timeout(ms(100)).ttl(ms(120_000)).build();
    let redlock = redlock.expect("valid settings");
    drop(redlock.acquire("r").wait(SOON).await.expect("the lock is free"));
    eventually("all nodes are up", || all_up(&redlock)).await;
    eventually("the lock is released", || cluster.is_empty()).await;

    for proxy in &proxies {
        proxy.hold(Direction::Requests);
    }
    let refused = redlock.try_acquire("r").await.expect_err("no node receives the command");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    eventually("all connections are replaced", || {
        proxies.iter().all(|proxy| proxy.accepted() >= 2)
    })
    .await;
    proxies.iter().for_each(Proxy::heal);
    let lease = redlock.acquire("r").wait(SOON).await.expect("the lock is free");
    let lost = lease.release().await.expect("all nodes are up");
    assert_eq!(lost, quorlock::ReleaseOutcome::Released);
    deliver_all(&redlock).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Acquires a lock from two of three nodes on a separate runtime, which then ends. The `first` node is stopped before
/// it replies, so it may still execute the `SET` after the runtime has ended.
fn acquired_elsewhere(redlock: &Redlock, first: &Server, proxy: &Proxy) -> Lease {
    let elsewhere = current_thread();
    elsewhere.block_on(async {
        let warm_up = granted_by_all(redlock, "warm-up").await;
        assert_eq!(warm_up.release().await, Ok(ReleaseOutcome::Released), "all nodes are up");
        eventually("the lock is released", || first.keys().is_empty()).await;
        first.stop();
        let before = proxy.bytes(Direction::Requests);
        let lease = redlock.acquire("r").wait(SOON).await.expect("two of three nodes reply");
        eventually("the SET is sent", || proxy.bytes(Direction::Requests) > before).await;
        lease
    })
}

async fn set_target(proxy: &Proxy, server: &Server, redlock: &Redlock) {
    let before = proxy.accepted();
    proxy.set_target(server.addr());
    proxy.close();
    let is_connected = || proxy.accepted() > before && is_up(redlock, 0);
    eventually("the first node has a new connection", is_connected).await;
}

/// Checks that a release is not repeated for a connection to an earlier run of the server. Such a connection ended with
/// that run, so it delivers no more commands. The client recognises a new run by a reply to `TIME`, or by the error
/// that `TIME` is not permitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn release_on_an_earlier_run_of_a_server_is_sent_once() {
    for rule in ["+time", "-time"] {
        let (cluster, other) = (Cluster::start(3), Server::start());
        cluster[0].cmd(&["ACL", "SETUSER", "default", rule]);
        let proxy = Proxy::start(cluster[0].addr());
        let urls = [proxy.url(), cluster[1].url(), cluster[2].url()];
        let redlock = Redlock::builder().max_ttl(MAX_TTL).nodes(urls).node_timeout(ms(1_000));
        let redlock = redlock.restart_guard(RestartGuard::Off).ttl(ms(300_000)).build();
        let redlock = redlock.expect("valid settings");
        let warm_up = granted_by_all(&redlock, "warm-up").await;
        assert_eq!(warm_up.release().await, Ok(ReleaseOutcome::Released), "all nodes are up");
        eventually("the lock is released", || cluster.is_empty()).await;

        set_target(&proxy, &other, &redlock).await;
        let lease = block_in_place(|| acquired_elsewhere(&redlock, &other, &proxy));
        set_target(&proxy, &cluster[0], &redlock).await;
        // If a native command finds no key, the client also sends the script, which reports the reason.
        let command = native(&cluster[0]).unwrap_or("evalsha");
        let before = cluster[0].calls(command);
        cluster[0].stop();
        let stalled = || *redlock.nodes()[0].state() == NodeState::Stalled;
        drop(lease);
        eventually("the node is stalled", stalled).await;
        cluster[0].cont();
        deliver_all(&redlock).await;
        assert_eq!(cluster[0].calls(command), before + 1, "{rule}");
    }
}
