//! Tests of a client that is configured by environment variables.

use crate::{SOON, ms};
use kit::{Cluster, Rerun};
use quorlock::{Builder, ConfigError, ReleaseOutcome};

#[test]
fn client_is_configured_by_environment_variables() {
    let cluster = Cluster::start(3);
    let nodes = cluster.urls().join(" ");
    let settings = [
        ("LOCKS_NODES", &*nodes),
        ("LOCKS_TTL", "25s"),
        ("LOCKS_NODE_TIMEOUT", "2s"),
        ("LOCKS_METADATA", "by variable"),
        ("LOCKS_KEY_PREFIX", "app:"),
    ];
    let args = ["--ignored", "--exact", "variables::worker", "--nocapture"];
    let rerun = Rerun::start(&args, &settings);
    rerun.finish(2 * SOON);
    assert!(rerun.output().contains("1 passed"), "{}", rerun.output());
}

#[tokio::test]
#[ignore = "runs in a process that the test above starts"]
async fn worker() {
    let redlock = Builder::from_env("LOCKS").expect("valid variables").build();
    let redlock = redlock.expect("valid settings");
    let lease = redlock.acquire("r").wait(SOON).await.expect("free");
    assert!(lease.validity() > ms(12_000) && lease.validity() < ms(25_000), "{lease:?}");
    let status = redlock.status("r").await.expect("nodes are up");
    assert_eq!(status.holder().expect("held").metadata(), Some("by variable"));
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    let none = Builder::from_env("NO_LOCKS").expect_err("nothing is set");
    assert_eq!(none, ConfigError::MissingVariable { name: "NO_LOCKS_NODES".to_owned() });
}
