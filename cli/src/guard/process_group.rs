//! The process group of the guarded command.

use super::orphans;
use super::signals::stop_self;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, kill_process, kill_process_group, test_kill_process_group,
    waitpgid,
};
use rustix::termios::tcgetpgrp;
use std::fs::File;
use tokio::process::Child;

#[derive(Debug)]
pub(super) struct ProcessGroup {
    /// The process ID of the command, which leads the group. `None` if the command ended before its ID was read.
    leader: Option<Pid>,
    /// Whether the command shares quorlock's process group. Signals are then sent only to the command.
    foreground: bool,
    /// Whether the command was reaped. The kernel may then reuse its process ID.
    is_reaped: bool,
}

impl ProcessGroup {
    pub(super) fn of(child: &Child, foreground: bool) -> Self {
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Self { leader, foreground, is_reaped: false }
    }

    pub(super) fn mark_reaped(&mut self) {
        orphans::forget_command();
        self.is_reaped = true;
    }

    /// Returns true if other processes of the group are running. Until they end, the kernel does not reuse the group
    /// ID.
    pub(super) fn has_other_members(&self) -> bool {
        let Some(leader) = self.leader.filter(|_| !self.foreground) else { return false };
        // As process 1 (in a container), quorlock must reap ended orphans of the group. Otherwise the orphans count as
        // members.
        while self.is_reaped && matches!(waitpgid(leader, WaitOptions::NOHANG), Ok(Some(_))) {}
        test_kill_process_group(leader).is_ok()
    }

    /// Sends a signal to the group. Errors are ignored, because they only mean that the processes have ended.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(leader) = self.leader else { return };
        if !self.foreground {
            let _ = kill_process_group(leader, signal);
        } else if !self.is_reaped {
            let _ = kill_process(leader, signal);
        }
    }

    /// Forwards a signal that quorlock has received, unless the terminal has already sent the signal to the command.
    pub(super) fn forward(&self, signal: Signal) {
        // The terminal sends INT and QUIT to the whole foreground group, including the command.
        if self.foreground && matches!(signal, Signal::INT | Signal::QUIT) && is_at_terminal() {
            return;
        }
        self.signal(signal);
        if signal == Signal::TSTP {
            stop_self();
        }
    }
}

/// Returns true if this process is in the foreground group of its terminal.
fn is_at_terminal() -> bool {
    let foreground = File::open("/dev/tty").ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    foreground == Some(getpgrp())
}
