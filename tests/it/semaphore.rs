//! Tests of semaphores.

use crate::{builder, builder_of, client, eventually, ms};
use kit::{Cluster, Rerun, Server};
use quorlock::event::Event;
use quorlock::{AcquireError, ConfigError, Finding, Observer, ReleaseOutcome, Semaphore};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig};
use std::env;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const NODES: &str = "QUORLOCK_SEMAPHORE_NODES";
/// The URL of the server that counts the holders.
const COUNTER: &str = "QUORLOCK_SEMAPHORE_COUNTER";
/// Longer than any test takes, even on a busy machine.
const LONG: Duration = Duration::from_mins(5);
const PERMITS: usize = 10;
const PROCESSES: usize = 4;

/// Records the reported numbers of permits of the acquire and of the holder.
#[derive(Clone, Default)]
struct Differences(Arc<Mutex<Vec<(usize, usize)>>>);

impl Differences {
    fn reported(&self) -> Vec<(usize, usize)> {
        self.0.lock().expect("no panic").clone()
    }
}

impl Observer for Differences {
    fn on_event(&self, event: &Event) {
        if let Event::PermitsDiffer { permits, other_permits, .. } = event {
            self.0.lock().expect("no panic").push((*permits, *other_permits));
        }
    }
}

/// Acquires permits repeatedly, and counts the holders of all processes on a server that is no node. The first holders
/// wait until all permits are held, and then for a time in which another holder would be counted. Returns the highest
/// count that followed an acquire of this task.
async fn hold_repeatedly(semaphore: Semaphore, mut counter: MultiplexedConnection) -> usize {
    let mut peak = 0;
    for _ in 0..15 {
        let permit = semaphore.acquire().ttl(LONG).wait(LONG).await.expect("a permit");
        let inside: usize = counter.incr("inside", 1).await.expect("the server is up");
        peak = peak.max(inside);
        if inside >= PERMITS {
            let _: () = counter.set("full", 1).await.expect("the server is up");
        }
        let mut hold = ms(10);
        while !counter.exists::<_, bool>("full").await.expect("the server is up") {
            sleep(ms(1)).await;
            hold = ms(200);
        }
        sleep(hold).await;
        let _: i64 = counter.decr("inside", 1).await.expect("the server is up");
        assert!(permit.is_valid(), "the permit expired");
        assert_eq!(permit.release().await, Ok(ReleaseOutcome::Released));
    }
    peak
}

#[tokio::test]
#[ignore = "runs as a child process of the test below"]
async fn holder() {
    let (Ok(nodes), Ok(counter)) = (env::var(NODES), env::var(COUNTER)) else { return };
    // The timeouts are long enough for a busy machine.
    let builder = builder_of(nodes.split(',')).node_timeout(ms(5_000));
    let redlock = builder.build().expect("valid settings");
    let semaphore = redlock.semaphore("downloads", PERMITS).expect("valid");
    let counter = redis::Client::open(counter).expect("a URL");
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(LONG));
    let counter = counter.get_multiplexed_async_connection_with_config(&patient).await;
    let mut counter = counter.expect("the server is up");
    let _: i64 = counter.incr("ready", 1).await.expect("the server is up");
    while counter.get::<_, usize>("ready").await.expect("the server is up") < PROCESSES {
        sleep(ms(1)).await;
    }
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        tasks.spawn(hold_repeatedly(semaphore.clone(), counter.clone()));
    }
    let peaks = tasks.join_all().await;
    let _: i64 = counter.rpush("peaks", peaks).await.expect("the server is up");
    redlock.close().await.expect("nodes are up");
}

#[tokio::test]
async fn at_most_as_many_clients_as_permits_hold_one() {
    let (cluster, counter) = (Cluster::start(5), Server::start());
    let env = [(NODES, &*cluster.urls().join(",")), (COUNTER, &*counter.url())];
    let args = ["--ignored", "--exact", "semaphore::holder", "--nocapture"];
    let children = [(); PROCESSES].map(|()| Rerun::start(&args, &env));
    for child in &children {
        child.finish(LONG);
    }
    let peaks: Vec<usize> =
        redis::from_redis_value(counter.cmd(&["LRANGE", "peaks", "0", "-1"])).expect("numbers");
    assert_eq!((peaks.len(), peaks.iter().max()), (40, Some(&PERMITS)), "{peaks:?}");
    eventually("no key is left", || cluster.is_empty()).await;
}

#[tokio::test]
async fn all_of_1000_permits_can_be_held() {
    let cluster = Cluster::start(3);
    let semaphore = client(&cluster).semaphore("seats", 1_000).expect("valid");
    let mut permits = JoinSet::new();
    for _ in 0..1_000 {
        permits.spawn(semaphore.acquire().ttl(LONG).wait(LONG).into_future());
    }
    let permits: Vec<_> = permits.join_all().await.into_iter().flatten().collect();
    assert_eq!(permits.len(), 1_000);
    let refused = semaphore.try_acquire().await.expect_err("all permits are held");
    assert!(matches!(refused, AcquireError::Contended { held_here: true, .. }), "{refused}");
    drop(permits);
    eventually("no key is left", || cluster.is_empty()).await;
}

/// Returns the number of commands that the servers have executed, including those of scripts.
pub(crate) fn commands(cluster: &Cluster) -> u64 {
    let count = |server: &Server| {
        let info: String = redis::from_redis_value(server.cmd(&["INFO", "stats"])).expect("text");
        let line = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        line.and_then(|count| count.trim().parse::<u64>().ok()).expect("a number")
    };
    cluster.iter().map(count).sum()
}

#[tokio::test]
async fn waiters_for_1000_held_permits_cost_few_commands() {
    let cluster = Cluster::start(3);
    let semaphore = client(&cluster).semaphore("seats", 1_000).expect("valid");
    let mut permits = JoinSet::new();
    for _ in 0..1_000 {
        permits.spawn(semaphore.acquire().ttl(LONG).wait(LONG).into_future());
    }
    let mut permits: Vec<_> = permits.join_all().await.into_iter().flatten().collect();
    assert_eq!(permits.len(), 1_000);
    let clients = [(); 4].map(|()| client(&cluster));
    let mut waiting = JoinSet::new();
    for client in &clients {
        let semaphore = client.semaphore("seats", 1_000).expect("valid");
        waiting.spawn(semaphore.acquire().wait(LONG).into_future());
    }
    // Each waiter tries all permits once.
    let first = 4 * 3 * 2 * 1_000;
    let before = commands(&cluster);
    eventually("all waiters have tried", || commands(&cluster) > before + first).await;
    sleep(ms(3_000)).await;
    let (before, began) = (commands(&cluster), Instant::now());
    sleep(ms(5_000)).await;
    let rate = (commands(&cluster) - before) / began.elapsed().as_secs().max(1);
    assert!(rate < 2_000, "{rate} commands per second");
    while let Some(permit) = permits.pop().filter(|_| !waiting.is_empty()) {
        assert_eq!(permit.release().await, Ok(ReleaseOutcome::Released));
        drop(waiting.join_next().await.expect("a waiter").expect("no panic").expect("a permit"));
    }
}

#[tokio::test]
async fn status_shows_holders_and_free_permits() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).key_prefix("app:").build().expect("valid settings");
    let semaphore = redlock.semaphore("downloads", 3).expect("valid");
    let empty = semaphore.status().await.expect("an open client");
    assert_eq!((empty.permits(), empty.free(), empty.holders().len()), (3, 3, 0));
    let mut permits = Vec::new();
    for worker in ["worker-1", "worker-2"] {
        permits.push(semaphore.acquire().metadata(worker).await.expect("a permit"));
    }
    let status = semaphore.status().await.expect("an open client");
    let mut names: Vec<_> = status.holders().iter().filter_map(|it| it.metadata()).collect();
    names.sort_unstable();
    assert_eq!((names, status.free()), (vec!["worker-1", "worker-2"], 1));
    assert_eq!((status.other_permits(), status.details().len()), (None, 3));
    let text = status.to_string();
    assert!(text.starts_with("2 of 3 permits held, 1 free: held by worker-"), "{text}");
    assert!(permits.iter().all(|permit| !text.contains(permit.value())), "{text}");
}

#[tokio::test]
async fn different_numbers_of_permits_are_reported_once() {
    let cluster = Cluster::start(3);
    let differences = Differences::default();
    let redlock = builder(&cluster).observer(differences.clone()).build().expect("valid");
    let few = redlock.semaphore("downloads", 2).expect("valid");
    let many = client(&cluster).semaphore("downloads", 4).expect("valid");
    let mut permits = Vec::new();
    for _ in 0..4 {
        permits.push(many.acquire().await.expect("a permit"));
    }
    for _ in 0..3 {
        let refused = few.try_acquire().await.expect_err("all permits are held");
        assert!(refused.is_contended(), "{refused}");
    }
    eventually("the difference is reported", || !differences.reported().is_empty()).await;
    assert_eq!(differences.reported(), [(2, 4)]);
    let (semaphore, permits, other_permits) = ("downloads".to_owned(), 2, 4);
    let difference = Finding::PermitsDiffer { semaphore, permits, other_permits };
    let checked = redlock.check().await.expect("an open client");
    assert!(checked.iter().any(|node| node.findings().contains(&difference)), "{checked:?}");
    let status = few.status().await.expect("an open client");
    assert_eq!((status.other_permits(), status.holders().len(), status.free()), (Some(4), 4, 0));
    assert!(status.to_string().contains("another client uses 4 permits"), "{status}");
    let seen = many.status().await.expect("an open client");
    assert_eq!((seen.other_permits(), seen.holders().len()), (None, 4));
}

#[tokio::test]
async fn single_permit_reports_a_holder_with_another_number() {
    let cluster = Cluster::start(3);
    let differences = Differences::default();
    let redlock = builder(&cluster).observer(differences.clone()).build().expect("valid");
    let one = redlock.semaphore("downloads", 1).expect("valid");
    let two = client(&cluster).semaphore("downloads", 2).expect("valid");
    let _permits = [two.acquire().await, two.acquire().await].map(|it| it.expect("a permit"));
    one.try_acquire().await.expect_err("both permits are held");
    eventually("the difference is reported", || !differences.reported().is_empty()).await;
    assert_eq!(differences.reported(), [(1, 2)]);
}

#[tokio::test]
async fn semaphore_and_lock_of_the_same_name_are_independent() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    for name in ["jobs", "{user:7}/jobs"] {
        let semaphore = redlock.semaphore(name, 1).expect("valid");
        let permit = semaphore.acquire().fenced().await.expect("a permit");
        assert!(permit.token().is_some());
        let lock = redlock.try_acquire(name).await.expect("the lock is free");
        assert!(semaphore.try_acquire().await.is_err());
        assert_eq!(lock.release().await, Ok(ReleaseOutcome::Released));
        assert_eq!(permit.release().await, Ok(ReleaseOutcome::Released));
        let next = semaphore.try_acquire().await.expect("a permit");
        assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    }
}

#[tokio::test]
async fn waiter_gets_a_permit_that_another_client_releases() {
    let cluster = Cluster::start(3);
    let [first, second] = [(); 2].map(|()| client(&cluster).semaphore("s", 2).expect("valid"));
    let mut permits = Vec::new();
    for _ in 0..2 {
        permits.push(first.acquire().ttl(ms(50_000)).await.expect("a permit"));
    }
    let waiting = tokio::spawn(second.acquire().wait(ms(20_000)).into_future());
    sleep(ms(50)).await;
    assert_eq!(permits.pop().expect("two permits").release().await, Ok(ReleaseOutcome::Released));
    let permit = waiting.await.expect("no panic").expect("the released permit");
    assert_eq!(permit.release().await, Ok(ReleaseOutcome::Released));
}

#[test]
fn blocking_semaphore_limits_the_holders() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build_blocking().expect("valid settings");
    let semaphore = redlock.semaphore("downloads", 2).expect("valid");
    let permits = [(); 2].map(|()| semaphore.acquire().call().expect("a permit"));
    assert!(semaphore.try_acquire().call().is_err());
    let status = semaphore.status().expect("an open client");
    assert_eq!((status.free(), semaphore.permits(), semaphore.name()), (0, 2, &b"downloads"[..]));
    for permit in permits {
        assert_eq!(permit.release().expect("nodes are up"), ReleaseOutcome::Released);
    }
}

#[tokio::test]
async fn invalid_semaphores_are_refused() {
    let cluster = Cluster::start(1);
    let redlock = client(&cluster);
    for permits in [0, 1_001] {
        let refused = redlock.semaphore("s", permits).expect_err("not between 1 and 1000");
        assert_eq!(refused, ConfigError::BadPermits { permits, most: 1_000 });
    }
    for name in ["", "a{b", "a}b"] {
        let refused = redlock.semaphore(name, 2).expect_err("no common cluster slot");
        assert_eq!(refused, ConfigError::BadSemaphore { name: name.into() });
    }
    let long = "x".repeat(1_000);
    let refused = redlock.semaphore(&long, 1_000).expect_err("the keys are too long");
    assert!(matches!(refused, ConfigError::LongResources { .. }), "{refused}");
    assert!(redlock.semaphore("x#quorlock:permit0", 2).is_err(), "a reserved name");
}
