//! Connections that are made while the server answers, and not as it should.

use crate::{MAX_TTL, SOON, eventually, ms};
use kit::{Cluster, Proxy, Server};
use quorlock::{Lease, NodeState, NodeVote, Redlock, ReleaseOutcome, RestartGuard};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A server whose scripts are reported as too long after 10 ms.
fn servers() -> Vec<Server> {
    (0..3).map(|_| Server::builder().arg("--lua-time-limit").arg("10").start()).collect()
}

/// Lets a script run on `server` until it is killed.
fn keep_busy(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr()).expect("it listens");
    let eval = b"*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n";
    stream.write_all(eval).expect("it reads");
    kit::eventually(SOON, "it is busy", || {
        server.try_cmd(&["PING"]).is_err_and(|error| error.code() == Some("BUSY"))
    });
    stream
}

#[tokio::test]
async fn a_server_that_is_busy_at_the_set_up_is_tried_again_and_not_taken_for_restarted() {
    let servers = servers();
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::start(server.addr())).collect();
    let redlock = Redlock::builder().nodes(proxies.iter().map(Proxy::url)).max_ttl(MAX_TTL);
    let redlock = redlock.node_timeout(ms(1_000)).ttl(ms(60_000)).build().expect("good settings");
    let lease = redlock.acquire("first").wait(SOON).await.expect("free");
    eventually("on all", || lease.report().granted() == 3).await;
    drop(lease);
    let script = keep_busy(&servers[0]);
    proxies[0].reset();
    let is_busy = || matches!(redlock.nodes()[0].state(), NodeState::Down(why) if why.to_string().contains("BUSY"));
    eventually("the node is down, and says why", is_busy).await;
    let lease = redlock.try_acquire("r").await.expect("two others");
    drop(lease);
    servers[0].cmd(&["SCRIPT", "KILL"]);
    drop(script);
    eventually("it is back", || *redlock.nodes()[0].state() == NodeState::Up).await;
    let has_failed = |lease: &Lease| {
        lease.report().nodes().iter().any(|node| matches!(node.vote(), NodeVote::Failed(_)))
    };
    let lease = redlock.try_acquire("last").await.expect("free");
    eventually("all have answered", || lease.report().granted() == 3 || has_failed(&lease)).await;
    assert_eq!(lease.report().granted(), 3, "{}", lease.report());
}

/// Stands before a server, and closes each connection that begins with `HELLO`.
struct Doorman {
    url: String,
    turned_away: Arc<AtomicUsize>,
    /// The connections that were let in.
    let_in: Arc<Mutex<Vec<TcpStream>>>,
}

impl Doorman {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("it listens"));
        let (turned_away, let_in) =
            (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (away, inside) = (turned_away.clone(), let_in.clone());
        // The threads end with the connections, the listener's with the test process.
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                let mut first = [0; 4096];
                let length = client.read(&mut first).unwrap_or(0);
                if first[..length].windows(5).any(|word| word == b"HELLO") {
                    away.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let Ok(mut server) = TcpStream::connect(target) else { continue };
                let _ = server.write_all(&first[..length]);
                let both = (client.try_clone(), server.try_clone());
                let (mut from, mut to) = (both.0.expect("a socket"), both.1.expect("a socket"));
                inside.lock().expect("no panic").push(client.try_clone().expect("a socket"));
                thread::spawn(move || io::copy(&mut from, &mut to));
                thread::spawn(move || io::copy(&mut server, &mut client));
            }
        });
        Self { url, turned_away, let_in }
    }

    fn close_all(&self) {
        for stream in self.let_in.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[tokio::test]
async fn a_proxy_that_closes_the_connection_at_hello_is_spoken_to_without() {
    let cluster = Cluster::start(3);
    let doormen: Vec<_> = cluster.iter().map(|node| Doorman::start(node.addr())).collect();
    let redlock = Redlock::builder().nodes(doormen.iter().map(|doorman| &doorman.url));
    let redlock = redlock.node_timeout(ms(2_000)).build().expect("good settings");
    for round in 1..=3 {
        let lease = redlock.acquire("r").wait(SOON).await.expect("it works without HELLO");
        assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
        // It is not taken for granted: a server that ends closes connections too.
        eventually("each new connection begins with HELLO", || {
            doormen.iter().all(|doorman| doorman.turned_away.load(Ordering::Relaxed) >= round)
        })
        .await;
        for node in redlock.check().await.expect("open") {
            assert!(node.version().is_some(), "it can be looked at too: {node}");
        }
        doormen.iter().for_each(Doorman::close_all);
    }
}

#[tokio::test]
async fn a_server_that_takes_the_place_of_an_older_one_is_spoken_to_in_resp3() {
    let old = Server::builder().arg("--rename-command").arg("HELLO").arg("").start();
    let new = Server::start();
    let proxy = Proxy::start(old.addr());
    let redlock = Redlock::builder().nodes([proxy.url()]).node_timeout(ms(2_000));
    let redlock = redlock.restart_guard(RestartGuard::Off).build().expect("good settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("it works without HELLO");
    lease.release().await.expect("it is up");
    proxy.turn_to(new.addr());
    old.kill();
    let lease = redlock.acquire("r").wait(SOON).await.expect("another is there");
    assert!(new.calls("hello") > 0, "it can push");
    lease.release().await.expect("it is up");
}
