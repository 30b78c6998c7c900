//! `quorlock check`: checks the configuration and the state of the nodes.

use crate::exit::{self, Code, Failure};
use crate::nodes::Client;
use crate::options::{NodeOptions, RestartOptions};
use crate::{output, quarantine};
use anstyle::Style;
use clap::{Args, ValueEnum};
use quorlock::{Finding, NodeCheck, Severity};

/// Check the nodes' configuration and report unsafe settings
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock check", "Print the state of each node, with findings and advice"),
        ("quorlock check --fail-on warning --json", "Print JSON for monitoring, and exit with 1 for warnings, too"),
    ],
    &[
        ("0", "no findings of the severity in --fail-on or higher"),
        ("1", "findings of the severity in --fail-on or higher"),
        ("69", "no quorum: too few nodes reply, or too many are excluded (restart, flush)"),
    ],
))]
pub(crate) struct Arguments {
    /// Lowest severity of a finding that causes exit code 1
    #[arg(long, value_enum, value_name = "SEVERITY", default_value_t = Level::Danger)]
    fail_on: Level,
    /// Print JSON: an array with one object per node
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    nodes: NodeOptions,
    #[command(flatten)]
    restarts: RestartOptions,
}

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
        output::print_json(&nodes)?;
    } else {
        nodes.iter().try_for_each(|node| output::print_line(shown(node)))?;
    }
    // If any node had started earlier, the deployment would not be new.
    if client.is_strict() && nodes.iter().all(|node| has(node, is_quarantined)) {
        output::print_message(quarantine::IF_NEW);
    }
    Ok(exit_code(&nodes, arguments.fail_on.into()))
}

fn exit_code(nodes: &[NodeCheck], fail_on: Severity) -> Code {
    let is_unreachable = |finding: &Finding| matches!(finding, Finding::Unreachable { .. });
    let has_vote = |node: &&NodeCheck| !has(node, is_unreachable) && !has(node, is_quarantined);
    if nodes.iter().filter(has_vote).count() <= nodes.len() / 2 {
        return Code::NO_QUORUM;
    }
    let worst = nodes.iter().filter_map(NodeCheck::worst).max();
    if worst.is_some_and(|worst| worst >= fail_on) { Code::NEGATIVE_RESULT } else { Code::OK }
}

fn has(node: &NodeCheck, is_wanted: impl Fn(&Finding) -> bool) -> bool {
    node.findings().iter().any(is_wanted)
}

fn is_quarantined(finding: &Finding) -> bool {
    matches!(finding, Finding::Quarantined { .. })
}

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
