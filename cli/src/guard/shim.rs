//! How this process becomes a command: by a copy of itself that first asks the kernel to be killed if we die.
//!
//! It stays killed by that as the command, unless that is run as another user (setuid), which ends the wish. The wish is
//! the command's alone: what that has started is not killed with us. Only Linux has it; elsewhere the command goes on
//! when `kill -9` ends us, and the lock is free after its ttl.

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

/// The verb of the copy, which no help shows.
pub(crate) const VERB: &str = "__exec";

/// The verb of a client process of a torture, which no help shows either.
pub(crate) const CLIENT: &str = "__client";

/// By what a command is told its fencing token.
const TOKEN: &str = "QUORLOCK_TOKEN";

/// Starts the copy that becomes the command. The thread that does so has to live as long as the command may: the kernel
/// goes by that.
pub(super) fn spawn(guard: &Guard<'_>, lease: &Lease) -> io::Result<Child> {
    let mut command = Command::new(ourselves()?);
    command
        .arg0("quorlock")
        .arg(VERB)
        .arg(std::process::id().to_string())
        .arg("--")
        .args(guard.command);
    command.envs(guard.mark.variables(lease)?);
    // One that we were given ourselves is of another lock.
    command.env_remove(TOKEN);
    command.envs(lease.token().map(|token| (TOKEN, token.to_string())));
    if !guard.foreground {
        command.process_group(0);
    }
    orphans::spawn(&mut command.into())
}

/// A client process of a torture.
pub(crate) fn client() -> Command {
    let mut command = Command::new(ourselves().unwrap_or_else(|_| "quorlock".into()));
    command.arg(CLIENT);
    command
}

/// This very program, also where another one stands at its path by now.
fn ourselves() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { env::current_exe() }
}

/// Becomes `command`, unless the process `parent` has died already. Comes back only if it cannot.
pub(crate) fn exec(parent: u32, command: &[OsString]) -> Failure {
    #[cfg(target_os = "linux")]
    if let Err(error) =
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
    {
        return Failure::new(Code::FAILED, format!("cannot be tied to quorlock: {error}"));
    }
    // It may have died before it was asked for.
    if getppid().map(Pid::as_raw_nonzero).map(|pid| pid.get().cast_unsigned()) != Some(parent) {
        return Failure::new(Code::FAILED, "quorlock has died before it began");
    }
    let [program, arguments @ ..] = command else {
        return Failure::usage("there is nothing to run");
    };
    let error = Command::new(program).args(arguments).exec();
    let code = match error.kind() {
        ErrorKind::NotFound => Code::NOT_FOUND,
        _ => Code::CANNOT_EXECUTE,
    };
    let program = program.to_string_lossy();
    Failure::new(code, format!("cannot run {}: {error}", program.escape_debug()))
}
