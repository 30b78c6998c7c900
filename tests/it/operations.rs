//! What docs/OPERATIONS.md tells operators to set is enough, and is what the examples set.

use crate::{SOON, begun, ms};
use kit::{Cluster, Server, ServerBuilder};
use quorlock::{Finding, NodeCheck, Redlock, RetryPolicy, Severity};
use redis::Value;
use std::time::Duration;

const OPERATIONS: &str = include_str!("../../docs/OPERATIONS.md");
const KUBERNETES: &str = include_str!("../../examples/kubernetes/nodes.yaml");

/// The directives below a line that is `title`, up to where the text ends that they stand in.
fn directives<'a>(text: &'a str, title: &str) -> Vec<Vec<&'a str>> {
    let lines = text.lines().skip_while(|line| line.trim() != title).skip(1);
    let lines = lines.take_while(|line| !matches!(line.trim(), "```" | "---"));
    let words = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let directives: Vec<_> =
        words.filter(|words| words.first().is_some_and(|word| !word.starts_with('#'))).collect();
    assert!(directives.len() > 2, "{title}: {directives:?}");
    directives
}

fn set_up(directives: &[Vec<&str>]) -> ServerBuilder {
    directives.iter().fold(Server::builder(), |setup, words| {
        let setup = setup.arg(format!("--{}", words[0]));
        words[1..].iter().fold(setup, |setup, word| setup.arg(word.trim_matches('"')))
    })
}

/// What is found in nodes that are set up like this, but that a restart forgets locks, which is said there.
async fn blamed(cluster: &Cluster, redlock: &Redlock) -> Vec<String> {
    assert_eq!(cluster.len(), 3);
    let nodes = redlock.check().await.expect("a client that works");
    let findings = nodes.iter().flat_map(NodeCheck::findings);
    let others = findings.filter(|finding| !matches!(finding, Finding::NotDurable { .. }));
    others.map(|finding| format!("{:?}: {finding}", finding.severity())).collect()
}

fn client(urls: Vec<String>) -> Redlock {
    let builder = Redlock::builder().nodes(urls).key_prefix("lock:").node_timeout(ms(1_000));
    builder.ttl(Duration::from_secs(30)).build().expect("good settings")
}

#[tokio::test]
async fn nodes_set_up_as_the_documents_say_are_blamed_for_nothing_else() {
    let documented = directives(OPERATIONS, "# redis.conf");
    let mapped = directives(KUBERNETES, "redis.conf: |");
    // What is in the manifest only needs a file, or is about others than us.
    let own = |words: &&Vec<&str>| matches!(words[0], "rename-command" | "aclfile");
    let (apart, shared): (Vec<_>, Vec<_>) = mapped.iter().partition(own);
    assert_eq!((shared, apart.len()), (documented.iter().collect(), 3));
    for directives in [&documented, &mapped] {
        let usable = directives.iter().filter(|words| words[0] != "aclfile").cloned();
        let cluster = Cluster::start_with(3, &set_up(&usable.collect::<Vec<_>>()));
        let redlock = client(cluster.urls());
        assert_eq!(blamed(&cluster, &redlock).await, [""; 0]);
    }
    // Where the policy is another one it is told: this test can fail.
    let evicting = set_up(&[vec!["maxmemory", "256mb"], vec!["maxmemory-policy", "allkeys-lru"]]);
    let cluster = Cluster::start_with(3, &evicting);
    let blamed = blamed(&cluster, &client(cluster.urls())).await;
    let dangers = blamed.iter().filter(|told| told.starts_with(&format!("{:?}", Severity::Danger)));
    assert_eq!(dangers.count(), 3, "{blamed:?}");
}

/// The words of the line that makes the user of the documents, after its name, and what the text below it has in
/// place of one of them for other servers.
fn rights() -> Vec<&'static str> {
    let line = OPERATIONS.lines().find_map(|line| line.strip_prefix("user locks "));
    let line = line.expect("a line that makes the user").split_whitespace();
    assert!(OPERATIONS.contains("`+delex`"), "the right of Redis 8.4 and later");
    line.chain(["+delex"]).collect()
}

/// Nodes with that user, who has all `rights` that they know, and its URLs.
fn with_user(rights: &[&str]) -> (Cluster, Vec<String>) {
    let cluster = Cluster::start(3);
    let is_known = |right: &&&str| {
        let command = right.strip_prefix('+').filter(|command| !command.contains('|'));
        let Some(command) = command else { return true };
        let told = cluster[0].cmd(&["COMMAND", "INFO", command]);
        !matches!(told, Value::Array(commands) if commands == [Value::Nil])
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

/// The commands that were refused to somebody.
fn refused(cluster: &Cluster) -> Vec<String> {
    let logs = cluster.iter().map(|node| node.cmd(&["ACL", "LOG"]));
    let entries = logs.flat_map(|log| match log {
        Value::Array(entries) => entries,
        other => panic!("no list: {other:?}"),
    });
    entries.map(|entry| format!("{entry:?}")).collect()
}

/// Everything that a lock can do.
async fn use_all(redlock: &Redlock, other: &Redlock) {
    let lease = redlock.acquire("r").fenced().auto_extend(SOON).await.expect("a free lock");
    lease.extend(Duration::from_secs(40)).await.expect("it is ours");
    assert!(other.status("r").await.expect("a client that works").is_held());
    let waiting = begun(|| other.acquire("r").fenced().wait(SOON));
    lease.release().await.expect("delivered");
    waiting.await.expect("it is free now").release().await.expect("delivered");
    let both = redlock.acquire_all(["{a}b", "{a}c"]).await.expect("free locks");
    both.release().await.expect("delivered");
    let lease = redlock.acquire("adopted").await.expect("a free lock");
    let heir = other.adopt("adopted", lease.value()).await.expect("it was handed over");
    heir.release_after(Duration::from_secs(30)).await.expect("delivered");
    redlock.force_release("adopted").await.expect("a client that works");
}

#[tokio::test]
async fn the_user_of_the_documents_may_do_all_that_a_lock_needs() {
    let (cluster, urls) = with_user(&rights());
    let (redlock, other) = (client(urls.clone()), client(urls));
    use_all(&redlock, &other).await;
    assert_eq!(blamed(&cluster, &redlock).await, [""; 0]);
    assert_eq!(refused(&cluster), [""; 0]);
}

#[tokio::test]
async fn each_right_of_that_user_is_needed_for_something() {
    for right in rights().into_iter().filter(|right| right.starts_with('+')) {
        let (cluster, urls) = with_user(&rights());
        let deny = right.replacen('+', "-", 1);
        if cluster[0].try_cmd(&["ACL", "SETUSER", "locks", &deny]).is_err() {
            continue; // It is unknown to this server.
        }
        for node in &cluster {
            node.cmd(&["ACL", "SETUSER", "locks", &deny]);
        }
        let (redlock, other) = (client(urls.clone()), client(urls));
        let lease = redlock.acquire("r").wait(ms(2_000)).await;
        if let Ok(lease) = lease {
            // The last attempt asks for the holder.
            let _ = other.acquire("r").wait(ms(500)).retry(RetryPolicy::none()).await;
            let _ = lease.extend(Duration::from_secs(40)).await;
            let _ = lease.release().await;
        }
        let several = ["{a}b", "{a}c"];
        if let Ok(lease) = redlock.try_acquire_all(several).await {
            // The refusal runs the script on every server.
            let _ = other.try_acquire_all(several).await;
            let _ = lease.release().await;
        }
        let _ = redlock.status("r").await;
        let _ = redlock.check().await;
        assert!(!refused(&cluster).is_empty(), "{right} is not needed");
    }
}
