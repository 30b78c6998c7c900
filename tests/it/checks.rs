//! Tests of the findings that `Redlock::check` reports for nodes.

use crate::errors::{PASSWORD, USER, display};
use crate::{SOON, builder, client, eventually, ms};
use kit::{Child, Cluster, Direction, Proxy, Server, ServerBuilder};
use quorlock::{
    ClientError, Finding, Fsync, NodeCheck, NodeFailure, Persistence, Redlock, Role, Severity,
};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};
use tokio::time::sleep;

const MINUTE: Duration = Duration::from_mins(1);

fn of(servers: &[&Server]) -> Redlock {
    let builder = Redlock::builder().nodes(servers.iter().map(|server| server.url()));
    builder.node_timeout(ms(5_000)).ttl(ms(60_000)).build().expect("valid settings")
}

async fn check_new_server(setup: &ServerBuilder) -> NodeCheck {
    only(&setup.start()).await
}

async fn only(server: &Server) -> NodeCheck {
    let mut nodes = of(&[server]).check().await.expect("the client is open");
    assert_eq!(nodes.len(), 1);
    let node = nodes.pop().expect("one node");
    display(&node);
    let changes = &server.info("persistence")["rdb_changes_since_last_save"];
    assert!(changes == "0" && server.keys().is_empty(), "{changes} changes");
    node
}

fn with(args: &[&str]) -> ServerBuilder {
    args.iter().fold(Server::builder(), ServerBuilder::arg)
}

fn texts(node: &NodeCheck, severity: Severity) -> Vec<String> {
    let found = node.findings().iter().filter(|finding| finding.severity() == severity);
    found.map(ToString::to_string).collect()
}

#[tokio::test]
async fn check_of_correctly_configured_nodes_finds_nothing() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let redlock = builder(&cluster).node_timeout(ms(5_000)).build().expect("valid settings");
    for (node, server) in redlock.check().await.expect("the client is open").iter().zip(&cluster) {
        assert_eq!((node.findings(), node.worst()), (&[][..], None), "{node}");
        assert_eq!(node.name(), server.addr().to_string());
        assert_eq!(node.role(), Some(Role::Master));
        assert_eq!(node.persistence(), Some(Persistence::AppendOnly(Some(Fsync::Always))));
        assert_eq!((node.maxmemory(), node.eviction_policy()), (Some(0), Some("noeviction")));
        assert!(node.uptime().is_some_and(|uptime| uptime < MINUTE), "{node}");
        assert!(node.latency().is_some_and(|latency| latency > Duration::ZERO));
        let offset = node.clock_offset().expect("other nodes were compared");
        assert!(offset.distance() <= offset.uncertainty(), "equal clocks: {node}");
        let info = server.info("server");
        let version = info.get("valkey_version").unwrap_or(&info["redis_version"]);
        assert!(node.version().is_some_and(|reported| reported.ends_with(version)), "{node}");
        let line =
            format!("{}: {}, master, up ", server.addr(), node.version().expect("a version"));
        assert!(display(node).starts_with(&line) && !display(node).contains('\n'), "{node}");
    }
    assert!(cluster.is_empty(), "the check sets no key");
}

#[tokio::test]
async fn check_reports_data_loss_for_each_persistence_mode() {
    let nothing = check_new_server(&Server::builder()).await;
    assert_eq!(nothing.persistence(), Some(Persistence::Nothing));
    let server = Server::start();
    server.cmd(&["CONFIG", "SET", "save", "3600 1"]);
    let snapshots = only(&server).await;
    assert_eq!(snapshots.persistence(), Some(Persistence::Snapshots));
    let appended = |fsync| async move {
        check_new_server(&with(&["--appendonly", "yes", "--appendfsync", fsync])).await
    };
    let (every_second, never) = (appended("everysec").await, appended("no").await);
    let is = |fsync| Some(Persistence::AppendOnly(Some(fsync)));
    assert_eq!(every_second.persistence(), is(Fsync::EverySecond));
    assert_eq!(never.persistence(), is(Fsync::Never));
    for (node, words) in [
        (nothing, "no persistence"),
        (snapshots, "only snapshots"),
        (every_second, "about the last second"),
        (never, "appendfsync is no"),
    ] {
        assert_eq!(node.worst(), Some(Severity::Warning), "{node}");
        let texts = texts(&node, Severity::Warning);
        assert!(texts.len() == 1 && texts[0].contains(words), "{node}");
        assert!(texts[0].contains("set appendonly yes, appendfsync always"), "{node}");
    }
    assert_eq!(check_new_server(&Server::builder().durable()).await.worst(), None);
    let resting = Server::builder().durable().arg("--no-appendfsync-on-rewrite").arg("yes");
    assert_eq!(check_new_server(&resting).await.findings(), [Finding::NoFsyncOnRewrite]);
}

#[tokio::test]
async fn check_reports_eviction_and_the_setting_to_change() {
    let limit = |policy| {
        Server::builder()
            .durable()
            .arg("--maxmemory")
            .arg("100mb")
            .arg("--maxmemory-policy")
            .arg(policy)
    };
    let node = check_new_server(&limit("volatile-lru")).await;
    let policy = "volatile-lru".to_owned();
    assert_eq!(node.findings(), [Finding::Evicting { policy, evicted: 0 }], "{node}");
    assert_eq!(node.worst(), Some(Severity::Danger));
    assert!(display(&node).contains("set maxmemory-policy noeviction"), "{node}");
    assert_eq!(node.maxmemory(), Some(100 << 20));
    assert_eq!(check_new_server(&limit("noeviction")).await.worst(), None, "writes are refused");
    let unlimited = Server::builder().durable().arg("--maxmemory-policy").arg("allkeys-lru");
    assert_eq!(check_new_server(&unlimited).await.worst(), None, "no memory limit");
}

#[tokio::test]
async fn check_reports_a_replica_and_its_master() {
    let master = Server::builder().durable().start();
    let port = master.port().to_string();
    let replica = Server::builder().durable().arg("--replicaof").arg("127.0.0.1").arg(port).start();
    eventually("connected", || master.info("replication")["connected_slaves"] == "1").await;
    let nodes = of(&[&master, &replica]).check().await.expect("the client is open");
    assert_eq!(nodes[0].findings(), [Finding::HasReplicas { count: 1 }]);
    assert_eq!((nodes[0].role(), nodes[1].role()), (Some(Role::Master), Some(Role::Replica)));
    assert!(nodes[1].findings().contains(&Finding::Replica), "{}", nodes[1]);
    assert!(display(&nodes[1]).contains("SET is refused (READONLY"), "{}", nodes[1]);
}

#[tokio::test]
async fn check_reports_a_node_watched_by_sentinels() {
    let server = Server::builder().durable().start();
    let directory = env::temp_dir().join(format!("sentinel-{}", std::process::id()));
    fs::create_dir(&directory).expect("a directory");
    let config = directory.join("sentinel.conf");
    let watches = format!(
        "port 0\nunixsocket {0}/s\nsentinel monitor m 127.0.0.1 {1} 1\n",
        directory.display(),
        server.port()
    );
    fs::write(&config, watches).expect("a file");
    let program = env::var_os("REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let (sentinel, _pipes) = Child::spawn(Command::new(program).arg(&config).arg("--sentinel"));
    let redlock = of(&[&server]);
    let check = async || redlock.check().await.expect("the client is open").swap_remove(0);
    let started = Instant::now();
    let mut node = check().await;
    while node.findings().is_empty() && started.elapsed() < SOON {
        sleep(ms(100)).await;
        node = check().await;
    }
    assert_eq!(node.findings(), [Finding::Watched { sentinels: 1 }], "{node}");
    assert_eq!(node.worst(), Some(Severity::Warning));
    drop(sentinel);
    fs::remove_dir_all(directory).expect("the test created it");
}

#[tokio::test]
async fn check_reports_one_server_under_two_addresses() {
    let cluster = Cluster::start(2);
    let proxy = Proxy::start(cluster[0].addr());
    let urls = [cluster[0].url(), cluster[1].url(), proxy.url()];
    let redlock =
        Redlock::builder().nodes(urls).node_timeout(ms(5_000)).build().expect("valid settings");
    let nodes = redlock.check().await.expect("the client is open");
    let twin_of = |other: usize| Finding::SameServer { other: nodes[other].name().to_owned() };
    assert!(nodes[0].findings().contains(&twin_of(2)) && nodes[2].findings().contains(&twin_of(0)));
    assert!(!display(&nodes[1]).contains("same server as"), "{}", nodes[1]);
}

fn limited(rights: &[&str]) -> Server {
    let server = Server::builder().user(USER, PASSWORD).durable().start();
    server.cmd(&[&["ACL", "SETUSER", USER, "-@all"], rights].concat());
    server
}

async fn as_user(server: &Server) -> NodeCheck {
    let redlock = Redlock::builder().nodes([server.url_with_auth()]).node_timeout(ms(5_000));
    let redlock = redlock.build().expect("valid settings");
    let node = redlock.check().await.expect("the client is open").pop().expect("one node");
    display(&node);
    node
}

#[tokio::test]
async fn check_reports_missing_permissions_and_unknown_facts() {
    let node = as_user(&limited(&["+set", "+evalsha"])).await;
    let refused = |finding: &Finding| match finding {
        Finding::Refused { command, failure } => {
            assert!(matches!(failure, NodeFailure::Refused { code, .. } if &**code == "NOPERM"));
            Some((*command, finding.severity()))
        }
        _ => None,
    };
    let refused: Vec<_> = node.findings().iter().filter_map(refused).collect();
    let dangers = ["GET", "DEL", "PTTL", "PEXPIRE", "EVAL"].map(|one| (one, Severity::Danger));
    let harmless = ("SCRIPT LOAD", Severity::Note);
    assert_eq!(refused, [&dangers[..], &[harmless]].concat(), "{node}");

    let unknown = |finding: &Finding| match finding {
        Finding::Unknown { needs, .. } => Some(*needs),
        _ => None,
    };
    let unknown: Vec<_> = node.findings().iter().filter_map(unknown).collect();
    let info = ["+info"; 4];
    assert_eq!(unknown, [&info[..], &["+info +config|get", "+pubsub|numsub"]].concat(), "{node}");
    assert_eq!((node.version(), node.role()), (None, None), "{node}");
    assert_eq!((node.persistence(), node.uptime(), node.maxmemory()), (None, None, None));
    assert_eq!((node.clock_offset(), node.latency()), (None, None));
    let no_pushes = |finding: &Finding| matches!(finding, Finding::NoPushes { .. });
    assert!(node.findings().iter().any(no_pushes), "{node}");
    let severities: Vec<_> = node.findings().iter().map(Finding::severity).collect();
    assert!(severities.is_sorted_by(|one, next| one >= next), "sorted: {node}");
}

#[tokio::test]
async fn permissions_listed_in_the_readme_are_sufficient() {
    let readme = [
        "+set",
        "+get",
        "+getrange",
        "+del",
        "+pttl",
        "+pexpire",
        "+evalsha",
        "+eval",
        "+script|load",
    ];
    let more = ["+client", "+info", "+time", "+config|get", "+pubsub|numsub", "~lock:*"];
    let server = limited(&[&["resetkeys"], &readme[..], &more].concat());
    let redlock = Redlock::builder().nodes([server.url_with_auth()]).node_timeout(ms(5_000));
    let right = redlock.clone().key_prefix("lock:").build().expect("valid settings");
    let node = &right.check().await.expect("the client is open")[0];
    assert_eq!(node.findings(), [], "{node}");
    let wrong = redlock.key_prefix("other:").build().expect("valid settings");
    let node = &wrong.check().await.expect("the client is open")[0];
    assert!(display(node).contains("SET is refused (NOPERM"), "other keys: {node}");
}

#[tokio::test]
async fn check_reports_hidden_settings_as_unknown() {
    let node = check_new_server(&with(&["--rename-command", "CONFIG", ""])).await;
    assert_eq!(node.persistence(), None, "the persistence is unknown: {node}");
    let unknown = Finding::Unknown { what: "persistence", needs: "+info +config|get" };
    assert_eq!(node.findings(), [unknown], "{node}");
}

#[tokio::test]
async fn check_reports_a_server_without_time_as_danger() {
    let node = check_new_server(&with(&["--rename-command", "TIME", ""])).await;
    let dangers = node.findings().iter().filter(|found| found.severity() == Severity::Danger);
    assert_eq!(dangers.collect::<Vec<_>>(), [&Finding::ClockUnreadable], "{node}");
    assert!(display(&node).contains("permit +time"), "{node}");
}

#[tokio::test]
async fn check_reports_unreachable_nodes_and_checks_the_others() {
    let cluster = Cluster::start_with(5, &Server::builder().durable());
    let proxy = Proxy::start(cluster[4].addr());
    let urls = [&cluster.urls()[..4], &[proxy.url()]].concat();
    let timeouts = Redlock::builder().connect_timeout(ms(1_500)).node_timeout(ms(1_000));
    let redlock = timeouts.nodes(urls).build().expect("valid settings");
    cluster[1].kill();
    cluster[3].stop();
    // The proxy accepts connections but discards every reply.
    proxy.black_hole(Direction::Replies);
    let started = Instant::now();
    let nodes = redlock.check().await.expect("the client is open");
    assert!(started.elapsed() < SOON, "the check is bounded");
    for (node, reason) in [(1, "connection refused"), (3, "timeout"), (4, "timeout")] {
        let node = &nodes[node];
        assert!(matches!(node.findings(), [Finding::Unreachable { .. }]), "{node}");
        assert_eq!((node.worst(), node.version()), (Some(Severity::Danger), None));
        assert!(display(node).contains(&format!("danger: cannot be used: {reason}")), "{node}");
    }
    for node in [&nodes[0], &nodes[2]] {
        assert_eq!(node.worst(), None, "{node}");
    }
    cluster[3].cont();
}

#[tokio::test]
async fn check_reports_a_node_unresponsive_after_connecting() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    // The replies take longer than the node timeout, but less than the connect timeout.
    let redlock = Redlock::builder().nodes([proxy.url()]);
    let redlock =
        redlock.connect_timeout(SOON).node_timeout(ms(50)).build().expect("valid settings");
    proxy.delay(Direction::Replies, ms(400));
    let node = redlock.check().await.expect("the client is open").pop().expect("one node");
    let timeout = NodeFailure::Timeout(ms(50));
    assert_eq!(node.findings(), [Finding::Unreachable { failure: timeout }], "{node}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn check_reports_clock_offsets_within_the_uncertainty() {
    let cluster = Cluster::start_with(3, &Server::builder().durable().clock());
    let redlock = builder(&cluster).node_timeout(ms(5_000)).build().expect("valid settings");
    cluster[1].clock().jump(MINUTE);
    for (jumped, is_ahead) in [(1, true), (2, false)] {
        let nodes = redlock.check().await.expect("the client is open");
        for (place, node) in nodes.iter().enumerate() {
            let offset = node.clock_offset().expect("all clocks were read");
            let is = if place == jumped { MINUTE } else { Duration::ZERO };
            assert!(offset.distance().abs_diff(is) <= offset.uncertainty(), "{node}");
            let found = (place == jumped).then_some(Finding::ClockOff { offset });
            assert_eq!(node.findings(), found.as_slice(), "{node}");
            if place == jumped {
                assert_eq!((offset.is_ahead(), offset.as_micros() > 0), (is_ahead, is_ahead));
                let words = if is_ahead { " ahead of the other " } else { " behind the other " };
                assert!(texts(node, Severity::Warning)[0].contains(words), "{node}");
            }
        }
        cluster[1].clock().jump_back(MINUTE);
        cluster[2].clock().jump_back(MINUTE);
    }
}

#[tokio::test]
async fn completed_or_dropped_check_leaves_no_connections() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = Redlock::builder().nodes(proxies.iter().map(Proxy::url));
    // A connect timeout longer than the test.
    let redlock = redlock.node_timeout(ms(5_000)).connect_timeout(10 * MINUTE);
    let redlock = redlock.build().expect("valid settings");
    redlock.check().await.expect("the client is open");
    assert!(proxies.iter().all(|proxy| proxy.accepted() == 1), "one per node");
    eventually("disconnected", || proxies.iter().all(|proxy| proxy.live() == 0)).await;

    for proxy in &proxies {
        proxy.hold(Direction::Replies);
    }
    let checking = redlock.clone();
    let checking = tokio::spawn(async move { checking.check().await });
    eventually("connecting", || proxies.iter().all(|proxy| proxy.accepted() == 2)).await;
    // While the proxies withhold bytes, their own counts are unreliable. The connection that sends `INFO` counts as one
    // client.
    let have = |clients: &str| {
        cluster.iter().all(|server| server.info("clients")["connected_clients"] == clients)
    };
    eventually("the check is connected", || have("2")).await;
    checking.abort();
    eventually("disconnected", || have("1")).await;
}

#[test]
fn check_works_without_a_runtime_and_fails_after_close() {
    let cluster = Cluster::start(1);
    let redlock = client(&cluster);
    let checked = futures::executor::block_on(redlock.check()).expect("on the library's runtime");
    assert_eq!(checked[0].role(), Some(Role::Master));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let pinned = builder(&cluster).runtime(runtime.handle().clone()).build().expect("valid");
    let checked = futures::executor::block_on(pinned.check()).expect("it has one");
    assert_eq!(checked[0].role(), Some(Role::Master));
    runtime.block_on(redlock.close()).expect("no release is pending");
    assert_eq!(runtime.block_on(redlock.check()), Err(ClientError::Closed));
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_client_checks_nodes() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let redlock = builder(&cluster).build_blocking().expect("valid settings");
    let nodes = redlock.check().expect("outside of a runtime");
    assert!(nodes.len() == 3 && nodes.iter().all(|node| node.role() == Some(Role::Master)));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let inside = runtime.block_on(async { redlock.check() });
    assert_eq!(inside, Err(quorlock::blocking::Error::InsideRuntime));
}
