//! Starts the command through a second `quorlock` process, which asks the kernel to kill it when its parent dies and
//! then executes the command.
//!
//! The parent death signal survives `exec`, except of a setuid program. Children of the command do not inherit it. Only
//! Linux has it: elsewhere, the command keeps running after `kill -9` of quorlock, and the lock is free after its ttl.

use super::{Guard, orphans};
use crate::exit::{Code, Failure};
use quorlock::Lease;
use rustix::process::{Pid, getppid};
use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use tokio::process::Child;

/// Hidden subcommand that executes the command.
pub(crate) const VERB: &str = "__exec";

/// Hidden subcommand of the client processes of a torture run.
pub(crate) const CLIENT: &str = "__client";

/// The variable with the fencing token.
const TOKEN: &str = "QUORLOCK_TOKEN";

/// Starts the second process. The calling thread must live as long as the command: the kernel sends the parent death
/// signal when that thread ends.
pub(super) fn spawn(guard: &Guard<'_>, lease: &Lease) -> io::Result<Child> {
    let mut command = Command::new(own_program()?);
    command
        .arg0("quorlock")
        .arg(VERB)
        .arg(std::process::id().to_string())
        .arg("--")
        .args(guard.command);
    command.envs(guard.environment.variables(lease)?);
    // An inherited token belongs to another lock.
    command.env_remove(TOKEN);
    command.envs(lease.token().map(|token| (TOKEN, token.to_string())));
    if !guard.foreground {
        command.process_group(0);
    }
    orphans::spawn(&mut command.into())
}

/// The command line of a client process of a torture run.
pub(crate) fn client() -> Command {
    let mut command = Command::new(own_program().unwrap_or_else(|_| "quorlock".into()));
    command.arg(CLIENT);
    command
}

/// The running program, even if its file was replaced.
fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { env::current_exe() }
}

/// Replaces this process by `command`, unless the process `parent` has died. Returns only on failure.
pub(crate) fn exec(parent: u32, command: &[OsString]) -> Failure {
    #[cfg(target_os = "linux")]
    if let Err(error) =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
    {
        return Failure::new(Code::FAILED, format!("cannot set the parent death signal: {error}"));
    }
    // The parent may have died before the signal was set.
    if getppid().map(Pid::as_raw_nonzero).map(|pid| pid.get().cast_unsigned()) != Some(parent) {
        return Failure::new(Code::FAILED, "quorlock ended before the command was started");
    }
    let [program, arguments @ ..] = command else {
        return Failure::usage("no command given");
    };
    let error = Command::new(program).args(arguments).exec();
    let code = match error.kind() {
        ErrorKind::NotFound => Code::NOT_FOUND,
        _ => Code::CANNOT_EXECUTE,
    };
    let program = program.to_string_lossy();
    Failure::new(code, format!("cannot run {}: {error}", program.escape_debug()))
}
