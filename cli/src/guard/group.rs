//! The process group of the command.

use super::orphans;
use super::signals::stop_self;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, kill_process, kill_process_group, test_kill_process_group,
    waitpgid,
};
use rustix::termios::tcgetpgrp;
use std::fs::File;
use tokio::process::Child;

/// The processes that get signals together.
#[derive(Debug)]
pub(super) struct Group {
    /// The command, which is the group leader; `None` if it ended before its id was read.
    leader: Option<Pid>,
    /// True if the command is in the process group of quorlock: then only the command gets signals.
    foreground: bool,
    /// True once the command was reaped: the kernel can then reuse its process id.
    is_reaped: bool,
}

impl Group {
    pub(super) fn of(child: &Child, foreground: bool) -> Self {
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Self { leader, foreground, is_reaped: false }
    }

    /// Records that the command was reaped.
    pub(super) fn mark_reaped(&mut self) {
        orphans::forget_command();
        self.is_reaped = true;
    }

    /// True if other processes of the group are running. Until they end, the kernel does not reuse the group id.
    pub(super) fn has_other_members(&self) -> bool {
        let Some(leader) = self.leader.filter(|_| !self.foreground) else { return false };
        // As process 1 (in a container), reaps ended orphans of the group: until then they count as members.
        while self.is_reaped && matches!(waitpgid(leader, WaitOptions::NOHANG), Ok(Some(_))) {}
        test_kill_process_group(leader).is_ok()
    }

    /// Sends a signal to the group. An error only means that the processes have ended.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(leader) = self.leader else { return };
        if !self.foreground {
            let _ = kill_process_group(leader, signal);
        } else if !self.is_reaped {
            let _ = kill_process(leader, signal);
        }
    }

    /// Forwards a signal that quorlock received.
    pub(super) fn forward(&self, signal: Signal) {
        // The terminal sends these signals to the whole foreground group, including the command.
        if self.foreground && matches!(signal, Signal::INT | Signal::QUIT) && is_at_terminal() {
            return;
        }
        self.signal(signal);
        if signal == Signal::TSTP {
            stop_self();
        }
    }
}

/// True if this process is in the foreground group of its terminal.
fn is_at_terminal() -> bool {
    let foreground = File::open("/dev/tty").ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    foreground == Some(getpgrp())
}
