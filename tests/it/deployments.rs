//! Clients of one deployment that are set up otherwise are found by a check.

use crate::errors::{PASSWORD, USER};
use crate::{builder, connected, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{Builder, Disagreement, Finding, NodeCheck, Redlock, Severity};
use std::time::Duration;

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

/// What clients disagree in, by node, with how many connections.
async fn disagreements(redlock: &Redlock) -> Vec<Vec<(Severity, Disagreement, usize)>> {
    let nodes = redlock.check().await.expect("a client that works");
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

/// The addresses of the connections to `server` whose name has `part` in it.
fn named(server: &Server, part: &str) -> Vec<String> {
    let clients = server.clients().into_iter().filter(|client| client.contains(part));
    let address = |client: String| {
        client.split(' ').find_map(|word| word.strip_prefix("addr=").map(str::to_owned))
    };
    clients.filter_map(address).collect()
}

#[tokio::test]
async fn clients_with_other_nodes_or_limits_are_named_where_they_are_connected() {
    let cluster = Cluster::start_with(5, &Server::builder().durable());
    let settings =
        || builder(&cluster).node_timeout(ms(5_000)).ttl(SECONDS(10)).max_ttl(SECONDS(60));
    let ours = connected(settings()).await;
    let _same = connected(settings()).await;
    assert_eq!(disagreements(&ours).await, vec![vec![]; 5], "nobody disagrees");

    let fewer = settings_of(&cluster, &[0, 1, 2]);
    let fewer = connected(fewer).await;
    let longer = connected(settings().max_ttl(SECONDS(300))).await;
    let others = connected(settings().key_prefix("other:")).await;
    let nodes = Disagreement::Nodes { theirs: 3, shared: 3, splits: true };
    let max_ttl = Disagreement::MaxTtl { theirs: SECONDS(300), ours: SECONDS(60) };
    for (place, found) in disagreements(&ours).await.into_iter().enumerate() {
        let splits = (place < 3).then(|| (Severity::Danger, nodes.clone(), 1));
        let mut expected: Vec<_> = splits.into_iter().collect();
        expected.push((Severity::Warning, max_ttl.clone(), 1));
        expected.push((Severity::Note, Disagreement::KeyPrefix, 1));
        assert_eq!(found, expected, "node {place}");
    }
    // The connection can be found by what is told.
    let check = ours.check().await.expect("a client that works").swap_remove(0);
    let address = named(&cluster[0], "nodes=3-").pop().expect("it has a name");
    assert!(check.to_string().contains(&format!("danger: the clients {address} use 3 nodes")));

    // From the other side it looks the same.
    let seen = disagreements(&fewer).await;
    assert!(seen.iter().flatten().any(|(severity, about, _)| {
        matches!(about, Disagreement::Nodes { theirs: 5, shared: 3, splits: true })
            && *severity == Severity::Danger
    }));
    for gone in [fewer, longer, others] {
        gone.close().await.expect("nothing is owed");
    }
    let are_two = |server: &Server| named(server, " name=quorlock").len() == 2;
    eventually("the others are gone", || cluster.iter().all(are_two)).await;
    assert_eq!(disagreements(&ours).await, vec![vec![]; 5]);
}

/// Those nodes of the cluster only.
fn settings_of(cluster: &Cluster, places: &[usize]) -> Builder {
    let urls = places.iter().map(|place| cluster[*place].url());
    Redlock::builder().nodes(urls).node_timeout(ms(5_000)).ttl(SECONDS(10)).max_ttl(SECONDS(60))
}

#[tokio::test]
async fn the_same_nodes_by_other_addresses_are_a_note() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let ours = connected(settings_of(&cluster, &[0, 1, 2])).await;
    let by_name =
        cluster.iter().map(|server| format!("redis://localhost:{}", server.addr().port()));
    let by_name = settings_of(&cluster, &[]).nodes(by_name);
    let _theirs = connected(by_name).await;
    let names = vec![(Severity::Note, Disagreement::Names, 1)];
    assert_eq!(disagreements(&ours).await, vec![names; 3]);
}

#[tokio::test]
async fn a_client_that_may_not_have_a_name_locks_all_the_same() {
    let server = Server::builder().user(USER, PASSWORD).durable().start();
    // Redis 6.2 cannot take single ones away.
    let of_client = ["id", "kill", "tracking", "caching"].map(|one| format!("+client|{one}"));
    let rights = ["ACL", "SETUSER", USER, "-client"].into_iter();
    server.cmd(&rights.chain(of_client.iter().map(String::as_str)).collect::<Vec<_>>());
    let redlock =
        connected(Redlock::builder().nodes([server.url_with_auth()]).node_timeout(ms(5_000))).await;
    assert_eq!(named(&server, " name=quorlock"), [""; 0]);
    let lease = redlock.acquire("r").await.expect("it is free");
    lease.release().await.expect("it is ours");
    let node = redlock.check().await.expect("a client that works").swap_remove(0);
    let unknown = Finding::Unknown { what: "settings of other clients", needs: "+client|list" };
    assert_eq!(node.findings(), [unknown], "{node}");
}
