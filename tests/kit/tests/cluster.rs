//! Checks a `Cluster`: its servers are independent, share their settings, and can be inspected as a
//! group.

use std::time::Duration;

use kit::{Cluster, Server, eventually};

#[test]
fn servers_are_independent() {
    let cluster = Cluster::start(3);
    assert_eq!(cluster.len(), 3);
    assert!(cluster.is_empty());
    cluster[1].set("k", "v");
    assert!(!cluster.is_empty());
    assert_eq!(cluster.keys_per_node(), [vec![], vec![b"k".to_vec()], vec![]]);
    let mut urls = cluster.urls();
    assert_eq!(urls, cluster.iter().map(Server::url).collect::<Vec<_>>());
    urls.sort();
    urls.dedup();
    assert_eq!(urls.len(), 3);
}

#[test]
fn stopped_and_killed_servers_have_no_keys() {
    let cluster = Cluster::start(3);
    for server in &cluster {
        server.set("k", "v");
    }
    cluster[0].kill();
    cluster[1].stop();
    cluster[2].flushall();
    assert!(cluster.is_empty());
    cluster[0].restart();
    cluster[1].cont();
    assert_eq!(cluster.keys_per_node(), [vec![], vec![b"k".to_vec()], vec![]]);
}

#[test]
fn servers_have_common_settings_and_can_be_replaced() {
    let mut cluster = Cluster::start_with(2, &Server::builder().durable());
    for server in &cluster {
        server.set("k", "v");
        server.restart();
        assert_eq!(server.get("k"), Some(b"v".to_vec()));
    }
    cluster.servers_mut()[0] = Server::start();
    assert!(cluster[0].keys().is_empty());
}

#[test]
fn faults_can_be_injected_from_another_thread() {
    let cluster = Cluster::start(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            cluster[0].kill();
            cluster[0].restart();
            cluster[0].set("done", "");
        });
        for number in 0..100 {
            cluster[1].set(number.to_string(), "");
        }
        eventually(Duration::from_mins(1), "the server is back", || {
            cluster[0].is_running() && cluster[0].get("done").is_some()
        });
    });
}

#[test]
#[should_panic(expected = "the moon is full")]
fn eventually_names_the_condition_that_stayed_false() {
    eventually(Duration::from_millis(20), "the moon is full", || false);
}
