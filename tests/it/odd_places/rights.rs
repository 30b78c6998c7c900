//! Users who may run everything but one command: on one node of three, and on all.

use crate::{SOON, builder_of, eventually, ms};
use futures::future::join_all;
use kit::{Cluster, Server};
use quorlock::{Lease, Redlock, ReleaseOutcome};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const PASSWORD: &str = "secret";

/// What a lock needs, or likes to have.
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

/// Short enough to be sat out, and longer than all that is done under it.
const TTL: Duration = ms(12_000);

/// More commands in a second, of all clients together, are a loop without a pause. What a node refuses
/// is repeated twice a second and more: a few releases of some clients, each with what it does in its
/// script.
const MOST_PER_SECOND: u64 = 2_000;

fn user(command: &str) -> String {
    format!("no-{}", command.replace('|', "-"))
}

/// Servers that know for each command a user who may run all others.
fn cluster() -> Cluster {
    let cluster = Cluster::start(3);
    for node in &cluster {
        for command in COMMANDS {
            let (user, password) = (user(command), format!(">{PASSWORD}"));
            let rule = |rule: String| {
                let rules = ["ACL", "SETUSER", &user, "on", &password, "~*", "&*", "+@all", &rule];
                node.try_cmd(&rules)
            };
            // Before Redis 7.0 a command is forbidden with all of its subcommands.
            let whole = command.split('|').next().unwrap_or(command);
            if rule(format!("-{command}")).is_err() {
                rule(format!("-{whole}")).expect("users are known");
            }
        }
    }
    cluster
}

/// A client that may not run `command` on the first `nodes`, and shares its locks with those that may.
fn without(cluster: &Cluster, command: &str, nodes: usize) -> Redlock {
    let user = user(command);
    let url = |(at, node): (usize, &Server)| {
        if at < nodes { format!("redis://{user}:{PASSWORD}@{}", node.addr()) } else { node.url() }
    };
    let builder = builder_of(cluster.iter().enumerate().map(url)).ttl(TTL);
    let builder = builder.key_prefix(format!("{user}:")).connect_timeout(ms(5_000));
    builder.build().expect("good settings")
}

/// The keys of locks (and not of counters) with the prefix for `command`, on each node.
fn keys(cluster: &Cluster, command: &str) -> Vec<Vec<String>> {
    let prefix = format!("{}:", user(command));
    let is_lock = |key: &String| key.starts_with(&prefix) && !key.contains("#quorlock:");
    let texts = |node: &Server| {
        let keys = node.keys().into_iter().map(|key| String::from_utf8_lossy(&key).into_owned());
        keys.filter(is_lock).collect()
    };
    cluster.iter().map(texts).collect()
}

fn asked_for(cluster: &Cluster) -> u64 {
    cluster.iter().map(Server::all_calls).sum()
}

async fn release(lease: Lease, what: &str) {
    let released = lease.release().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(released, ReleaseOutcome::Released, "{what}");
}

/// Every verb works, though one node refuses `command`.
async fn all_verbs_work(redlock: &Redlock, theirs: &Redlock, command: &str) {
    let lease = redlock.acquire("plain").wait(SOON).await;
    let lease = lease.unwrap_or_else(|error| panic!("{command}: acquire: {error}"));
    lease.extend(TTL * 2).await.unwrap_or_else(|error| panic!("{command}: extend: {error}"));
    let status = redlock.status("plain").await.expect("nodes can be asked");
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

    let given = theirs.acquire("given").wait(SOON).await.expect("free");
    // It must stand on the nodes that can take it over.
    eventually("all have granted", || given.report().granted() == 3).await;
    let adopted = redlock.adopt("given", given.value()).await;
    let adopted = adopted.unwrap_or_else(|error| panic!("{command}: adopt: {error}"));
    drop(given);
    release(adopted, command).await;

    let held = theirs.acquire("held").wait(SOON).await.expect("free");
    let waiting = tokio::spawn(redlock.acquire("held").wait(SOON * 2));
    sleep(ms(300)).await;
    assert!(!waiting.is_finished(), "{command}: it is held");
    release(held, command).await;
    let had = waiting.await.expect("no panic");
    let had = had.unwrap_or_else(|error| panic!("{command}: waited in vain: {error}"));
    release(had, command).await;
}

/// It ends, and says the truth: either no key is left, or the nodes are named that keep some.
async fn close(redlock: &Redlock, cluster: &Cluster, command: &str, crippled: usize) {
    let closed = timeout(SOON, redlock.close()).await;
    let left = keys(cluster, command);
    match closed.unwrap_or_else(|_| panic!("{command}: close() hangs")) {
        Ok(()) => assert!(left.iter().all(Vec::is_empty), "{command}: {left:?} are left"),
        Err(error) => {
            let names = || cluster.iter().take(crippled).map(|node| node.addr().to_string());
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
async fn with_one_command_forbidden_on_one_node_nothing_is_lost() {
    let cluster = cluster();
    let clients = COMMANDS.map(|command| without(&cluster, command, 1));
    let verbs = COMMANDS.iter().zip(&clients).map(async |(command, redlock)| {
        let theirs = without(&cluster, command, 0);
        all_verbs_work(redlock, &theirs, command).await;
        theirs.close().await.unwrap_or_else(|error| panic!("{command}: {error}"));
    });
    join_all(verbs).await;
    expect_calm(&cluster, &clients).await;
    for command in COMMANDS {
        let left = keys(&cluster, command);
        assert!(left[1..].iter().all(Vec::is_empty), "{command}: {left:?}");
    }
    let closing = COMMANDS.iter().zip(&clients);
    join_all(closing.map(|(command, redlock)| close(redlock, &cluster, command, 1))).await;
    expect_gone(&cluster).await;
}

/// What could not be released ends with its ttl.
async fn expect_gone(cluster: &Cluster) {
    let begun = std::time::Instant::now();
    while COMMANDS.iter().any(|command| keys(cluster, command).iter().any(|keys| !keys.is_empty()))
    {
        assert!(begun.elapsed() < SOON + TTL * 3, "keys are left after their ttl");
        sleep(ms(50)).await;
    }
}

/// Nothing is done over and over while nobody asks for anything.
async fn expect_calm(cluster: &Cluster, clients: &[Redlock]) {
    let before = asked_for(cluster);
    sleep(ms(1_000)).await;
    let asked = asked_for(cluster) - before;
    println!("{asked} commands in a second, of {} clients", clients.len());
    assert!(asked < MOST_PER_SECOND, "{asked} commands in a second, and nobody asks");
}

/// Each verb ends, with whatever it has to say.
async fn all_verbs_end(redlock: &Redlock, theirs: &Redlock, command: &str) -> usize {
    let hangs = |what: &str| -> ! { panic!("{command}: {what} hangs") };
    let mut works = 0;
    let acquires = [
        ("try", redlock.try_acquire("plain")),
        ("wait", redlock.acquire("waits").wait(ms(500))),
        ("fenced", redlock.acquire("fenced").fenced().wait(ms(500))),
        ("set", redlock.acquire_all(["one", "two"]).wait(ms(500))),
        ("fenced set", redlock.try_acquire_all(["three", "four"]).fenced()),
        ("kept up", redlock.try_acquire("kept up").auto_extend_forever()),
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
    let status = status.unwrap_or_else(|_| hangs("status")).expect("nodes can be asked");
    assert!(status.to_string().len() > 1, "{command}");
    let given = theirs.acquire("given").wait(SOON).await.expect("free");
    let adopted = timeout(SOON, redlock.adopt("given", given.value())).await;
    works += usize::from(adopted.unwrap_or_else(|_| hangs("adopt")).is_ok());
    let forced = timeout(SOON, redlock.force_release("given")).await;
    forced.unwrap_or_else(|_| hangs("force_release")).expect("nodes can be asked");
    let held = theirs.acquire("held").wait(SOON).await.expect("free");
    let waited = timeout(SOON, redlock.acquire("held").wait(ms(600))).await;
    let waited = waited.unwrap_or_else(|_| hangs("a wait for a held lock"));
    assert!(waited.is_err(), "{command}: it is held");
    drop((given, held));
    works
}

#[tokio::test]
async fn with_one_command_forbidden_on_all_nodes_every_verb_ends() {
    let cluster = cluster();
    let clients = COMMANDS.map(|command| without(&cluster, command, 3));
    let verbs = COMMANDS.iter().zip(&clients).map(async |(command, redlock)| {
        let theirs = without(&cluster, command, 0);
        let works = all_verbs_end(redlock, &theirs, command).await;
        theirs.close().await.unwrap_or_else(|error| panic!("{command}: {error}"));
        (*command, works)
    });
    let works = join_all(verbs).await;
    println!("verbs that work: {works:?}");
    // Six acquires, each extended and released, and an adoption.
    let liked = ["script|load", "client", "client|id", "ping", "hello", "config|get", "time"];
    for (command, works) in works.iter().filter(|(command, _)| liked.contains(command)) {
        assert_eq!(*works, 19, "{command}");
    }
    expect_calm(&cluster, &clients).await;
    let closing = COMMANDS.iter().zip(&clients);
    join_all(closing.map(|(command, redlock)| close(redlock, &cluster, command, 3))).await;
    expect_gone(&cluster).await;
}
