//! Five Redis servers, four workers, one lock. One server is killed and others are hung while the
//! workers compete, and every acquisition and refusal is shown with its reason: `make demo`.

#![allow(clippy::unwrap_used)] // A lock that is poisoned should end a demo.

use kit::Cluster;
use quorlock::{AcquireError, NodeVote, Redlock, Report, RetryPolicy};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const WORKERS: [&str; 4] = ["ann", "bob", "cyd", "dan"];
const RESOURCE: &str = "orders/42";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What the workers share: the clock of the story, and who held the lock from when to when.
struct Story {
    begun: Instant,
    end: Instant,
    holds: Mutex<Vec<Hold>>,
    refusals: Mutex<usize>,
}

struct Hold {
    worker: &'static str,
    from: Instant,
    to: Instant,
    latency: Duration,
}

impl Story {
    fn tell(&self, who: &str, what: &str) {
        println!("{:6.2} s  {who:<5} {what}", self.begun.elapsed().as_secs_f64());
    }
}

/// The votes, with the nodes as n1 to n5.
fn votes(report: &Report) -> String {
    let all = report.nodes().iter().enumerate().map(|(place, node)| {
        let latency = node.latency().map_or(0.0, |latency| latency.as_secs_f64() * 1e3);
        match node.vote() {
            NodeVote::Granted => format!("n{} yes {latency:.1}ms", place + 1),
            NodeVote::Held => format!("n{} held", place + 1),
            NodeVote::Pending => format!("n{} pending", place + 1),
            NodeVote::Failed(failure) => format!("n{} ({failure})", place + 1),
            other => format!("n{} {other:?}", place + 1),
        }
    });
    all.collect::<Vec<_>>().join(", ")
}

async fn work(worker: &'static str, redlock: Redlock, story: Arc<Story>) {
    let mut round = 0;
    while Instant::now() < story.end {
        let asked = Instant::now();
        match redlock.acquire(RESOURCE).wait(ms(700)).await {
            Ok(lease) => {
                let from = Instant::now();
                let latency = from - asked;
                sleep(ms(90)).await;
                let valid = lease.validity().as_secs_f64();
                let won = votes(&lease.report());
                let line = format!("HOLDS it, {valid:.2} s valid     {won}");
                story.tell(worker, &line);
                sleep(ms(60)).await;
                let to = Instant::now();
                if let Err(error) = lease.release().await {
                    story.tell(worker, &format!("released: {error}"));
                }
                story.holds.lock().unwrap().push(Hold { worker, from, to, latency });
                sleep(ms(20)).await;
            }
            Err(error) => {
                let reason = match &error {
                    AcquireError::Contended { .. } => "is refused: held by another",
                    AcquireError::NoQuorum { .. } => "is refused: NO QUORUM     ",
                    AcquireError::Timeout { .. } => "is refused: no time left  ",
                    _ => "is refused",
                };
                let said = error.report().map_or_else(|| error.to_string(), votes);
                story.tell(worker, &format!("{reason} {said}"));
                *story.refusals.lock().unwrap() += 1;
                round += 1;
                sleep(ms(50 + 30 * round % 100)).await;
            }
        }
    }
}

/// What goes wrong, and when.
async fn break_things(cluster: &Cluster, story: &Story) {
    sleep(ms(2_000)).await;
    cluster[3].kill();
    story.tell("----", "n4 is KILLED");
    sleep(ms(2_000)).await;
    cluster[1].stop();
    story.tell("----", "n2 HANGS (SIGSTOP): three of five are left, the lock goes on");
    sleep(ms(2_000)).await;
    cluster[4].stop();
    story.tell("----", "n5 HANGS too: two of five are no quorum, so nobody may have it");
    sleep(ms(1_500)).await;
    cluster[1].cont();
    cluster[4].cont();
    story.tell("----", "n2 and n5 go on");
    sleep(ms(1_500)).await;
    cluster[3].restart();
    story.tell("----", "n4 is back, empty");
}

/// The verdict: no two holds overlapped, and no key is left.
async fn judge(cluster: &Cluster, redlock: &Redlock, story: &Story) -> bool {
    let left = redlock.close().await;
    let mut holds = story.holds.lock().unwrap();
    holds.sort_by_key(|hold| hold.from);
    let overlaps: Vec<_> = holds.windows(2).filter(|pair| pair[1].from < pair[0].to).collect();
    for pair in &overlaps {
        println!("OVERLAP: {} and {}", pair[0].worker, pair[1].worker);
    }
    let mut latencies: Vec<_> = holds.iter().map(|hold| hold.latency).collect();
    latencies.sort();
    let served = |worker: &str| holds.iter().filter(|hold| hold.worker == worker).count();
    let each: Vec<_> = WORKERS.iter().map(|name| format!("{name} {}", served(name))).collect();
    println!("\n{} acquisitions ({}), {} refusals", holds.len(), each.join(", "), {
        *story.refusals.lock().unwrap()
    });
    if let (Some(best), Some(longest)) = (latencies.first(), latencies.last()) {
        println!("from asking to holding: {best:.1?} at best, {longest:.1?} at the longest");
    }
    println!("held by two at a time: {} times", overlaps.len());
    println!("keys left on the nodes: {}", cluster.keys_per_node().concat().len());
    if let Err(error) = &left {
        println!("{error}");
    }
    overlaps.is_empty() && cluster.is_empty() && left.is_ok() && !holds.is_empty()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::process::ExitCode {
    let cluster = Cluster::start(5);
    let redlock = Redlock::builder()
        .nodes(cluster.urls())
        .ttl(ms(2_000))
        .max_ttl(ms(2_000))
        .node_timeout(ms(50))
        .retry(RetryPolicy::jittered(ms(5)..ms(60)))
        .build()
        .expect("these settings can work");
    println!("Five redis-servers, {} workers, one lock: {RESOURCE:?}, ttl 2 s.", WORKERS.len());
    println!("A quorum is three of five. Nodes: {}\n", cluster.urls().join(" "));

    let begun = Instant::now();
    let story = Arc::new(Story {
        begun,
        end: begun + ms(11_000),
        holds: Mutex::default(),
        refusals: Mutex::default(),
    });
    let workers = WORKERS.map(|name| tokio::spawn(work(name, redlock.clone(), story.clone())));
    break_things(&cluster, &story).await;
    for worker in workers {
        worker.await.expect("a worker does not panic");
    }
    if judge(&cluster, &redlock, &story).await {
        println!("\nAt no time two workers held it.");
        std::process::ExitCode::SUCCESS
    } else {
        println!("\nSomething is wrong.");
        std::process::ExitCode::FAILURE
    }
}
