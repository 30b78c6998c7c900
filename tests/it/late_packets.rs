//! I8: what the buffers of a connection that was given up still deliver must not stay.

use crate::errors::{FEW_RIGHTS, PASSWORD, USER};
use crate::natives::native;
use crate::{
    MAX_TTL, SOON, all_up, builder_of, current_thread, eventually, granted_by_all, is_up, ms,
    through,
};
use kit::{Cluster, Direction, Proxy, Server, ServerBuilder};
use quorlock::{AcquireError, Lease, NodeState, NodeVote, Redlock, RestartGuard};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;
use tokio::task::block_in_place;

/// Stands before a server and can withhold what the client sends on its FIRST connection, as a
/// network may: later connections overtake it, and the client's end does not end it.
struct Detour {
    addr: SocketAddr,
    gate: Arc<PacketGate>,
}

#[derive(Default)]
struct PacketGate {
    is_shut: Mutex<bool>,
    opened: Condvar,
    /// The client's end of the first connection.
    client: Mutex<Option<TcpStream>>,
    /// True once something that was withheld has been passed on, or could not be.
    has_passed_on: AtomicBool,
}

impl Detour {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("it listens");
        let gate = Arc::new(PacketGate::default());
        let first = gate.clone();
        // The threads end with the connections, the listener's with the test process.
        thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                let Ok(server) = TcpStream::connect(target) else { continue };
                let (from, to) = (client.try_clone(), server.try_clone());
                let (mut from, to) = (from.expect("a socket"), to.expect("a socket"));
                let gate = if number == 0 { first.clone() } else { Arc::default() };
                *gate.client.lock().expect("nobody panics with it") = client.try_clone().ok();
                thread::spawn(move || gate.pass_on(&mut from, to));
                thread::spawn(move || {
                    // However the server's end came about, the client sees one.
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
        *self.gate.is_shut.lock().expect("nobody panics with it") = true;
    }

    /// Ends the client's first connection, and leaves the server's as it is.
    fn hang_up(&self) {
        if let Some(client) = &*self.gate.client.lock().expect("nobody panics with it") {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Delivers what was withheld, and returns when that is done.
    fn open(&self) {
        *self.gate.is_shut.lock().expect("nobody panics with it") = false;
        self.gate.opened.notify_all();
        let has_passed_on = || self.gate.has_passed_on.load(Ordering::Acquire);
        kit::eventually(SOON, "the gate has passed on what it held", has_passed_on);
    }
}

impl PacketGate {
    fn pass_on(&self, from: &mut TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let is_shut = self.is_shut.lock().expect("nobody panics with it");
            let was_shut = *is_shut;
            drop(self.opened.wait_while(is_shut, |is_shut| *is_shut).expect("no panic"));
            let passed_on = to.write_all(&buffer[..count]);
            self.has_passed_on.fetch_or(was_shut, Ordering::AcqRel);
            if passed_on.is_err() {
                break;
            }
        }
    }
}

/// Closes the client, however slow the machine is.
pub(crate) async fn deliver_all(redlock: &Redlock) {
    let begun = Instant::now();
    while let Err(error) = redlock.close().await {
        assert!(begun.elapsed() < SOON, "{error}");
    }
}

/// Leaves a `SET` for the cluster's first node on its way, gives up its lock, and returns when the
/// client has a new connection to the node.
async fn leave_a_set_behind(cluster: &Cluster, detour: &Detour, redlock: &Redlock) {
    let lease = granted_by_all(redlock, "r").await;
    drop(lease);
    eventually("it is free again", || cluster.is_empty()).await;

    detour.shut();
    let lease = redlock.acquire("r").wait(SOON).await.expect("two of three answer");
    assert!(cluster[0].get("r").is_none(), "its SET is still on its way");
    eventually("the first node does not answer", || !is_up(redlock, 0)).await;
    // Only now, so that the release does not follow the SET over the same connection.
    drop(lease);
    eventually("it has a new connection", || is_up(redlock, 0)).await;
}

#[tokio::test]
async fn a_set_in_a_connection_that_was_replaced_never_runs() {
    let cluster = Cluster::start(3);
    let detour = Detour::start(cluster[0].addr());
    let urls = [detour.url(), cluster[1].url(), cluster[2].url()];
    let redlock = builder_of(urls).node_timeout(ms(100)).ttl(ms(120_000)).build();
    let redlock = redlock.expect("good settings");
    leave_a_set_behind(&cluster, &detour, &redlock).await;
    eventually("the release is delivered", || cluster.is_empty()).await;
    deliver_all(&redlock).await;

    let before = cluster[0].calls("set");
    detour.open();
    let begun = Instant::now();
    while begun.elapsed() < ms(500) {
        assert!(cluster[0].get("r").is_none(), "a late SET has run");
        tokio::time::sleep(ms(5)).await;
    }
    assert_eq!(cluster[0].calls("set"), before, "the connection was killed on the server");
}

/// Servers with a user who may not end connections, and who is used by way of `Detour`.
fn without_kill() -> (Cluster, Detour, [String; 3]) {
    let setup = Server::builder().arg("--user").arg(USER).arg("on").arg(format!(">{PASSWORD}"));
    let setup = FEW_RIGHTS.split(' ').fold(setup, ServerBuilder::arg);
    let cluster = Cluster::start_with(3, &setup);
    let detour = Detour::start(cluster[0].addr());
    let addrs = [detour.addr, cluster[1].addr(), cluster[2].addr()];
    let urls = addrs.map(|addr| format!("redis://{USER}:{PASSWORD}@{addr}"));
    (cluster, detour, urls)
}

/// The same without a silence before: the connection breaks while the node has time to answer.
#[tokio::test]
async fn where_kill_is_forbidden_a_set_of_a_connection_that_just_broke_is_undone_too() {
    let (cluster, detour, urls) = without_kill();
    let redlock = builder_of(urls).node_timeout(SOON).ttl(ms(300_000)).build();
    let redlock = redlock.expect("good settings");
    let warm_up = granted_by_all(&redlock, "warm-up").await;
    detour.shut();
    let lease = redlock.acquire("r").wait(SOON).await.expect("two of three answer");
    detour.hang_up();
    let vote = || lease.report().nodes()[0].vote().clone();
    eventually("its vote has failed", || matches!(vote(), NodeVote::Failed(_))).await;
    eventually("it has a new connection", || is_up(&redlock, 0)).await;
    drop(lease);
    tokio::time::sleep(ms(300)).await;

    let before = cluster[0].calls("set");
    detour.open();
    eventually("the late SET runs", || cluster[0].calls("set") > before).await;
    drop(warm_up);
    eventually("it is undone, long before it expires", || cluster.is_empty()).await;
}

#[tokio::test]
async fn where_kill_is_forbidden_a_set_that_comes_late_is_undone() {
    let (cluster, detour, urls) = without_kill();
    let redlock = builder_of(urls).node_timeout(ms(100)).ttl(ms(120_000)).build();
    let redlock = redlock.expect("good settings");
    leave_a_set_behind(&cluster, &detour, &redlock).await;

    let before = cluster[0].calls("set");
    tokio::time::sleep(ms(300)).await;
    assert_eq!(
        cluster[0].calls("set"),
        before,
        "a release was delivered long before the SET comes"
    );
    detour.open();
    eventually("the late SET runs", || cluster[0].calls("set") > before).await;
    eventually("it is undone, long before it expires", || cluster.is_empty()).await;
}

#[tokio::test]
async fn commands_that_a_network_held_up_for_seconds_leave_nothing() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = through(&proxies).node_timeout(ms(100)).ttl(ms(120_000)).build();
    let redlock = redlock.expect("good settings");
    drop(redlock.acquire("r").wait(SOON).await.expect("a free lock"));
    eventually("all are up", || all_up(&redlock)).await;
    eventually("it is free again", || cluster.is_empty()).await;

    for proxy in &proxies {
        proxy.hold(Direction::Requests);
    }
    let refused = redlock.try_acquire("r").await.expect_err("no node hears of it");
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    eventually("all are given up, and connected to anew", || {
        proxies.iter().all(|proxy| proxy.accepted() >= 2)
    })
    .await;
    proxies.iter().for_each(Proxy::heal);
    let lease = redlock.acquire("r").wait(SOON).await.expect("nothing is in the way");
    let lost = lease.release().await.expect("all are up");
    assert_eq!(lost, quorlock::ReleaseOutcome::Released);
    deliver_all(&redlock).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

/// A lock that another runtime has acquired from `first` and two other nodes. The first node hangs before it replies: its
/// `SET` may still run when the runtime ends.
fn acquired_elsewhere(redlock: &Redlock, first: &Server, proxy: &Proxy) -> Lease {
    let elsewhere = current_thread();
    elsewhere.block_on(async {
        let warm_up = granted_by_all(redlock, "warm-up").await;
        warm_up.release().await.expect("all are up");
        eventually("it is free again", || first.keys().is_empty()).await;
        first.stop();
        let before = proxy.bytes(Direction::Requests);
        let lease = redlock.acquire("r").wait(SOON).await.expect("two of three answer");
        eventually("its SET is sent", || proxy.bytes(Direction::Requests) > before).await;
        lease
    })
}

/// The next connections of the client's first node reach this server.
async fn set_target(proxy: &Proxy, server: &Server, redlock: &Redlock) {
    let before = proxy.accepted();
    proxy.set_target(server.addr());
    proxy.close();
    let is_back = || proxy.accepted() > before && is_up(redlock, 0);
    eventually("the first node has a new connection", is_back).await;
}

/// A broken connection to an earlier run of a server has ended with that run, once the current run replies: with its
/// time, or with the error that `TIME` is not permitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn set_that_another_run_received_is_released_once_by_one_that_hangs_and_then_answers() {
    for rule in ["+time", "-time"] {
        let (cluster, other) = (Cluster::start(3), Server::start());
        cluster[0].cmd(&["ACL", "SETUSER", "default", rule]);
        let proxy = Proxy::start(cluster[0].addr());
        let urls = [proxy.url(), cluster[1].url(), cluster[2].url()];
        let redlock = Redlock::builder().max_ttl(MAX_TTL).nodes(urls).node_timeout(ms(1_000));
        let redlock = redlock.restart_guard(RestartGuard::Off).ttl(ms(300_000)).build();
        let redlock = redlock.expect("good settings");
        let warm_up = granted_by_all(&redlock, "warm-up").await;
        warm_up.release().await.expect("all are up");
        eventually("it is free again", || cluster.is_empty()).await;

        set_target(&proxy, &other, &redlock).await;
        let lease = block_in_place(|| acquired_elsewhere(&redlock, &other, &proxy));
        set_target(&proxy, &cluster[0], &redlock).await;
        // Where the server's own command finds no key, the script behind it reports why.
        let command = native(&cluster[0]).unwrap_or("evalsha");
        let before = cluster[0].calls(command);
        cluster[0].stop();
        let stalled = || *redlock.nodes()[0].state() == NodeState::Stalled;
        drop(lease);
        eventually("it is asked, and hangs", stalled).await;
        cluster[0].cont();
        deliver_all(&redlock).await;
        assert_eq!(cluster[0].calls(command), before + 1, "{rule}");
    }
}
