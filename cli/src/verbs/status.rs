//! `quorlock status`: shows the holder of a lock.

use crate::exit::{self, Code, Failure};
use crate::nodes::Client;
use crate::options::{NodeOptions, RestartOptions};
use crate::{locked_work, output, quarantine, resource};
use clap::Args;
use quorlock::{Holder, LockState, NodeStatus, Status};
use serde::Serialize;
use std::ffi::OsString;
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, SystemTime};
use tokio::time::{MissedTickBehavior, interval};

/// Show the holder of a lock, as reported by each node
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock status backup", "Print the holder, and the state on each node"),
        ("quorlock status -q backup || echo busy", "Use only the exit code"),
        ("quorlock status --watch --json backup", "Print a line of JSON for each change"),
    ],
    &[
        ("0", "free on a majority of the nodes"),
        ("1", "held: too few nodes can be free for a majority"),
        ("69", "unknown: neither free nor held on a majority; or free, but too many nodes are excluded"),
    ],
))]
pub(crate) struct Arguments {
    /// Name of the resource
    resource: OsString,
    /// Suppress output; only the exit code reports the state
    #[arg(short, long, conflicts_with_all = ["watch", "json"])]
    quiet: bool,
    /// Print a line for each change, until interrupted. Polls the nodes twice per second
    #[arg(long)]
    watch: bool,
    /// Print JSON, one object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    nodes: NodeOptions,
    #[command(flatten)]
    restarts: RestartOptions,
}

/// The polling interval of `--watch`. Each poll runs one short script on each node.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// The state of the lock, computed from the nodes' replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Free,
    Held,
    Unknown,
}

impl Verdict {
    /// The lock is free if a majority of the nodes reports this. It is held in two cases: a majority reports the same
    /// holder, or there would be no free majority even if the lock were free on all nodes that failed.
    fn of(status: &Status) -> Self {
        let count = |is: fn(&LockState) -> bool| {
            status.nodes().iter().filter(|node| is(node.state())).count()
        };
        let free = count(|state| matches!(state, LockState::Free));
        let failed = count(|state| matches!(state, LockState::Failed(_)));
        Self::counted(free, failed, status.needed(), status.is_held())
    }

    fn counted(free: usize, failed: usize, needed: usize, is_held: bool) -> Self {
        if free >= needed {
            Self::Free
        } else if is_held || free + failed < needed {
            Self::Held
        } else {
            Self::Unknown
        }
    }

    fn code(self) -> Code {
        match self {
            Self::Free => Code::OK,
            Self::Held => Code::NEGATIVE_RESULT,
            Self::Unknown => Code::NO_QUORUM,
        }
    }
}

#[derive(Serialize)]
struct Answer<'a> {
    /// The time of the result in RFC 3339 format. `None` without `--watch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    resource: String,
    state: Verdict,
    holder: Option<Holder>,
    acquirable_in_seconds: Option<f64>,
    #[serde(flatten)]
    status: &'a Status,
}

impl<'a> Answer<'a> {
    fn new(name: &[u8], status: &'a Status) -> Self {
        Self {
            at: None,
            resource: resource::display_name(name),
            state: Verdict::of(status),
            holder: status.holder(),
            acquirable_in_seconds: status.acquirable_in().map(|wait| wait.as_secs_f64()),
            status,
        }
    }

    fn lines(&self) -> String {
        let nodes = self.status.nodes().iter().map(|node| format!("\n  {node}"));
        format!("{}{}", self.summary(), nodes.collect::<String>())
    }

    fn line(&self) -> String {
        let nodes = self.status.nodes().iter().map(ToString::to_string).collect::<Vec<_>>();
        let at = self.at.as_deref().unwrap_or_default();
        format!("{at} {}: {}", self.summary(), nodes.join(", "))
    }

    /// Returns how long the restart guard still prevents an acquire of the free lock, or `None` if it does not.
    fn delay(&self) -> Option<Duration> {
        self.status.acquirable_in().filter(|wait| !wait.is_zero())
    }

    fn code(&self) -> Code {
        if self.delay().is_some() { Code::NO_QUORUM } else { self.state.code() }
    }

    fn summary(&self) -> String {
        let (style, text) = match (self.state, self.status.holder(), self.delay()) {
            (Verdict::Free, _, None) => (output::GOOD, "free".to_owned()),
            (Verdict::Free, _, Some(wait)) => {
                let wait = quarantine::seconds(wait);
                (output::WARNING, format!("free, but cannot be acquired for {wait}"))
            }
            (Verdict::Held, Some(holder), _) => (output::WARNING, locked_work::described(&holder)),
            (Verdict::Held, None, _) => (
                output::WARNING,
                "held: no holder has a majority, and no majority is free".to_owned(),
            ),
            (Verdict::Unknown, ..) => (output::BAD, format!("unknown: {}", self.unknown_reason())),
        };
        format!("{}: {}", self.resource, output::styled(style, text))
    }

    fn unknown_reason(&self) -> &'static str {
        let failed = |node: &&NodeStatus| matches!(node.state(), LockState::Failed(_));
        let nodes = self.status.nodes();
        let replies = nodes.len() - nodes.iter().filter(failed).count();
        if replies < self.status.needed() {
            "too few nodes reply"
        } else {
            "neither free nor held on a majority of the nodes"
        }
    }
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let name = resource::bytes(&arguments.resource)?;
    let client = Client::new(&arguments.nodes, arguments.restarts.guard())?;
    client.settle().await?;
    if arguments.watch {
        return watch(&client, name, arguments.json).await;
    }
    let status = client.redlock.status(name).await?;
    let answer = Answer::new(name, &status);
    match (arguments.quiet, arguments.json) {
        (true, _) => {}
        (false, true) => output::print_json(&answer)?,
        (false, false) => {
            output::print_line(answer.lines())?;
            if answer.delay().is_some()
                && let Some(reason) = quarantine::reason(&client)
            {
                output::print_message(reason);
            }
        }
    }
    Ok(answer.code())
}

async fn watch(client: &Client, name: &[u8], is_json: bool) -> Result<Code, Failure> {
    let mut ticks = interval(WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = None;
    loop {
        ticks.tick().await;
        let status = client.redlock.status(name).await?;
        let seen = comparable(&status);
        if known.as_ref() == Some(&seen) {
            continue;
        }
        known = Some(seen);
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let answer = Answer { at: Some(at), ..Answer::new(name, &status) };
        if is_json {
            output::print_json(&answer)?;
        } else {
            output::print_line(answer.line())?;
        }
    }
}

/// The data that `--watch` compares for each node: the kind of state, the holder's shortened value, and whether the
/// node's vote counts. Other changes, such as the remaining TTL, are not printed.
type Comparable = (Discriminant<LockState>, Option<String>, bool);

fn comparable(status: &Status) -> Vec<Comparable> {
    let nodes = status.nodes().iter();
    let of_node = |node: &NodeStatus| {
        let counts = node.eligibility().counts_in().is_zero();
        (discriminant(node.state()), node.holder().map(Holder::hint), counts)
    };
    nodes.map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_unknown_without_a_majority() {
        // The counts of free, failed and needed nodes, and whether one holder has a majority.
        for (counts, verdict) in [
            ((3, 0, 2, false), Verdict::Free),
            ((2, 1, 2, false), Verdict::Free),
            ((1, 0, 2, true), Verdict::Held),
            ((0, 1, 2, true), Verdict::Held),
            ((1, 1, 2, false), Verdict::Unknown),
            ((0, 2, 2, false), Verdict::Unknown),
            ((0, 3, 2, false), Verdict::Unknown),
            // Five nodes, and no holder with a majority.
            ((1, 0, 3, false), Verdict::Held),
            ((1, 1, 3, false), Verdict::Held),
            ((1, 2, 3, false), Verdict::Unknown),
        ] {
            let (free, failed, needed, is_held) = counts;
            assert_eq!(Verdict::counted(free, failed, needed, is_held), verdict, "{counts:?}");
        }
    }
}
