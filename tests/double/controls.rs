//! Tests of the methods that control the in-process nodes.

use crate::{eventually, ms, secs};
use quorlock::{ConfigError, Redlock, ReleaseOutcome, RestartGuard, VoteEligibility};
use quorlock_test::{Nodes, Trouble, pending_work};

fn client(nodes: &Nodes) -> Redlock {
    nodes.client().build().expect("valid settings")
}

#[tokio::test(start_paused = true)]
async fn controls_apply_to_the_selected_nodes_only() {
    let nodes = Nodes::start(5);
    nodes.only(0).hang();
    nodes.only([1, 3]).kill();
    assert_eq!(format!("{nodes:?}"), "{0: Hung, 1: Down, 2: Up, 3: Down, 4: Up}");
    nodes.heal();
    nodes.only(..2).hold("r", secs(9));
    assert_eq!((nodes.count("r"), nodes.only(0).count("r"), nodes.only(2..).count("r")), (2, 1, 0));
    nodes.remove("r");
    assert_eq!(nodes.count("r"), 0);
}

#[test]
#[should_panic(expected = "node 5 is out of range: there are 5 nodes, numbered from 0")]
fn range_beyond_the_nodes_panics() {
    let _ = Nodes::start(5).only(3..=5);
}

#[test]
#[should_panic(expected = "node 5 is out of range: there are 5 nodes, numbered from 0")]
fn index_beyond_the_nodes_panics() {
    let _ = Nodes::start(5).only(5);
}

#[test]
fn invalid_numbers_of_nodes_are_refused_by_the_builder() {
    let refused =
        |count| Nodes::start(count).client().build().expect_err("the number of nodes is invalid");
    assert_eq!(refused(0), ConfigError::NoNodes);
    assert!(matches!(refused(1_000), ConfigError::TooManyNodes { given: 1_000, .. }));
}

#[tokio::test(start_paused = true)]
async fn client_with_keeps_settings_and_replaces_nodes() {
    let nodes = Nodes::start(3);
    let settings = Redlock::builder().nodes(["redis://10.0.0.1"]).key_prefix("lock:");
    let redlock = nodes.client_with(settings).build().expect("valid settings");
    let _lease = redlock.acquire("r").await.expect("the lock is free");
    assert_eq!(nodes.count("lock:r"), 3);
    let names: Vec<_> = redlock.nodes().iter().map(|node| node.name().to_owned()).collect();
    assert_eq!(names, ["node0:6379", "node1:6379", "node2:6379"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_node_refuses_connections() {
    let nodes = Nodes::start(1);
    let redlock = nodes.client().nodes(["redis://node1", "redis://10.0.0.1:7"]).build();
    let refused = redlock.expect("valid settings").try_acquire("r").await;
    let refused = refused.expect_err("two of three nodes do not exist").to_string();
    assert_eq!(refused.matches("connection refused").count(), 2, "{refused}");
}

#[tokio::test(start_paused = true)]
async fn check_reports_problems_of_nodes() {
    let nodes = Nodes::start(3);
    let redlock = client(&nodes);
    nodes.only(1).refuse(Trouble::ReadOnly);
    nodes.only(2).persist();
    let checks = redlock.check().await.expect("the client is open");
    assert_eq!(checks[0].version(), Some("Redis 7.0.15"));
    assert!(checks[1].to_string().contains("replica"), "{}", checks[1]);
    assert!(checks[2].to_string().contains("appendfsync always"), "{}", checks[2]);
}

#[tokio::test(start_paused = true)]
async fn keys_survive_a_restart_only_if_persisted() {
    for persists in [true, false] {
        let nodes = Nodes::start(3);
        let redlock = nodes.client().trust_persistence(true).build().expect("valid settings");
        if persists {
            nodes.persist();
        }
        let lease = redlock.acquire("r").await.expect("the lock is free");
        eventually("every node has the key", || nodes.count("r") == 3).await;
        nodes.restart();
        assert_eq!(nodes.count("r"), if persists { 3 } else { 0 });
        tokio::time::sleep(ms(500)).await;
        let is_counted = |redlock: &Redlock| {
            redlock.nodes().iter().all(|node| *node.eligibility() == VoteEligibility::Counted)
        };
        if persists {
            eventually("the nodes count at once", || is_counted(&redlock)).await;
            lease.extend(secs(20)).await.expect("nodes are up");
        } else {
            assert!(!is_counted(&redlock));
            tokio::time::sleep(secs(70)).await;
            eventually("the nodes count again", || is_counted(&redlock)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn heal_undoes_every_failure() {
    let nodes = Nodes::start(5);
    let redlock = nodes.client().restart_guard(RestartGuard::Off).build().expect("valid settings");
    nodes.only(0).kill();
    nodes.only(1).hang();
    nodes.only(2).delay(secs(9));
    nodes.only(3).refuse(Trouble::Busy);
    let refused = redlock.try_acquire("r").await.expect_err("one node is up");
    assert!(refused.is_unavailable(), "{refused}");
    nodes.heal();
    tokio::time::sleep(secs(30)).await;
    let lease = redlock.acquire("r").await.expect("nodes are up");
    eventually("every node has the key", || nodes.count("r") == 5).await;
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    redlock.close().await.expect("no release is pending");
    assert!(pending_work(&redlock).is_empty());
}

#[tokio::test(start_paused = true)]
async fn clock_steps_move_the_expiry_of_keys() {
    let nodes = Nodes::start(2);
    nodes.hold("r", secs(10));
    nodes.only(0).step_ahead(secs(6));
    nodes.only(1).step_back(secs(6));
    for (seconds, standing) in [(0, 2), (3, 2), (2, 1), (10, 1), (2, 0)] {
        tokio::time::sleep(secs(seconds)).await;
        assert_eq!(nodes.count("r"), standing, "{seconds} s later");
    }
}

#[tokio::test(start_paused = true)]
async fn delayed_requests_arrive_after_the_client_is_dropped() {
    let nodes = Nodes::start(1);
    let redlock = nodes.client().node_timeout(secs(1)).build().expect("valid settings");
    let lease = redlock.acquire("r").await.expect("the lock is free");
    nodes.delay(ms(300));
    drop(lease);
    tokio::time::sleep(ms(1)).await;
    nodes.delay(ms(0));
    drop(redlock);
    nodes.hold("other", ms(100));
    tokio::time::sleep(ms(200)).await;
    assert_eq!((nodes.count("r"), nodes.count("other")), (1, 0), "the release is still delayed");
    tokio::time::sleep(ms(200)).await;
    assert_eq!(nodes.count("r"), 0);
}
