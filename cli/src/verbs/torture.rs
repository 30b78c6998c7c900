//! `quorlock torture`: proof on one's own nodes.

use crate::exit::{self, Code, Failure};
use crate::guard::Signals;
use crate::guard::shim;
use crate::nodes::{self, Client};
use crate::options::{NodeOptions, duration};
use crate::output;
use crate::torture::Torture;
use crate::torture::fault::Fault;
use clap::Args;
use harness::{Crew, Nodes, Sabotage, Who, boot};
use quorlock::{Config, Finding, NodeCheck, RestartGuard, Severity};
use rustix::process::Signal;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tokio::select;
use tokio::task::spawn_blocking;

/// How long a client waits for a node, if nothing is said; see [`quorlock::Builder`].
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// How long it may wait: the shortest ttl of the workload is 300 ms.
const LONGEST_NODE_TIMEOUT: Duration = Duration::from_millis(250);
/// How long fencing counters stand: they are soon gone also if nobody can take them away.
const TOKEN_TTL: Duration = Duration::from_secs(60);

/// Prove it on your nodes: break them while clients fight for locks
///
/// Four processes with ten tasks each fight for twenty locks, change what these guard, and write down all they do. Meanwhile
/// faults are made and mended by commands that you give: at most a minority of the nodes at a time, for up to 5 s, drawn by
/// the seed. At the end it is checked that no two held one lock, that no update was lost, that fencing tokens rose, that
/// losses were told in time, that locks were to be had all the time, and that no key is left. A page and a JSON record of
/// the run stay in --out.
///
/// Before the clients start, each fault is applied and mended once; a command that never works is an error. A fault that
/// fails later is recorded and skipped.
///
/// All keys have a prefix of their own, and are taken away at the end; so it can be run beside other users of the nodes.
/// Faults affect these users, too. They are mended at the end and after Control-C, but not after `kill -9`.
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock torture --for 30s", "without faults, to begin with"),
        ("quorlock torture --fault '3: docker pause n3' --mend 'docker unpause n3'", "node 3 hangs"),
        ("quorlock torture --fault '1: docker restart n1' --mend ''", "it mends itself"),
    ],
    &[
        ("0", "nothing was found"),
        ("1", "something was: two holders, a lost update, a key that was left, …"),
        ("69", "a node does not answer at the beginning, or nobody ever had a lock"),
        ("128+N", "it was ended by signal N, and nothing was found until then"),
    ],
))]
pub(crate) struct Arguments {
    /// A command for the shell that breaks a node; N: before it says which, in the order of the nodes. Once for each fault
    ///
    /// Faults of one node are never at work together. Without a number, a fault is taken to have a node of its own. A
    /// command has 60 s, and has done its work when it ends.
    #[arg(long, value_name = "[N:]CMD")]
    fault: Vec<String>,
    /// The command that mends the fault: one for each --fault, in the same order. The node is up again when it ends
    #[arg(long, value_name = "CMD")]
    mend: Vec<String>,
    /// How long faults are made
    #[arg(long = "for", value_name = "DUR", default_value = "1m", value_parser = duration)]
    lasts: Duration,
    /// Break any number of nodes at a time: two may then hold one lock, and are counted; fencing must hold
    #[arg(long)]
    outside: bool,
    /// Of all choices [default: drawn]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// How many client processes
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    clients: u16,
    /// How many tasks each one has
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    tasks: u16,
    /// Where the page and the record go
    #[arg(long, value_name = "DIR", default_value = "quorlock-torture")]
    out: PathBuf,
    /// The same nodes in the same order, by other URLs: every second client uses these
    #[arg(long, value_name = "FILE")]
    also_nodes_file: Option<PathBuf>,
    /// What one client does wrong, to see that it is found
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "lock")]
    sabotage: Option<Sabotage>,
    #[command(flatten)]
    nodes: NodeOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    // This client acquires nothing, and the run's clients have their own guard: young nodes do not endanger the run.
    let client = Client::new(&arguments.nodes, Some(RestartGuard::Off))?;
    if client.config.tls_ca_cert_file.is_some() || client.config.tls_cert_file.is_some() {
        return Err(Failure::usage(
            "torture cannot use --cacert, --cert and --key: trust the nodes' certificates by SSL_CERT_FILE",
        ));
    }
    let seed = arguments.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    let nodes = workload(&client.config, &arguments, seed)?;
    let size = u16::try_from(nodes.urls.len()).unwrap_or(u16::MAX);
    let faults = Fault::pairs(&arguments.fault, &arguments.mend, size)?;
    if !faults.is_empty() && Torture::most(size, !arguments.outside) == 0 {
        return Err(Failure::usage(format!(
            "one of {size} nodes is more than a minority: name three or more, or use --outside"
        )));
    }
    writable(&arguments.out)?;
    let mut signals = Signals::listen(false)?;
    let checked = client.redlock.check().await?;
    answering(&checked)?;
    client.close().await;
    let (clients, tasks) = (arguments.clients, arguments.tasks);
    let torture = Torture {
        nodes,
        crew: Crew { clients, newcomers: 0, tasks, program: shim::client },
        who: Who { seed, part: 0, origin: boot::now(), sabotage: arguments.sabotage },
        faults,
        is_inside: !arguments.outside,
        lasts: arguments.lasts,
        out: arguments.out,
        command: command(env::args().collect(), arguments.seed.is_none().then_some(seed)),
        server: server(&checked),
        dangers: dangers(&checked),
    };
    let (tell, stop) = mpsc::channel();
    let mut run = spawn_blocking(move || torture.run(&stop));
    loop {
        select! {
            ended = &mut run => {
                return ended.unwrap_or_else(|error| {
                    Err(Failure::new(Code::FAILED, format!("the torture has failed: {error}")))
                });
            }
            signal = signals.next() => match signal {
                // What is at work could not be mended.
                Signal::TSTP | Signal::CONT => output::complain("a torture cannot be stopped, only ended"),
                ending => {
                    output::complain("mending what is broken, and taking keys away");
                    // It may be at that already.
                    let _ = tell.send(ending);
                }
            },
        }
    }
}

/// The nodes, with keys of their own.
fn workload(config: &Config, arguments: &Arguments, seed: u64) -> Result<Nodes, Failure> {
    let other_urls = match &arguments.also_nodes_file {
        Some(file) => nodes::read("--also-nodes-file", file)?.nodes,
        None => Vec::new(),
    };
    if !other_urls.is_empty() && other_urls.len() != config.nodes.len() {
        return Err(Failure::usage(format!(
            "--also-nodes-file has {} nodes, and there are {}: it names the same nodes in the same order",
            other_urls.len(),
            config.nodes.len()
        )));
    }
    let node_timeout = config.node_timeout.unwrap_or(NODE_TIMEOUT);
    if node_timeout > LONGEST_NODE_TIMEOUT {
        return Err(Failure::usage(format!(
            "a node timeout of {node_timeout:?} is too long for a torture, whose shortest ttl is 300 ms: at most \
             {LONGEST_NODE_TIMEOUT:?}, by QUORLOCK_NODE_TIMEOUT or the file of the nodes"
        )));
    }
    let (prefix, mark) = (config.key_prefix.as_deref().unwrap_or_default(), rand::random::<u32>());
    let nodes = Nodes {
        urls: config.nodes.clone(),
        other_urls,
        prefix: format!("{prefix}quorlock-torture:{seed}-{mark:08x}:"),
        node_timeout,
        connect_timeout: config.connect_timeout,
        token_ttl: Some(TOKEN_TTL),
        is_trusting: config.trust_persistence.unwrap_or_default(),
    };
    // Now, and not in four processes.
    nodes.client(0)?;
    nodes.client(1)?;
    Ok(nodes)
}

/// Makes the place of the record, and sees that it can be left there: at the end it would be too late.
fn writable(out: &Path) -> Result<(), Failure> {
    let probe = out.join(format!(".quorlock-{}", std::process::id()));
    let tried = fs::create_dir_all(out).and_then(|()| fs::write(&probe, ""));
    tried.and_then(|()| fs::remove_file(&probe)).map_err(|error| {
        Failure::usage(format!("--out {} cannot be written to: {error}", out.display()))
    })
}

/// All have to: those that do not are faults that nobody mends.
fn answering(nodes: &[NodeCheck]) -> Result<(), Failure> {
    let silent = nodes.iter().find_map(|node| {
        let mut findings = node.findings().iter();
        let why = findings.find(|finding| matches!(finding, Finding::Unreachable { .. }))?;
        Some(format!("{}: {why}; all nodes have to answer before any is broken", node.name()))
    });
    silent.map_or(Ok(()), |why| Err(Failure::new(Code::NO_QUORUM, why)))
}

/// What is so wrong with the nodes that no lock on them is safe.
fn dangers(nodes: &[NodeCheck]) -> Vec<String> {
    let each = nodes.iter().flat_map(|node| {
        let findings = node.findings().iter();
        let bad = findings.filter(|finding| finding.severity() == Severity::Danger);
        bad.map(move |finding| format!("{}: {finding}", node.name()))
    });
    each.collect()
}

/// What the first node that says so is.
fn server(nodes: &[NodeCheck]) -> String {
    let told = nodes.iter().find_map(|node| node.version().map(str::to_owned));
    told.unwrap_or_else(|| "unknown".to_owned())
}

/// The command that makes the run again. URLs in it have no passwords: those are refused.
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
    fn the_command_is_made_again_by_a_shell() {
        let words = ["/bin/x", "torture", "--fault", "3: docker pause 'a b'", "--mend", ""];
        let words = words.map(str::to_owned).to_vec();
        assert_eq!(
            command(words.clone(), Some(7)),
            r"quorlock torture --fault '3: docker pause '\''a b'\''' --mend '' --seed 7"
        );
        assert_eq!(command(words[..2].to_vec(), None), "quorlock torture");
    }
}
