//! Tests with users that lack permission for one command, on one node of three and on all nodes.

use crate::{SOON, builder_of, eventually, ms};
use futures::future::join_all;
use kit::{Cluster, Server};
use quorlock::{Lease, Redlock, ReleaseOutcome};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const PASSWORD: &str = "secret";

/// The commands that the client needs, or uses if they are permitted.
const COMMANDS: [&str; 19] = [
    "set",
    "get",
    "del",
    "pttl",
    "pexpire",
    "evalsha",
    "eval",
    "script",
    "script|load",
    "client",
    "client|id",
    "client|tracking",
    "client|caching",
    "client|setname",
    "info",
    "ping",
    "hello",
    "config|get",
    "time",
];

/// A TTL that is short enough for the test to wait until keys expire, but longer than the operations of a lease take.
const TTL: Duration = ms(12_000);

/// The maximum number of commands per second, summed over all clients. A higher rate would mean that a client retries
/// in a loop without a pause. Clients repeat refused releases about twice per second, and each release runs a script of
/// several commands.
const MAX_PER_SECOND: u64 = 2_000;

fn user(command: &str) -> String {
    format!("no-{}", command.replace('|', "-"))
}

/// Starts servers with one user for each command in [`COMMANDS`]. A user lacks the permission for its command and has
/// all others.
fn cluster() -> Cluster {
    let cluster = Cluster::start(3);
    for node in &cluster {
        for command in COMMANDS {
            let (user, password) = (user(command), format!(">{PASSWORD}"));
            let rule = |rule: String| {
                let rules = ["ACL", "SETUSER", &user, "on", &password, "~*", "&*", "+@all", &rule];
                node.try_cmd(&rules)
            };
            // Before Redis 7.0, a command can only be forbidden together with its subcommands.
            let whole = command.split('|').next().unwrap_or(command);
            if rule(format!("-{command}")).is_err() {
                rule(format!("-{whole}")).expect("the server supports users");
            }
        }
    }
    cluster
}

/// Creates a client whose user may not call `command` on the first `nodes` nodes. The key prefix is the same as that of
/// the clients with all permissions.
fn without(cluster: &Cluster, command: &str, nodes: usize) -> Redlock {
    let user = user(command);
    let url = |(at, node): (usize, &Server)| {
        if at < nodes { format!("redis://{user}:{PASSWORD}@{}", node.addr()) } else { node.url() }
    };
    let builder = builder_of(cluster.iter().enumerate().map(url)).ttl(TTL);
    let builder = builder.key_prefix(format!("{user}:")).connect_timeout(ms(5_000));
    builder.build().expect("valid settings")
}

/// Returns, for each node, the keys of locks that have the prefix for `command`. Counters are not included.
fn keys(cluster: &Cluster, command: &str) -> Vec<Vec<String>> {
    let prefix = format!("{}:", user(command));
    let is_lock = |key: &String| key.starts_with(&prefix) && !key.contains("#quorlock:");
    let texts = |node: &Server| {
        let keys = node.keys().into_iter().map(|key| String::from_utf8_lossy(&key).into_owned());
        keys.filter(is_lock).collect()
    };
    cluster.iter().map(texts).collect()
}

fn total_calls(cluster: &Cluster) -> u64 {
    cluster.iter().map(Server::all_calls).sum()
}

async fn release(lease: Lease, what: &str) {
    let released = lease.release().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(released, ReleaseOutcome::Released, "{what}");
}

/// Checks that every operation of `redlock` succeeds although one node refuses `command`. `other` is a client with all
/// permissions.
async fn all_operations_work(redlock: &Redlock, other: &Redlock, command: &str) {
    let lease = redlock.acquire("plain").wait(SOON).await;
    let lease = lease.unwrap_or_else(|error| panic!("{command}: acquire: {error}"));
    lease.extend(TTL * 2).await.unwrap_or_else(|error| panic!("{command}: extend: {error}"));
    let status = redlock.status("plain").await.expect("the client is open");
    assert!(status.to_string().len() > 1, "{command}");
    release(lease, command).await;

    let fenced = redlock.acquire("fenced").fenced().wait(SOON).await;
    let fenced = fenced.unwrap_or_else(|error| panic!("{command}: fenced: {error}"));
    assert!(fenced.token().is_some(), "{command}");
    release(fenced, command).await;

    let set = redlock.acquire_all(["one", "two"]).wait(SOON).await;
    let set = set.unwrap_or_else(|error| panic!("{command}: set: {error}"));
    set.extend(TTL * 2).await.unwrap_or_else(|error| panic!("{command}: set: {error}"));
    release(set, command).await;

    let given = other.acquire("given").wait(SOON).await.expect("free");
    // The key must exist on every node on which `redlock` can adopt it.
    eventually("all nodes have granted", || given.report().granted() == 3).await;
    let adopted = redlock.adopt("given", given.value()).await;
    let adopted = adopted.unwrap_or_else(|error| panic!("{command}: adopt: {error}"));
    drop(given);
    release(adopted, command).await;

    let held = other.acquire("held").wait(SOON).await.expect("free");
    let waiting = tokio::spawn(redlock.acquire("held").wait(SOON * 2));
    sleep(ms(300)).await;
    assert!(!waiting.is_finished(), "{command}: it is held");
    release(held, command).await;
    let acquired = waiting.await.expect("no panic");
    let acquired = acquired.unwrap_or_else(|error| panic!("{command}: the wait failed: {error}"));
    release(acquired, command).await;
}

/// Checks that `close` returns within the time limit, and that an error names every node with a leftover key.
async fn close(redlock: &Redlock, cluster: &Cluster, command: &str, restricted: usize) {
    let closed = timeout(SOON, redlock.close()).await;
    let left = keys(cluster, command);
    match closed.unwrap_or_else(|_| panic!("{command}: close() does not end")) {
        Ok(()) => assert!(left.iter().all(Vec::is_empty), "{command}: {left:?} are left"),
        Err(error) => {
            let names = || cluster.iter().take(restricted).map(|node| node.addr().to_string());
            for (name, _) in error.undelivered() {
                assert!(names().any(|one| one == *name), "{command}: {error}");
            }
            for (node, left) in cluster.iter().zip(left) {
                let is_named =
                    error.undelivered().iter().any(|(name, _)| *name == node.addr().to_string());
                assert!(left.is_empty() || is_named, "{command}: {left:?} are left: {error}");
            }
        }
    }
}

#[tokio::test]
async fn operations_succeed_if_one_node_forbids_a_command() {
    let cluster = cluster();
    let clients = COMMANDS.map(|command| without(&cluster, command, 1));
    let verbs = COMMANDS.iter().zip(&clients).map(async |(command, redlock)| {
        let other = without(&cluster, command, 0);
        all_operations_work(redlock, &other, command).await;
        other.close().await.unwrap_or_else(|error| panic!("{command}: {error}"));
    });
    join_all(verbs).await;
    expect_no_retry_loop(&cluster, &clients).await;
    for command in COMMANDS {
        let left = keys(&cluster, command);
        assert!(left[1..].iter().all(Vec::is_empty), "{command}: {left:?}");
    }
    let closing = COMMANDS.iter().zip(&clients);
    join_all(closing.map(|(command, redlock)| close(redlock, &cluster, command, 1))).await;
    expect_keys_to_expire(&cluster).await;
}

async fn expect_keys_to_expire(cluster: &Cluster) {
    let started = std::time::Instant::now();
    while COMMANDS.iter().any(|command| keys(cluster, command).iter().any(|keys| !keys.is_empty()))
    {
        assert!(started.elapsed() < SOON + TTL * 3, "keys are left after their ttl");
        sleep(ms(50)).await;
    }
}

async fn expect_no_retry_loop(cluster: &Cluster, clients: &[Redlock]) {
    let before = total_calls(cluster);
    sleep(ms(1_000)).await;
    let calls = total_calls(cluster) - before;
    println!("{calls} commands in a second, of {} clients", clients.len());
    assert!(calls < MAX_PER_SECOND, "{calls} commands in a second without an active operation");
}

/// Checks that each operation of `redlock` returns. Returns the number of successful operations.
async fn all_operations_end(redlock: &Redlock, other: &Redlock, command: &str) -> usize {
    let hangs = |what: &str| -> ! { panic!("{command}: {what} does not end") };
    let mut works = 0;
    let acquires = [
        ("try", redlock.try_acquire("plain")),
        ("wait", redlock.acquire("waits").wait(ms(500))),
        ("fenced", redlock.acquire("fenced").fenced().wait(ms(500))),
        ("set", redlock.acquire_all(["one", "two"]).wait(ms(500))),
        ("fenced set", redlock.try_acquire_all(["three", "four"]).fenced()),
        ("renewed", redlock.try_acquire("renewed").auto_extend_forever()),
    ];
    for (what, acquire) in acquires {
        let Ok(lease) = timeout(SOON, acquire).await.unwrap_or_else(|_| hangs(what)) else {
            continue;
        };
        works += 1;
        let extended = timeout(SOON, lease.extend(TTL * 2)).await;
        works += usize::from(extended.unwrap_or_else(|_| hangs("extend")).is_ok());
        let released = timeout(SOON, lease.release()).await;
        works += usize::from(released.unwrap_or_else(|_| hangs("release")).is_ok());
    }
    let status = timeout(SOON, redlock.status("plain")).await;
    let status = status.unwrap_or_else(|_| hangs("status")).expect("the client is open");
    assert!(status.to_string().len() > 1, "{command}");
    let given = other.acquire("given").wait(SOON).await.expect("free");
    let adopted = timeout(SOON, redlock.adopt("given", given.value())).await;
    works += usize::from(adopted.unwrap_or_else(|_| hangs("adopt")).is_ok());
    let forced = timeout(SOON, redlock.force_release("given")).await;
    forced.unwrap_or_else(|_| hangs("force_release")).expect("the client is open");
    let held = other.acquire("held").wait(SOON).await.expect("free");
    let waited = timeout(SOON, redlock.acquire("held").wait(ms(600))).await;
    let waited = waited.unwrap_or_else(|_| hangs("a wait for a held lock"));
    assert!(waited.is_err(), "{command}: it is held");
    drop((given, held));
    works
}

#[tokio::test]
async fn operations_end_if_all_nodes_forbid_a_command() {
    let cluster = cluster();
    let clients = COMMANDS.map(|command| without(&cluster, command, 3));
    let verbs = COMMANDS.iter().zip(&clients).map(async |(command, redlock)| {
        let other = without(&cluster, command, 0);
        let works = all_operations_end(redlock, &other, command).await;
        other.close().await.unwrap_or_else(|error| panic!("{command}: {error}"));
        (*command, works)
    });
    let works = join_all(verbs).await;
    println!("verbs that work: {works:?}");
    // The 19 operations are six acquires, each with an extension and a release, and one adoption.
    let optional = ["script|load", "client", "client|id", "ping", "hello", "config|get", "time"];
    for (command, works) in works.iter().filter(|(command, _)| optional.contains(command)) {
        assert_eq!(*works, 19, "{command}");
    }
    expect_no_retry_loop(&cluster, &clients).await;
    let closing = COMMANDS.iter().zip(&clients);
    join_all(closing.map(|(command, redlock)| close(redlock, &cluster, command, 3))).await;
    expect_keys_to_expire(&cluster).await;
}
