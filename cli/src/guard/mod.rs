//! Runs a command under a lease, and terminates it before the lease expires.
//!
//! - The command leads a separate process group. When it ends, the rest of the group is terminated.
//! - When the validity falls below the grace, the group gets TERM; before the validity ends, KILL. Both times come from
//!   the lease's own clock, so they hold even if all nodes are unresponsive or this process was stopped.
//! - Signals to this process are forwarded to the group.
//! - A [shim](shim) executes the command; the kernel kills it if this process dies first.
//!
//! Processes that leave the group (`setsid`) are not terminated.

mod group;
pub(crate) mod nested;
pub(crate) mod orphans;
pub(crate) mod shim;
mod signals;

pub(crate) use signals::{Signals, code};

use crate::exit::{Code, Failure};
use crate::nodes::Client;
use crate::options::{ChildOptions, LockOptions, OnLost};
use crate::{output, resource};
use group::Group;
use nested::LockEnvironment;
use quorlock::{Lease, Loss};
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tokio::process::Child;
use tokio::select;
use tokio::time::{sleep, timeout};

/// Maximum time between KILL and the end of the validity: the kernel needs time to schedule this process and to end the
/// killed ones.
const KILL_MARGIN: Duration = Duration::from_millis(500);

/// Maximum wait for killed processes. In a container whose process 1 reaps no orphans, they stay as zombies.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// Tolerance for the end of `--max-hold`, which is counted from the request for the lock and not from the start of the
/// command.
const START_DELAY: Duration = Duration::from_secs(1);

/// Polling interval while a group is ending.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A command to run under a lock, and the options for its termination.
pub(crate) struct Guard<'a> {
    command: &'a [OsString],
    environment: LockEnvironment,
    on_lost: OnLost,
    /// Time between TERM and the end of the validity.
    grace: Duration,
    /// True if the command stays in the process group of quorlock, in the foreground of the terminal.
    foreground: bool,
    ttl: Duration,
    /// Maximum time for which the lock is held.
    max_hold: Duration,
    /// The resources, for messages.
    names: String,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(Code),
    /// The command was terminated, because its lock was lost.
    Lost,
}

/// A running command.
struct Running<'a> {
    guard: &'a Guard<'a>,
    lease: &'a Lease,
    /// When the command was started.
    started: Instant,
    child: Child,
    group: Group,
}

impl<'a> Guard<'a> {
    /// Checks the options, before the lock is acquired.
    pub(crate) fn new(
        client: &Client,
        resources: &[&[u8]],
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
            names: resource::all_shown(resources),
        })
    }

    /// Runs the command until it ends or the lease is lost. When it returns, all processes of its group have ended.
    pub(crate) async fn run(&self, lease: &Lease, signals: &mut Signals) -> Result<End, Failure> {
        let child = shim::spawn(self, lease).map_err(|error| {
            Failure::new(
                Code::FAILED,
                format!("{}: cannot start CMD: {error}; the lock is released", self.names),
            )
        })?;
        let group = Group::of(&child, self.foreground);
        Running { guard: self, lease, started: Instant::now(), child, group }.watch(signals).await
    }

    /// Time between KILL and the end of the validity.
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
            if self.group.has_other_members() {
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

    /// Why the command is terminated, with `left` of the validity.
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

    /// Waits until the command ends: its status, or `None` once no more than `margin` of the validity is left.
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

    /// Waits until the group has ended after `signal`. Sends KILL after the grace, or shortly before the validity ends.
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

    /// Resolves when all processes of the group have ended.
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

/// The command's own exit code, or the code for the signal that killed it.
fn code_of(status: ExitStatus) -> Code {
    let of_signal =
        || Code::of_signal(status.signal().and_then(|it| it.try_into().ok()).unwrap_or(0));
    let own = status.code().and_then(|code| code.try_into().ok());
    own.map_or_else(of_signal, Code)
}
