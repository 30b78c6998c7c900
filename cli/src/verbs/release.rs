//! `quorlock release`: releases a lock that another process holds.

use crate::exit::{self, Code, Failure};
use crate::nodes::Client;
use crate::options::NodeOptions;
use crate::settings::AvailableOptions;
use crate::{output, resource};
use clap::Args;
use quorlock::{
    AcquireError, ConfigError, Holder, NodeStatus, NodeVote, ReleaseOutcome, RestartGuard,
};
use std::ffi::OsString;

/// Release a lock that another process holds, by its value or by force
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock release backup --value 5f0c…", "Release the lock with the value that `quorlock hold` printed"),
        ("quorlock release backup --force", "Release the lock, although its holder may still be working"),
    ],
    &[
        ("0", "released"),
        ("1", "not released: not held, held with another value, or not a lock of quorlock"),
        ("69", "no quorum: too few nodes reply; nodes that do not reply keep the lock until it expires"),
    ],
))]
pub(crate) struct Arguments {
    /// Name of the resource
    resource: OsString,
    #[command(flatten)]
    method: Method,
    #[command(flatten)]
    nodes: NodeOptions,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Method {
    /// Value of the lock, as printed by `hold`. Other users of this machine can see it with ps
    #[arg(long)]
    value: Option<String>,
    /// Release the lock of any holder. The holder is notified immediately, or at its next renewal
    #[arg(long)]
    force: bool,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let name = resource::bytes(&arguments.resource)?;
    // The restart guard applies to acquires only.
    let client = Client::new(&arguments.nodes, Some(RestartGuard::Off))?;
    client.settle().await?;
    let ended = match &arguments.method.value {
        Some(value) => by_value(&client, name, value).await,
        None => by_force(&client, name).await,
    };
    client.close().await;
    ended
}

/// Adopts the lock before the release. The adoption fails if the lock does not have this value.
async fn by_value(client: &Client, name: &[u8], value: &str) -> Result<Code, Failure> {
    let holder = client.redlock.status(name).await?.holder();
    let shown = resource::display_name(name);
    let lease = client.redlock.adopt(name, value).await.map_err(|error| match error {
        AcquireError::NotHeld { report } => {
            let reason = "was not released: no majority of the nodes has a lock with this value";
            Failure::new(Code::NEGATIVE_RESULT, format!("{shown} {reason}: {report}"))
        }
        AcquireError::Invalid(ConfigError::AdoptsSet { resources }) => Failure::usage(format!(
            "{shown}: this value belongs to a lock on {resources} resources, which can only be released together: \
             terminate its holder, or use --force for each resource"
        )),
        AcquireError::Invalid(ConfigError::AdoptsReaders) => Failure::usage(format!(
            "{shown}: this value belongs to all readers together: terminate them, or use --force"
        )),
        other => Failure::acquire(&other, AvailableOptions::Nodes).about(&shown),
    })?;
    let released = lease.release().await.map_err(|error| Failure::from(error).about(&shown))?;
    match released {
        ReleaseOutcome::Released => {
            output::print_line(format_args!(
                "{shown}: released{}",
                former_holder(holder.as_ref())
            ))?;
            Ok(Code::OK)
        }
        other => Err(Failure::new(Code::NEGATIVE_RESULT, format!("{shown}: {other}"))),
    }
}

async fn by_force(client: &Client, name: &[u8]) -> Result<Code, Failure> {
    let status = client.redlock.status(name).await?;
    let report = client.redlock.force_release(name).await?;
    let shown = resource::display_name(name);
    let count =
        |is: fn(&NodeVote) -> bool| report.nodes().iter().filter(|node| is(node.vote())).count();
    let failed = count(|vote| matches!(vote, NodeVote::Failed(_) | NodeVote::Pending));
    let (all, kept) = (report.nodes().len(), count(|vote| *vote == NodeVote::Held));
    let code = match report.granted() {
        _ if all - failed < report.needed() => Code::NO_QUORUM,
        granted if granted == 0 || all - kept < report.needed() => Code::NEGATIVE_RESULT,
        granted => {
            // If no holder has a majority, the message names the holder on any node.
            let holder = status.holder();
            let some = status.nodes().iter().find_map(NodeStatus::holder);
            let former = former_holder(holder.as_ref().or(some));
            let details = if granted == all { String::new() } else { format!(": {report}") };
            output::print_line(format_args!(
                "{shown}: released on {granted} of {all} nodes{former}{details}"
            ))?;
            return Ok(Code::OK);
        }
    };
    let reason = match code {
        Code::NO_QUORUM => {
            "may still be held: too few nodes carried out the release; repeat it when a majority is available".to_owned()
        }
        _ if kept > 0 => format!(
            "was not released: on {kept} of {all} nodes the key is not a lock of quorlock, or another client has \
             just acquired the lock"
        ),
        _ => "was not held".to_owned(),
    };
    Err(Failure::new(code, format!("{shown} {reason}: {report}")))
}

fn former_holder(holder: Option<&Holder>) -> String {
    match holder {
        Some(holder) if holder.is_cooling_down() => ", was cooling down".to_owned(),
        Some(holder) => format!(", was held by {holder}"),
        None => String::new(),
    }
}
