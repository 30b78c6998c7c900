//! `quorlock status`: who holds a lock.

use crate::exit::{self, Code, Failure};
use crate::nodes::Client;
use crate::options::{NodeOptions, RestartOptions};
use crate::{output, quarantine, resource};
use clap::Args;
use quorlock::{Holder, LockState, NodeStatus, Status};
use serde::Serialize;
use std::ffi::OsString;
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, SystemTime};
use tokio::time::{MissedTickBehavior, interval};

/// Show who holds a lock, as each node tells
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock status backup", "who holds it, and what each node says"),
        ("quorlock status -q backup || echo busy", "the exit code alone"),
        ("quorlock status --watch --json backup", "a line of JSON for each change"),
    ],
    &[
        ("0", "free: a majority of the nodes has no such lock"),
        ("1", "held, or so many nodes are taken that nobody can have it"),
        ("69", "unknown: too few nodes answer; or free, but too few nodes count after a restart"),
    ],
))]
pub(crate) struct Arguments {
    /// The name of the lock
    resource: OsString,
    /// Print nothing: the exit code tells
    #[arg(short, long, conflicts_with_all = ["watch", "json"])]
    quiet: bool,
    /// Print a line for each change, until interrupted. The nodes are asked twice a second
    #[arg(long)]
    watch: bool,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    nodes: NodeOptions,
    #[command(flatten)]
    restarts: RestartOptions,
}

/// How often a watched lock is looked at: by one short script on each node.
const PACE: Duration = Duration::from_millis(500);

/// What the nodes' answers come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Free,
    Held,
    Unknown,
}

impl Verdict {
    /// Free is what a majority says is free. Held is what one holder has a majority of, and what leaves nobody a
    /// majority to get, whatever the nodes that failed may have.
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
            Self::Held => Code::NO,
            Self::Unknown => Code::NO_QUORUM,
        }
    }
}

/// One answer to the question, to be printed.
#[derive(Serialize)]
struct Answer<'a> {
    /// When it was given, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    resource: String,
    state: Verdict,
    #[serde(flatten)]
    status: &'a Status,
}

impl<'a> Answer<'a> {
    fn new(name: &[u8], status: &'a Status) -> Self {
        Self { at: None, resource: resource::shown(name), state: Verdict::of(status), status }
    }

    /// On several lines.
    fn page(&self) -> String {
        let nodes = self.status.nodes().iter().map(|node| format!("\n  {node}"));
        format!("{}{}", self.head(), nodes.collect::<String>())
    }

    /// On one line.
    fn line(&self) -> String {
        let nodes = self.status.nodes().iter().map(ToString::to_string).collect::<Vec<_>>();
        let at = self.at.as_deref().unwrap_or_default();
        format!("{at} {}: {}", self.head(), nodes.join(", "))
    }

    /// How long the lock cannot be acquired, although it is free.
    fn delay(&self) -> Option<Duration> {
        self.status.acquirable_in().filter(|wait| !wait.is_zero())
    }

    fn code(&self) -> Code {
        if self.delay().is_some() { Code::NO_QUORUM } else { self.state.code() }
    }

    fn head(&self) -> String {
        let (style, word) = match self.state {
            Verdict::Free if self.delay().is_some() => (output::WARNING, "free"),
            Verdict::Free => (output::GOOD, "free"),
            Verdict::Held => (output::WARNING, "held"),
            Verdict::Unknown => (output::BAD, "unknown"),
        };
        let word = output::styled(style, word);
        let more = match (self.state, self.status.holder()) {
            (Verdict::Held, Some(holder)) => format!(" by {holder}"),
            (Verdict::Held, None) => " in part, too few nodes are free for anybody".to_owned(),
            (Verdict::Free, _) => self.delay().map_or_else(String::new, |wait| {
                format!(", but cannot be acquired for {}", quarantine::seconds(wait))
            }),
            (Verdict::Unknown, _) => ", too few nodes answer".to_owned(),
        };
        format!("{}: {word}{more}", self.resource)
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
        (false, true) => output::json(&answer)?,
        (false, false) => {
            output::line(answer.page())?;
            if answer.delay().is_some()
                && let Some(reason) = quarantine::reason(&client)
            {
                output::complain(reason);
            }
        }
    }
    Ok(answer.code())
}

/// Looks again and again, for ever, and prints what has changed.
async fn watch(client: &Client, name: &[u8], is_json: bool) -> Result<Code, Failure> {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = None;
    loop {
        ticks.tick().await;
        let status = client.redlock.status(name).await?;
        let seen = essence(&status);
        if known.as_ref() == Some(&seen) {
            continue;
        }
        known = Some(seen);
        let at = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let answer = Answer { at: Some(at), ..Answer::new(name, &status) };
        if is_json {
            output::json(&answer)?;
        } else {
            output::line(answer.line())?;
        }
    }
}

/// One node's kind of state, the holder's hint, and whether the node counts.
type Essence = (Discriminant<LockState>, Option<String>, bool);

/// What is a change if it is different. Time passes all the while, and is none.
fn essence(status: &Status) -> Vec<Essence> {
    let nodes = status.nodes().iter();
    let essence = |node: &NodeStatus| {
        let counts = node.eligibility().counts_in().is_zero();
        (discriminant(node.state()), node.holder().map(Holder::hint), counts)
    };
    nodes.map(essence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_too_few_nodes_tell_is_unknown() {
        // Free, failed, needed, one holder has a majority.
        for (counts, verdict) in [
            ((3, 0, 2, false), Verdict::Free),
            ((2, 1, 2, false), Verdict::Free),
            ((1, 0, 2, true), Verdict::Held),
            ((0, 1, 2, true), Verdict::Held),
            ((1, 1, 2, false), Verdict::Unknown),
            ((0, 2, 2, false), Verdict::Unknown),
            ((0, 3, 2, false), Verdict::Unknown),
            // Two of five are one's, two another's.
            ((1, 0, 3, false), Verdict::Held),
            ((1, 1, 3, false), Verdict::Held),
            ((1, 2, 3, false), Verdict::Unknown),
        ] {
            let (free, failed, needed, is_held) = counts;
            assert_eq!(Verdict::counted(free, failed, needed, is_held), verdict, "{counts:?}");
        }
    }
}
