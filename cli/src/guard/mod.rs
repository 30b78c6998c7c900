//! A command that runs under a lease, and does not outlive it.
//!
//! - It leads a process group of its own, and all of that group is ended with it.
//! - When the validity falls below the grace, the group gets TERM; before the validity ends, KILL. The lease tells both
//!   by its own clock, also when all nodes hang and when this process was stopped meanwhile.
//! - Signals to this process go on to the group.
//! - It becomes the command by way of a [shim](shim), which the kernel kills if this process dies first.
//!
//! What leaves the group (`setsid`) is out of reach.

mod group;
pub(crate) mod nested;
pub(crate) mod orphans;
pub(crate) mod shim;
mod signals;

pub(crate) use signals::{Signals, code};

use crate::exit::{Code, Failure};
use crate::nodes::Client;
use crate::options::{ChildOptions, OnLost};
use crate::output;
use group::Group;
use nested::Mark;
use quorlock::Lease;
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;
use tokio::process::Child;
use tokio::select;
use tokio::time::{sleep, timeout};

/// How long before the end of the validity the group gets KILL, at most: what is killed has to die, and this process has
/// to be run for that.
const LAST: Duration = Duration::from_millis(500);

/// How long those that were killed are waited for. Where nobody reaps orphans, they stay as zombies.
const REAPED: Duration = Duration::from_secs(1);

/// How often a group is looked at that is ending.
const PAUSE: Duration = Duration::from_millis(5);

/// What is run, and how it is ended.
pub(crate) struct Guard<'a> {
    command: &'a [OsString],
    mark: Mark,
    on_lost: OnLost,
    /// How long before the end of the validity it gets TERM.
    grace: Duration,
    /// True if it stays in our process group, in the foreground of the terminal.
    foreground: bool,
    ttl: Duration,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself.
    Exited(Code),
    /// It was ended, because its lock was lost.
    Lost,
}

/// A command that runs.
struct Guarded<'a> {
    guard: &'a Guard<'a>,
    lease: &'a Lease,
    child: Child,
    group: Group,
}

impl<'a> Guard<'a> {
    /// Of a command that is to run under a lock with this `mark`. Options are checked before the lock is acquired.
    pub(crate) fn new(
        client: &Client,
        mark: Mark,
        command: &'a [OsString],
        child: &ChildOptions,
    ) -> Result<Self, Failure> {
        Ok(Self {
            command,
            grace: child.grace(client.ttl)?,
            mark,
            on_lost: child.on_lost,
            foreground: child.foreground,
            ttl: client.ttl,
        })
    }

    /// Runs the command to its end, or to that of the lease. Then nothing of its group is left.
    pub(crate) async fn run(&self, lease: &Lease, signals: &mut Signals) -> Result<End, Failure> {
        let child = shim::spawn(self, lease).map_err(|error| {
            Failure::new(Code::FAILED, format!("cannot start a process: {error}"))
        })?;
        let group = Group::of(&child, self.foreground);
        Guarded { guard: self, lease, child, group }.watch(signals).await
    }

    /// How long before the end of the validity it gets KILL.
    fn last(&self) -> Duration {
        LAST.min(self.ttl / 10)
    }
}

impl Guarded<'_> {
    async fn watch(&mut self, signals: &mut Signals) -> Result<End, Failure> {
        let is_gentle = self.guard.on_lost == OnLost::Term;
        let margin = if is_gentle { self.guard.grace } else { Duration::ZERO };
        let status = self.until(margin.max(self.guard.last()), signals).await?;
        if let Some(status) = status {
            if self.group.has_more() {
                output::complain("CMD has ended; what it left running is ended with it");
                self.group.signal(Signal::TERM);
                self.end(Signal::TERM).await;
            }
            return Ok(End::Exited(code_of(status)));
        }
        let left = self.lease.validity();
        let signal =
            if is_gentle && left > self.guard.last() { Signal::TERM } else { Signal::KILL };
        let name = if signal == Signal::TERM { "TERM" } else { "KILL" };
        if left.is_zero() {
            output::complain(format_args!("the lock was lost: CMD gets {name}"));
        } else {
            let left = left.as_secs_f64();
            let what = "the lock is being lost, as it could not be renewed";
            output::complain(format_args!("{what}: {left:.1} s are left, and CMD gets {name}"));
        }
        self.group.signal(signal);
        // One that is stopped hears nothing else.
        self.group.signal(Signal::CONT);
        self.end(signal).await;
        Ok(End::Lost)
    }

    /// Waits for its end: how it ended, or nothing if no more than `margin` of the validity is left.
    async fn until(
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
                    self.group.forget_leader();
                    return Ok(Some(status));
                }
                signal = signals.next() => self.group.pass_on(signal),
            }
        }
    }

    /// Waits until the group has ended after `signal`, at most for the grace and until shortly before the validity ends.
    /// Then kills it.
    async fn end(&mut self, signal: Signal) {
        let (last, grace) = (self.guard.last(), self.guard.grace);
        let lease = self.lease;
        select! {
            biased;
            () = self.gone() => return,
            _ = lease.endangered(last) => {}
            () = sleep(grace) => {}
        }
        if signal != Signal::KILL {
            output::complain("not all processes of CMD have ended after TERM: they get KILL");
        }
        self.group.signal(Signal::KILL);
        let _ = timeout(REAPED, self.gone()).await;
    }

    /// Resolves when nothing of the group is left.
    async fn gone(&mut self) {
        loop {
            if !matches!(self.child.try_wait(), Ok(None)) {
                self.group.forget_leader();
                if !self.group.has_more() {
                    return;
                }
            }
            sleep(PAUSE).await;
        }
    }
}

/// The command's own code, or that of the signal that it died of.
fn code_of(status: ExitStatus) -> Code {
    let of_signal =
        || Code::of_signal(status.signal().and_then(|it| it.try_into().ok()).unwrap_or(0));
    let own = status.code().and_then(|code| code.try_into().ok());
    own.map_or_else(of_signal, Code)
}
