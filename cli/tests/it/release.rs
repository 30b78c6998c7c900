//! `release`: by value and by force, with the locks of real clients.

use crate::scene::Scene;
use kit::{Cluster, eventually};
use quorlock::{Builder, Lease, Redlock};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

async fn client(nodes: &Cluster) -> Redlock {
    // The same node timeout as the command's.
    let builder = Builder::default().nodes(nodes.urls()).node_timeout(Duration::from_secs(2));
    let client = builder.ttl(MINUTE).metadata("web-1:4711").build().expect("good settings");
    client.ready().await.expect("they are up");
    client
}

/// Waits until no key is left. A holder that has not noticed the loss may restore a key; it deletes it with the lease.
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
    let (nodes, mut scene) = Scene::start(3);
    let client = client(&nodes).await;
    let lease = held(&client, "backup").await;
    let value = lease.value().to_owned();
    scene.name("[VALUE]", &value);

    let wrong = format!("{}:web-1:4711", "0".repeat(32));
    scene.run(&["release", "backup", "--value", &wrong]);
    assert!(lease.is_valid());
    scene.run(&["release", "backup", "--value", &value]);
    await_loss(lease, &nodes).await;
    scene.run(&["release", "backup", "--value", &value]);

    let set = client.acquire_all(["a", "b"]).await.expect("free");
    scene.name("[SET]", set.value());
    scene.run(&["release", "a", "--value", set.value()]);
    assert!(set.is_valid());
    set.release().await.expect("they answer");
    scene.compare_with("release-value.txt");
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_release_deletes_the_lock_of_any_holder() {
    let (nodes, mut scene) = Scene::start(3);
    let client = client(&nodes).await;
    let lease = held(&client, "backup").await;
    scene.run(&["release", "backup", "--force"]);
    await_loss(lease, &nodes).await;
    scene.run(&["release", "backup", "--force"]);

    // A key on one node, left by a failed attempt.
    nodes[1].set("backup", "somebody");
    scene.run(&["release", "backup", "--force"]);
    // A key that is no lock is kept.
    nodes[1].cmd(&["RPUSH", "backup", "no", "lock"]);
    scene.run(&["release", "backup", "--force"]);
    assert_eq!(nodes[1].keys(), [b"backup"]);
    // On a majority, such keys block the lock, although a third node releases it.
    nodes[0].set("backup", "somebody");
    nodes[2].cmd(&["RPUSH", "backup", "no", "lock"]);
    scene.run(&["release", "backup", "--force"]);
    scene.compare_with("release-force.txt");
}

#[tokio::test(flavor = "multi_thread")]
async fn release_without_quorum_reports_it() {
    let (nodes, mut scene) = Scene::start(3);
    let client = client(&nodes).await;
    let lease = client.acquire("backup").await.expect("free");
    scene.name("[VALUE]", lease.value());
    nodes[0].kill();
    scene.run(&["release", "other", "--force"]);
    nodes[1].kill();
    scene.run(&["release", "backup", "--value", lease.value()]);
    scene.run(&["release", "backup", "--force"]);
    scene.compare_with("release-unknown.txt");
}
