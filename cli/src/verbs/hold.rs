//! `quorlock hold`: a lock for whoever started this process.

use crate::exit::{self, Code, Failure};
use crate::options::{LockOptions, NodeOptions, WaitOptions};
use crate::{held, nodes::Client, resource};
use clap::Args;
use std::ffi::OsString;

/// Hold a lock until SIGTERM or its loss, and print a line of JSON when it is held
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[("quorlock hold -n nightly", "for a program that has no client of its own")],
    &[
        ("0", "ended by SIGTERM or SIGINT, and released"),
        ("1", "held by another (-n, -w); another code with -E"),
        ("69", "no quorum: too few nodes answer (-n, -w)"),
        ("124", "the lock was lost"),
    ],
))]
pub(crate) struct Arguments {
    /// What to lock: any names, the same on all hosts
    #[arg(value_name = "RESOURCE", required = true)]
    pub(crate) resources: Vec<OsString>,
    #[command(flatten)]
    pub(crate) wait: WaitOptions,
    #[command(flatten)]
    pub(crate) lock: LockOptions,
    /// Ask for a fencing token: a higher one for every later holder
    #[arg(long, help_heading = "Lock")]
    pub(crate) fenced: bool,
    #[command(flatten)]
    pub(crate) nodes: NodeOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let Arguments { resources, wait, lock, nodes, fenced } = &arguments;
    let resources = resource::all_bytes(resources)?;
    let client = Client::for_locks(nodes, lock)?;
    let acquire = held::acquire(&client, &resources, lock, wait);
    let acquire = if *fenced { acquire.fenced() } else { acquire };
    let lease = held::lease(acquire, wait).await?;
    lease.release().await?;
    Err(Failure::new(Code::FAILED, "hold: what becomes of the lock is not part of this build"))
}
