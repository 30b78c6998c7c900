//! `quorlock run`: runs a command under a lock.

use crate::exit::{self, Code, Failure};
use crate::guard::nested::LockEnvironment;
use crate::guard::{End, Guard, Signals};
use crate::held::{self, LockRequest};
use crate::options::{ChildOptions, LockOptions, NodeOptions, RestartOptions, WaitOptions};
use crate::{nodes::Client, resource};
use clap::Args;
use std::ffi::OsString;

/// Run a command under a lock, like flock(1) across hosts
///
/// Several resources are locked together, all or none.
///
/// CMD gets the resource names in `QUORLOCK_RESOURCE`, one per line, and the fencing token in `QUORLOCK_TOKEN` (with
/// --fenced). quorlock renews the lock while CMD runs, and forwards signals to CMD.
///
/// If renewals fail or --max-hold is reached, CMD and its child processes get TERM, and KILL before the lock expires.
/// If another client deletes or takes over the lock, they get KILL at once. Child processes that are still running when
/// CMD ends are terminated, too.
///
/// If quorlock itself is killed (KILL), Linux kills CMD at once, but not the child processes of CMD. Therefore a shell
/// script should start its last command with exec. The lock is free after its ttl. If quorlock is stopped (STOP) for
/// longer than the lock is valid, CMD continues without a lock until quorlock is continued. Only a resource that checks
/// fencing tokens is protected in that time.
///
/// Without --foreground, CMD runs in a background process group of the terminal: it is stopped if it reads from the
/// terminal. With --foreground, signals go to CMD alone and not to its child processes, as with timeout(1).
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock run backup -- pg_dump shop", "wait for the lock, then run pg_dump"),
        ("quorlock run -n -q --ttl 60s --at-least 50s report -- ./report.sh", "from cron on all hosts: one of them runs it"),
        ("quorlock run -w 30s account/7 account/9 -- ./transfer", "lock both accounts or none, within 30 s"),
    ],
    &[
        ("CMD's own", "CMD ran under the lock until it ended by itself"),
        ("1", "held by another client (-n, -w); -E changes this code"),
        ("69", "no quorum (-n, -w): too few nodes reply, or too few count after a restart"),
        ("124", "the lock was lost, and CMD was terminated"),
        ("126", "CMD cannot be executed"),
        ("127", "CMD was not found"),
        ("128+N", "signal N killed CMD"),
    ],
))]
pub(crate) struct Arguments {
    /// Names of the resources to lock
    #[arg(value_name = "RESOURCE", required = true)]
    pub(crate) resources: Vec<OsString>,
    /// Command to run under the lock, with its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) wait: WaitOptions,
    #[command(flatten)]
    pub(crate) lock: LockOptions,
    /// Request a fencing token, which is higher for every later holder, and pass it in `QUORLOCK_TOKEN`
    #[arg(long, help_heading = "Lock")]
    pub(crate) fenced: bool,
    #[command(flatten)]
    pub(crate) child: ChildOptions,
    #[command(flatten)]
    pub(crate) nodes: NodeOptions,
    #[command(flatten)]
    pub(crate) restarts: RestartOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let Arguments { resources, command, wait, lock, fenced, child, nodes, restarts } = &arguments;
    let resources = &resource::all_bytes(resources)?;
    let wanted = LockRequest { resources, lock, wait, fenced: *fenced };
    held::with_client(Client::for_locks(nodes, restarts, lock)?, async |client| {
        let environment =
            LockEnvironment::new(client, resources, Code(wait.conflict_exit_code)).await?;
        let guard = Guard::new(client, environment, command, child)?;
        let mut signals = Signals::listen(child.foreground)?;
        match held::run_guarded(client, &wanted, &guard, &mut signals).await? {
            End::Exited(code) => Ok(code),
            End::Lost => Ok(Code::LOST),
        }
    })
    .await
}
