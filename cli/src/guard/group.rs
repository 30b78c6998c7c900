//! A command and what it has started.

use super::orphans;
use super::signals::stop_ourselves;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, kill_process, kill_process_group, test_kill_process_group,
    waitpgid,
};
use rustix::termios::tcgetpgrp;
use std::fs::File;
use tokio::process::Child;

/// The processes that are ended together.
#[derive(Debug)]
pub(super) struct Group {
    /// The command, which leads them; `None` if it has ended before it could be looked at.
    leader: Option<Pid>,
    /// True if it is in our group: then it alone is ours to end.
    foreground: bool,
    /// True once the command was waited for: its number can be another's then.
    is_reaped: bool,
}

impl Group {
    pub(super) fn of(child: &Child, foreground: bool) -> Self {
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Self { leader, foreground, is_reaped: false }
    }

    /// The command was waited for.
    pub(super) fn forget_leader(&mut self) {
        orphans::forget_command();
        self.is_reaped = true;
    }

    /// True if others of the group run. While they do, nobody else can have its number.
    pub(super) fn has_more(&self) -> bool {
        let Some(leader) = self.leader.filter(|_| !self.foreground) else { return false };
        // Orphans that have ended are ours to wait for where we are process 1, as in a container; else they are counted.
        while self.is_reaped && matches!(waitpgid(leader, WaitOptions::NOHANG), Ok(Some(_))) {}
        test_kill_process_group(leader).is_ok()
    }

    /// Sends it to all of them. Who has ended does not hear it, and that is all that can go wrong.
    pub(super) fn signal(&self, signal: Signal) {
        let Some(leader) = self.leader else { return };
        if !self.foreground {
            let _ = kill_process_group(leader, signal);
        } else if !self.is_reaped {
            let _ = kill_process(leader, signal);
        }
    }

    /// Hands on what was sent to us.
    pub(super) fn pass_on(&self, signal: Signal) {
        // The terminal sends these to all that are in its foreground.
        if self.foreground && matches!(signal, Signal::INT | Signal::QUIT) && is_at_terminal() {
            return;
        }
        self.signal(signal);
        if signal == Signal::TSTP {
            stop_ourselves();
        }
    }
}

/// True if we have a terminal, and are in its foreground.
fn is_at_terminal() -> bool {
    let ahead = File::open("/dev/tty").ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    ahead == Some(getpgrp())
}
