//! Each way in which a server refuses a command or a connection: it is that node's Failed vote, with
//! its reason, and never a sign that somebody holds the lock.

use crate::errors::{PASSWORD, USER, shown, told};
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

/// Looping scripts take all of the machine for a while: leave the servers time to say so. A server
/// that loads has lost its keys, which is not what these tests are about.
fn builder(urls: impl IntoIterator<Item = String>) -> Builder {
    builder_of(urls).restart_guard(RestartGuard::Off).node_timeout(ms(5_000)).ttl(ms(60_000))
}

/// True if exactly the nodes of `broken` have failed, for this reason, and nobody says "held".
fn blames(report: &Report, broken: &[Server], reason: &str) -> bool {
    report.nodes().iter().all(|node| {
        let is_broken = broken.iter().any(|server| node.name() == server.addr().to_string());
        match node.vote() {
            NodeVote::Failed(failure) => is_broken && failure.to_string().contains(reason),
            vote => !is_broken && matches!(vote, NodeVote::Granted | NodeVote::Pending),
        }
    })
}

/// The lock is acquired in spite of the `broken` ones, and its report says what is wrong with them.
async fn expect_outvoted(redlock: &Redlock, broken: &[Server], reason: &str) {
    let begun = Instant::now();
    loop {
        let lease = redlock.try_acquire("outvoted").await;
        let lease = lease.unwrap_or_else(|error| panic!("{reason}: {error}"));
        // The last answer may come after the decision.
        while !blames(&lease.report(), broken, reason) && begun.elapsed() < SOON {
            if !lease.report().nodes().iter().any(|node| *node.vote() == NodeVote::Pending) {
                break;
            }
            tokio::time::sleep(ms(2)).await;
        }
        shown(&lease);
        let text = told(&lease.report());
        let is_blamed = blames(&lease.report(), broken, reason);
        assert_eq!(lease.release().await.expect("a quorum is up"), ReleaseOutcome::Released);
        if is_blamed {
            return;
        }
        // A connection that has just been closed gives a reason of its own.
        assert!(begun.elapsed() < SOON, "not because of {reason}: {text}");
    }
}

/// Too few nodes are left without the `broken` ones: an outage, never contention.
async fn expect_outage(redlock: &Redlock, broken: &[Server], reason: &str) {
    let begun = Instant::now();
    loop {
        let refused = redlock.try_acquire("outage").await.expect_err("two of three are broken");
        let AcquireError::NoQuorum { report } = &refused else { panic!("{reason}: {refused}") };
        let text = told(&refused) + &told(&**report);
        if blames(report, broken, reason) {
            return;
        }
        assert!(begun.elapsed() < SOON, "not because of {reason}: {text}");
        tokio::time::sleep(ms(5)).await;
    }
}

async fn expect_all_up(redlock: &Redlock) {
    eventually("all nodes are up", || {
        shown(redlock);
        all_up(redlock)
    })
    .await;
}

/// Breaks one of three connected nodes, then a second, then heals them.
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
    let redlock = builder(cluster.iter().map(url)).build().expect("good settings");
    let held = redlock.try_acquire("held").await.expect("a free lock");
    let forgotten = redlock.try_acquire("forgotten").await.expect("a free lock");
    eventually("all have granted", || forgotten.report().granted() == 3).await;
    expect_all_up(&redlock).await;

    inject(&cluster[0]);
    expect_outvoted(&redlock, &cluster[..1], reason).await;
    inject(&cluster[1]);
    expect_outage(&redlock, &cluster[..2], reason).await;
    if let Err(error) = held.extend(ms(90_000)).await {
        assert!(told(&error).contains(reason) && matches!(error, ExtendError::NoQuorum { .. }));
    }
    assert!(held.is_valid(), "{reason}: nothing has taken it away");
    if let Err(error) = held.release().await {
        assert!(told(&error).contains(reason), "{reason}: {error}");
    }
    drop(forgotten);

    heal(&cluster[0]);
    heal(&cluster[1]);
    eventually("the releases that were refused have been delivered", || cluster.is_empty()).await;
    let lease = redlock.acquire("healed").wait(SOON).await.expect("all are up again");
    drop(lease);
    expect_all_up(&redlock).await;
    eventually("no key is left", || cluster.is_empty()).await;
}

fn config(server: &Server, name: &str, value: &str) {
    server.cmd(&["CONFIG", "SET", name, value]);
}

#[tokio::test]
async fn a_node_that_became_a_replica_is_read_only() {
    let master = Server::start();
    let port = master.port().to_string();
    let follow = |server: &Server| drop(server.cmd(&["REPLICAOF", "127.0.0.1", &port]));
    let lead = |server: &Server| drop(server.cmd(&["REPLICAOF", "NO", "ONE"]));
    // The first vote says READONLY; later ones that the node is down as a replica.
    check(&Server::builder(), "replica", follow, lead).await;
}

#[tokio::test]
async fn a_node_without_memory_says_oom() {
    let fill = |server: &Server| config(server, "maxmemory", "1");
    let grow = |server: &Server| config(server, "maxmemory", "0");
    check(&Server::builder(), "OOM", fill, grow).await;
}

#[tokio::test]
async fn a_node_that_forbids_set_says_noperm() {
    let forbid = |server: &Server| drop(server.cmd(&["ACL", "SETUSER", "default", "-set"]));
    let permit = |server: &Server| drop(server.cmd(&["ACL", "SETUSER", "default", "+set"]));
    check(&Server::builder(), "NOPERM", forbid, permit).await;
}

#[tokio::test]
async fn a_node_that_forbids_everything_says_noperm() {
    let forbid = |server: &Server| drop(server.cmd(&["ACL", "SETUSER", USER, "-@all"]));
    let permit = |server: &Server| drop(server.cmd(&["ACL", "SETUSER", USER, "+@all"]));
    check(&Server::builder().user(USER, PASSWORD), "NOPERM", forbid, permit).await;
}

#[tokio::test]
async fn a_node_that_cannot_save_says_misconf() {
    let fail_to_save = |server: &Server| {
        let reply = server.cmd(&["CONFIG", "GET", "dir"]);
        let dir: HashMap<String, String> = redis::from_redis_value(reply).expect("a map");
        // Nothing can be saved where a directory stands, not even by root.
        std::fs::create_dir(format!("{}/dump.rdb", dir["dir"])).expect("a writable directory");
        config(server, "save", "3600 1");
        server.cmd(&["BGSAVE"]);
        kit::eventually(SOON, "saving has failed", || {
            server.info("persistence")["rdb_last_bgsave_status"] == "err"
        });
    };
    check(&Server::builder(), "MISCONF", fail_to_save, |server| config(server, "save", "")).await;
}

#[tokio::test]
async fn a_node_that_is_busy_with_a_script_gets_its_releases_afterwards() {
    let occupy = |server: &Server| {
        config(server, "lua-time-limit", "1");
        let mut stream = TcpStream::connect(server.addr()).expect("it is up");
        stream.write_all(b"EVAL \"while true do end\" 0\r\n").expect("it is up");
        kit::eventually(SOON, "it is busy", || {
            server.try_cmd(&["PING"]).is_err_and(|error| error.code() == Some("BUSY"))
        });
    };
    let free = |server: &Server| {
        server.cmd(&["SCRIPT", "KILL"]);
        kit::eventually(SOON, "it is free", || server.try_cmd(&["PING"]).is_ok());
    };
    check(&Server::builder(), "BUSY", occupy, free).await;
}

#[tokio::test]
async fn a_node_that_is_loading_its_data_says_so() {
    let master = Server::start();
    config(&master, "repl-diskless-sync-delay", "0");
    config(&master, "rdbcompression", "no");
    let often = ["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"];
    // Before Redis 7.0 a server that loads answers after every 2 MiB, so it has to load more; and no
    // setting can be changed meanwhile, so it has to end by itself.
    let is_old = master.try_cmd(&often).is_err();
    let (size, delay_us) = if is_old { ("10240", "3500") } else { ("1024", "5000") };
    let fill = "for i = 1, 4000 do redis.call('SET', 'k' .. i, string.rep('x', ARGV[1])) end";
    master.cmd(&["EVAL", fill, "0", size]);
    let load = |server: &Server| {
        config(server, "replica-read-only", "no");
        config(server, "key-load-delay", delay_us);
        let _ = server.try_cmd(&often);
        server.cmd(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
        kit::eventually(SOON, "it loads", || server.info("persistence")["loading"] == "1");
    };
    let finish = |server: &Server| {
        if !is_old {
            config(server, "key-load-delay", "0");
        }
        let is_loaded = || server.info("persistence")["loading"] == "0";
        kit::eventually(SOON, "it has loaded", is_loaded);
        server.cmd(&["REPLICAOF", "NO", "ONE"]);
        server.cmd(&["EVAL", "for i = 1, 4000 do redis.call('DEL', 'k' .. i) end", "0"]);
    };
    check(&Server::builder(), "LOADING", load, finish).await;
}

#[tokio::test]
async fn a_password_that_was_changed_is_wrong_at_the_next_connection() {
    let password = |server: &Server, password: &str| {
        server.cmd(&["ACL", "SETUSER", USER, "resetpass", &format!(">{password}")]);
        server.cmd(&["CLIENT", "KILL", "USER", USER]);
    };
    let setup = Server::builder().user(USER, PASSWORD);
    let change = |server: &Server| password(server, "another");
    check(&setup, "WRONGPASS", change, |server| password(server, PASSWORD)).await;
}

/// With nodes that were broken before the client met them: one of three, then two.
async fn check_from_the_start(broken: &[Server; 2], url: impl Fn(&Server) -> String, reason: &str) {
    let sound = Cluster::start(2);
    let one = [url(&broken[0]), sound[0].url(), sound[1].url()];
    let one = builder(one).build().expect("good settings");
    expect_outvoted(&one, &broken[..1], reason).await;
    let two = [url(&broken[0]), sound[0].url(), url(&broken[1])];
    let two = builder(two).build().expect("good settings");
    expect_outage(&two, broken, reason).await;
    for redlock in [one, two] {
        eventually("it says so of its nodes too", || {
            let is_named = |node: &quorlock::NodeInfo| match node.state() {
                NodeState::Down(failure) => told(failure).contains(reason),
                NodeState::Up => true,
                _ => false,
            };
            shown(&redlock);
            redlock.nodes().iter().all(is_named)
        })
        .await;
    }
    eventually("no key is left", || sound.is_empty()).await;
}

#[tokio::test]
async fn a_replica_is_no_node() {
    let master = Server::start();
    let port = master.port().to_string();
    let replicas =
        [(); 2].map(|()| Server::builder().arg("--replicaof").arg("127.0.0.1").arg(&port).start());
    check_from_the_start(&replicas, Server::url, "replica: configure the address of a master")
        .await;
}

#[tokio::test]
async fn a_client_without_the_password_is_told_so() {
    let protected = [(); 2].map(|()| Server::builder().password(PASSWORD).start());
    check_from_the_start(&protected, Server::url, "NOAUTH").await;
}

#[tokio::test]
async fn a_client_with_a_wrong_password_is_told_so_without_it() {
    let protected = [(); 2].map(|()| Server::builder().user(USER, "another").start());
    let url = |server: &Server| format!("redis://{USER}:{PASSWORD}@{}", server.addr());
    check_from_the_start(&protected, url, "WRONGPASS").await;
}

#[tokio::test]
async fn a_server_that_repeats_an_unknown_command_gives_no_value_away() {
    let without_set =
        [(); 2].map(|()| Server::builder().arg("--rename-command").arg("SET").arg("").start());
    let is_old = without_set[0].info("server")["redis_version"].starts_with("6.");
    let reason = if is_old { "ERR unknown command `SET`" } else { "ERR unknown command 'SET'" };
    check_from_the_start(&without_set, Server::url, reason).await;
}

#[tokio::test]
async fn a_server_that_repeats_an_unknown_command_gives_no_password_away() {
    let args = ["--rename-command", "HELLO", "", "--rename-command", "AUTH", ""];
    let setup = args.iter().fold(Server::builder().user(USER, PASSWORD), ServerBuilder::arg);
    let without_auth = [(); 2].map(|()| setup.start());
    check_from_the_start(&without_auth, Server::url_with_auth, "ERR unknown command").await;
}

/// A connection that the server has taken: it has room as soon as it sees that earlier ones are gone.
fn admitted(server: &Server) -> TcpStream {
    let begun = Instant::now();
    loop {
        let mut stream = TcpStream::connect(server.addr()).expect("it is up");
        let mut reply = [0; 5];
        let asked = stream.write_all(b"PING\r\n").and_then(|()| stream.read_exact(&mut reply));
        if asked.is_ok() && reply == *b"+PONG" {
            return stream;
        }
        assert!(begun.elapsed() < SOON, "there is room for four");
    }
}

#[tokio::test]
async fn a_server_with_too_many_clients_is_down_until_some_leave() {
    let full = [(); 2].map(|()| Server::builder().arg("--maxclients").arg("4").start());
    let crowd_in = |server: &Server| [(); 4].map(|()| admitted(server));
    let crowd = full.each_ref().map(crowd_in);
    check_from_the_start(&full, Server::url, "ERR max number of clients reached").await;
    drop(crowd);
    let redlock = builder(full.iter().map(Server::url)).build().expect("good settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("there is room again");
    assert_eq!(lease.release().await.expect("both are up"), ReleaseOutcome::Released);
    assert!(full.iter().all(|server| server.keys().is_empty()));
}
