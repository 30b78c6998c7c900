//! `quorlock run`: a command under a lock.

use crate::exit::{self, Code, Failure};
use crate::guard::{End, Guard, Signals, nested};
use crate::options::{ChildOptions, LockOptions, NodeOptions, WaitOptions};
use crate::{held, nodes::Client, resource};
use clap::Args;
use std::ffi::OsString;

/// Run a command under a lock: flock(1) across masters
///
/// Several resources are locked together: all or nothing.
///
/// CMD is told what it holds by `QUORLOCK_RESOURCE` (several are lines of it), and with --fenced by
/// `QUORLOCK_TOKEN`. Signals go on to it, and the lock is kept up while it runs. When the lock is being lost, CMD
/// and all that it started get TERM, and KILL before the validity ends; what they left running when CMD ends, too.
///
/// If quorlock itself is killed (KILL), CMD is killed at once, on Linux; what CMD has started is not, so let a shell
/// become its last command by exec. The lock is then free after its ttl. If quorlock is stopped (STOP) for longer
/// than the lock is valid, CMD goes on until quorlock is continued: only a token tells the resource.
///
/// Without --foreground CMD is in the background of the terminal: it is stopped if it reads from it. With it, CMD
/// alone is ended, not what it has started, as with timeout(1).
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
    let grace = arguments.child.grace(client.ttl)?;
    nested::refuse(&client, &resources)?;
    let mut signals = Signals::listen(arguments.child.foreground)?;
    let acquire = held::acquire(&client, &resources, lock, wait);
    let acquire = if arguments.fenced { acquire.fenced() } else { acquire };
    let lease = match held::wait(&client, &resources, acquire, wait, &mut signals).await {
        Ok(lease) => lease,
        Err(failure) => {
            client.close().await;
            return Err(failure);
        }
    };
    let guard = Guard {
        command: &arguments.command,
        variables: nested::variables(&client, &resources, lease.token())?,
        on_lost: arguments.child.on_lost,
        grace,
        foreground: arguments.child.foreground,
        ttl: client.ttl,
    };
    let ended = guard.run(&lease, &mut signals).await;
    held::release(&client, lease).await;
    match ended? {
        End::Exited(code) => Ok(code),
        End::Lost => Ok(Code::LOST),
    }
}
