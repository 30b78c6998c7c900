//! Runs a command under a lease, and terminates it before the lease expires.
//!
//! - Without `--foreground`, the command leads a process group of its own. When the command ends, quorlock terminates
//!   the processes that remain in the group after [`DETACH_TIME`].
//! - When the remaining validity falls below the grace, the group receives TERM, and KILL shortly before the validity
//!   ends. Both times are computed locally, so they hold even if no node replies or quorlock was stopped.
//! - Signals to quorlock are forwarded to the group.
//! - A [shim](shim) executes the command. On Linux, the kernel kills the command if quorlock dies first.
//!
//! Processes that leave the group (`setsid`) are not terminated.

pub(crate) mod nested;
pub(crate) mod orphans;
mod process_group;
pub(crate) mod shim;
mod signals;

pub(crate) use signals::{Signals, code};

use crate::exit::{Code, Failure};
use crate::nodes::Client;
use crate::options::{ChildOptions, LockOptions, OnLost};
use crate::output;
use crate::target::Target;
use nested::LockEnvironment;
use process_group::ProcessGroup;
use quorlock::{Lease, Loss};
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tokio::process::Child;
use tokio::select;
use tokio::time::{sleep, timeout};

/// How long before the end of the validity KILL is sent. The kernel needs this time to schedule quorlock and to end the
/// killed processes. If the TTL is short, the margin is a tenth of the TTL.
const KILL_MARGIN: Duration = Duration::from_millis(500);

/// The maximum time to wait for killed processes to end. If process 1 of a container reaps no orphans, killed processes
/// remain as zombies.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum delay between the request for the lock and the start of the command. `--max-hold` is measured from the
/// request, whereas `started` is the start of the command. A comparison of both must therefore allow for this delay.
const START_DELAY: Duration = Duration::from_secs(1);

/// How long processes that the command leaves behind may take to move to a session of their own, before they get TERM.
/// A process that was started with `setsid daemon &` is still in the group when the command ends.
const DETACH_TIME: Duration = Duration::from_secs(1);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(crate) struct Guard<'a> {
    command: &'a [OsString],
    environment: LockEnvironment,
    on_lost: OnLost,
    /// The time between TERM and the end of the validity.
    grace: Duration,
    /// Whether the command stays in quorlock's process group, in the foreground of the terminal.
    foreground: bool,
    ttl: Duration,
    max_hold: Duration,
    names: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(Code),
    /// The command was terminated, because its lock was lost or about to expire.
    Lost,
}

struct Running<'a> {
    guard: &'a Guard<'a>,
    lease: &'a Lease,
    started: Instant,
    child: Child,
    group: ProcessGroup,
}

impl<'a> Guard<'a> {
    /// Fails if an option is invalid, so that the error is reported before the lock is acquired.
    pub(crate) fn new(
        client: &Client,
        target: Target<'_>,
        environment: LockEnvironment,
        command: &'a [OsString],
        lock: &LockOptions,
        child: &ChildOptions,
    ) -> Result<Self, Failure> {
        let max_hold = lock.max_hold.unwrap_or(Duration::MAX);
        Ok(Self {
            command,
            grace: child.grace(client.ttl, max_hold)?,
            environment,
            on_lost: child.on_lost,
            foreground: child.foreground,
            ttl: client.ttl,
            max_hold,
            names: target.to_string(),
        })
    }

    /// Runs the command until it ends or the lease is lost. Returns after all processes of the group have ended.
    pub(crate) async fn run(&self, lease: &Lease, signals: &mut Signals) -> Result<End, Failure> {
        let child = shim::spawn(self, lease).map_err(|error| {
            Failure::new(
                Code::FAILED,
                format!("{}: cannot start CMD: {error}; the lock is released", self.names),
            )
        })?;
        let group = ProcessGroup::of(&child, self.foreground);
        Running { guard: self, lease, started: Instant::now(), child, group }.watch(signals).await
    }

    fn kill_margin(&self) -> Duration {
        KILL_MARGIN.min(self.ttl / 10)
    }
}

impl Running<'_> {
    async fn watch(&mut self, signals: &mut Signals) -> Result<End, Failure> {
        let is_gentle = self.guard.on_lost == OnLost::Term;
        let margin = if is_gentle { self.guard.grace } else { Duration::ZERO };
        let status = self.exit_status(margin.max(self.guard.kill_margin()), signals).await?;
        if let Some(status) = status {
            if !self.are_others_gone(signals).await {
                output::print_message(format_args!(
                    "{}: CMD has ended: sending TERM to the processes that it left running",
                    self.guard.names
                ));
                self.group.signal(Signal::TERM);
                self.await_end(Signal::TERM).await;
            }
            return Ok(End::Exited(code_of(status)));
        }
        let left = self.lease.validity();
        let signal =
            if is_gentle && left > self.guard.kill_margin() { Signal::TERM } else { Signal::KILL };
        let name = if signal == Signal::TERM { "TERM" } else { "KILL" };
        output::print_message(format_args!(
            "{}: {}: sending {name} to CMD",
            self.guard.names,
            self.cause(left)
        ));
        self.group.signal(signal);
        // A stopped process handles TERM only after CONT.
        self.group.signal(Signal::CONT);
        self.await_end(signal).await;
        Ok(End::Lost)
    }

    /// Describes why the command is terminated. `left` is the remaining validity.
    fn cause(&self, left: Duration) -> String {
        let seconds = left.as_secs_f64();
        match self.lease.loss() {
            Some(Loss::MaxHold) => "--max-hold is reached".to_owned(),
            Some(loss) => format!("the lock was lost ({loss})"),
            None if left.is_zero() => "the lock was lost".to_owned(),
            None if self.started.elapsed() + left + START_DELAY >= self.guard.max_hold => {
                format!("--max-hold is reached in {seconds:.1} s")
            }
            None => format!("no renewal succeeds, and the lock expires in {seconds:.1} s"),
        }
    }

    /// Waits until the command ends, and returns its exit status. If the remaining validity falls to `margin` first,
    /// returns `None`.
    async fn exit_status(
        &mut self,
        margin: Duration,
        signals: &mut Signals,
    ) -> Result<Option<ExitStatus>, Failure> {
        loop {
            select! {
                biased;
                _ = self.lease.endangered(margin) => return Ok(None),
                status = self.child.wait() => {
                    let status = status.map_err(|error| {
                        Failure::new(Code::FAILED, format!("cannot wait for CMD: {error}"))
                    })?;
                    self.group.mark_reaped();
                    return Ok(Some(status));
                }
                signal = signals.next() => self.group.forward(signal),
            }
        }
    }

    /// Waits until all other processes have left the group, and returns true. Returns false after [`DETACH_TIME`], or if
    /// the rest of the validity is needed to terminate them.
    async fn are_others_gone(&self, signals: &mut Signals) -> bool {
        let gone = async {
            while self.group.has_other_members() {
                sleep(POLL_INTERVAL).await;
            }
        };
        let forwarding = async {
            loop {
                self.group.forward(signals.next().await);
            }
        };
        select! {
            biased;
            () = gone => true,
            _ = self.lease.endangered(self.guard.grace.max(self.guard.kill_margin())) => false,
            () = sleep(DETACH_TIME) => false,
            never = forwarding => never,
        }
    }

    /// Waits until all processes of the group have ended. After the grace, or shortly before the validity ends, sends
    /// KILL to the remaining processes. `signal` is the signal that was already sent.
    async fn await_end(&mut self, signal: Signal) {
        let (kill_margin, grace) = (self.guard.kill_margin(), self.guard.grace);
        let lease = self.lease;
        select! {
            biased;
            () = self.group_end() => return,
            _ = lease.endangered(kill_margin) => {}
            () = sleep(grace) => {}
        }
        if signal != Signal::KILL {
            output::print_message(format_args!(
                "{}: processes of CMD are still running after TERM: sending KILL",
                self.guard.names
            ));
        }
        self.group.signal(Signal::KILL);
        let _ = timeout(REAP_TIMEOUT, self.group_end()).await;
    }

    async fn group_end(&mut self) {
        loop {
            if !matches!(self.child.try_wait(), Ok(None)) {
                self.group.mark_reaped();
                if !self.group.has_other_members() {
                    return;
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Returns the command's exit code. If a signal killed the command, returns the code that shells report for the signal.
fn code_of(status: ExitStatus) -> Code {
    let of_signal =
        || Code::of_signal(status.signal().and_then(|it| it.try_into().ok()).unwrap_or(0));
    let own = status.code().and_then(|code| code.try_into().ok());
    own.map_or_else(of_signal, Code)
}
