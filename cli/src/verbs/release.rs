//! `quorlock release`: ends a lock from outside.

use crate::exit::{self, Code, Failure};
use crate::nodes::Client;
use crate::options::NodeOptions;
use crate::{output, resource};
use clap::Args;
use quorlock::{
    AcquireError, ConfigError, Holder, NodeStatus, NodeVote, ReleaseOutcome, RestartGuard,
};
use std::ffi::OsString;

/// End a lock from outside: by its value, or by force
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock release backup --value 5f0c…", "the value that `quorlock hold` printed"),
        ("quorlock release backup --force", "whosever it is; its holder may go on working"),
    ],
    &[
        ("0", "released"),
        ("1", "nothing was: another value stands there, or none"),
        ("69", "too few nodes answer: it stays until its ttl ends where they do not"),
    ],
))]
pub(crate) struct Arguments {
    /// The name of the lock
    resource: OsString,
    #[command(flatten)]
    right: Right,
    #[command(flatten)]
    nodes: NodeOptions,
}

/// By what right.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Right {
    /// The lock's value, as its holder has it. It shows in ps
    #[arg(long)]
    value: Option<String>,
    /// Delete what stands there, whosever it is. Its holder is told at once, or by its next renewal
    #[arg(long)]
    force: bool,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let name = resource::bytes(&arguments.resource)?;
    // A release is no acquire: a node that was restarted has a vote in it.
    let client = Client::new(&arguments.nodes, Some(RestartGuard::Off))?;
    client.settle().await?;
    let ended = match &arguments.right.value {
        Some(value) => by_value(&client, name, value).await,
        None => by_force(&client, name).await,
    };
    client.close().await;
    ended
}

/// Adopts the lock, which proves that the value is its own, and releases it.
async fn by_value(client: &Client, name: &[u8], value: &str) -> Result<Code, Failure> {
    let holder = client.redlock.status(name).await?.holder();
    let shown = resource::shown(name);
    let lease = client.redlock.adopt(name, value).await.map_err(|error| match error {
        AcquireError::NotHeld { report } => {
            let told = "was not released: that value does not stand there";
            Failure::new(Code::NO, format!("{shown} {told}: {report}"))
        }
        AcquireError::Invalid(ConfigError::AdoptsSet { resources }) => Failure::usage(format!(
            "this is the value of a lock of {resources} resources, of which none can be released by itself: end its \
             holder, or use --force for each"
        )),
        other => other.into(),
    })?;
    match lease.release().await? {
        ReleaseOutcome::Released => {
            output::line(format_args!("{shown}: released{}", whose(holder.as_ref())))?;
            Ok(Code::OK)
        }
        other => Err(Failure::new(Code::NO, format!("{shown} was {other}"))),
    }
}

async fn by_force(client: &Client, name: &[u8]) -> Result<Code, Failure> {
    let status = client.redlock.status(name).await?;
    let report = client.redlock.force_release(name).await?;
    let shown = resource::shown(name);
    let says =
        |is: fn(&NodeVote) -> bool| report.nodes().iter().filter(|node| is(node.vote())).count();
    let silent = says(|vote| matches!(vote, NodeVote::Failed(_) | NodeVote::Pending));
    let code = match report.granted() {
        _ if report.nodes().len() - silent < report.needed() => Code::NO_QUORUM,
        0 => Code::NO,
        _ => {
            // Where nobody has a majority, whoever was in the way.
            let holder = status.holder();
            let some = status.nodes().iter().find_map(NodeStatus::holder);
            let whose = whose(holder.as_ref().or(some));
            output::line(format_args!("{shown}: released{whose}: {report}"))?;
            return Ok(Code::OK);
        }
    };
    let told = match code {
        Code::NO_QUORUM => "was not released everywhere: too few nodes answered",
        _ if says(|vote| *vote == NodeVote::Held) > 0 => {
            "was not released: what stands there is no lock of ours"
        }
        _ => "was not held",
    };
    Err(Failure::new(code, format!("{shown} {told}: {report}")))
}

fn whose(holder: Option<&Holder>) -> String {
    holder.map_or_else(String::new, |holder| format!(", was held by {holder}"))
}
