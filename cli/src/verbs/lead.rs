//! `quorlock lead`: runs a command on one host at a time, as the leader.

use crate::exit::{self, Code, Failure};
use crate::guard::nested::LockEnvironment;
use crate::guard::{End, Guard, Signals};
use crate::locked_work::{self, LockRequest};
use crate::options::{ChildOptions, LockOptions, NodeOptions, RestartOptions, WaitOptions};
use crate::settings::AvailableOptions;
use crate::target::Target;
use crate::{nodes::Client, output, resource};
use clap::Args;
use quorlock::Election;
use std::ffi::OsString;
use std::time::Duration;

/// Run a command as leader, on one host at a time; campaign again if the lock is lost
///
/// The environment variable `QUORLOCK_TOKEN` of CMD contains the fencing token. If the lock is lost, CMD is terminated
/// as by `run`, and `lead` waits for the lock again. When CMD ends by itself, `lead` releases the lock and exits with
/// the exit code of CMD. Another host can then become the leader; a service manager can restart `lead`.
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[("quorlock lead scheduler -- ./scheduler", "Service on all hosts: one of them runs the scheduler")],
    &[
        ("1", "held by an outer quorlock"),
        ("69", "no quorum because of a wrong setting, such as a password; other outages do not end the wait"),
        ("126", "CMD cannot be executed"),
        ("127", "CMD was not found"),
        ("128+N", "signal N killed CMD, or ended the wait for the lock"),
        ("otherwise", "exit code of CMD"),
    ],
))]
pub(crate) struct Arguments {
    /// Name of the resource to lock, the same on all hosts
    #[arg(value_name = "RESOURCE")]
    pub(crate) name: OsString,
    /// Command to run as the leader, with its arguments
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
    let name = resource::bytes(name)?;
    let resources = &[name];
    let target = Target::Resources(resources);
    let client = Client::for_locks(nodes, restarts, lock, target.to_string())?;
    locked_work::with_client(client, async |client| {
        let environment = LockEnvironment::new(client, target, Code::NEGATIVE_RESULT).await?;
        let guard = Guard::new(client, target, environment, command, lock, child)?;
        let mut signals = Signals::listen(child.foreground)?;
        let (wait, election) = (&WaitOptions::unlimited(), &election(client, name, lock)?);
        let wanted = LockRequest { target, lock, wait, fenced: true, election: Some(election) };
        loop {
            match locked_work::run_command_under_lock(client, &wanted, &guard, &mut signals).await?
            {
                End::Exited(code) => break Ok(code),
                End::Lost if lock.quiet => {}
                End::Lost => output::print_message(format_args!(
                    "{target}: no longer the leader: waiting for the lock again"
                )),
            }
        }
    })
    .await
}

fn election(client: &Client, name: &[u8], lock: &LockOptions) -> Result<Election, Failure> {
    let election = client.redlock.election(name).at_least(lock.at_least.unwrap_or_default());
    let built = election.max_hold(lock.max_hold.unwrap_or(Duration::MAX)).build();
    built.map_err(|error| {
        Failure::setting(&error, AvailableOptions::Lock).about(Target::Resources(&[name]))
    })
}
