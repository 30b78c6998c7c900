//! Tests of jobs that run once per period.

mod records;

use crate::{MAX_TTL, SOON, builder, client, connected, eventually, ms};
use kit::{Cluster, Server};
use quorlock::{AcquireError, ConfigError, JobError, JobOutcome, Loss, Redlock, ScheduledJob};
use quorlock_test::Clock;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const DAY: Duration = Duration::from_hours(24);
pub(crate) const COUNTER: &str = "job#quorlock:period:{job}";

/// A job whose period ends at least an hour from now, with the number of this period.
pub(crate) fn job(redlock: &Redlock) -> (ScheduledJob, u64) {
    let seconds = unix_time().as_secs();
    let offset = Duration::from_secs((seconds + 12 * 3_600) % DAY.as_secs());
    let number = (seconds - offset.as_secs()) / DAY.as_secs();
    (redlock.once("job").every(DAY).offset(offset), number)
}

fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

fn counters(cluster: &Cluster) -> Vec<Option<u64>> {
    counters_of(cluster.servers())
}

fn counters_of(servers: &[Server]) -> Vec<Option<u64>> {
    let number = |server: &Server| String::from_utf8(server.get(COUNTER)?).ok()?.parse().ok();
    servers.iter().map(number).collect()
}

async fn runs(job: &ScheduledJob) -> bool {
    !job.run(async |_| ()).await.expect("nodes are up").is_skipped()
}

#[tokio::test]
async fn job_runs_once_in_a_period() {
    let cluster = Cluster::start(3);
    let (first, number) = job(&client(&cluster));
    let outcome = first.run(async |lease| lease.resource().to_vec()).await.expect("nodes are up");
    assert_eq!(outcome, JobOutcome::Ran(b"job".to_vec()));
    assert_eq!(counters(&cluster), [Some(number); 3]);
    let ttl = i64::try_from((2 * DAY).as_millis()).expect("two days");
    assert!(cluster.servers().iter().all(|node| node.pttl(COUNTER) > ttl));
    let (second, _) = job(&client(&cluster));
    let outcome = second.run(async |_| ()).await.expect("nodes are up");
    let JobOutcome::Skipped { holder: Some(_), since: Some(since) } = outcome else {
        panic!("{outcome:?}");
    };
    assert!(since < SOON, "{since:?}");
    assert!(cluster.none_has("job"), "the lock is free");
}

#[tokio::test]
async fn one_of_twenty_simultaneous_calls_runs_the_job() {
    let cluster = Cluster::start(5);
    let mut calls = JoinSet::new();
    for _ in 0..20 {
        let redlock = client(&cluster);
        redlock.ready().await.expect("nodes are up");
        let (job, _) = job(&redlock);
        calls.spawn(async move { runs(&job.wait(SOON)).await });
    }
    assert_eq!(calls.join_all().await.into_iter().filter(|ran| *ran).count(), 1);
}

#[tokio::test]
async fn period_of_a_day_follows_the_wall_clock() {
    let cluster = Cluster::start(3);
    let [ours, theirs] = [(); 2].map(|()| Clock::default());
    let [first, second] = [&ours, &theirs].map(|clock| {
        let redlock = builder(&cluster).clock(clock).build().expect("valid settings");
        redlock.once("job").every(DAY)
    });
    let day = 86_400_000;
    let to_midnight =
        day - i64::try_from(unix_time().as_millis() % DAY.as_millis()).expect("a day");
    // The day, and the distance from its midnight, of both clocks. The second clock is up to two seconds late.
    let hour = 3_600_000;
    for (today, at, late, expected) in [
        (1, -hour, 0, [true, false]),
        (1, hour, 2_000, [true, false]),
        (1, 12 * hour, 2_000, [false, false]),
        (2, 0, 2_000, [true, false]),
        (3, 1_000, -2_000, [true, false]),
        (2, 12 * hour, 0, [false, false]),
        (30, hour, 0, [true, false]),
    ] {
        let ahead = to_midnight + (today - 1) * day + at;
        ours.set_wall_clock_ahead(ahead);
        theirs.set_wall_clock_ahead(ahead - late);
        let found = [runs(&first).await, runs(&second).await];
        assert_eq!(found, expected, "day {today}, {at} ms after midnight");
    }
}

#[tokio::test]
async fn counter_is_never_lowered() {
    let cluster = Cluster::start(3);
    let clock = Clock::default();
    let redlock = builder(&cluster).clock(&clock).build().expect("valid settings");
    let (job, number) = job(&redlock);
    clock.set_wall_clock_ahead(2 * 86_400_000);
    assert!(runs(&job).await);
    clock.set_wall_clock_ahead(0);
    for job in [job.clone(), job.take_over()] {
        assert!(!runs(&job).await, "a later period is done");
    }
    assert_eq!(counters(&cluster), [Some(number + 2); 3]);
}

#[tokio::test]
async fn dropped_job_runs_again_only_with_take_over() {
    let cluster = Cluster::start(3);
    for takes_over in [false, true] {
        cluster.servers().iter().for_each(Server::flushall);
        let [(first, _), (second, _)] = [(); 2].map(|()| job(&client(&cluster)));
        let [first, second] =
            [first, second].map(|job| if takes_over { job.take_over() } else { job });
        let (started, is_started) = tokio::sync::oneshot::channel();
        {
            let mut running = pin!(first.run(async |_| {
                started.send(()).expect("the test waits");
                pending::<()>().await;
            }));
            tokio::select! {
                _ = &mut running => panic!("the job never ends"),
                is_started = is_started => is_started.expect("the job runs"),
            }
        }
        assert_eq!(runs(&second).await, takes_over);
        assert!(!runs(&first).await);
    }
}

#[tokio::test]
async fn failed_job_runs_again_only_with_take_over() {
    let cluster = Cluster::start(3);
    for takes_over in [false, true] {
        cluster.servers().iter().for_each(Server::flushall);
        let (job, _) = job(&client(&cluster));
        let job = if takes_over { job.take_over() } else { job };
        let failed = job.try_run(async |_| Err::<(), _>("no disk")).await.expect("nodes are up");
        assert_eq!(failed, JobOutcome::Ran(Err("no disk")));
        let again = job.try_run_fut(async |_| Ok::<_, ()>(7)).await.expect("nodes are up");
        assert_eq!(again.ran(), takes_over.then_some(Ok(7)));
        assert!(!runs(&job).await);
    }
}

#[tokio::test]
async fn counter_on_one_node_prevents_the_job_and_is_restored() {
    let cluster = Cluster::start(5);
    for takes_over in [false, true] {
        cluster.servers().iter().for_each(Server::flushall);
        let (job, number) = job(&client(&cluster));
        let job = if takes_over { job.take_over() } else { job };
        cluster.servers()[3].set(COUNTER, number.to_string());
        assert!(!runs(&job).await);
        assert_eq!(counters(&cluster), [Some(number); 5]);
    }
}

#[tokio::test]
async fn lost_counters_of_a_majority_repeat_the_job() {
    let cluster = Cluster::start(5);
    let (job, _) = job(&client(&cluster));
    assert!(runs(&job).await);
    for node in &cluster.servers()[..2] {
        node.del(COUNTER);
    }
    for node in &cluster.servers()[2..] {
        node.stop();
    }
    let refused = job.clone().wait(Duration::ZERO).run(async |_| ()).await;
    assert!(matches!(refused, Err(JobError::Undecided { .. })), "{refused:?}");
    for node in &cluster.servers()[2..] {
        node.cont();
        node.del(COUNTER);
    }
    assert!(runs(&job.wait(SOON)).await, "all counters are lost");
}

#[tokio::test]
async fn number_is_committed_by_a_quorum_before_the_job() {
    let cluster = Cluster::start(3);
    let (job, number) = job(&connected(builder(&cluster)).await);
    let servers = cluster.servers();
    servers[2].stop();
    let found = job.run(async |_| counters_of(&servers[..2])).await.expect("a quorum is up");
    assert_eq!(found.ran().expect("the first run"), [Some(number), Some(number)]);
    servers[2].cont();
}

#[tokio::test]
async fn number_is_committed_after_a_job_with_take_over() {
    let cluster = Cluster::start(3);
    let (job, number) = job(&client(&cluster));
    let servers = cluster.servers();
    let found = job.take_over().run_fut(|_| async { counters_of(servers) }).await;
    assert_eq!(found.expect("nodes are up").ran().expect("the first run"), [None; 3]);
    assert_eq!(counters(&cluster), [Some(number); 3]);
}

#[tokio::test]
async fn job_does_not_start_without_a_quorum_of_counters() {
    let cluster = Cluster::start(3);
    let (job, _) = job(&client(&cluster));
    for node in &cluster.servers()[..2] {
        node.set(COUNTER, "not a number");
    }
    let refused = job.wait(ms(300)).run(async |_| ()).await.expect_err("two counters are invalid");
    let JobError::Undecided { report } = &refused else { panic!("{refused:?}") };
    assert_eq!(report.granted(), 1, "{report}");
    assert!(refused.to_string().contains("COUNTER the key of a job counter"), "{refused}");
}

#[tokio::test]
async fn uncommitted_job_returns_its_output_in_the_error() {
    let cluster = Cluster::start(3);
    let (job, _) = job(&client(&cluster));
    let job = job.take_over();
    let failed = job
        .run(async |_| {
            for node in &cluster.servers()[..2] {
                node.set(COUNTER, "not a number");
            }
            42
        })
        .await;
    let Err(JobError::NotCommitted { output: 42, report }) = failed else { panic!("{failed:?}") };
    assert_eq!(report.granted(), 1, "{report}");
    cluster.servers().iter().for_each(|node| _ = node.del(COUNTER));
    assert!(runs(&job).await, "no node has the number");
}

#[tokio::test]
async fn calls_within_at_least_are_skipped_in_the_next_period_too() {
    let cluster = Cluster::start(3);
    let [early, late] = [(); 2].map(|()| Clock::default());
    let [first, second] = [&early, &late].map(|clock| {
        let redlock = builder(&cluster).clock(clock).build().expect("valid settings");
        redlock.once("job").every(DAY).at_least(MAX_TTL).wait(Duration::MAX)
    });
    let passed = i64::try_from(unix_time().as_millis() % DAY.as_millis()).expect("a day");
    late.set_wall_clock_ahead(-passed - 1_000);
    early.set_wall_clock_ahead(-passed + 3_600_000);
    assert!(runs(&second).await, "the day before");
    let skipped =
        timeout(SOON, first.run(async |_| ())).await.expect("no wait").expect("nodes are up");
    let JobOutcome::Skipped { holder: Some(holder), since: None } = skipped else {
        panic!("{skipped:?}");
    };
    assert!(holder.is_cooling_down());
    cluster.servers().iter().for_each(|node| _ = node.del("job"));
    assert!(runs(&first).await, "the cool-down has ended");
}

#[tokio::test]
async fn job_is_dropped_after_at_most() {
    let cluster = Cluster::start(3);
    let (job, _) = job(&client(&cluster));
    let job = job.take_over().at_most(ms(1_500));
    let error = job.run(async |_| pending::<()>().await).await.expect_err("the job never ends");
    assert!(matches!(error, JobError::Lost { reason: Loss::MaxHold }), "{error:?}");
    assert_eq!(counters(&cluster), [None; 3]);
    eventually("the lock is released", || cluster.none_has("job")).await;
}

#[tokio::test]
async fn call_waits_while_another_client_holds_the_lock() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let lease = client(&cluster).acquire("job").metadata("importer").await.expect("it is free");
    let (job, _) = job(&redlock);
    let skipped = job.clone().wait(Duration::ZERO).run(async |_| ()).await.expect("nodes are up");
    let JobOutcome::Skipped { holder: Some(holder), since: None } = skipped else {
        panic!("{skipped:?}");
    };
    assert_eq!(holder.metadata(), Some("importer"));
    let waiting = tokio::spawn(async move { runs(&job.wait(SOON)).await });
    sleep(ms(300)).await;
    drop(lease);
    assert!(waiting.await.expect("no panic"), "the period is not done");
}

#[tokio::test]
async fn waiting_call_is_skipped_once_the_job_has_started() {
    let cluster = Cluster::start(3);
    let [(first, _), (second, _)] = [(); 2].map(|()| job(&client(&cluster)));
    let outcome = first
        .run(async |_| second.wait(SOON).run(async |_| ()).await.expect("nodes are up"))
        .await
        .expect("nodes are up");
    let inner = outcome.ran().expect("the first run");
    assert!(matches!(inner, JobOutcome::Skipped { since: Some(_), .. }), "{inner:?}");
}

#[tokio::test]
async fn fenced_job_and_fenced_lock_share_the_order_of_tokens() {
    let cluster = Cluster::start(3);
    let redlock = client(&cluster);
    let before = redlock.acquire("job").fenced().await.expect("it is free");
    let lowest = before.token().expect("a token");
    drop(before);
    let (job, number) = job(&redlock);
    let token = job.fenced().run(async |lease| lease.token()).await.expect("nodes are up");
    let token = token.ran().flatten().expect("a token");
    let after = redlock.acquire("job").fenced().await.expect("it is free");
    assert!(lowest < token && Some(token) < after.token());
    assert_eq!(counters(&cluster), [Some(number); 3]);
}

#[tokio::test]
async fn restarted_node_does_not_count_for_the_period() {
    let mut cluster = Cluster::start(3);
    let redlock = connected(builder(&cluster)).await;
    let (job, number) = job(&redlock);
    let job = job.wait(Duration::ZERO);
    cluster.servers()[2].stop();
    assert!(runs(&job).await);
    cluster.servers_mut()[0].kill();
    cluster.servers_mut()[0].restart();
    cluster.servers()[1].stop();
    cluster.servers()[2].cont();
    eventually("the restarted node is known", || {
        let nodes = redlock.nodes();
        nodes[2].state() == &quorlock::NodeState::Up && nodes[0].state() == &quorlock::NodeState::Up
    })
    .await;
    // The stopped node has executed the command after it was continued, as a slow node does.
    cluster.servers()[2].del(COUNTER);
    let refused = job.run(async |_| ()).await.expect_err("one node counts");
    let JobError::Undecided { report } = &refused else { panic!("{refused:?}") };
    assert!(report.to_string().contains("restarted"), "{report}");
    cluster.servers()[1].cont();
    let skipped = job.wait(SOON).run(async |_| ()).await.expect("the second node denies");
    assert!(skipped.is_skipped());
    eventually("the counters are restored", || counters(&cluster) == [Some(number); 3]).await;
}

#[tokio::test]
async fn invalid_jobs_are_refused() {
    let cluster = Cluster::start(1);
    let redlock = builder(&cluster).max_ttl(ms(60_000)).build().expect("valid settings");
    let once = || redlock.once("job");
    let (hour, second) = (Duration::from_hours(1), ms(1_000));
    let (short, long) = (ms(999), 30 * DAY + ms(1));
    for (job, expected) in [
        (once().every(short), ConfigError::BadPeriod { period: short }),
        (once().every(long), ConfigError::BadPeriod { period: long }),
        (once().every(hour).offset(hour), ConfigError::BadOffset { offset: hour, period: hour }),
        (
            once().every(hour).at_least(ms(60_001)),
            ConfigError::AtLeastTooLong { at_least: ms(60_001), limit: ms(60_000) },
        ),
        (
            once().every(second).at_least(ms(1_001)),
            ConfigError::AtLeastTooLong { at_least: ms(1_001), limit: second },
        ),
        (redlock.once("a{b").every(hour), ConfigError::BadJob { name: "a{b".into() }),
        (redlock.once("").every(hour), ConfigError::BadJob { name: String::new() }),
    ] {
        let refused = job.run(async |_| ()).await.expect_err("invalid");
        let JobError::NotAcquired(AcquireError::Invalid(error)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(error, expected);
    }
    assert!(runs(&once().every(30 * DAY).at_least(ms(60_000)).ttl(ms(5_000))).await);
    redlock.close().await.expect("nodes are up");
    let refused = once().every(DAY).run(async |_| ()).await.expect_err("the client is closed");
    assert!(matches!(refused, JobError::NotAcquired(AcquireError::Closed)), "{refused:?}");
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_job_runs_once_in_a_period() {
    let cluster = Cluster::start(3);
    let redlock = builder(&cluster).build_blocking().expect("valid settings");
    let job = || redlock.once("job").every(30 * DAY).take_over().at_most(SOON);
    let ran = AtomicUsize::new(0);
    let failed = job().try_run(|_| Err::<(), _>("no disk")).expect("nodes are up");
    assert_eq!(failed.ran(), Some(Err("no disk")));
    for _ in 0..2 {
        let count = |_: &quorlock::blocking::Lease| ran.fetch_add(1, Ordering::SeqCst);
        let _ = job().run(count).expect("nodes are up");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    assert!(cluster.none_has("job"), "the lock is released");
}
