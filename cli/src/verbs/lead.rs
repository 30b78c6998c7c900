//! `quorlock lead`: a command on one host at a time, for ever.

use crate::exit::{self, Code, Failure};
use crate::guard::nested::Mark;
use crate::guard::{End, Guard, Signals};
use crate::held::{self, Wanted};
use crate::options::{ChildOptions, LockOptions, NodeOptions, RestartOptions, WaitOptions};
use crate::{nodes::Client, output, resource};
use clap::Args;
use std::ffi::OsString;

/// Run a command on one host at a time, for ever: campaign, lead, and campaign again
///
/// The command gets a fencing token in `QUORLOCK_TOKEN`. When the lock is lost the command is ended as by `run`, and
/// this host campaigns again. When the command ends by itself the lock is released, and `lead` ends with its code: let a
/// service manager start it again, and another host lead meanwhile.
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[("quorlock lead scheduler -- ./scheduler", "on all hosts; one of them runs it")],
    &[
        ("CMD's own", "it led to its end"),
        ("1", "held by another, and the setting retry has a limit"),
        ("69", "no quorum, and the setting retry has a limit"),
        ("126", "CMD cannot be executed"),
        ("127", "CMD was not found"),
        ("128+N", "CMD died of signal N, or N came while it campaigned"),
    ],
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
    #[command(flatten)]
    pub(crate) restarts: RestartOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let Arguments { name, command, lock, child, nodes, restarts } = &arguments;
    let resources = &[resource::bytes(name)?];
    let wanted = Wanted { resources, lock, wait: &WaitOptions::for_ever(), fenced: true };
    held::closing(Client::for_locks(nodes, restarts, lock)?, async |client| {
        let mark = Mark::new(client, resources, Code::NO).await?;
        let guard = Guard::new(client, mark, command, child)?;
        let mut signals = Signals::listen(child.foreground)?;
        loop {
            match held::guarded(client, &wanted, &guard, &mut signals).await? {
                End::Exited(code) => break Ok(code),
                End::Lost if lock.quiet => {}
                End::Lost => output::complain("no longer the leader: campaigning again"),
            }
        }
    })
    .await
}
