//! `quorlock lead`: runs a command on one host at a time, as the leader.

use crate::exit::{self, Code, Failure};
use crate::guard::nested::LockEnvironment;
use crate::guard::{End, Guard, Signals};
use crate::held::{self, LockRequest};
use crate::options::{ChildOptions, LockOptions, NodeOptions, RestartOptions, WaitOptions};
use crate::{nodes::Client, output, resource};
use clap::Args;
use std::ffi::OsString;

/// Run a command as the leader on one host at a time; campaign again after a loss
///
/// CMD gets a fencing token in `QUORLOCK_TOKEN`. If the lock is lost, CMD is terminated as with `run`, and this host
/// waits for the lock again. If CMD ends by itself, the lock is released and `lead` exits with CMD's code. Another host
/// can then become the leader; a service manager can restart `lead`.
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[("quorlock lead scheduler -- ./scheduler", "started on all hosts: one of them runs the scheduler")],
    &[
        ("CMD's own", "CMD ended by itself"),
        ("1", "held by another client, and the setting retry limits the attempts"),
        ("69", "no quorum, and the setting retry limits the attempts"),
        ("126", "CMD cannot be executed"),
        ("127", "CMD was not found"),
        ("128+N", "signal N killed CMD, or arrived while `lead` waited for the lock"),
    ],
))]
pub(crate) struct Arguments {
    /// Name of the lock, the same on all hosts
    pub(crate) name: OsString,
    /// Command that the leader runs, with its arguments
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
    let wanted = LockRequest { resources, lock, wait: &WaitOptions::unlimited(), fenced: true };
    held::with_client(Client::for_locks(nodes, restarts, lock)?, async |client| {
        let environment = LockEnvironment::new(client, resources, Code::NEGATIVE).await?;
        let guard = Guard::new(client, environment, command, child)?;
        let mut signals = Signals::listen(child.foreground)?;
        loop {
            match held::run_guarded(client, &wanted, &guard, &mut signals).await? {
                End::Exited(code) => break Ok(code),
                End::Lost if lock.quiet => {}
                End::Lost => output::print_message("no longer the leader: campaigning again"),
            }
        }
    })
    .await
}
