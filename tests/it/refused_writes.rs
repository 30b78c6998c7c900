//! Tests with servers that accept connections but execute no writes: replicas, and servers that are paused, full or
//! protected.

use crate::{SOON, all_up, builder_of, eventually, granted_by_all, ms, state};
use kit::{Cluster, Proxy, Server};
use quorlock::event::Event;
use quorlock::{
    AcquireError, Builder, NodeFailure, NodeState, NodeVote, Observer, Redlock, ReleaseOutcome,
    RestartGuard,
};
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The duration of each fault. It is many times the first pause between connections.
const FAULT: Duration = Duration::from_secs(8);

/// The limit of connections to one node during a fault. The nominal pauses between connections grow from 100 ms to 4 s,
/// and an actual pause is at least half as long.
const MAX_CONNECTIONS: u64 = 10;

fn builder(urls: impl IntoIterator<Item = String>) -> Builder {
    // The restart guard would exclude a promoted replica until all older locks have ended.
    builder_of(urls).restart_guard(RestartGuard::Off).ttl(ms(300_000))
}

async fn keep_trying(redlock: &Redlock) -> Option<AcquireError> {
    let (started, mut refusal) = (Instant::now(), None);
    while started.elapsed() < FAULT {
        refusal = redlock.try_acquire("tried").await.err();
        tokio::time::sleep(ms(20)).await;
    }
    refusal
}

#[derive(Default)]
struct Outages(Mutex<Vec<String>>);

struct Watcher(Arc<Outages>);

impl Observer for Watcher {
    fn on_event(&self, event: &Event) {
        if let Event::NodeHealthChanged { to, reason: Some(reason), .. } = event {
            self.0.0.lock().expect("no panic").push(format!("{to}: {reason}"));
        }
    }
}

#[tokio::test]
async fn client_follows_a_failed_over_address() {
    let cluster = Cluster::start(3);
    let promoted = Server::builder().arg("--repl-diskless-sync-delay").arg("0").start();
    let address = Proxy::start(cluster[0].addr());
    let urls = [address.url(), cluster[1].url(), cluster[2].url()];
    let outages = Arc::<Outages>::default();
    let redlock = builder(urls).observer(Watcher(outages.clone())).build().expect("valid settings");
    let held = redlock.acquire("held").wait(SOON).await.expect("the lock is free");
    let dropped = granted_by_all(&redlock, "dropped").await;
    eventually("all nodes are up", || all_up(&redlock)).await;

    // The replica is synchronized and promoted, but the address still leads to the old master.
    let old = &cluster[0];
    promoted.cmd(&["REPLICAOF", "127.0.0.1", &old.port().to_string()]);
    let has_keys = || promoted.keys().len() == 2;
    eventually("the replica has all keys", has_keys).await;
    promoted.cmd(&["REPLICAOF", "NO", "ONE"]);
    old.cmd(&["REPLICAOF", "127.0.0.1", &promoted.port().to_string()]);
    let before = address.accepted();
    let lease = redlock.try_acquire("first").await.expect("two nodes are up");
    let is_read_only = || {
        let report = lease.report();
        let vote = report.nodes()[0].vote().clone();
        matches!(vote, NodeVote::Failed(NodeFailure::Refused { code, .. }) if *code == *"READONLY")
    };
    eventually("the vote names the reason", is_read_only).await;
    let is_down = || state(&redlock, 0) == NodeState::Down(NodeFailure::Replica);
    eventually("the node is down as a replica", is_down).await;
    drop(dropped);
    keep_trying(&redlock).await;
    let connections = address.accepted() - before;
    assert!((3..=MAX_CONNECTIONS).contains(&connections), "{connections} connections");
    let outages = outages.0.lock().expect("no panic").clone();
    assert!(outages.iter().any(|line| line.starts_with("down: READONLY")), "{outages:?}");

    address.set_target(promoted.addr());
    eventually("all nodes are up", || all_up(&redlock)).await;
    let is_released = || promoted.get("dropped").is_none();
    eventually("the pending release is delivered to the new master", is_released).await;
    let _last = granted_by_all(&redlock, "last").await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    eventually("the lock is free on the new master", || promoted.get("held").is_none()).await;
}

/// Checks that a client opens few connections to a replica whose `INFO` command is forbidden. Such a client does not
/// know the node's role: each set-up succeeds, and the node refuses the first write.
#[tokio::test]
async fn replica_without_info_costs_few_connections() {
    let server = Server::builder().user("locks", "secret").start();
    server.cmd(&["ACL", "SETUSER", "locks", "-info"]);
    let address = Proxy::start(server.addr());
    let url = format!("redis://locks:secret@{}", address.addr());
    let redlock = builder([url]).build().expect("valid settings");
    drop(redlock.acquire("r").wait(SOON).await.expect("the lock is free"));
    server.cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    let before = address.accepted();
    let refused = keep_trying(&redlock).await.expect("the only node is a replica");
    let connections = address.accepted() - before;
    assert!((3..=MAX_CONNECTIONS).contains(&connections), "{connections} connections");
    assert!(refused.to_string().contains("READONLY"), "{refused}");
    // Before Redis 7.0, the error of a script begins with `ERR`.
    let state = state(&redlock, 0).to_string();
    assert!(state.starts_with("down: ") && state.contains("READONLY"), "{state}");
    server.cmd(&["REPLICAOF", "NO", "ONE"]);
    let lease = redlock.acquire("r").wait(SOON).await.expect("the server is a master again");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    eventually("no key is left", || server.keys().is_empty()).await;
}

#[tokio::test]
async fn script_on_a_replica_marks_the_node_down() {
    let cluster = Cluster::start(3);
    let redlock = builder(cluster.urls()).build().expect("valid settings");
    let lease = granted_by_all(&redlock, "r").await;
    cluster[0].cmd(&["REPLICAOF", "127.0.0.1", "1"]);
    // An extension runs as a script, and no acquire follows.
    lease.extend(ms(400_000)).await.expect("two nodes are up");
    let is_down = || state(&redlock, 0) == NodeState::Down(NodeFailure::Replica);
    eventually("the node is down as a replica", is_down).await;
    cluster[0].cmd(&["REPLICAOF", "NO", "ONE"]);
    eventually("all nodes are up", || all_up(&redlock)).await;
    eventually("the missed extension is repeated", || cluster[0].pttl("r") > 300_000).await;
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn paused_writes_on_a_majority_cost_few_connections() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let builder = builder(proxies.iter().map(Proxy::url)).node_timeout(ms(50));
    let redlock = builder.build().expect("valid settings");
    drop(redlock.acquire("r").wait(SOON).await.expect("the lock is free"));
    eventually("all nodes are up", || all_up(&redlock)).await;
    for node in &cluster.servers()[..2] {
        node.cmd(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    }
    let before: Vec<_> = proxies.iter().map(Proxy::accepted).collect();
    keep_trying(&redlock).await.expect("two of three nodes are paused");
    for (proxy, before) in proxies.iter().zip(before) {
        let connections = proxy.accepted() - before;
        assert!(connections <= MAX_CONNECTIONS, "{connections} connections");
    }
    for node in &cluster.servers()[..2] {
        node.cmd(&["CLIENT", "UNPAUSE"]);
    }
    let resumed = Instant::now();
    let lease = redlock.acquire("r").wait(SOON).await.expect("the pause has ended");
    assert!(resumed.elapsed() < ms(10_000), "{:?}", resumed.elapsed());
    drop(lease);
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Returns a non-loopback address of this machine, or `None` if the machine has none.
fn outer_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Connecting a UDP socket sends no packet.
    socket.connect("198.51.100.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then(|| address.to_string())
}

#[tokio::test]
async fn protected_mode_is_reported() {
    let Some(address) = outer_address() else {
        println!("skipped: this machine has no address besides those of its loopback interface");
        return;
    };
    let server = Server::builder().arg("--bind").arg("0.0.0.0").arg("--protected-mode").arg("yes");
    let server = server.start();
    // Before Redis 7.0, a server with the setting `bind` is never in protected mode.
    if server.info("server")["redis_version"].starts_with("6.") {
        println!("skipped: this server is not protected");
        return;
    }
    let url = format!("redis://{address}:{}", server.port());
    let redlock = builder([url]).build().expect("valid settings");
    for _ in 0..20 {
        let refused = redlock.try_acquire("r").await.expect_err("the server is protected");
        let state = state(&redlock, 0).to_string();
        for text in [refused.to_string(), state] {
            let is_named = text.contains("closed by the server: DENIED ");
            assert!(is_named && text.contains(" protected mode"), "{text}");
            assert!(text.len() < 400, "{text}");
        }
        tokio::time::sleep(ms(20)).await;
    }
}
