//! `quorlock run`: a command under a lock.

use crate::exit::{self, Code, Failure};
use crate::guard::nested::Mark;
use crate::guard::{End, Guard, Signals};
use crate::held::{self, Wanted};
use crate::options::{ChildOptions, LockOptions, NodeOptions, RestartOptions, WaitOptions};
use crate::{nodes::Client, resource};
use clap::Args;
use std::ffi::OsString;

/// Run a command under a lock: flock(1) across masters
///
/// Several resources are locked together: all or nothing.
///
/// CMD is told what it holds by `QUORLOCK_RESOURCE` (several are lines of it), and with --fenced by
/// `QUORLOCK_TOKEN`. Signals go on to it, and the lock is kept up while it runs. When the lock is being lost, CMD
/// and all that it started get TERM, and KILL before the validity ends; what they left running when CMD ends, too.
/// Where somebody takes the lock away, they get KILL at once.
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
        ("quorlock run -n -q --ttl 60s --at-least 50s report -- ./report.sh", "from cron on all hosts: one runs it"),
        ("quorlock run -w 30s account/7 account/9 -- ./transfer", "both or none, within 30 s"),
    ],
    &[
        ("CMD's own", "it ran under the lock to its end"),
        ("1", "held by another (-n, -w); another code with -E"),
        ("69", "no quorum: too few nodes answer, or count after a restart (-n, -w)"),
        ("124", "the lock was lost, and CMD was ended"),
        ("126", "CMD cannot be executed"),
        ("127", "CMD was not found"),
        ("128+N", "CMD died of signal N"),
    ],
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
    #[command(flatten)]
    pub(crate) restarts: RestartOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let Arguments { resources, command, wait, lock, fenced, child, nodes, restarts } = &arguments;
    let resources = &resource::all_bytes(resources)?;
    let wanted = Wanted { resources, lock, wait, fenced: *fenced };
    held::closing(Client::for_locks(nodes, restarts, lock)?, async |client| {
        let mark = Mark::new(client, resources, Code(wait.conflict_exit_code)).await?;
        let guard = Guard::new(client, mark, command, child)?;
        let mut signals = Signals::listen(child.foreground)?;
        match held::guarded(client, &wanted, &guard, &mut signals).await? {
            End::Exited(code) => Ok(code),
            End::Lost => Ok(Code::LOST),
        }
    })
    .await
}
