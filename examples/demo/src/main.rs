//! Four workers compete for one lock on five Redis servers while servers are killed and stopped: `make demo`.
//!
//! Prints each fault, the first acquire after the fault and the first failure after the fault, in at most 25 lines.
//! Other events are only counted.

use kit::Cluster;
use quorlock::{AcquireError, NodeState, NodeVote, Redlock, Report, RetryPolicy};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const WORKERS: [&str; 4] = ["ann", "bob", "cyd", "dan"];
const RESOURCE: &str = "orders/42";
const TTL: Duration = Duration::from_secs(2);
/// How long the restarted node may take after the last fault to regain its vote.
const LAST_PHASE: Duration = Duration::from_secs(10);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[derive(Default)]
struct Log {
    holds: Vec<Hold>,
    failed_acquires: usize,
    unconfirmed_releases: usize,
    /// The time in which only two nodes reply. `None` before the outage.
    outage: Option<(Instant, Instant)>,
    last_fault: Option<Instant>,
    has_shown_acquire: bool,
    has_shown_failure: bool,
    is_over: bool,
}

impl Log {
    /// Returns true if an acquire was requested after the last fault, so its result shows the fault's effect.
    fn is_after_fault(&self, requested: Instant) -> bool {
        self.last_fault.is_none_or(|fault| fault <= requested)
    }
}

struct Hold {
    worker: &'static str,
    requested: Instant,
    from: Instant,
    to: Instant,
}

struct Demo {
    begun: Instant,
    log: Mutex<Log>,
}

impl Demo {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn print(&self, subject: &str, event: &str) {
        println!("{:6.2} s  {subject:<4} {event}", self.begun.elapsed().as_secs_f64());
    }

    /// Prints a fault. Of the acquires that start after the fault, the first success and the first failure will also be
    /// printed.
    fn fault(&self, event: &str) {
        let mut log = self.log();
        self.print("----", event);
        log.last_fault = Some(Instant::now());
        (log.has_shown_acquire, log.has_shown_failure) = (false, false);
    }

    fn acquired(&self, worker: &str, requested: Instant, from: Instant, report: &Report) {
        let mut log = self.log();
        if !log.has_shown_acquire && log.is_after_fault(requested) {
            let latency = from - requested;
            self.print(worker, &format!("acquired after {latency:.0?}: {}", votes(report)));
            log.has_shown_acquire = true;
        }
    }

    fn failed(&self, worker: &str, requested: Instant, event: &str) {
        let mut log = self.log();
        if !log.has_shown_failure && log.is_after_fault(requested) {
            self.print(worker, event);
            log.has_shown_failure = true;
        }
        log.failed_acquires += 1;
    }

    fn released(&self, hold: Hold, is_confirmed: bool) {
        let mut log = self.log();
        log.holds.push(hold);
        log.unconfirmed_releases += usize::from(!is_confirmed);
    }
}

fn votes(report: &Report) -> String {
    let names = |vote: &NodeVote| {
        let nodes = (1..).zip(report.nodes()).filter(|(_, node)| node.vote() == vote);
        nodes.map(|(number, _)| format!("n{number}")).collect::<Vec<_>>().join(" ")
    };
    let mut parts = Vec::new();
    for (word, vote) in [("granted by", NodeVote::Granted), ("held on", NodeVote::Held)] {
        let names = names(&vote);
        if !names.is_empty() {
            parts.push(format!("{word} {names}"));
        }
    }
    for (number, node) in (1..).zip(report.nodes()) {
        if let NodeVote::Failed(failure) = node.vote() {
            parts.push(format!("n{number}: {failure}"));
        }
    }
    parts.join("; ")
}

async fn work(worker: &'static str, redlock: Redlock, demo: Arc<Demo>) {
    while !demo.log().is_over {
        let requested = Instant::now();
        match redlock.acquire(RESOURCE).wait(ms(700)).await {
            Ok(lease) => {
                let from = Instant::now();
                // Slow nodes can still vote during this pause, so the report includes their votes.
                sleep(ms(90)).await;
                demo.acquired(worker, requested, from, &lease.report());
                sleep(ms(60)).await;
                let to = Instant::now();
                let is_confirmed = lease.release().await.is_ok();
                demo.released(Hold { worker, requested, from, to }, is_confirmed);
                sleep(ms(20)).await;
            }
            Err(error) => {
                let reason = match &error {
                    AcquireError::Contended { .. } => "refused, held by another worker",
                    AcquireError::NoQuorum { .. } => "refused, no quorum",
                    AcquireError::Timeout { .. } => "timed out after 700ms",
                    _ => "failed",
                };
                let details = error.report().map_or_else(|| error.to_string(), votes);
                demo.failed(worker, requested, &format!("{reason}: {details}"));
                sleep(ms(50)).await;
            }
        }
    }
}

async fn break_nodes(cluster: &Cluster, redlock: &Redlock, demo: &Demo) {
    sleep(ms(1_500)).await;
    cluster[3].kill();
    demo.fault("n4 is killed");
    sleep(ms(1_500)).await;
    cluster[1].stop();
    demo.fault("n2 is stopped (SIGSTOP) and does not reply: three nodes are left, a majority");
    sleep(ms(1_500)).await;
    cluster[4].stop();
    let from = Instant::now();
    demo.fault("n5 is stopped: two nodes are left, no majority");
    sleep(ms(1_500)).await;
    demo.log().outage = Some((from, Instant::now()));
    cluster[1].cont();
    cluster[4].cont();
    demo.fault("n2 and n5 continue");
    sleep(ms(1_500)).await;
    cluster[3].restart();
    demo.fault("n4 is restarted without data: no vote until locks that it forgot have expired");
    let end = Instant::now() + LAST_PHASE;
    while !has_vote(redlock, 3) && Instant::now() < end {
        sleep(ms(20)).await;
    }
    demo.fault("n4 votes again");
    sleep(ms(1_000)).await;
    demo.log().is_over = true;
}

fn has_vote(redlock: &Redlock, node: usize) -> bool {
    let node = &redlock.nodes()[node];
    *node.state() == NodeState::Up && node.eligibility().counts_in().is_zero()
}

async fn judge(cluster: &Cluster, redlock: &Redlock, demo: &Demo) -> ExitCode {
    let closed = redlock.close().await;
    let mut log = demo.log();
    log.holds.sort_by_key(|hold| hold.from);
    let holds = &log.holds;
    let overlaps = holds.windows(2).filter(|pair| pair[1].from < pair[0].to).count();
    let is_in = |hold: &&Hold| {
        log.outage.is_some_and(|(from, to)| from <= hold.requested && hold.from <= to)
    };
    let in_outage = holds.iter().filter(is_in).count();
    let keys = cluster.keys_per_node().concat().len();
    let count = |worker: &str| holds.iter().filter(|hold| hold.worker == worker).count();
    let each = WORKERS.map(|worker| format!("{worker} {}", count(worker))).join(", ");
    let latencies = || holds.iter().map(|hold| hold.from - hold.requested);
    println!(
        "{} acquires ({each}) after {:.0?} to {:.0?}; {} acquires failed; unconfirmed releases: {}.",
        holds.len(),
        latencies().min().unwrap_or_default(),
        latencies().max().unwrap_or_default(),
        log.failed_acquires,
        log.unconfirmed_releases,
    );
    if overlaps == 0 && in_outage == 0 && keys == 0 && closed.is_ok() && !holds.is_empty() {
        println!(
            "Seen: no two workers held the lock at once, no lock was granted while two nodes replied, \
             and no key is left."
        );
        return ExitCode::SUCCESS;
    }
    let closed = closed.err().map_or_else(String::new, |error| format!(", {error}"));
    println!(
        "FAILED: two workers held the lock {overlaps} times, {in_outage} locks were granted without a majority, \
         {keys} keys are left{closed}."
    );
    ExitCode::FAILURE
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let cluster = Cluster::start(5);
    let redlock = Redlock::builder()
        .nodes(cluster.urls())
        .ttl(TTL)
        .max_ttl(TTL)
        .node_timeout(ms(50))
        .retry(RetryPolicy::jittered(ms(5)..ms(60)))
        .build()
        .expect("valid settings");
    println!(
        "Five Redis servers, n1 to n5; {} workers compete for the lock {RESOURCE:?}, which needs three of them.",
        WORKERS.len()
    );
    println!("After each fault, the first lock acquired and the first failure are shown.");
    let demo = Arc::new(Demo { begun: Instant::now(), log: Mutex::default() });
    let workers = WORKERS.map(|name| tokio::spawn(work(name, redlock.clone(), demo.clone())));
    break_nodes(&cluster, &redlock, &demo).await;
    for worker in workers {
        worker.await.expect("a worker does not panic");
    }
    judge(&cluster, &redlock, &demo).await
}
