//! `quorlock run`: a command under a lock.

use crate::exit::{self, Code, Failure};
use crate::options::{ChildOptions, LockOptions, NodeOptions, WaitOptions};
use crate::{held, nodes::Client, resource};
use clap::Args;
use std::ffi::OsString;

/// Run a command under a lock: flock(1) across masters
///
/// Several resources are locked together: all or nothing.
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock run backup -- pg_dump shop", "waits for its turn, then runs it"),
        ("quorlock run -n nightly -- ./nightly.sh", "not here if another host has it: exits with 1"),
        ("quorlock run -w 30s account/7 account/9 -- ./transfer", "both or none, within 30 s"),
    ],
    &exit::CHILD,
))]
pub(crate) struct Arguments {
    /// What to lock: any names, the same on all hosts
    #[arg(value_name = "RESOURCE", required = true)]
    pub(crate) resources: Vec<OsString>,
    /// What to run under the lock
    #[arg(value_name = "CMD", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) wait: WaitOptions,
    #[command(flatten)]
    pub(crate) lock: LockOptions,
    /// Give CMD a fencing token in `QUORLOCK_TOKEN`: a higher one for every later holder
    #[arg(long, help_heading = "Lock")]
    pub(crate) fenced: bool,
    #[command(flatten)]
    pub(crate) child: ChildOptions,
    #[command(flatten)]
    pub(crate) nodes: NodeOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let Arguments { resources, wait, lock, nodes, .. } = &arguments;
    let resources = resource::all_bytes(resources)?;
    let client = Client::for_locks(nodes, lock)?;
    arguments.child.grace(client.ttl)?;
    let acquire = held::acquire(&client, &resources, lock, wait);
    let acquire = if arguments.fenced { acquire.fenced() } else { acquire };
    let lease = held::lease(acquire, wait).await?;
    lease.release().await?;
    Err(Failure::new(Code::FAILED, "run: what becomes of the lock is not part of this build"))
}
