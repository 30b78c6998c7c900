//! `quorlock run`: runs a command under a lock, as one of its readers, or under a permit of a semaphore.

use crate::exit::{self, Code, Failure};
use crate::guard::nested::LockEnvironment;
use crate::guard::{End, Guard, Signals};
use crate::locked_work::{self, LockRequest};
use crate::options::{
    ChildOptions, LockOptions, NodeOptions, RestartOptions, ScheduleOptions, WaitOptions,
};
use crate::scheduled;
use crate::target::{self, Target};
use crate::{nodes::Client, resource};
use clap::Args;
use std::ffi::OsString;

/// Run a command under a lock, like flock(1) across hosts
///
/// Several resources are locked together: all of them or none. With --permits, CMD runs under one of N permits of a
/// semaphore instead, so at most N commands run at the same time on all hosts. With --every, CMD runs once per period on
/// one of the hosts. With --shared, CMD shares the lock with other commands that use --shared, but not with a command
/// that locks the resource without --shared.
///
/// The environment variable `QUORLOCK_RESOURCE` of CMD contains the resource names, one per line. With --fenced,
/// `QUORLOCK_TOKEN` contains the fencing token. While CMD runs, quorlock renews the lock and forwards signals to CMD.
///
/// If renewals fail or --max-hold is reached, quorlock sends TERM to CMD and its child processes, and KILL before the
/// lock expires. If another client deletes or takes over the lock, quorlock sends KILL at once. When CMD ends, quorlock
/// also terminates the processes that CMD left in its process group for more than a second, except with --foreground.
///
/// If quorlock itself is killed (KILL), Linux also kills CMD, but not its child processes: start the last command of a
/// shell script with exec. The lock then expires after its ttl. If quorlock is stopped (STOP) until the lock expires,
/// CMD continues without the lock until quorlock is continued. During this time, only a resource that checks fencing
/// tokens is protected.
///
/// Without --foreground, CMD runs in a background process group, and is stopped if it reads from the terminal. With
/// --foreground, signals are sent to CMD but not to its child processes, as with timeout(1).
#[derive(Args, Debug)]
#[command(after_long_help = exit::help(
    &[
        ("quorlock run backup -- pg_dump shop", "Wait for the lock, then run pg_dump"),
        (
            "quorlock run -q --every 1d --at-least 30s report -- ./report.sh",
            "Cron job on all hosts: one of them runs the script, once a day (UTC)",
        ),
        (
            "quorlock run -w 30s account/7 account/9 -- ./transfer",
            "Lock two resources together, and wait for at most 30 seconds",
        ),
        ("quorlock run --shared catalog -- ./report", "Share the lock with other readers, but not with a writer"),
        ("quorlock run --permits 3 downloads -- ./download", "At most three downloads at the same time, on all hosts"),
    ],
    &[
        ("0", "with --every also: skipped, because a call has taken this period"),
        ("1", "held by another client (limited wait or -n) or an outer quorlock; -E changes this code"),
        ("69", "no quorum: too few nodes (limited wait or -n), or a wrong setting, such as a password"),
        ("124", "CMD was terminated: the lock was lost or about to expire, or --max-hold was reached"),
        ("126", "CMD cannot be executed"),
        ("127", "CMD was not found"),
        ("128+N", "signal N killed CMD, or ended the wait for the lock"),
        ("otherwise", "exit code of CMD"),
    ],
))]
pub(crate) struct Arguments {
    /// Names of the resources to lock; with --permits, the name of the semaphore
    #[arg(value_name = "RESOURCE", required = true)]
    pub(crate) resources: Vec<OsString>,
    /// Command to run under the lock, with its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) wait: WaitOptions,
    #[command(flatten)]
    pub(crate) lock: LockOptions,
    /// Request a fencing token, which increases with each holder, and pass it to CMD in `QUORLOCK_TOKEN`
    #[arg(long, help_heading = "Lock")]
    pub(crate) fenced: bool,
    /// Acquire one of N permits of the semaphore RESOURCE instead of a lock. All clients must use the same N, from 1 to
    /// 1000
    ///
    /// A semaphore is independent of a lock with the same name. --fenced is not supported, because fencing tokens of
    /// different permits cannot be compared.
    #[arg(long, value_name = "N", help_heading = "Lock", conflicts_with = "fenced")]
    pub(crate) permits: Option<usize>,
    /// Share the lock RESOURCE with other readers: acquire it for reading. A run without --shared waits until all readers
    /// have released the lock
    ///
    /// Accepts one resource. A waiting run without --shared does not make new readers wait. With --fenced, several
    /// readers can have the same token, and `QUORLOCK_TOKEN` is not set if no writer has had a token yet.
    #[arg(long, help_heading = "Lock", conflicts_with = "permits")]
    pub(crate) shared: bool,
    #[command(flatten)]
    pub(crate) schedule: ScheduleOptions,
    #[command(flatten)]
    pub(crate) child: ChildOptions,
    #[command(flatten)]
    pub(crate) nodes: NodeOptions,
    #[command(flatten)]
    pub(crate) restarts: RestartOptions,
}

pub(crate) async fn execute(arguments: Arguments) -> Result<Code, Failure> {
    let Arguments { lock, nodes, restarts, .. } = &arguments;
    let names = &resource::all_bytes(&arguments.resources)?;
    let client = Client::for_locks(nodes, restarts, lock, resource::display_names(names))?;
    let (shared, semaphore) = match (arguments.shared, arguments.permits) {
        (true, _) => {
            let name = only_name(names, "--shared expects the name of one resource")?;
            (Some(target::rw_lock(&client, name)?), None)
        }
        (false, Some(permits)) => {
            let name = only_name(names, "--permits expects the name of one semaphore")?;
            (None, Some(target::semaphore(&client, name, permits)?))
        }
        (false, None) => (None, None),
    };
    let target = match (&shared, &semaphore) {
        (Some(lock), _) => Target::Shared(lock),
        (None, Some(semaphore)) => Target::Permit(semaphore),
        (None, None) => Target::Resources(names),
    };
    if arguments.schedule.every.is_some() {
        only_name(names, "--every expects the name of one job")?;
    }
    locked_work::with_client(client, async |client| run(client, target, &arguments).await).await
}

/// Returns the only name.
///
/// # Errors
/// If several names are given, fails with a usage error that begins with `expected`.
fn only_name<'a>(names: &[&'a [u8]], expected: &str) -> Result<&'a [u8], Failure> {
    if let [name] = names {
        return Ok(name);
    }
    Err(Failure::usage(format!("{expected}, but {} names are given", names.len())))
}

async fn run(client: &Client, target: Target<'_>, arguments: &Arguments) -> Result<Code, Failure> {
    let Arguments { command, wait, lock, fenced, child, .. } = arguments;
    let wanted = LockRequest { target, lock, wait, fenced: *fenced, election: None };
    let environment = LockEnvironment::new(client, target, Code(wait.conflict_exit_code)).await?;
    let guard = Guard::new(client, target, environment, command, lock, child)?;
    let mut signals = Signals::listen(child.foreground)?;
    if let (Some(period), Target::Resources([name])) = (arguments.schedule.every, target) {
        let job = scheduled::job(client, name, period, &arguments.schedule, &wanted);
        return scheduled::run(client, &wanted, &job, &guard, &mut signals).await;
    }
    match locked_work::run_command_under_lock(client, &wanted, &guard, &mut signals).await? {
        End::Exited(code) => Ok(code),
        End::Lost => Ok(Code::LOST),
    }
}
