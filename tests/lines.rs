//! Log output of the feature `tracing` during outages, at the default and the most verbose level. These tests
//! are a separate target, because their subscriber is global.

use kit::{Cluster, Server};
use quorlock::{Builder, NodeState, Redlock, ReleaseOutcome};
use quorlock_test::Clock;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const SOON: Duration = Duration::from_secs(20);

/// Held by the running test, because all tests share the log.
static RUNNING: Mutex<()> = Mutex::new(());
static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());
/// The level of the log: 3 for `INFO` and above, as in production, or 5 for all levels.
static LEVEL: AtomicUsize = AtomicUsize::new(3);

struct Log(AtomicU64);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Log {
    fn write(level: Level, kind: &str, write: impl FnOnce(&mut Fields)) {
        let mut fields = Fields(kind.to_owned());
        write(&mut fields);
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push((level, fields.0));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let most = if LEVEL.load(Ordering::Relaxed) == 5 { Level::TRACE } else { Level::INFO };
        *metadata.level() <= most
    }

    fn register_callsite(&self, _: &Metadata<'_>) -> tracing::subscriber::Interest {
        tracing::subscriber::Interest::sometimes()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let kind = format!("span {}:", span.metadata().name());
        Self::write(*span.metadata().level(), &kind, |fields| span.record(fields));
        Id::from_u64(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        Self::write(Level::DEBUG, "recorded:", |fields| values.record(fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        Self::write(*event.metadata().level(), "line:", |fields| event.record(fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Runs `test`, and records log lines up to `level`. The runtime is dropped before the next test starts.
fn run(level: usize, test: impl Future<Output = ()>) {
    let _alone = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    // Succeeds only in the first test.
    let _ = tracing::subscriber::set_global_default(Log(AtomicU64::new(0)));
    LEVEL.store(level, Ordering::Relaxed);
    LINES.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

fn lines() -> Vec<(Level, String)> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn shown(lines: &[(Level, String)]) -> String {
    let lines: Vec<_> = lines.iter().map(|(level, line)| format!("{level} {line}")).collect();
    lines.join("\n")
}

fn count(part: &str) -> usize {
    lines().iter().filter(|(_, line)| line.contains(part)).count()
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < SOON, "timed out after {SOON:?}: {what}: {:#?}", lines());
        sleep(Duration::from_millis(2)).await;
    }
}

/// Builds a client on the test's own runtime. The client ends with this runtime, so it logs nothing in later tests. Its
/// node timeout is long enough for a busy machine.
async fn client(builder: Builder) -> Redlock {
    let builder = builder.node_timeout(Duration::from_secs(1));
    let builder = builder.runtime(tokio::runtime::Handle::current());
    let redlock = builder.build().expect("valid settings");
    redlock.ready().await.expect("nodes are up");
    let is_up = || redlock.nodes().iter().all(|node| *node.state() == NodeState::Up);
    eventually("all nodes are up", is_up).await;
    redlock
}

/// Checks the log of a service that holds a hundred locks and keeps acquiring another, while `stop` stops three
/// of five nodes. The service may log at most ten lines in the first minute and twenty in an hour.
async fn outage_of_three_nodes(stop: impl Fn(&Server), is_down: impl Fn(&NodeState) -> bool) {
    const LEASES: usize = 100;
    let cluster = Cluster::start(5);
    let clock = Clock::default();
    let builder = Redlock::builder().nodes(cluster.urls()).clock(&clock);
    let redlock = client(builder).await;
    let mut leases = Vec::new();
    for number in 0..LEASES {
        let acquire = redlock.acquire(format!("account/{number}")).class("account");
        leases.push(acquire.auto_extend_forever().await.expect("the lock is free"));
    }
    assert_eq!(lines(), [], "nothing is logged while nodes are up");
    cluster.iter().take(3).for_each(&stop);
    let down_count = || redlock.nodes().iter().filter(|node| is_down(node.state())).count();
    let mut seconds = 0;
    // The nodes need real time to answer or to time out.
    for _ in 0..60 {
        clock.advance(Duration::from_secs(1));
        seconds += 1;
        let _ = redlock.try_acquire("another").await;
        if down_count() < 3 || leases.iter().any(|lease| lease.is_valid()) && seconds > 5 {
            sleep(Duration::from_millis(100)).await;
        }
    }
    eventually("three nodes are down", || down_count() == 3).await;
    eventually("all leases have ended", || leases.iter().all(|lease| !lease.is_valid())).await;
    eventually("the loss is logged", || count("was lost") > 0).await;
    let first_minute = lines();
    let shown = shown(&first_minute);
    assert!(first_minute.len() <= 10, "{shown}");
    for part in [
        "of 5 nodes count, need 3", // the cause
        " until it is lost; ",      // the leases at risk, and the time left
        "100 resources held in total",
        "was lost after ",
        "its validity ended",
        "no quorum: neither \"another\" nor any other lock can be acquired",
        "/5 granted (need 3): ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(count("was counted for"), 3, "one line for each node: {shown}");
    for _ in 0..354 {
        clock.advance(Duration::from_secs(10));
        let refused = redlock.try_acquire("another").await;
        refused.expect_err("three of five nodes are down");
    }
    let hour = lines();
    assert!(hour.len() <= 20, "{hour:#?}");
    assert!(
        count("more acquires found no quorum within") >= 3,
        "too few summaries of refused acquires: {hour:#?}"
    );
    assert!(hour.iter().all(|(level, _)| *level == Level::WARN), "{hour:#?}");
    println!("{} lines in a minute, {} in an hour:", first_minute.len(), hour.len());
    cluster.iter().take(3).filter(|node| node.is_stopped()).for_each(Server::cont);
    println!("{}", self::shown(&hour));
}

#[test]
fn outage_of_hung_nodes_logs_ten_lines_a_minute() {
    run(
        3,
        outage_of_three_nodes(Server::stop, |state| {
            matches!(state, NodeState::Stalled | NodeState::Down(_))
        }),
    );
}

#[test]
fn outage_of_dead_nodes_logs_ten_lines_a_minute() {
    run(3, outage_of_three_nodes(Server::kill, |state| matches!(state, NodeState::Down(_))));
}

#[test]
fn outage_of_one_node_logs_two_lines() {
    run(3, one_node_down());
}

async fn one_node_down() {
    let cluster = Cluster::start(3);
    let builder = Redlock::builder().nodes(cluster.urls());
    let builder = builder.restart_guard(quorlock::RestartGuard::Off);
    let redlock = client(builder).await;
    cluster[1].kill();
    for _ in 0..30 {
        drop(redlock.acquire("r").await.expect("two of three nodes are up"));
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!((lines().len(), count("is down, was counted")), (1, 1), "{:#?}", lines());
    cluster[1].restart();
    eventually("the node counts again", || count("counts again, was down") == 1).await;
    assert_eq!(lines().len(), 2, "{:#?}", lines());
}

#[test]
fn unconfirmed_release_of_finished_work_is_one_warning() {
    run(3, unconfirmed_release());
}

async fn unconfirmed_release() {
    let cluster = Cluster::start(3);
    let builder = Redlock::builder().nodes(cluster.urls());
    let redlock = client(builder).await;
    let stop = async |_: &quorlock::Lease| cluster.iter().for_each(Server::stop);
    redlock.using("r", stop).await.expect("the work ended under a valid lease");
    let warnings = count("release of \"r\" is not confirmed and continues in the background");
    assert_eq!(warnings, 1, "{:#?}", lines());
    cluster.iter().for_each(Server::cont);
    eventually("the release is delivered", || cluster.is_empty()).await;
}

#[test]
fn missing_permission_for_time_is_one_warning() {
    run(3, missing_time_permission());
}

async fn missing_time_permission() {
    let cluster = Cluster::start(3);
    for node in &cluster {
        node.cmd(&["ACL", "SETUSER", "default", "-time"]);
    }
    let _redlock = client(Redlock::builder().nodes(cluster.urls())).await;
    let warning = "does not permit TIME: steps of its clock cannot be detected; permit +time";
    assert_eq!((count(warning), lines().len()), (1, 1), "{:#?}", lines());
}

#[test]
fn verbose_log_is_complete_and_contains_no_secret() {
    run(5, verbose_log());
}

async fn verbose_log() {
    let secret = "correct-horse";
    let cluster = Cluster::start_with(3, &Server::builder().password(secret));
    let urls = cluster.iter().map(Server::url_with_auth);
    let redlock = client(Redlock::builder().nodes(urls).key_prefix("app:")).await;
    let name = b"two\r\nlines \xff";
    let lease = redlock.acquire(name).class("odd").fenced().await.expect("the lock is free");
    let values = [lease.value().to_owned()];
    redlock.try_acquire(name).await.expect_err("the lock is held");
    redlock.acquire(name).max_attempts(1).await.expect_err("the lock is held");
    lease.extend(Duration::from_secs(30)).await.expect("nodes are up");
    assert_eq!(lease.release().await, Ok(ReleaseOutcome::Released));
    redlock.adopt(name, &values[0]).await.expect_err("the lock is released");
    let renewed = redlock.acquire("renewed").ttl(Duration::from_secs(3)).auto_extend_forever();
    let renewed = renewed.await.expect("the lock is free");
    eventually("the lease is renewed", || count("was renewed with") > 0).await;
    cluster[0].kill();
    eventually("the outage is logged", || count("is down, was counted") == 1).await;
    let values = [&values[0], renewed.value()].map(str::to_owned);
    drop(renewed);
    redlock.close().await.ok();
    let recorded = lines();
    let shown = shown(&recorded);
    for part in [
        "span acquire:",
        "span extend:",
        "span release:",
        "class=\"odd\"",
        "outcome=\"won\"",
        "attempt 1 for",
        "acquired ",
        "was not acquired: contended",
        "was not acquired: not_held",
        "extended, valid for",
        "releases",
        r"two\r\nlines \xff",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for (_, line) in &recorded {
        assert!(!line.contains(['\r', '\n']), "{line:?}");
        let has = |secret: &str| line.contains(secret);
        assert!(!has(secret) && !values.iter().any(|value| has(&value[..12])), "{line}");
    }
}
