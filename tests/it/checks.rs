//! What a check of the nodes finds.

use crate::errors::{PASSWORD, USER, told};
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
    builder.node_timeout(ms(5_000)).ttl(ms(60_000)).build().expect("good settings")
}

/// What is found in a server that is the only node.
async fn alone(setup: &ServerBuilder) -> NodeCheck {
    only(&setup.start()).await
}

async fn only(server: &Server) -> NodeCheck {
    let mut nodes = of(&[server]).check().await.expect("a client that works");
    assert_eq!(nodes.len(), 1);
    let node = nodes.pop().expect("one node");
    told(&node);
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
async fn nodes_that_are_as_they_should_be_are_not_blamed() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let redlock = builder(&cluster).node_timeout(ms(5_000)).build().expect("good settings");
    for (node, server) in redlock.check().await.expect("a client that works").iter().zip(&cluster) {
        assert_eq!((node.findings(), node.worst()), (&[][..], None), "{node}");
        assert_eq!(node.name(), server.addr().to_string());
        assert_eq!(node.role(), Some(Role::Master));
        assert_eq!(node.persistence(), Some(Persistence::AppendOnly(Some(Fsync::Always))));
        assert_eq!((node.maxmemory(), node.eviction_policy()), (Some(0), Some("noeviction")));
        assert!(node.uptime().is_some_and(|uptime| uptime < MINUTE), "{node}");
        assert!(node.latency().is_some_and(|latency| latency > Duration::ZERO));
        let offset = node.clock_offset().expect("there are others");
        assert!(offset.distance() <= offset.uncertainty(), "it is one machine: {node}");
        let info = server.info("server");
        let version = info.get("valkey_version").unwrap_or(&info["redis_version"]);
        assert!(node.version().is_some_and(|told| told.ends_with(version)), "{node}");
        let line = format!("{}: {}, master, up ", server.addr(), node.version().expect("told"));
        assert!(told(node).starts_with(&line) && !told(node).contains('\n'), "{node}");
    }
    assert!(cluster.is_empty(), "nothing is set");
}

#[tokio::test]
async fn what_a_restart_forgets_is_told_for_each_kind_of_persistence() {
    let nothing = alone(&Server::builder()).await;
    assert_eq!(nothing.persistence(), Some(Persistence::Nothing));
    let server = Server::start();
    server.cmd(&["CONFIG", "SET", "save", "3600 1"]);
    let snapshots = only(&server).await;
    assert_eq!(snapshots.persistence(), Some(Persistence::Snapshots));
    let appended =
        |fsync| async move { alone(&with(&["--appendonly", "yes", "--appendfsync", fsync])).await };
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
    assert_eq!(alone(&Server::builder().durable()).await.worst(), None);
    let resting = Server::builder().durable().arg("--no-appendfsync-on-rewrite").arg("yes");
    assert_eq!(alone(&resting).await.findings(), [Finding::NoFsyncOnRewrite]);
}

#[tokio::test]
async fn a_node_that_may_evict_keys_is_a_danger_with_what_to_set() {
    let limit = |policy| {
        Server::builder()
            .durable()
            .arg("--maxmemory")
            .arg("100mb")
            .arg("--maxmemory-policy")
            .arg(policy)
    };
    let node = alone(&limit("volatile-lru")).await;
    let policy = "volatile-lru".to_owned();
    assert_eq!(node.findings(), [Finding::Evicting { policy, evicted: 0 }], "{node}");
    assert_eq!(node.worst(), Some(Severity::Danger));
    assert!(told(&node).contains("set maxmemory-policy noeviction"), "{node}");
    assert_eq!(node.maxmemory(), Some(100 << 20));
    assert_eq!(alone(&limit("noeviction")).await.worst(), None, "it refuses instead");
    let unlimited = Server::builder().durable().arg("--maxmemory-policy").arg("allkeys-lru");
    assert_eq!(alone(&unlimited).await.worst(), None, "it has no limit");
}

#[tokio::test]
async fn a_replica_is_told_and_so_is_a_master_that_has_one() {
    let master = Server::builder().durable().start();
    let port = master.port().to_string();
    let replica = Server::builder().durable().arg("--replicaof").arg("127.0.0.1").arg(port).start();
    eventually("it follows", || master.info("replication")["connected_slaves"] == "1").await;
    let nodes = of(&[&master, &replica]).check().await.expect("a client that works");
    assert_eq!(nodes[0].findings(), [Finding::HasReplicas { count: 1 }]);
    assert_eq!((nodes[0].role(), nodes[1].role()), (Some(Role::Master), Some(Role::Replica)));
    assert!(nodes[1].findings().contains(&Finding::Replica), "{}", nodes[1]);
    assert!(told(&nodes[1]).contains("SET is refused (READONLY"), "{}", nodes[1]);
}

#[tokio::test]
async fn a_node_that_sentinels_watch_is_told() {
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
    let found = async || redlock.check().await.expect("a client that works").swap_remove(0);
    let begun = Instant::now();
    let mut node = found().await;
    while node.findings().is_empty() && begun.elapsed() < SOON {
        sleep(ms(100)).await;
        node = found().await;
    }
    assert_eq!(node.findings(), [Finding::Watched { sentinels: 1 }], "{node}");
    assert_eq!(node.worst(), Some(Severity::Warning));
    drop(sentinel);
    fs::remove_dir_all(directory).expect("it is ours");
}

#[tokio::test]
async fn one_server_under_two_addresses_is_found() {
    let cluster = Cluster::start(2);
    let proxy = Proxy::start(cluster[0].addr());
    let urls = [cluster[0].url(), cluster[1].url(), proxy.url()];
    let redlock = Redlock::builder().nodes(urls).node_timeout(ms(5_000)).build().expect("good");
    let nodes = redlock.check().await.expect("a client that works");
    let twin_of = |other: usize| Finding::SameServer { other: nodes[other].name().to_owned() };
    assert!(nodes[0].findings().contains(&twin_of(2)) && nodes[2].findings().contains(&twin_of(0)));
    assert!(!told(&nodes[1]).contains("same server as"), "{}", nodes[1]);
}

/// A user with these rights and no others.
fn limited(rights: &[&str]) -> Server {
    let server = Server::builder().user(USER, PASSWORD).durable().start();
    server.cmd(&[&["ACL", "SETUSER", USER, "-@all"], rights].concat());
    server
}

async fn as_user(server: &Server) -> NodeCheck {
    let redlock = Redlock::builder().nodes([server.url_with_auth()]).node_timeout(ms(5_000));
    let redlock = redlock.build().expect("good settings");
    let node = redlock.check().await.expect("a client that works").pop().expect("one node");
    told(&node);
    node
}

#[tokio::test]
async fn what_a_user_may_not_do_is_named_and_what_it_may_not_see_is_unknown() {
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
    assert!(severities.is_sorted_by(|one, next| one >= next), "the worst first: {node}");
}

#[tokio::test]
async fn the_rights_that_the_readme_names_are_enough() {
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
    let right = redlock.clone().key_prefix("lock:").build().expect("good settings");
    let node = &right.check().await.expect("a client that works")[0];
    assert_eq!(node.findings(), [], "{node}");
    let wrong = redlock.key_prefix("other:").build().expect("good settings");
    let node = &wrong.check().await.expect("a client that works")[0];
    assert!(told(node).contains("SET is refused (NOPERM"), "it may not use these keys: {node}");
}

#[tokio::test]
async fn a_server_that_tells_nothing_of_its_settings_is_not_guessed_at() {
    let node = alone(&with(&["--rename-command", "CONFIG", ""])).await;
    assert_eq!(node.persistence(), None, "it may save snapshots: {node}");
    let unknown = Finding::Unknown { what: "persistence", needs: "+info +config|get" };
    assert_eq!(node.findings(), [unknown], "{node}");
}

#[tokio::test]
async fn server_without_time_is_a_danger() {
    let node = alone(&with(&["--rename-command", "TIME", ""])).await;
    let dangers = node.findings().iter().filter(|found| found.severity() == Severity::Danger);
    assert_eq!(dangers.collect::<Vec<_>>(), [&Finding::ClockUnreadable], "{node}");
    assert!(told(&node).contains("permit +time"), "{node}");
}

#[tokio::test]
async fn nodes_that_are_down_or_hang_are_told_within_the_bound_and_the_others_are_looked_at() {
    let cluster = Cluster::start_with(5, &Server::builder().durable());
    let proxy = Proxy::start(cluster[4].addr());
    let urls = [&cluster.urls()[..4], &[proxy.url()]].concat();
    let timeouts = Redlock::builder().connect_timeout(ms(1_500)).node_timeout(ms(1_000));
    let redlock = timeouts.nodes(urls).build().expect("good settings");
    cluster[1].kill();
    cluster[3].stop();
    // It accepts connections, and every byte is lost.
    proxy.black_hole(Direction::Replies);
    let begun = Instant::now();
    let nodes = redlock.check().await.expect("a client that works");
    assert!(begun.elapsed() < SOON, "it is bounded");
    for (node, reason) in [(1, "connection refused"), (3, "timeout"), (4, "timeout")] {
        let node = &nodes[node];
        assert!(matches!(node.findings(), [Finding::Unreachable { .. }]), "{node}");
        assert_eq!((node.worst(), node.version()), (Some(Severity::Danger), None));
        assert!(told(node).contains(&format!("danger: cannot be used: {reason}")), "{node}");
    }
    for node in [&nodes[0], &nodes[2]] {
        assert_eq!(node.worst(), None, "{node}");
    }
    cluster[3].cont();
}

#[tokio::test]
async fn a_node_that_hangs_after_the_connection_was_made_is_told() {
    let server = Server::start();
    let proxy = Proxy::start(server.addr());
    // Slower than the node timeout, and as slow as the connect timeout can bear.
    let redlock = Redlock::builder().nodes([proxy.url()]);
    let redlock = redlock.connect_timeout(SOON).node_timeout(ms(50)).build().expect("good");
    proxy.delay(Direction::Replies, ms(400));
    let node = redlock.check().await.expect("a client that works").pop().expect("one node");
    let timeout = NodeFailure::Timeout(ms(50));
    assert_eq!(node.findings(), [Finding::Unreachable { failure: timeout }], "{node}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_clock_that_is_ahead_or_behind_is_found_within_the_uncertainty() {
    let cluster = Cluster::start_with(3, &Server::builder().durable().clock());
    let redlock = builder(&cluster).node_timeout(ms(5_000)).build().expect("good settings");
    cluster[1].clock().jump(MINUTE);
    for (jumped, is_ahead) in [(1, true), (2, false)] {
        let nodes = redlock.check().await.expect("a client that works");
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
async fn a_check_that_is_done_or_dropped_leaves_no_connection() {
    let cluster = Cluster::start(3);
    let proxies = cluster.proxies();
    let redlock = Redlock::builder().nodes(proxies.iter().map(Proxy::url));
    // Longer than the test waits.
    let redlock = redlock.node_timeout(ms(5_000)).connect_timeout(10 * MINUTE);
    let redlock = redlock.build().expect("good settings");
    redlock.check().await.expect("a client that works");
    assert!(proxies.iter().all(|proxy| proxy.accepted() == 1), "a connection of its own each");
    eventually("they are closed", || proxies.iter().all(|proxy| proxy.live() == 0)).await;

    for proxy in &proxies {
        proxy.hold(Direction::Replies);
    }
    let checking = redlock.clone();
    let checking = tokio::spawn(async move { checking.check().await });
    eventually("it has begun", || proxies.iter().all(|proxy| proxy.accepted() == 2)).await;
    // The proxies keep what they withhold, so the servers are asked, by one client more.
    let have = |clients: &str| {
        cluster.iter().all(|server| server.info("clients")["connected_clients"] == clients)
    };
    eventually("they are connected", || have("2")).await;
    checking.abort();
    eventually("they are closed", || have("1")).await;
}

#[test]
fn check_works_without_a_runtime_and_is_refused_once_the_client_is_closed() {
    let cluster = Cluster::start(1);
    let redlock = client(&cluster);
    let checked = futures::executor::block_on(redlock.check()).expect("on the library's runtime");
    assert_eq!(checked[0].role(), Some(Role::Master));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let pinned = builder(&cluster).runtime(runtime.handle().clone()).build().expect("good");
    let checked = futures::executor::block_on(pinned.check()).expect("it has one");
    assert_eq!(checked[0].role(), Some(Role::Master));
    runtime.block_on(redlock.close()).expect("nothing is owed");
    assert_eq!(runtime.block_on(redlock.check()), Err(ClientError::Closed));
}

#[cfg(feature = "blocking")]
#[test]
fn the_blocking_client_checks_too() {
    let cluster = Cluster::start_with(3, &Server::builder().durable());
    let redlock = builder(&cluster).build_blocking().expect("good settings");
    let nodes = redlock.check().expect("outside of a runtime");
    assert!(nodes.len() == 3 && nodes.iter().all(|node| node.role() == Some(Role::Master)));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let inside = runtime.block_on(async { redlock.check() });
    assert_eq!(inside, Err(quorlock::blocking::Error::InsideRuntime));
}
