//! `quorlock status`: shows the holder of a lock, or the holders of a semaphore.

mod answer;
mod lock;
mod semaphore;
mod verdict;

use crate::exit::{self, Code, Failure};
use crate::nodes::Client;
use crate::options::{NodeOptions, RestartOptions};
use crate::{output, quarantine, resource, target};
use answer::Answer;
use clap::Args;
use lock::LockAnswer;
use semaphore::SemaphoreAnswer;
use serde::Serialize;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};
use tokio::time::{MissedTickBehavior, interval};

/// Show the holder of a lock, or the holders of a semaphore, as reported by each node
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock status backup", "Print the holder, and the state on each node"),
        ("quorlock status -q backup || echo busy", "Use only the exit code"),
        ("quorlock status --watch --json backup", "Print a line of JSON for each change"),
        ("quorlock status --permits 3 downloads", "Print the holders of a semaphore, and how many permits are free"),
    ],
    &[
        ("0", "free on a majority of the nodes; with --permits: at least one permit is free"),
        ("1", "held: too few nodes can be free for a majority; with --permits: all permits are held"),
        ("69", "unknown: neither free nor held on a majority; or free, but too many nodes are excluded"),
    ],
))]
pub(crate) struct Arguments {
    /// Name of the resource; with --permits, the name of the semaphore
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
    /// Show the semaphore RESOURCE with N permits instead of a lock. All clients must use the same N, from 1 to 1000
    #[arg(long, value_name = "N")]
    permits: Option<usize>,
    #[command(flatten)]
    nodes: NodeOptions,
    #[command(flatten)]
    restarts: RestartOptions,
}

/// The polling interval of `--watch`. Each poll runs one short script per lock or permit on each node.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// A result of `--watch --json`.
#[derive(Serialize)]
struct Timed<'a, T> {
    /// The time of the result in RFC 3339 format.
    at: &'a str,
    #[serde(flatten)]
    answer: &'a T,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let name = resource::bytes(&arguments.resource)?;
    let client = Client::new(&arguments.nodes, arguments.restarts.guard())?;
    let permits = arguments.permits;
    let semaphore = permits.map(|permits| target::semaphore(&client, name, permits)).transpose()?;
    client.settle().await?;
    let Some(semaphore) = semaphore else {
        let read = async || Ok(LockAnswer::new(name, client.redlock.status(name).await?));
        return show(&client, &arguments, read).await;
    };
    let read = async || Ok(SemaphoreAnswer::new(&semaphore, semaphore.status().await?));
    show(&client, &arguments, read).await
}

async fn show<T: Answer>(
    client: &Client,
    arguments: &Arguments,
    read: impl AsyncFn() -> Result<T, Failure>,
) -> Result<Code, Failure> {
    if arguments.watch {
        return watch(read, arguments.json).await;
    }
    let answer = read().await?;
    match (arguments.quiet, arguments.json) {
        (true, _) => {}
        (false, true) => output::print_json(&answer)?,
        (false, false) => {
            output::print_line(answer.lines())?;
            if answer.delay().is_some()
                && let Some(reason) = quarantine::reason(client)
            {
                output::print_message(reason);
            }
        }
    }
    Ok(answer.code())
}

async fn watch<T: Answer>(
    read: impl AsyncFn() -> Result<T, Failure>,
    is_json: bool,
) -> Result<Code, Failure> {
    let mut ticks = interval(WATCH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = None;
    loop {
        ticks.tick().await;
        let answer = read().await?;
        let seen = answer.comparable();
        if known.as_ref() == Some(&seen) {
            continue;
        }
        known = Some(seen);
        let at = &*humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        if is_json {
            output::print_json(&Timed { at, answer: &answer })?;
        } else {
            output::print_line(format_args!("{at} {}", answer.line()))?;
        }
    }
}
