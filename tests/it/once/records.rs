//! Tests of the records of jobs: commits with late replies, older clients without records, and changed settings.

use super::{COUNTER, DAY, counters, job, runs, unix_time};
use crate::{SOON, builder, client, connected, eventually, ms, through};
use kit::{Cluster, Direction, Proxy, Server};
use quorlock::event::Event;
use quorlock::{JobError, JobOutcome, NodeState, Observer, VoteEligibility};
use quorlock_test::Clock;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

const RECORD: &str = "job#quorlock:run:{job}";

/// Calls a function for each event.
struct OnEvent<F>(F);

impl<F: Fn(&Event) + Send + Sync + 'static> Observer for OnEvent<F> {
    fn on_event(&self, event: &Event) {
        (self.0)(event);
    }
}

/// Runs a job whose commit is disturbed: `disturb` gets the proxies of two of three nodes once the lock is acquired and
/// all replies to the acquire have passed the proxies.
async fn run_with_disturbed_commit(disturb: fn(&Proxy)) {
    for takes_over in [false, true] {
        let cluster = Cluster::start(3);
        let proxies = Arc::new(cluster.proxies());
        let disturbed = proxies.clone();
        let observer = OnEvent(move |event: &Event| {
            if !takes_over && matches!(event, Event::AcquireFinished { .. }) {
                std::thread::sleep(ms(100));
                disturbed[..2].iter().for_each(disturb);
            }
        });
        let builder = through(&proxies).node_timeout(ms(500)).observer(observer);
        let (job, number) = job(&connected(builder.metadata("host-7")).await);
        let job = if takes_over { job.take_over() } else { job };
        let work = async |_: &_| {
            if takes_over {
                sleep(ms(100)).await;
                proxies[..2].iter().for_each(disturb);
            }
        };
        let outcome = job.wait(Duration::MAX).run(work).await;
        assert!(matches!(outcome, Ok(JobOutcome::Ran(()))), "{outcome:?}");
        proxies.iter().for_each(Proxy::heal);
        eventually("all nodes have the number", || counters(&cluster) == [Some(number); 3]).await;
        let (second, _) = super::job(&client(&cluster));
        let skipped = second.run(async |_| ()).await.expect("nodes are up");
        let JobOutcome::Skipped { holder: Some(holder), since: Some(since) } = skipped else {
            panic!("{skipped:?}");
        };
        assert_eq!((holder.metadata(), since < SOON), (Some("host-7"), true), "{since:?}");
    }
}

#[tokio::test]
async fn commit_with_late_replies_of_a_majority_is_recognized() {
    run_with_disturbed_commit(|proxy| proxy.delay(Direction::Replies, ms(800))).await;
}

#[tokio::test]
async fn commit_with_lost_replies_of_a_majority_is_recognized() {
    run_with_disturbed_commit(|proxy| proxy.cut_next_reply(0)).await;
}

#[tokio::test]
async fn undecided_commit_is_taken_by_its_call() {
    let cluster = Cluster::start(3);
    let proxies = Arc::new(cluster.proxies());
    let held_back = proxies.clone();
    let observer = OnEvent(move |event: &Event| {
        if matches!(event, Event::AcquireFinished { .. }) {
            std::thread::sleep(ms(100));
            held_back[..2].iter().for_each(|proxy| proxy.hold(Direction::Replies));
        }
    });
    let builder = through(&proxies).node_timeout(ms(300)).ttl(ms(2_000)).observer(observer);
    let (job, _) = job(&connected(builder.metadata("host-7")).await);
    let lost = job.run(async |_| ()).await.expect_err("two nodes do not reply");
    assert!(matches!(lost, JobError::Undecided { .. } | JobError::Lost { .. }), "{lost:?}");
    let (second, _) = super::job(&client(&cluster));
    let skipped = second.run(async |_| ()).await.expect("nodes are up");
    let JobOutcome::Skipped { holder: Some(holder), since: Some(_) } = skipped else {
        panic!("{skipped:?}");
    };
    assert_eq!(holder.metadata(), Some("host-7"));
}

/// The script of the first version, which stores a counter without a record.
const OLD_SCRIPT: &str = "
local digits = redis.pcall('GET', KEYS[1])
if digits and tonumber(digits) >= tonumber(ARGV[1]) then
  return { digits, redis.call('PTTL', KEYS[1]) }
end
if ARGV[2] ~= '0' then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return 1";

/// Makes the request of the first version on all nodes. Returns true if the period was not taken on any node.
fn old_request(cluster: &Cluster, number: u64, ttl_ms: u64) -> bool {
    let (number, ttl) = (number.to_string(), ttl_ms.to_string());
    let request = ["EVAL", OLD_SCRIPT, "1", COUNTER, &number, &ttl];
    let replies = cluster.servers().iter().map(|node| node.cmd(&request));
    replies.filter(|reply| *reply == redis::Value::Int(1)).count() == 3
}

#[tokio::test]
async fn old_and_new_clients_take_turns() {
    let cluster = Cluster::start(3);
    let clock = Clock::default();
    let redlock = builder(&cluster).clock(&clock).build().expect("valid settings");
    let (job, first) = job(&redlock);
    let day_ms = 86_400_000;
    let old_ttl = 2 * 86_400_000 + 60_000;
    for day in 0..6 {
        clock.set_wall_clock_ahead(day_ms * i64::try_from(day).expect("few days"));
        let number = first + day;
        if day % 2 == 0 {
            assert!(runs(&job).await, "day {day}");
            assert!(!old_request(&cluster, number, 0) && !old_request(&cluster, number, old_ttl));
        } else {
            assert!(old_request(&cluster, number, 0) && old_request(&cluster, number, old_ttl));
            let skipped = job.run(async |_| ()).await.expect("nodes are up");
            let JobOutcome::Skipped { holder: None, since: Some(since) } = skipped else {
                panic!("{skipped:?}");
            };
            assert!(since < SOON, "{since:?}");
        }
        // Both restore a lost counter for the other.
        cluster.servers()[1].del(COUNTER);
        assert!(!runs(&job).await);
        assert_eq!(counters(&cluster), [Some(number); 3]);
        assert!(!old_request(&cluster, number, 0));
    }
}

#[tokio::test]
async fn restored_counter_keeps_its_record_and_its_age() {
    let cluster = Cluster::start(3);
    let (first, number) = job(&connected(builder(&cluster).metadata("host-7")).await);
    assert!(runs(&first).await);
    let records = || cluster.servers().iter().map(|node| node.get(RECORD)).collect::<Vec<_>>();
    // A restored key with the whole TTL would now expire later than the original.
    sleep(ms(50)).await;
    let before = records();
    assert!(before[0].is_some() && before.iter().all(|record| *record == before[0]));
    cluster.servers()[..2].iter().for_each(|node| _ = (node.del(COUNTER), node.del(RECORD)));
    let left = cluster.servers()[2].pttl(COUNTER);
    let (second, _) = job(&client(&cluster));
    assert!(!runs(&second).await);
    assert_eq!((counters(&cluster), records()), (vec![Some(number); 3], before));
    for node in cluster.servers() {
        assert!(node.pttl(COUNTER) <= left && node.pttl(RECORD) <= left);
    }
}

/// Records the periods and the modes of jobs that differ.
type Differences = Arc<Mutex<Vec<([bool; 2], [Duration; 2])>>>;

fn differences(differences: &Differences) -> impl Observer {
    let differences = differences.clone();
    OnEvent(move |event: &Event| {
        if let Event::JobsDiffer { takes_over, other_takes_over, period, other_period, .. } = event
        {
            let found = ([*takes_over, *other_takes_over], [*period, *other_period]);
            differences.lock().expect("no panic").push(found);
        }
    })
}

#[tokio::test]
async fn changed_period_is_decided_by_the_time_of_the_last_run() {
    let cluster = Cluster::start(3);
    let (clock, found) = (Clock::default(), Differences::default());
    let builder = builder(&cluster).clock(&clock).observer(differences(&found));
    let redlock = builder.build().expect("valid settings");
    let hour = Duration::from_hours(1);
    let [hourly, daily] = [hour, DAY].map(|period| redlock.once("job").every(period));
    let midnight_ms = i64::try_from(unix_time().as_millis() % DAY.as_millis()).expect("a day");
    let minutes = |minutes: i64| clock.set_wall_clock_ahead(minutes * 60_000 - midnight_ms);
    minutes(12 * 60 + 10);
    assert!(runs(&hourly).await);
    let skipped = daily.run(async |_| ()).await.expect("nodes are up");
    let JobOutcome::Skipped { since: Some(since), .. } = skipped else { panic!("{skipped:?}") };
    assert!(since < SOON, "{since:?}");
    assert_eq!(*found.lock().expect("no panic"), [([false; 2], [DAY, hour])]);
    minutes(24 * 60 + 10);
    assert!(runs(&daily).await, "the last run was yesterday");
    assert!(!runs(&daily).await);
    minutes(24 * 60 + 20);
    assert!(!runs(&hourly).await, "it ran in this hour");
    minutes(25 * 60 + 10);
    assert!(runs(&hourly).await);
    assert!(!runs(&daily).await);
}

#[tokio::test]
async fn call_with_take_over_notices_a_call_without() {
    let cluster = Cluster::start(3);
    let found = Differences::default();
    let (first, _) = job(&client(&cluster));
    drop(first.start().await.expect("nodes are up"));
    let redlock = builder(&cluster).observer(differences(&found)).build().expect("valid settings");
    let (second, _) = job(&redlock);
    assert!(!runs(&second.clone()).await && found.lock().expect("no panic").is_empty());
    assert!(!runs(&second.take_over()).await, "the first call has taken the period");
    assert_eq!(*found.lock().expect("no panic"), [([true, false], [DAY; 2])]);
}

#[tokio::test]
async fn job_with_take_over_keeps_its_lock_until_its_number_is_committed() {
    let cluster = Cluster::start(3);
    let (job, number) = job(&connected(builder(&cluster)).await);
    let servers = cluster.servers();
    let job = job.take_over();
    let mut running = pin!(job.run(async |_| servers[..2].iter().for_each(Server::stop)));
    let is_committed = async {
        eventually("the third node has the number", || {
            servers[2].get(COUNTER).is_some_and(|found| found == number.to_string().as_bytes())
        })
        .await;
    };
    tokio::select! {
        ended = &mut running => panic!("no quorum has the number: {ended:?}"),
        () = is_committed => {}
    }
    assert!(servers[2].get("job").is_some(), "the lock is released after the commit");
    servers[..2].iter().for_each(Server::cont);
    assert!(!running.await.expect("nodes are up").is_skipped());
    eventually("the lock is released", || cluster.none_has("job")).await;
}

#[tokio::test]
async fn rolling_restart_keeps_counters_only_with_a_call_in_between() {
    let restart = async |calls_between: bool| {
        let cluster = Cluster::start(3);
        let builder = builder(&cluster).max_ttl(ms(1_000)).ttl(ms(1_000)).node_timeout(ms(300));
        let redlock = connected(builder).await;
        let job = job(&redlock).0.wait(SOON);
        assert!(runs(&job).await);
        for (place, node) in cluster.servers().iter().enumerate() {
            node.kill();
            node.restart();
            let counts = || {
                let node = &redlock.nodes()[place];
                *node.state() == NodeState::Up && *node.eligibility() == VoteEligibility::Counted
            };
            eventually("the restart is noticed", || !counts()).await;
            eventually("the restarted node counts", counts).await;
            assert!(!calls_between || !runs(&job).await, "a node has the number");
        }
        assert_eq!(runs(&job).await, !calls_between);
    };
    tokio::join!(restart(true), restart(false));
}
