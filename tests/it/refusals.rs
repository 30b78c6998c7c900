//! Tests of all the ways in which a server can refuse a command or a connection. A refusal is a failed vote that
//! contains the server's reason, and never counts as contention.

use crate::errors::{PASSWORD, USER, debug, display};
use crate::{SOON, all_up, builder_of, eventually, ms};
use kit::{Cluster, Server, ServerBuilder};
use quorlock::{
    AcquireError, Builder, ExtendError, NodeState, NodeVote, Redlock, ReleaseOutcome, Report,
    RestartGuard,
};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Returns settings for these tests. The node timeout is long because looping scripts use the whole processor while the
/// servers have to reply. The restart guard is off because a server that loads has lost its keys; other tests check
/// this case.
fn builder(urls: impl IntoIterator<Item = String>) -> Builder {
    builder_of(urls).restart_guard(RestartGuard::Off).node_timeout(ms(5_000)).ttl(ms(60_000))
}

/// Returns true if exactly the `broken` nodes have failed, each with `reason`, and no node reports that the lock is
/// held.
fn only_broken_failed(report: &Report, broken: &[Server], reason: &str) -> bool {
    report.nodes().iter().all(|node| {
        let is_broken = broken.iter().any(|server| node.name() == server.addr().to_string());
        match node.vote() {
            NodeVote::Failed(failure) => is_broken && failure.to_string().contains(reason),
            vote => !is_broken && matches!(vote, NodeVote::Granted | NodeVote::Pending),
        }
    })
}

/// Checks that the lock can be acquired although the `broken` nodes fail, and that the report contains `reason` for
/// them.
async fn expect_acquired_without(redlock: &Redlock, broken: &[Server], reason: &str) {
    let started = Instant::now();
    loop {
        let lease = redlock.try_acquire("outvoted").await;
        let lease = lease.unwrap_or_else(|error| panic!("{reason}: {error}"));
        // The last reply may arrive after the decision.
        while !only_broken_failed(&lease.report(), broken, reason) && started.elapsed() < SOON {
            if !lease.report().nodes().iter().any(|node| *node.vote() == NodeVote::Pending) {
                break;
            }
            tokio::time::sleep(ms(2)).await;
        }
        debug(&lease);
        let text = display(&lease.report());
        let is_reported = only_broken_failed(&lease.report(), broken, reason);
        assert_eq!(lease.release().await.expect("a quorum is up"), ReleaseOutcome::Released);
        if is_reported {
            return;
        }
        // A connection that was just closed reports a different reason, so the test tries again.
        assert!(started.elapsed() < SOON, "the report lacks {reason}: {text}");
    }
}

/// Checks that the lock cannot be acquired because a quorum of nodes is broken, and that the error reports an outage
/// instead of contention.
async fn expect_outage(redlock: &Redlock, broken: &[Server], reason: &str) {
    let started = Instant::now();
    loop {
        let refused =
            redlock.try_acquire("outage").await.expect_err("two of three nodes are broken");
        let AcquireError::NoQuorum { report } = &refused else { panic!("{reason}: {refused}") };
        let text = display(&refused) + &display(&**report);
        if only_broken_failed(report, broken, reason) {
            return;
        }
        assert!(started.elapsed() < SOON, "the report lacks {reason}: {text}");
        tokio::time::sleep(ms(5)).await;
    }
}

async fn expect_all_up(redlock: &Redlock) {
    eventually("all nodes are up", || {
        debug(redlock);
        all_up(redlock)
    })
    .await;
}

/// Checks acquires while a client's connected nodes break: first one of three, then a second one. Finally, both are
/// repaired.
async fn check(
    setup: &ServerBuilder,
    reason: &str,
    inject: impl Fn(&Server),
    heal: impl Fn(&Server),
) {
    let cluster = Cluster::start_with(3, setup);
    let has_user =
        cluster[0].try_cmd(&["ACL", "GETUSER", USER]).is_ok_and(|user| user != redis::Value::Nil);
    let url = |server| if has_user { Server::url_with_auth(server) } else { Server::url(server) };
    let redlock = builder(cluster.iter().map(url)).build().expect("valid settings");
    let held = redlock.try_acquire("held").await.expect("the lock is free");
    let forgotten = redlock.try_acquire("forgotten").await.expect("the lock is free");
    eventually("all nodes have granted", || forgotten.report().granted() == 3).await;
    expect_all_up(&redlock).await;

    inject(&cluster[0]);
    expect_acquired_without(&redlock, &cluster[..1], reason).await;
    inject(&cluster[1]);
    expect_outage(&redlock, &cluster[..2], reason).await;
    if let Err(error) = held.extend(ms(90_000)).await {
        assert!(display(&error).contains(reason) && matches!(error, ExtendError::NoQuorum { .. }));
    }
    assert!(held.is_valid(), "{reason}: failed extensions do not end the lease");
    if let Err(error) = held.release().await {
        assert!(display(&error).contains(reason), "{reason}: {error}");
    }
    drop(forgotten);

    heal(&cluster[0]);
    heal(&cluster[1]);
    eventually("the refused releases are delivered", || cluster.is_empty()).await;
    let lease = redlock.acquire("healed").wait(SOON).await.expect("all nodes are up");
    drop(lease);
    expect_all_up(&redlock).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

fn config(server: &Server, name: &str, value: &str) {
    server.cmd(&["CONFIG", "SET", name, value]);
}

#[tokio::test]
async fn demoted_node_is_reported_as_replica() {
    let master = Server::start();
    let port = master.port().to_string();
    let follow = |server: &Server| drop(server.cmd(&["REPLICAOF", "127.0.0.1", &port]));
    let lead = |server: &Server| drop(server.cmd(&["REPLICAOF", "NO", "ONE"]));
    // The first vote is the READONLY error. Later votes report the node as a replica.
    check(&Server::builder(), "replica", follow, lead).await;
}

#[tokio::test]
async fn node_without_memory_is_reported_as_oom() {
    let fill = |server: &Server| config(server, "maxmemory", "1");
    let grow = |server: &Server| config(server, "maxmemory", "0");
    check(&Server::builder(), "OOM", fill, grow).await;
}

#[tokio::test]
async fn node_that_forbids_set_is_reported_as_noperm() {
    let forbid = |server: &Server| drop(server.cmd(&["ACL", "SETUSER", "default", "-set"]));
    let permit = |server: &Server| drop(server.cmd(&["ACL", "SETUSER", "default", "+set"]));
    check(&Server::builder(), "NOPERM", forbid, permit).await;
}

#[tokio::test]
async fn node_that_forbids_everything_is_reported_as_noperm() {
    let forbid = |server: &Server| drop(server.cmd(&["ACL", "SETUSER", USER, "-@all"]));
    let permit = |server: &Server| drop(server.cmd(&["ACL", "SETUSER", USER, "+@all"]));
    check(&Server::builder().user(USER, PASSWORD), "NOPERM", forbid, permit).await;
}

#[tokio::test]
async fn node_that_cannot_save_is_reported_as_misconf() {
    let fail_to_save = |server: &Server| {
        let reply = server.cmd(&["CONFIG", "GET", "dir"]);
        let dir: HashMap<String, String> = redis::from_redis_value(reply).expect("a map");
        // A directory with the name of the dump prevents the dump, even for root.
        std::fs::create_dir(format!("{}/dump.rdb", dir["dir"])).expect("a writable directory");
        config(server, "save", "3600 1");
        server.cmd(&["BGSAVE"]);
        kit::eventually(SOON, "the dump fails", || {
            server.info("persistence")["rdb_last_bgsave_status"] == "err"
        });
    };
    check(&Server::builder(), "MISCONF", fail_to_save, |server| config(server, "save", "")).await;
}

#[tokio::test]
async fn node_busy_with_a_script_receives_releases_later() {
    let occupy = |server: &Server| {
        config(server, "lua-time-limit", "1");
        let mut stream = TcpStream::connect(server.addr()).expect("the server is up");
        stream.write_all(b"EVAL \"while true do end\" 0\r\n").expect("the server is up");
        kit::eventually(SOON, "the server is busy", || {
            server.try_cmd(&["PING"]).is_err_and(|error| error.code() == Some("BUSY"))
        });
    };
    let free = |server: &Server| {
        server.cmd(&["SCRIPT", "KILL"]);
        kit::eventually(SOON, "the script has ended", || server.try_cmd(&["PING"]).is_ok());
    };
    check(&Server::builder(), "BUSY", occupy, free).await;
}

#[tokio::test]
async fn loading_node_is_reported_as_loading() {
    let master = Server::start();
    config(&master, "repl-diskless-sync-delay", "0");
    config(&master, "rdbcompression", "no");
    let often = ["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"];
    // Before Redis 7.0, a loading server answers only after every 2 MiB, so it must load more. It also refuses `CONFIG
    // SET` while it loads, so the test cannot shorten the load.
    let is_old = master.try_cmd(&often).is_err();
    let (size, delay_us) = if is_old { ("10240", "3500") } else { ("1024", "5000") };
    let fill = "for i = 1, 4000 do redis.call('SET', 'k' .. i, string.rep('x', ARGV[1])) end";
    master.cmd(&["EVAL", fill, "0", size]);
    let load = |server: &Server| {
        config(server, "replica-read-only", "no");
        config(server, "key-load-delay", delay_us);
        let _ = server.try_cmd(&often);
        server.cmd(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        kit::eventually(SOON, "the server loads", || server.info("persistence")["loading"] == "1");
    };
    let finish = |server: &Server| {
        if !is_old {
            config(server, "key-load-delay", "0");
        }
        let is_loaded = || server.info("persistence")["loading"] == "0";
        kit::eventually(SOON, "the load has ended", is_loaded);
        server.cmd(&["REPLICAOF", "NO", "ONE"]);
        server.cmd(&["EVAL", "for i = 1, 4000 do redis.call('DEL', 'k' .. i) end", "0"]);
    };
    check(&Server::builder(), "LOADING", load, finish).await;
}

#[tokio::test]
async fn changed_password_is_wrong_at_the_next_connection() {
    let password = |server: &Server, password: &str| {
        server.cmd(&["ACL", "SETUSER", USER, "resetpass", &format!(">{password}")]);
        server.cmd(&["CLIENT", "KILL", "USER", USER]);
    };
    let setup = Server::builder().user(USER, PASSWORD);
    let change = |server: &Server| password(server, "another");
    check(&setup, "WRONGPASS", change, |server| password(server, PASSWORD)).await;
}

/// Checks acquires with nodes that were broken before the client connected: first one of three, then two.
async fn check_initially_broken(
    broken: &[Server; 2],
    url: impl Fn(&Server) -> String,
    reason: &str,
) {
    let working = Cluster::start(2);
    let one = [url(&broken[0]), working[0].url(), working[1].url()];
    let one = builder(one).build().expect("valid settings");
    expect_acquired_without(&one, &broken[..1], reason).await;
    let two = [url(&broken[0]), working[0].url(), url(&broken[1])];
    let two = builder(two).build().expect("valid settings");
    expect_outage(&two, broken, reason).await;
    for redlock in [one, two] {
        eventually("the state of the nodes contains the reason", || {
            let is_named = |node: &quorlock::NodeInfo| match node.state() {
                NodeState::Down(failure) => display(failure).contains(reason),
                NodeState::Up => true,
                _ => false,
            };
            debug(&redlock);
            redlock.nodes().iter().all(is_named)
        })
        .await;
    }
    eventually("no key is left", || working.is_empty()).await;
}

#[tokio::test]
async fn replica_is_refused_as_a_node() {
    let master = Server::start();
    let port = master.port().to_string();
    let replicas =
        [(); 2].map(|()| Server::builder().arg("--replicaof").arg("127.0.0.1").arg(&port).start());
    check_initially_broken(&replicas, Server::url, "replica: configure the address of a master")
        .await;
}

#[tokio::test]
async fn missing_password_is_reported() {
    let protected = [(); 2].map(|()| Server::builder().password(PASSWORD).start());
    check_initially_broken(&protected, Server::url, "NOAUTH").await;
}

#[tokio::test]
async fn wrong_password_is_reported_without_it() {
    let protected = [(); 2].map(|()| Server::builder().user(USER, "another").start());
    let url = |server: &Server| format!("redis://{USER}:{PASSWORD}@{}", server.addr());
    check_initially_broken(&protected, url, "WRONGPASS").await;
}

#[tokio::test]
async fn unknown_command_error_hides_the_lock_value() {
    let without_set =
        [(); 2].map(|()| Server::builder().arg("--rename-command").arg("SET").arg("").start());
    let is_old = without_set[0].info("server")["redis_version"].starts_with("6.");
    let reason = if is_old { "ERR unknown command `SET`" } else { "ERR unknown command 'SET'" };
    check_initially_broken(&without_set, Server::url, reason).await;
}

#[tokio::test]
async fn unknown_command_error_hides_the_password() {
    let args = ["--rename-command", "HELLO", "", "--rename-command", "AUTH", ""];
    let setup = args.iter().fold(Server::builder().user(USER, PASSWORD), ServerBuilder::arg);
    let without_auth = [(); 2].map(|()| setup.start());
    check_initially_broken(&without_auth, Server::url_with_auth, "ERR unknown command").await;
}

/// Opens connections until the server accepts one, and returns this connection. The server may refuse connections until
/// it has noticed that earlier ones were closed.
fn admitted(server: &Server) -> TcpStream {
    let started = Instant::now();
    loop {
        let mut stream = TcpStream::connect(server.addr()).expect("the server is up");
        let mut reply = [0; 5];
        let asked = stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut reply));
        if asked.is_ok() && reply == *b"+PONG" {
            return stream;
        }
        assert!(started.elapsed() < SOON, "the server must accept four connections");
    }
}

#[tokio::test]
async fn server_with_too_many_clients_is_down() {
    let full = [(); 2].map(|()| Server::builder().arg("--maxclients").arg("4").start());
    let connect = |server: &Server| [(); 4].map(|()| admitted(server));
    let connections = full.each_ref().map(connect);
    check_initially_broken(&full, Server::url, "ERR max number of clients reached").await;
    drop(connections);
    let redlock = builder(full.iter().map(Server::url)).build().expect("valid settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("the servers accept connections");
    assert_eq!(lease.release().await.expect("nodes are up"), ReleaseOutcome::Released);
    assert!(full.iter().all(|server| server.keys().is_empty()));
}
