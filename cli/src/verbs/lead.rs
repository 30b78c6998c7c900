//! `quorlock lead`: a command on one host at a time, for ever.

use crate::exit::{self, Code, Failure};
use crate::guard::{End, Guard, Signals, nested};
use crate::options::{ChildOptions, LockOptions, NodeOptions, WaitOptions};
use crate::{held, nodes::Client, output, resource};
use clap::Args;
use std::ffi::OsString;
use std::time::Duration;

/// Run a command on one host at a time, for ever: campaign, lead, and campaign again
///
/// The command gets a fencing token in `QUORLOCK_TOKEN`. When the lock is lost the command is ended as by `run`, and
/// this host campaigns again. When the command ends by itself the lock is released, and `lead` ends with its code: let a
/// service manager start it again, and another host lead meanwhile.
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
    let grace = arguments.child.grace(client.ttl)?;
    nested::refuse(&client, &[name])?;
    let mut signals = Signals::listen(arguments.child.foreground)?;
    let ended = loop {
        match term(&arguments, &client, name, grace, &mut signals).await {
            Ok(End::Exited(code)) => break Ok(code),
            Ok(End::Lost) => output::complain("no longer the leader: campaigning again"),
            Err(failure) => break Err(failure),
        }
    };
    client.close().await;
    ended
}

/// Campaigns, and leads for as long as that is granted.
async fn term(
    arguments: &Arguments,
    client: &Client,
    name: &[u8],
    grace: Duration,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let resources = [name];
    let wait = WaitOptions::for_ever();
    let acquire = held::acquire(client, &resources, &arguments.lock, &wait).fenced();
    let lease = held::wait(client, &resources, acquire, &wait, signals).await?;
    let guard = Guard {
        command: &arguments.command,
        variables: nested::variables(client, &resources, lease.token())?,
        on_lost: arguments.child.on_lost,
        grace,
        foreground: arguments.child.foreground,
        ttl: client.ttl,
    };
    let ended = guard.run(&lease, signals).await;
    held::tell_release(lease.release().await);
    ended
}
