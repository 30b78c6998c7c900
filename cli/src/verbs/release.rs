//! `quorlock release`: ends a lock from outside.

use crate::exit::{self, Code, Failure};
use crate::nodes::Client;
use crate::options::NodeOptions;
use crate::{output, resource};
use clap::Args;
use quorlock::{AcquireError, Holder, NodeVote, ReleaseOutcome};
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
    /// What was locked
    resource: OsString,
    /// The lock's value, as its holder has it. It shows in ps. A lock of several resources has none that fits
    #[arg(long, required_unless_present = "force")]
    value: Option<String>,
    /// Delete what stands there, whosever it is. Its holder does not know at once
    #[arg(long, conflicts_with = "value")]
    force: bool,
    #[command(flatten)]
    nodes: NodeOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let name = resource::bytes(&arguments.resource)?;
    let client = Client::new(&arguments.nodes)?;
    client.settle().await?;
    match &arguments.value {
        Some(value) => by_value(&client, name, value).await,
        None => by_force(&client, name).await,
    }
}

/// Adopts the lock, which proves that the value is its own, and releases it.
async fn by_value(client: &Client, name: &[u8], value: &str) -> Result<Code, Failure> {
    let holder = client.redlock.status(name).await?.holder();
    let shown = resource::shown(name);
    let lease = client.redlock.adopt(name, value).await.map_err(|error| match error {
        AcquireError::NotHeld { report } => Failure::new(
            Code::NO,
            format_args!("{shown} was not released: that value does not stand there: {report}"),
        ),
        other => other.into(),
    })?;
    match lease.release().await? {
        ReleaseOutcome::Released => {
            output::line(format_args!("{shown}: released{}", whose(holder.as_ref())))?;
            Ok(Code::OK)
        }
        other => Err(Failure::new(Code::NO, format_args!("{shown} was {other}"))),
    }
}

async fn by_force(client: &Client, name: &[u8]) -> Result<Code, Failure> {
    let status = client.redlock.status(name).await?;
    let report = client.redlock.force_release(name).await?;
    let shown = resource::shown(name);
    let holder = status.holder();
    let holder = holder.as_ref().or_else(|| status.nodes().iter().find_map(|node| node.holder()));
    let answered = report
        .nodes()
        .iter()
        .filter(|node| !matches!(node.vote(), NodeVote::Failed(_) | NodeVote::Pending));
    if answered.count() < report.needed() {
        return Err(Failure::new(
            Code::NO_QUORUM,
            format_args!("too few nodes answered to release {shown}: {report}"),
        ));
    }
    if report.granted() == 0 {
        return Err(Failure::new(Code::NO, format_args!("{shown} was not held: {report}")));
    }
    output::line(format_args!("{shown}: released{}: {report}", whose(holder)))?;
    Ok(Code::OK)
}

fn whose(holder: Option<&Holder>) -> String {
    holder.map_or_else(String::new, |holder| format!(", was held by {holder}"))
}
