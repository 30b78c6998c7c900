//! A check finds clients of the same deployment that have different settings.

use crate::errors::{PASSWORD, USER};
use crate::{builder, connected, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{Builder, Disagreement, Finding, NodeCheck, Redlock, Severity};
use std::time::Duration;

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

/// Per node: disagreements with other clients, and the number of their connections.
async fn disagreements(redlock: &Redlock) -> Vec<Vec<(Severity, Disagreement, usize)>> {
    let nodes = redlock.check().await.expect("the client is open");
    let of = |node: &NodeCheck| {
        let found = node.findings().iter().filter_map(|finding| match finding {
            Finding::Disagrees { clients, about } => {
                Some((finding.severity(), about.clone(), clients.len()))
            }
            _ => None,
        });
        found.collect()
    };
    nodes.iter().map(of).collect()
}

/// Addresses of the connections to `server` whose name contains `part`.
fn named(server: &Server, part: &str) -> Vec<String> {
    let clients = server.clients().into_iter().filter(|client| client.contains(part));
    let address = |client: String| {
        client.split(' ').find_map(|word| word.strip_prefix("addr=").map(str::to_owned))
    };
    clients.filter_map(address).collect()
}

#[tokio::test]
async fn check_reports_clients_with_different_nodes_or_limits() {
    let cluster = Cluster::start_with(5, &Server::builder().durable());
    let settings =
        || builder(&cluster).node_timeout(ms(5_000)).ttl(SECONDS(10)).max_ttl(SECONDS(60));
    let redlock = connected(settings()).await;
    let _same = connected(settings()).await;
    assert_eq!(disagreements(&redlock).await, vec![vec![]; 5], "all settings are equal");

    let fewer = settings_of(&cluster, &[0, 1, 2]);
    let fewer = connected(fewer).await;
    let longer = connected(settings().max_ttl(SECONDS(300))).await;
    let others = connected(settings().key_prefix("other:")).await;
    let nodes = Disagreement::Nodes { theirs: 3, shared: 3, splits: true };
    let max_ttl = Disagreement::MaxTtl { theirs: SECONDS(300), ours: SECONDS(60) };
    for (place, found) in disagreements(&redlock).await.into_iter().enumerate() {
        let splits = (place < 3).then(|| (Severity::Danger, nodes.clone(), 1));
        let mut expected: Vec<_> = splits.into_iter().collect();
        expected.push((Severity::Warning, max_ttl.clone(), 1));
        expected.push((Severity::Note, Disagreement::KeyPrefix, 1));
        assert_eq!(found, expected, "node {place}");
    }
    // The reported address identifies the connection.
    let check = redlock.check().await.expect("the client is open").swap_remove(0);
    let address = named(&cluster[0], "nodes=3-").pop().expect("the connection is named");
    assert!(check.to_string().contains(&format!("danger: the clients {address} use 3 nodes")));

    // The other client finds the same disagreement.
    let found = disagreements(&fewer).await;
    assert!(found.iter().flatten().any(|(severity, about, _)| {
        matches!(about, Disagreement::Nodes { theirs: 5, shared: 3, splits: true })
            && *severity == Severity::Danger
    }));
    for client in [fewer, longer, others] {
        client.close().await.expect("no release is pending");
    }
    let are_two = |server: &Server| named(server, " name=quorlock").len() == 2;
    eventually("the other clients have disconnected", || cluster.iter().all(are_two)).await;
    assert_eq!(disagreements(&redlock).await, vec![vec![]; 5]);
}

/// Settings of a client of only these nodes.
fn settings_of(cluster: &Cluster, places: &[usize]) -> Builder {
    let urls = places.iter().map(|place| cluster[*place].url());
    Redlock::builder().nodes(urls).node_timeout(ms(5_000)).ttl(SECONDS(10)).max_ttl(SECONDS(60))
}

#[tokio::test]
async fn check_reports_same_nodes_under_other_addresses_as_note() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let redlock = connected(settings_of(&cluster, &[0, 1, 2])).await;
    let by_name =
        cluster.iter().map(|server| format!("redis://localhost:{}", server.addr().port()));
    let by_name = settings_of(&cluster, &[]).nodes(by_name);
    let _other = connected(by_name).await;
    let names = vec![(Severity::Note, Disagreement::Names, 1)];
    assert_eq!(disagreements(&redlock).await, vec![names; 3]);
}

#[tokio::test]
async fn client_without_permission_for_a_name_can_lock() {
    let server = Server::builder().user(USER, PASSWORD).durable().start();
    // Redis 6.2 cannot revoke single subcommands.
    let of_client = ["id", "kill", "tracking", "caching"].map(|one| format!("+client|{one}"));
    let rights = ["ACL", "SETUSER", USER, "-client"].into_iter();
    server.cmd(&rights.chain(of_client.iter().map(String::as_str)).collect::<Vec<_>>());
    let redlock =
        connected(Redlock::builder().nodes([server.url_with_auth()]).node_timeout(ms(5_000))).await;
    assert_eq!(named(&server, " name=quorlock"), [""; 0]);
    let lease = redlock.acquire("r").await.expect("the lock is free");
    lease.release().await.expect("the lease is valid");
    let node = redlock.check().await.expect("the client is open").swap_remove(0);
    let unknown = Finding::Unknown { what: "settings of other clients", needs: "+client|list" };
    assert_eq!(node.findings(), [unknown], "{node}");
}
