//! `quorlock lead`: a command on one host at a time, for ever.

use crate::exit::{self, Code, Failure};
use crate::options::{ChildOptions, LockOptions, NodeOptions};
use crate::{nodes::Client, resource};
use clap::Args;
use std::ffi::OsString;

/// Run a command on one host at a time, for ever: campaign, lead, and campaign again
///
/// The command gets a fencing token in `QUORLOCK_TOKEN`. When the lock is lost the command is ended.
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[("quorlock lead scheduler -- ./scheduler", "on all hosts; one of them runs it")],
    &exit::CHILD,
))]
pub(crate) struct Arguments {
    /// What the leader leads: any name, the same on all hosts
    pub(crate) name: OsString,
    /// What the leader runs
    #[arg(value_name = "CMD", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) lock: LockOptions,
    #[command(flatten)]
    pub(crate) child: ChildOptions,
    #[command(flatten)]
    pub(crate) nodes: NodeOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let name = resource::bytes(&arguments.name)?;
    let client = Client::for_locks(&arguments.nodes, &arguments.lock)?;
    arguments.child.grace(client.ttl)?;
    client.redlock.acquire(name).fenced().await?.release().await?;
    Err(Failure::new(Code::FAILED, "lead: what becomes of the lock is not part of this build"))
}
