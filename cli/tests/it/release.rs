//! Tests of `release` by value and by force, with locks of real clients.

use crate::shell_session::ShellSession;
use kit::{Cluster, eventually};
use quorlock::{Builder, Lease, Redlock, ReleaseOutcome};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

async fn client(nodes: &Cluster) -> Redlock {
    // The command under test has the same node timeout.
    let builder = Builder::default().nodes(nodes.urls()).node_timeout(Duration::from_secs(2));
    let client = builder.ttl(MINUTE).metadata("web-1:4711").build().expect("good settings");
    client.ready().await.expect("they are up");
    client
}

/// Waits until no key is left after a forced release. A holder that has not noticed the loss may restore a key, but
/// dropping the lease deletes it.
async fn await_loss(lease: Lease, nodes: &Cluster) {
    lease.lost().await;
    drop(lease);
    eventually(Duration::from_secs(20), "no key is left", || nodes.is_empty());
}

async fn held(client: &Redlock, name: &str) -> Lease {
    client.acquire(name).auto_extend_forever().await.expect("free")
}

#[tokio::test(flavor = "multi_thread")]
async fn release_by_value_needs_the_holders_value() {
    let (nodes, mut session) = ShellSession::start(3);
    let client = client(&nodes).await;
    let lease = held(&client, "backup").await;
    let value = lease.value().to_owned();
    session.name("[VALUE]", &value);

    let wrong = format!("{}:web-1:4711", "0".repeat(32));
    session.run(&["release", "backup", "--value", &wrong]);
    assert!(lease.is_valid());
    session.run(&["release", "backup", "--value", &value]);
    await_loss(lease, &nodes).await;
    session.run(&["release", "backup", "--value", &value]);

    let set = client.acquire_all(["a", "b"]).await.expect("free");
    session.name("[SET]", set.value());
    session.run(&["release", "a", "--value", set.value()]);
    assert!(set.is_valid());
    assert_eq!(set.release().await, Ok(ReleaseOutcome::Released));
    session.compare_with("release-value.txt");
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_release_deletes_the_lock_of_any_holder() {
    let (nodes, mut session) = ShellSession::start(3);
    let client = client(&nodes).await;
    let lease = held(&client, "backup").await;
    session.run(&["release", "backup", "--force"]);
    await_loss(lease, &nodes).await;
    session.run(&["release", "backup", "--force"]);

    // A failed attempt has left a key on one node.
    nodes[1].set("backup", "somebody");
    session.run(&["release", "backup", "--force"]);
    // A key that is not a lock is kept.
    nodes[1].cmd(&["RPUSH", "backup", "no", "lock"]);
    session.run(&["release", "backup", "--force"]);
    assert_eq!(nodes[1].keys(), [b"backup"]);
    // On two of three nodes, such keys block the lock, although the third node releases it.
    nodes[0].set("backup", "somebody");
    nodes[2].cmd(&["RPUSH", "backup", "no", "lock"]);
    session.run(&["release", "backup", "--force"]);
    session.compare_with("release-force.txt");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_without_quorum_reports_it() {
    let (nodes, mut session) = ShellSession::start(3);
    let client = client(&nodes).await;
    let lease = client.acquire("backup").await.expect("free");
    session.name("[VALUE]", lease.value());
    nodes[0].kill();
    session.run(&["release", "other", "--force"]);
    nodes[1].kill();
    session.run(&["release", "backup", "--value", lease.value()]);
    session.run(&["release", "backup", "--force"]);
    session.compare_with("release-unknown.txt");
}
