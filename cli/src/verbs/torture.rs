//! `quorlock torture`: tests locks on the user's nodes while the user's commands inject faults.

use crate::exit::{self, Code, Failure};
use crate::guard::Signals;
use crate::guard::shim;
use crate::nodes::{self, Client};
use crate::options::{NodeOptions, duration};
use crate::output;
use crate::settings::AvailableOptions;
use crate::torture::Torture;
use crate::torture::fault::Fault;
use clap::Args;
use harness::{ClientPlan, Nodes, RunPart, Sabotage, boot};
use quorlock::{Config, Finding, NodeCheck, RestartGuard, Severity};
use rustix::process::Signal;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tokio::select;
use tokio::task::spawn_blocking;

/// The default node timeout of [`quorlock::Builder`].
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// The longest node timeout that `torture` supports. With a longer one, the workload's shortest TTL of 300 ms would
/// leave no validity.
const LONGEST_NODE_TIMEOUT: Duration = Duration::from_millis(250);
/// The TTL of fencing counters. If the run cannot delete the counters, they expire after this time.
const TOKEN_TTL: Duration = Duration::from_secs(60);

/// Test locking on your nodes with competing clients and injected faults
///
/// Client processes compete for twenty locks and for the permits of two semaphores, update counters under them, and
/// record every call. During the run, the commands in --fault and --mend break and repair nodes: at most a minority of
/// the nodes at a time, for 0.2 to 5 s. The seed determines the order of the faults. After the run, the record is
/// checked: no two clients held the same lock at once, no semaphore had more holders than permits, no update was lost,
/// fencing tokens increased, clients were notified of lost locks in time, locks remained available, and no keys are left
/// on the nodes. The run writes an HTML page and a JSON record to --out.
///
/// Before the clients start, each fault is applied and mended once. If its command fails three times, the run ends with
/// an error. A fault that fails later is recorded and skipped.
///
/// All keys have a prefix that is unique to the run, and are deleted at the end. Other applications can use the nodes
/// during the run, but are affected by the faults. Faults are mended at the end of the run and after Control-C, but not
/// after `kill -9`.
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock torture --for 30s", "Run without faults for 30 seconds"),
        (
            "quorlock torture --fault '3: docker pause n3' --mend 'docker unpause n3'",
            "Pause and unpause the third node",
        ),
        ("quorlock torture --fault '1: docker restart n1' --mend ''", "Restart the first node; this needs no mending"),
    ],
    &[
        ("0", "no findings"),
        ("1", "findings, such as two holders at once, a lost update or a leaked key"),
        ("69", "a node did not reply at the start, or no lock was acquired during the run"),
        ("128+N", "ended by signal N, without findings"),
    ],
))]
pub(crate) struct Arguments {
    /// Shell command that breaks a node; repeat for each fault. N is the number of the node in the list of nodes,
    /// starting at 1
    ///
    /// Two faults on the same node are never active together. A fault without a number counts as a fault on a separate
    /// node. The fault must be in effect when the command ends; the time limit of the command is 60 s.
    #[arg(long, value_name = "[N:]CMD")]
    fault: Vec<String>,
    /// Shell command that mends a fault ('' for none); one for each --fault, in the same order. The node must be up when
    /// the command ends
    #[arg(long, value_name = "CMD")]
    mend: Vec<String>,
    /// Duration of the run
    #[arg(long = "for", value_name = "DUR", default_value = "1m", value_parser = duration)]
    lasts: Duration,
    /// Break any number of nodes at a time. Two clients can then hold a lock at once: this is reported, but only fencing
    /// violations fail the run
    #[arg(long)]
    outside: bool,
    /// Seed for all random choices [default: random]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Number of client processes
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    clients: u16,
    /// Number of tasks in each client process
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    tasks: u16,
    /// Directory for the HTML page and the JSON record
    #[arg(long, value_name = "DIR", default_value = "quorlock-torture")]
    out: PathBuf,
    /// File with other URLs of the same nodes, in the same order; every second client uses them
    #[arg(long, value_name = "FILE")]
    also_nodes_file: Option<PathBuf>,
    /// Bug to build into one client, to test the checks
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "lock")]
    sabotage: Option<Sabotage>,
    #[command(flatten)]
    nodes: NodeOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    // This client acquires no locks. The clients of the run use the library's default guard.
    let client = Client::new(&arguments.nodes, Some(RestartGuard::Off))?;
    if client.config.tls_ca_cert_file.is_some() || client.config.tls_cert_file.is_some() {
        return Err(Failure::usage(
            "torture does not support certificate files: remove --cacert, --cert, --key and the tls_* settings; to trust \
             a CA, set SSL_CERT_FILE to a file with its certificate; client certificates are not supported",
        ));
    }
    let seed = arguments.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    let nodes = workload(&client.config, &arguments, seed)?;
    let size = u16::try_from(nodes.urls.len()).unwrap_or(u16::MAX);
    let faults = Fault::pairs(&arguments.fault, &arguments.mend, size)?;
    if !faults.is_empty() && Torture::max_faulted(size, !arguments.outside) == 0 {
        return Err(Failure::usage(format!(
            "no fault can be applied, because one of {size} nodes is not a minority: use at least three nodes, or --outside"
        )));
    }
    check_writable(&arguments.out)?;
    let mut signals = Signals::listen(false)?;
    let checked = client.redlock.check().await?;
    check_reachable(&checked)?;
    client.close().await;
    let (clients, tasks) = (arguments.clients, arguments.tasks);
    let torture = Torture {
        nodes,
        client_plan: ClientPlan { clients, temporary: 0, tasks, program: shim::client },
        run_part: RunPart { seed, part: 0, origin: boot::now(), sabotage: arguments.sabotage },
        faults,
        is_inside: !arguments.outside,
        lasts: arguments.lasts,
        out: arguments.out,
        command: command(env::args().collect(), arguments.seed.is_none().then_some(seed)),
        server: server(&checked),
        dangers: dangers(&checked),
    };
    let (stop_sender, stop) = mpsc::channel();
    let mut run = spawn_blocking(move || torture.run(&stop));
    loop {
        select! {
            ended = &mut run => {
                return ended.unwrap_or_else(|error| {
                    Err(Failure::new(Code::FAILED, format!("the torture run failed: {error}")))
                });
            }
            signal = signals.next() => match signal {
                // A stopped process could not mend active faults.
                Signal::TSTP | Signal::CONT => output::print_message("a torture run cannot be suspended, only terminated"),
                ending => {
                    output::print_message("mending faults and deleting keys");
                    // `send` fails if the run is already ending.
                    let _ = stop_sender.send(ending);
                }
            },
        }
    }
}

/// Returns the nodes and settings of the client processes, with a key prefix that is unique to the run.
fn workload(config: &Config, arguments: &Arguments, seed: u64) -> Result<Nodes, Failure> {
    let other_urls = match &arguments.also_nodes_file {
        Some(file) => nodes::read("--also-nodes-file", file)?.nodes,
        None => Vec::new(),
    };
    if !other_urls.is_empty() && other_urls.len() != config.nodes.len() {
        return Err(Failure::usage(format!(
            "the number of nodes in --also-nodes-file is {} instead of {}: it must contain the same nodes in the same order",
            other_urls.len(),
            config.nodes.len()
        )));
    }
    let node_timeout = config.node_timeout.unwrap_or(NODE_TIMEOUT);
    if node_timeout > LONGEST_NODE_TIMEOUT {
        return Err(Failure::usage(format!(
            "the node timeout of {node_timeout:?} is too long for torture, whose shortest ttl is 300 ms: reduce \
             QUORLOCK_NODE_TIMEOUT (node_timeout in the file) to at most {LONGEST_NODE_TIMEOUT:?}"
        )));
    }
    let (prefix, run) = (config.key_prefix.as_deref().unwrap_or_default(), rand::random::<u32>());
    let nodes = Nodes {
        urls: config.nodes.clone(),
        other_urls,
        prefix: format!("{prefix}quorlock-torture:{seed}-{run:08x}:"),
        node_timeout,
        connect_timeout: config.connect_timeout,
        token_ttl: Some(TOKEN_TTL),
        is_trusting: config.trust_persistence.unwrap_or_default(),
    };
    // Invalid settings are reported once here, instead of in each client process.
    for number in [0, 1] {
        let client = nodes.client(number);
        client.map_err(|error| Failure::setting(&error, AvailableOptions::Nodes))?;
    }
    Ok(nodes)
}

/// Creates the directory `out` and checks that it is writable, before a long run depends on it.
fn check_writable(out: &Path) -> Result<(), Failure> {
    let probe = out.join(format!(".quorlock-{}", std::process::id()));
    let tried = fs::create_dir_all(out).and_then(|()| fs::write(&probe, ""));
    tried.and_then(|()| fs::remove_file(&probe)).map_err(|error| {
        Failure::usage(format!("cannot write to --out {}: {error}", out.display()))
    })
}

/// Checks that all nodes reply. The run could not mend an unreachable node.
fn check_reachable(nodes: &[NodeCheck]) -> Result<(), Failure> {
    let unreachable = nodes.iter().find_map(|node| {
        let mut findings = node.findings().iter();
        let why = findings.find_map(|finding| match finding {
            Finding::Unreachable { failure } => Some(failure),
            _ => None,
        })?;
        Some(format!("{} cannot be used: {why}; start the run when all nodes reply", node.name()))
    });
    unreachable.map_or(Ok(()), |why| Err(Failure::new(Code::NO_QUORUM, why)))
}

/// Returns the findings that make locks on the nodes unsafe.
fn dangers(nodes: &[NodeCheck]) -> Vec<String> {
    let each = nodes.iter().flat_map(|node| {
        let findings = node.findings().iter();
        let bad = findings.filter(|finding| finding.severity() == Severity::Danger);
        bad.map(move |finding| format!("{}: {finding}", node.name()))
    });
    each.collect()
}

/// Returns the first version that a node reports.
fn server(nodes: &[NodeCheck]) -> String {
    let version = nodes.iter().find_map(|node| node.version().map(str::to_owned));
    version.unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the shell command that repeats the run. It contains no password, because `--node` rejects URLs with
/// passwords.
fn command(words: Vec<String>, seed: Option<u64>) -> String {
    let mut command = "quorlock".to_owned();
    let seed = seed.map(|seed| ["--seed".to_owned(), seed.to_string()]);
    for word in words.into_iter().skip(1).chain(seed.into_iter().flatten()) {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_=./:@%+,".contains(it);
        command.push(' ');
        if !word.is_empty() && word.chars().all(is_plain) {
            command.push_str(&word);
        } else {
            command.push('\'');
            command.push_str(&word.replace('\'', r"'\''"));
            command.push('\'');
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_quoted_for_the_shell() {
        let words = ["/bin/x", "torture", "--fault", "3: docker pause 'a b'", "--mend", ""];
        let words = words.map(str::to_owned).to_vec();
        assert_eq!(
            command(words.clone(), Some(7)),
            r"quorlock torture --fault '3: docker pause '\''a b'\''' --mend '' --seed 7"
        );
        assert_eq!(command(words[..2].to_vec(), None), "quorlock torture");
    }
}
