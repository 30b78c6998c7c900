//! Starts the command through a second `quorlock` process, the shim. The shim requests a parent death signal and then
//! executes the command. If quorlock dies, the kernel therefore kills the command.
//!
//! The signal remains set after `exec`, except for a setuid program. Child processes of the command do not inherit it.
//! Only Linux supports the signal. On other systems, the command keeps running after `kill -9` of quorlock, and the
//! lock expires after its ttl.

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

/// The hidden subcommand of the shim, which executes the command.
pub(crate) const EXEC_VERB: &str = "__exec";

/// The hidden subcommand of a client process in a torture run.
pub(crate) const TORTURE_CLIENT_VERB: &str = "__client";

const TOKEN: &str = "QUORLOCK_TOKEN";

/// Starts the shim. When the calling thread ends, the kernel sends the parent death signal, so the thread must live as
/// long as the command.
pub(super) fn spawn(guard: &Guard<'_>, lease: &Lease) -> io::Result<Child> {
    let mut command = Command::new(own_program()?);
    command
        .arg0("quorlock")
        .arg(EXEC_VERB)
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

pub(crate) fn client() -> Command {
    let mut command = Command::new(own_program().unwrap_or_else(|_| "quorlock".into()));
    command.arg(TORTURE_CLIENT_VERB);
    command
}

/// Returns the path of the running program. On Linux, the path remains valid if the program's file is replaced.
fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { env::current_exe() }
}

/// Replaces this process with `command`, unless the process `parent` has died. Returns only in case of an error.
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
