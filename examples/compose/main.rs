//! Clients compete for three locks on the five containers of docker-compose.yml, while those are
//! paused, killed, shut down and disconnected. Started by scripts/compose-test.sh: `make
//! compose-test`.

#![allow(clippy::unwrap_used)] // A lock that is poisoned should end the run.

mod nemesis;
mod record;
mod workload;

use quorlock::Redlock;
use record::Fault;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, net, thread};
use workload::Workload;

/// How long to wait for something that takes milliseconds, on the slowest machine.
const SOON: Duration = Duration::from_secs(30);

/// The containers, and where they are, as the script says.
struct Nodes {
    containers: Vec<String>,
    network: String,
    ports: String,
    net: String,
}

impl Nodes {
    fn from_environment() -> Result<Self, env::VarError> {
        let containers = env::var("QUORLOCK_CONTAINERS")?;
        Ok(Self {
            containers: containers.split_whitespace().map(str::to_owned).collect(),
            network: env::var("QUORLOCK_NETWORK")?,
            ports: env::var("QUORLOCK_PORTS")?,
            net: env::var("QUORLOCK_NET")?,
        })
    }

    /// The address of a node on the nodes' own network.
    fn address(&self, node: usize) -> String {
        format!("{}.1{node}", self.net)
    }

    /// Through the ports that are published on this machine.
    fn urls(&self) -> Vec<String> {
        (1..=5).map(|node| format!("redis://127.0.0.1:{}{node}", self.ports)).collect()
    }

    /// Without a proxy between, where this machine is on the nodes' network, as on Linux: packets to
    /// a node that is disconnected are then lost, and no connection is refused.
    fn direct_urls(&self) -> Option<Vec<String>> {
        let address = format!("{}:6379", self.address(1)).parse().ok()?;
        net::TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
        Some((1..=5).map(|node| format!("redis://{}", self.address(node))).collect())
    }
}

fn ask(url: &str, command: &str, arg: Option<&str>) -> redis::RedisResult<redis::Value> {
    let mut connection = redis::Client::open(url)?.get_connection_with_timeout(SOON / 10)?;
    connection.set_read_timeout(Some(SOON / 10))?;
    redis::cmd(command).arg(arg).query(&mut connection)
}

/// Looks again until it holds, or for long enough.
fn eventually(mut condition: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > SOON {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Whether a client that was not there before gets a lock from all five nodes.
async fn are_all_usable(urls: &[String]) -> bool {
    let redlock = workload::client(urls);
    let begun = Instant::now();
    let mut is_won = false;
    while !is_won && begun.elapsed() < SOON {
        if let Ok(lease) = redlock.acquire("after all").await {
            tokio::time::sleep(Duration::from_millis(50)).await;
            is_won = lease.report().granted() == urls.len();
        }
    }
    redlock.close().await.is_ok() && is_won
}

/// What was found, line by line: true stands for what must be so.
async fn judge(
    workload: &Workload,
    faults: &[Fault],
    clients: &[Redlock],
    urls: &[String],
) -> bool {
    let mut has_closed = true;
    for client in clients {
        if let Err(error) = client.close().await {
            println!("{error}");
            has_closed = false;
        }
    }
    let holds = workload.holds();
    let overlaps = record::overlaps(&holds);
    for overlap in overlaps.iter().take(10) {
        println!("OVERLAP: {}; and {}", overlap.first, overlap.second);
    }
    let idle: Vec<_> =
        faults.iter().filter(|fault| workload.won(fault.from, fault.until) == 0).collect();
    for fault in &idle {
        println!("NOTHING was acquired while {}", fault.what);
    }
    let ended = |end| holds.iter().filter(|hold| hold.end == end).count();
    // At once: a key that waits for its expiry was left.
    let has_no_key = || {
        let keys = |url: &String| ask(url, "KEYS", Some("*")).ok();
        urls.iter().all(|url| keys(url) == Some(redis::Value::Array(Vec::new())))
    };
    let is_clean = has_no_key();
    let usable = are_all_usable(urls).await;
    let is_clean = is_clean && has_no_key();
    let lost_updates = workload.lost_updates();

    println!("\nfaults                     {}", faults.len());
    println!("acquisitions               {}", holds.len());
    println!(
        "  lost, or out of time     {}, {}",
        ended(record::End::Lost),
        ended(record::End::ValidUntil)
    );
    for (reason, times) in workload.refusals() {
        println!("refusals                   {times} ({reason})");
    }
    println!("overlaps                   {}", overlaps.len());
    println!("lost updates               {lost_updates}");
    println!("faults that stopped all    {}", idle.len());
    println!("clients closed             {has_closed}");
    println!("all nodes usable           {usable}");
    println!("no key left                {is_clean}");
    let is_safe = overlaps.is_empty() && lost_updates == 0;
    is_safe && idle.is_empty() && has_closed && usable && is_clean && !holds.is_empty()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() -> ExitCode {
    let Ok(nodes) = Nodes::from_environment() else {
        eprintln!(
            "scripts/compose-test.sh starts the nodes and then this: run `make compose-test`"
        );
        return ExitCode::FAILURE;
    };
    let urls = nodes.urls();
    let all_answer = || urls.iter().all(|url| ask(url, "PING", None).is_ok());
    if nodes.containers.len() != urls.len() || !eventually(all_answer) {
        eprintln!("not all nodes answer: {}", urls.join(" "));
        return ExitCode::FAILURE;
    }
    let direct = nodes.direct_urls();
    println!("Four clients, {} locks, ttl {:?}.", workload::RESOURCES.len(), workload::TTL);
    println!("Two clients by {}", urls.join(" "));
    let others = direct.as_ref().unwrap_or(&urls);
    println!("Two clients by {}\n", others.join(" "));

    let clients = [&urls, &urls, others, others].map(|urls| workload::client(urls));
    let workload = Workload::new();
    let mut tasks = workload::start(&workload, &clients);
    let faults = nemesis::haunt(&nodes, &workload).await;
    workload.end();
    let mut has_failed = false;
    while let Some(ended) = tasks.join_next().await {
        has_failed |= ended.inspect_err(|error| println!("a client failed: {error}")).is_err();
    }
    let is_well = judge(&workload, &faults, &clients, &urls).await;
    if is_well && !has_failed {
        println!("\nGREEN: at no time two held a lock.");
        ExitCode::SUCCESS
    } else {
        println!("\nRED: something is wrong.");
        ExitCode::FAILURE
    }
}
