//! `quorlock check`: whether the nodes are fit for locks.

use crate::exit::{self, Code, Failure};
use crate::nodes::Client;
use crate::options::{NodeOptions, RestartOptions};
use crate::{output, quarantine};
use anstyle::Style;
use clap::{Args, ValueEnum};
use quorlock::{Finding, NodeCheck, Severity};

/// Look whether locks are safe on the nodes, and say what to set there
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock check", "each node's facts and findings, with advice"),
        ("quorlock check --fail-on warning --json", "for a monitor"),
    ],
    &[
        ("0", "nothing was found that is as bad as --fail-on"),
        ("1", "something was"),
        ("69", "too few nodes answer, or count after a restart: without a majority there are no locks"),
    ],
))]
pub(crate) struct Arguments {
    /// How bad a finding has to be for the exit code 1
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t = Level::Danger)]
    fail_on: Level,
    /// Print JSON: a list with an object for each node
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    nodes: NodeOptions,
    #[command(flatten)]
    restarts: RestartOptions,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Danger,
    Warning,
}

impl From<Level> for Severity {
    fn from(level: Level) -> Self {
        match level {
            Level::Danger => Self::Danger,
            Level::Warning => Self::Warning,
        }
    }
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let client = Client::new(&arguments.nodes, arguments.restarts.guard())?;
    let nodes = client.redlock.check().await?;
    if arguments.json {
        output::json(&nodes)?;
    } else {
        nodes.iter().try_for_each(|node| output::line(shown(node)))?;
    }
    // An older node would show that the deployment is not new.
    if client.is_strict() && nodes.iter().all(|node| has(node, is_quarantined)) {
        output::complain(quarantine::IF_NEW);
    }
    Ok(verdict(&nodes, arguments.fail_on.into()))
}

fn verdict(nodes: &[NodeCheck], least: Severity) -> Code {
    let is_silent = |finding: &Finding| matches!(finding, Finding::Unreachable { .. });
    let has_vote = |node: &&NodeCheck| !has(node, is_silent) && !has(node, is_quarantined);
    if nodes.iter().filter(has_vote).count() <= nodes.len() / 2 {
        return Code::NO_QUORUM;
    }
    let worst = nodes.iter().filter_map(NodeCheck::worst).max();
    if worst.is_some_and(|worst| worst >= least) { Code::NO } else { Code::OK }
}

fn has(node: &NodeCheck, is_wanted: impl Fn(&Finding) -> bool) -> bool {
    node.findings().iter().any(is_wanted)
}

fn is_quarantined(finding: &Finding) -> bool {
    matches!(finding, Finding::Quarantined { .. })
}

/// What the library prints, with the severities in colour.
fn shown(node: &NodeCheck) -> String {
    let text = node.to_string();
    let lines = text.lines().map(|line| {
        let finding = line.strip_prefix("  ").and_then(|line| line.split_once(": "));
        match finding.and_then(|(word, rest)| Some((style(word)?, word, rest))) {
            Some((style, word, rest)) => format!("  {}: {rest}", output::styled(style, word)),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn style(severity: &str) -> Option<Style> {
    match severity {
        "danger" => Some(output::BAD),
        "warning" => Some(output::WARNING),
        _ => None,
    }
}
