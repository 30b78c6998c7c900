//! Tests that the settings in docs/OPERATIONS.md are sufficient, and that the examples use the same settings.

use crate::{SOON, ms, pending_acquire};
use kit::{Cluster, Server, ServerBuilder};
use quorlock::{Finding, NodeCheck, Redlock, ReleaseOutcome, RetryPolicy, Severity};
use redis::Value;
use std::time::Duration;

const OPERATIONS: &str = include_str!("../../docs/OPERATIONS.md");
const KUBERNETES: &str = include_str!("../../examples/kubernetes/nodes.yaml");

/// Returns the configuration directives between the line `title` and the end of the code block or document, split into
/// words.
fn directives<'a>(text: &'a str, title: &str) -> Vec<Vec<&'a str>> {
    let lines = text.lines().skip_while(|line| line.trim() != title).skip(1);
    let lines = lines.take_while(|line| !matches!(line.trim(), "```" | "---"));
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let directives: Vec<_> =
        words.filter(|words| words.first().is_some_and(|word| !word.starts_with('#'))).collect();
    assert!(directives.len() > 2, "{title}: {directives:?}");
    directives
}

fn server_with(directives: &[Vec<&str>]) -> ServerBuilder {
    directives.iter().fold(Server::builder(), |setup, words| {
        let setup = setup.arg(format!("--{}", words[0]));
        words[1..].iter().fold(setup, |setup, word| setup.arg(word.trim_matches('"')))
    })
}

/// Returns the findings of a check, except missing persistence, which these tests do not need.
async fn findings(cluster: &Cluster, redlock: &Redlock) -> Vec<String> {
    assert_eq!(cluster.len(), 3);
    let nodes = redlock.check().await.expect("the client is open");
    let all = nodes.iter().flat_map(NodeCheck::findings);
    let others = all.filter(|finding| !matches!(finding, Finding::NotDurable { .. }));
    others.map(|finding| format!("{:?}: {finding}", finding.severity())).collect()
}

fn client(urls: Vec<String>) -> Redlock {
    let builder = Redlock::builder().nodes(urls).key_prefix("lock:").node_timeout(ms(1_000));
    builder.ttl(Duration::from_secs(30)).build().expect("valid settings")
}

#[tokio::test]
async fn check_of_documented_setup_finds_only_persistence() {
    let documented = directives(OPERATIONS, "# redis.conf");
    let mapped = directives(KUBERNETES, "redis.conf: |");
    // The manifest's other directives need a file or concern other users.
    let own = |words: &&Vec<&str>| matches!(words[0], "rename-command" | "aclfile");
    let (apart, shared): (Vec<_>, Vec<_>) = mapped.iter().partition(own);
    assert_eq!((shared, apart.len()), (documented.iter().collect(), 3));
    for directives in [&documented, &mapped] {
        let usable = directives.iter().filter(|words| words[0] != "aclfile").cloned();
        let cluster = Cluster::start_with(3, &server_with(&usable.collect::<Vec<_>>()));
        let redlock = client(cluster.urls());
        assert_eq!(findings(&cluster, &redlock).await, [""; 0]);
    }
    // With another eviction policy, the check must report a danger. This shows that the test can fail.
    let evicting =
        server_with(&[vec!["maxmemory", "256mb"], vec!["maxmemory-policy", "allkeys-lru"]]);
    let cluster = Cluster::start_with(3, &evicting);
    let findings = findings(&cluster, &client(cluster.urls())).await;
    let dangers =
        findings.iter().filter(|text| text.starts_with(&format!("{:?}", Severity::Danger)));
    assert_eq!(dangers.count(), 3, "{findings:?}");
}

/// Returns the documented user's permissions, including the one that the document adds for Redis 8.4 and later.
fn rights() -> Vec<&'static str> {
    let line = OPERATIONS.lines().find_map(|line| line.strip_prefix("user locks "));
    let line = line.expect("a line that creates the user").split_whitespace();
    assert!(OPERATIONS.contains("`+delex`"), "the right of Redis 8.4 and later");
    line.chain(["+delex"]).collect()
}

/// Starts nodes on which the documented user has those of the `rights` that the server knows. Returns the nodes, and
/// their URLs with this user.
fn with_user(rights: &[&str]) -> (Cluster, Vec<String>) {
    let cluster = Cluster::start(3);
    let is_known = |right: &&&str| {
        let command = right.strip_prefix('+').filter(|command| !command.contains('|'));
        let Some(command) = command else { return true };
        let info = cluster[0].cmd(&["COMMAND", "INFO", command]);
        !matches!(info, Value::Array(commands) if commands == [Value::Nil])
    };
    let rights: Vec<_> = rights.iter().filter(is_known).copied().collect();
    for node in &cluster {
        node.cmd(&[&["ACL", "SETUSER", "locks"], &rights[..]].concat());
    }
    let password = rights.iter().find_map(|right| right.strip_prefix('>')).expect("a password");
    let url = |node: &Server| format!("redis://locks:{password}@{}", node.addr());
    let urls = cluster.iter().map(url).collect();
    (cluster, urls)
}

/// Returns the entries of the servers' ACL logs. An entry is a command that was refused.
fn refused(cluster: &Cluster) -> Vec<String> {
    let logs = cluster.iter().map(|node| node.cmd(&["ACL", "LOG"]));
    let entries = logs.flat_map(|log| match log {
        Value::Array(entries) => entries,
        other => panic!("not an array: {other:?}"),
    });
    entries.map(|entry| format!("{entry:?}")).collect()
}

async fn use_all(redlock: &Redlock, other: &Redlock) {
    let lease = redlock.acquire("r").fenced().auto_extend(SOON).await.expect("the lock is free");
    lease.extend(Duration::from_secs(40)).await.expect("the lease is held");
    assert!(other.status("r").await.expect("the client is open").is_held());
    let waiting = pending_acquire(|| other.acquire("r").fenced().wait(SOON));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    assert_eq!(
        waiting.await.expect("the lock is released").release().await,
        Ok(ReleaseOutcome::Released)
    );
    let both = redlock.acquire_all(["{a}b", "{a}c"]).await.expect("the locks are free");
    assert_eq!(both.release().await, Ok(ReleaseOutcome::Released));
    let lease = redlock.acquire("adopted").await.expect("the lock is free");
    let adopted = other.adopt("adopted", lease.value()).await.expect("the lock is held");
    assert_eq!(adopted.release_after(Duration::from_secs(30)).await, Ok(ReleaseOutcome::Released));
    redlock.force_release("adopted").await.expect("the client is open");
}

#[tokio::test]
async fn documented_user_can_run_every_operation() {
    let (cluster, urls) = with_user(&rights());
    let (redlock, other) = (client(urls.clone()), client(urls));
    use_all(&redlock, &other).await;
    assert_eq!(findings(&cluster, &redlock).await, [""; 0]);
    assert_eq!(refused(&cluster), [""; 0]);
}

#[tokio::test]
async fn every_documented_permission_is_needed() {
    for right in rights().into_iter().filter(|right| right.starts_with('+')) {
        let (cluster, urls) = with_user(&rights());
        let deny = right.replacen('+', "-", 1);
        if cluster[0].try_cmd(&["ACL", "SETUSER", "locks", &deny]).is_err() {
            continue; // This server does not know the command.
        }
        for node in &cluster {
            node.cmd(&["ACL", "SETUSER", "locks", &deny]);
        }
        let (redlock, other) = (client(urls.clone()), client(urls));
        let lease = redlock.acquire("r").wait(ms(2_000)).await;
        if let Ok(lease) = lease {
            // The acquire's last attempt reads the holder.
            let _ = other.acquire("r").wait(ms(500)).retry(RetryPolicy::none()).await;
            let _ = lease.extend(Duration::from_secs(40)).await;
            let _ = lease.release().await;
        }
        let several = ["{a}b", "{a}c"];
        if let Ok(lease) = redlock.try_acquire_all(several).await {
            // A refused acquire runs the script on every server.
            let _ = other.try_acquire_all(several).await;
            let _ = lease.release().await;
        }
        let _ = redlock.status("r").await;
        let _ = redlock.check().await;
        assert!(!refused(&cluster).is_empty(), "{right} is not needed");
    }
}
