//! `quorlock status`: who holds a lock.

use crate::exit::{self, Code, Failure};
use crate::nodes::Client;
use crate::options::NodeOptions;
use crate::{output, resource};
use anstyle::Style;
use clap::Args;
use quorlock::{LockState, Status};
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// Tells who holds a lock, as each node says
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock status backup", "who holds it, and each node's vote"),
        ("quorlock status -q backup && ./now", "only the exit code"),
        ("quorlock status --watch --json backup", "a line of JSON for each change"),
    ],
    &[
        ("0", "free: a majority of the nodes has no such lock"),
        ("1", "held, or in the way of others on so many nodes that nobody can get it"),
        ("69", "unknown: too few nodes answer to tell"),
    ],
))]
pub(crate) struct Arguments {
    /// What is asked about
    resource: OsString,
    /// Prints nothing: the exit code tells
    #[arg(short, long, conflicts_with_all = ["watch", "json"])]
    quiet: bool,
    /// Prints each change, until it is interrupted; the nodes are asked twice a second
    #[arg(long)]
    watch: bool,
    /// Prints JSON, one object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    nodes: NodeOptions,
}

/// How often a watched lock is looked at: one short script on each node.
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
    /// Whatever nodes that failed may hide does not count: free is what a majority says, and held what a majority holds,
    /// or what leaves no majority to anybody.
    fn of(status: &Status) -> Self {
        let count = |is: fn(&LockState) -> bool| {
            status.nodes().iter().filter(|node| is(node.state())).count()
        };
        let free = count(|state| matches!(state, LockState::Free));
        let failed = count(|state| matches!(state, LockState::Failed(_)));
        match status.needed() {
            needed if free >= needed => Self::Free,
            needed if status.is_held() || free + failed < needed => Self::Held,
            _ => Self::Unknown,
        }
    }

    fn code(self) -> Code {
        match self {
            Self::Free => Code::OK,
            Self::Held => Code::NO,
            Self::Unknown => Code::NO_QUORUM,
        }
    }

    fn shown(self) -> (Style, &'static str) {
        match self {
            Self::Free => (output::GOOD, "free"),
            Self::Held => (output::WARNING, "held"),
            Self::Unknown => (output::BAD, "unknown"),
        }
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Told<'a> {
    resource: String,
    state: Verdict,
    #[serde(flatten)]
    status: &'a Status,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let name = resource::bytes(&arguments.resource)?;
    let client = Client::new(&arguments.nodes)?;
    client.settle().await?;
    if arguments.watch {
        return watch(&client, name, &arguments).await;
    }
    let status = client.redlock.status(name).await?;
    let verdict = Verdict::of(&status);
    if !arguments.quiet {
        tell(name, verdict, &status, &arguments)?;
    }
    Ok(verdict.code())
}

/// Looks again and again, for ever.
async fn watch(client: &Client, name: &[u8], arguments: &Arguments) -> Result<Code, Failure> {
    let mut ticks = interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = None;
    loop {
        ticks.tick().await;
        let status = client.redlock.status(name).await?;
        let verdict = Verdict::of(&status);
        let seen = (verdict, essence(&status));
        if known.as_ref() != Some(&seen) {
            tell(name, verdict, &status, arguments)?;
            known = Some(seen);
        }
    }
}

/// What is a change if it changes: who holds it on each node, and which fail; not how long it has to live.
fn essence(
    status: &Status,
) -> Vec<(std::mem::Discriminant<LockState>, Option<(String, Option<String>)>)> {
    let nodes = status.nodes().iter().map(|node| {
        let holder = node.holder().map(|it| (it.hint(), it.metadata().map(str::to_owned)));
        (std::mem::discriminant(node.state()), holder)
    });
    nodes.collect()
}

fn tell(
    name: &[u8],
    verdict: Verdict,
    status: &Status,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let resource = resource::shown(name);
    if arguments.json {
        output::json(&Told { resource, state: verdict, status })?;
        return Ok(());
    }
    let (style, word) = verdict.shown();
    let word = output::styled(style, word);
    output::line(format_args!("{resource}: {word}: {status}"))?;
    Ok(())
}
