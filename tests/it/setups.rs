//! Tests with servers that reply with errors, or close the connection, during the connection set-up.

use crate::{SOON, eventually, granted_by_all, is_up, ms, through};
use kit::{Cluster, Proxy, Server};
use quorlock::{Finding, Lease, NodeState, NodeVote, Redlock};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

/// Starts servers that report `BUSY` after a script has run for 10 ms.
fn servers() -> Vec<Server> {
    (0..3).map(|_| Server::builder().arg("--lua-time-limit").arg("10").start()).collect()
}

fn keep_busy(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.addr()).expect("the server is up");
    let eval = b"*3\r\n$4\r\nEVAL\r\n$17\r\nwhile true do end\r\n$1\r\n0\r\n";
    stream.write_all(eval).expect("the server is up");
    kit::eventually(SOON, "the server is busy", || {
        server.try_cmd(&["PING"]).is_err_and(|error| error.code() == Some("BUSY"))
    });
    stream
}

#[tokio::test]
async fn server_busy_at_set_up_is_retried_and_counts() {
    let servers = servers();
    let proxies: Vec<_> = servers.iter().map(|server| Proxy::start(server.addr())).collect();
    let redlock = through(&proxies).ttl(ms(60_000)).build().expect("valid settings");
    let lease = granted_by_all(&redlock, "first").await;
    drop(lease);
    let script = keep_busy(&servers[0]);
    proxies[0].reset();
    let is_busy = || matches!(redlock.nodes()[0].state(), NodeState::Down(why) if why.to_string().contains("BUSY"));
    eventually("the node is down because of BUSY", is_busy).await;
    let lease = redlock.try_acquire("r").await.expect("two nodes are up");
    drop(lease);
    servers[0].cmd(&["SCRIPT", "KILL"]);
    drop(script);
    eventually("the node is up", || is_up(&redlock, 0)).await;
    let has_failed = |lease: &Lease| {
        lease.report().nodes().iter().any(|node| matches!(node.vote(), NodeVote::Failed(_)))
    };
    let lease = redlock.try_acquire("last").await.expect("free");
    eventually("all nodes have voted", || lease.report().granted() == 3 || has_failed(&lease))
        .await;
    assert_eq!(lease.report().granted(), 3, "{}", lease.report());
}

/// Starts a proxy that closes each connection at its first bytes, as twemproxy does on `HELLO`.
fn closing_proxy() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("redis://{}", listener.local_addr().expect("the socket is bound"));
    // The thread ends with the test process.
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 4096]);
        }
    });
    url
}

#[tokio::test]
async fn node_without_resp3_is_down_with_the_reason() {
    let renamed = Server::builder().arg("--rename-command").arg("HELLO").arg("").start();
    let good = Cluster::start(3);
    let urls = [&good.urls()[..], &[renamed.url(), closing_proxy()]].concat();
    let redlock = Redlock::builder().nodes(urls).node_timeout(ms(2_000));
    let redlock = redlock.build().expect("valid settings");
    redlock.ready().await.expect("three nodes are up");
    let down = |node: usize, part: &str| match redlock.nodes().swap_remove(node).state() {
        NodeState::Down(reason) => reason.to_string().contains(part),
        _ => false,
    };
    // Redis 6.2 quotes the command in other characters.
    let refused = "HELLO 3 is refused (ERR unknown command";
    eventually("the renamed HELLO is reported", || down(3, refused)).await;
    let closed = "closed by the server without a reply to HELLO 3";
    eventually("the close is reported", || down(4, closed)).await;
    let checks = redlock.check().await.expect("three nodes reply");
    let [Finding::Unreachable { failure }] = checks[3].findings() else { panic!("{}", checks[3]) };
    assert!(failure.to_string().contains("a server with a renamed HELLO"), "{failure}");
    assert_eq!(renamed.calls("auth") + renamed.calls("set"), 0, "no command follows");
}
