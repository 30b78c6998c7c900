//! Tests of jobs that run once per period on several processes, whose wall clocks differ and of which some are killed.
//!
//! `QUORLOCK_JOB_PERIODS=100 QUORLOCK_JOB_PROCESSES=20` runs more periods and processes.

use crate::{SOON, ms};
use futures::FutureExt;
use kit::{Cluster, Rerun};
use quorlock::{Redlock, ScheduledJob};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

const CHILD: &[&str] = &["--ignored", "--exact", "processes::jobs::job_runner", "--nocapture"];
const PERIOD: Duration = Duration::from_secs(5);
const WORK: Duration = Duration::from_millis(300);
/// The maximum difference between the wall clocks of two processes.
const APART: Duration = Duration::from_secs(2);
const LOG: &str = "JOB_LOG";
const NODES: &str = "JOB_NODES";

fn period_number() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis() / PERIOD.as_millis()).expect("few periods")
}

/// Appends a line to the log, which all processes share.
fn log(line: &str) {
    let path = env::var_os(LOG).expect("the path of the log");
    let mut file = OpenOptions::new().append(true).open(path).expect("the parent creates the log");
    file.write_all(format!("{line}\n").as_bytes()).expect("an open file");
}

/// Runs `job` once. Logs its start and its end with the number of the period.
async fn run(job: &ScheduledJob, kind: &str) {
    let (number, id) = (period_number(), std::process::id());
    let mut running = pin!(job.run(async |_| {
        log(&format!("start {kind} {number} {id}"));
        sleep(WORK).await;
        log(&format!("end {kind} {number} {id}"));
    }));
    // The library reads the wall clock in the first poll.
    let is_pending = running.as_mut().now_or_never().is_none();
    if is_pending
        && number == period_number()
        && let Err(error) = running.await
    {
        println!("{kind} {number}: {error}");
    }
}

#[tokio::test]
#[ignore = "runs as a child process of the test below"]
async fn job_runner() {
    let Ok(nodes) = env::var(NODES) else { return };
    let redlock = Redlock::builder().nodes(nodes.split(' ')).ttl(ms(1_000)).node_timeout(ms(200));
    let redlock = redlock.build().expect("valid settings");
    let job = |name| redlock.once(name).every(PERIOD).wait(SOON);
    let (once, again) = (job("once"), job("again").take_over());
    redlock.ready().await.expect("nodes are up");
    let mut last = period_number();
    loop {
        while period_number() == last {
            sleep(ms(2)).await;
        }
        last = period_number();
        tokio::join!(run(&once, "once"), run(&again, "again"));
    }
}

struct Fleet {
    log: PathBuf,
    nodes: String,
    processes: Vec<Rerun>,
}

impl Fleet {
    fn start(&mut self, ahead: Duration) {
        let log = self.log.to_str().expect("a path in UTF-8");
        let process = Rerun::start_with_clock(CHILD, &[(LOG, log), (NODES, &self.nodes)]);
        process.clock().jump(ahead);
        self.processes.push(process);
    }
}

/// The processes that have logged an event for a job and a period.
type Events = BTreeMap<(String, String, u64), Vec<u32>>;

fn events(log: &Path) -> Events {
    let mut events = Events::new();
    for line in fs::read_to_string(log).expect("a log").lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [event, kind, number, id] = words[..] else { continue };
        let key = (event.into(), kind.into(), number.parse().expect("a number"));
        events.entry(key).or_default().push(id.parse().expect("a process ID"));
    }
    events
}

fn setting(name: &str, default: u32) -> u32 {
    env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn each_period_has_one_run_although_processes_are_killed() {
    let periods = setting("QUORLOCK_JOB_PERIODS", 2);
    let processes = setting("QUORLOCK_JOB_PROCESSES", 6);
    let cluster = Cluster::start(5);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let log = directory.path().join("log");
    fs::write(&log, "").expect("a new file");
    let mut fleet = Fleet { log, nodes: cluster.urls().join(" "), processes: Vec::new() };
    let ahead = |process: u32| APART * process / (processes - 1);
    (0..processes).for_each(|process| fleet.start(ahead(process)));
    let first = period_number() + 2;
    let end = first + u64::from(periods);
    let started = Instant::now();
    let mut killed = BTreeSet::new();
    while period_number() <= end {
        assert!(started.elapsed() < PERIOD * (periods + 20), "the clock stands still");
        thread::sleep(ms(5));
        let running = events(&fleet.log);
        for ((_, kind, number), ids) in running.iter().filter(|((event, ..), _)| event == "start") {
            // Kills the first process that runs the job in a period.
            let victim = fleet.processes.iter().position(|process| process.pid() == ids[0]);
            let Some(victim) = victim.filter(|_| kind == "again" && killed.insert(*number)) else {
                continue;
            };
            drop(fleet.processes.swap_remove(victim));
            fleet.start(ahead(u32::try_from(victim).expect("few") % processes));
        }
    }
    fleet.processes.clear();
    let events = events(&fleet.log);
    let count = |event: &str, kind: &str, number| {
        events.get(&(event.into(), kind.into(), number)).map_or(0, Vec::len)
    };
    for ((_, _, number), ids) in
        events.iter().filter(|((event, kind, _), _)| event == "start" && kind == "once")
    {
        assert_eq!(ids.len(), 1, "period {number}: {events:?}");
    }
    let (mut runs, mut repeated) = (0, 0);
    for number in first..end {
        assert!(count("end", "again", number) > 0, "period {number}: {events:?}");
        runs += count("start", "once", number);
        repeated += usize::from(count("start", "again", number) > 1);
    }
    println!("{periods} periods: {runs} runs at most once, {repeated} taken over");
    assert!(runs > 0 && repeated > 0, "{events:?}");
}
