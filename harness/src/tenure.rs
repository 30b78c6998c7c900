//! Records of one tenure, as observed by its holder.

use crate::boot;
use crate::line::{ClientMessage, EarlyLoss, MessageWriter};
use crate::record::End;
use quorlock::LeaseRef;
use std::time::Duration;

/// Maximum time between two readings of the boot clock, in nanoseconds, for a precise end of the
/// validity.
const EXACT: u64 = 50_000;
/// Maximum number of readings of a validity.
const TRIES: usize = 10;
/// Minimum change of the end of a validity, in nanoseconds, that counts as an extension.
const MOVED: u64 = 1_000_000;

/// Minimum remaining validity for a write.
const ENOUGH: Duration = Duration::from_millis(50);

/// A tenure in progress. Dropped without a call of [`end`](Self::end), it counts until the end of
/// its validity.
pub(crate) struct OpenTenure<'a> {
    writer: &'a MessageWriter,
    id: u64,
    token: Option<u64>,
    basis: Basis,
    origin: u64,
    until: u64,
    recorded: u64,
    is_over: bool,
}

/// Source of the validity of a tenure.
enum Basis {
    Lease(LeaseRef),
    /// No lock, until this time on the boot clock: the work of a sabotaged client.
    NoLock(u64),
}

impl<'a> OpenTenure<'a> {
    /// Begins a tenure with a lease.
    pub(crate) fn of(lease: LeaseRef, begin: Begin<'a>, is_renewed: bool) -> Self {
        Self::begin(Basis::Lease(lease), begin, is_renewed)
    }

    /// Begins a tenure without a lock, for `ttl`.
    pub(crate) fn without_lock(ttl: Duration, begin: Begin<'a>) -> Self {
        let until = begin.from + boot::nanos(ttl);
        Self::begin(Basis::NoLock(until), begin, false)
    }

    fn begin(basis: Basis, begin: Begin<'a>, is_renewed: bool) -> Self {
        let Begin { writer, task, resources, token, origin, asked, from } = begin;
        // A lease that has already expired gives a tenure without length.
        let until = basis.valid_until().unwrap_or(from);
        let id = writer.next_id();
        let (asked, from, recorded) = (asked - origin, from - origin, until - origin);
        writer.send(&ClientMessage::Begun {
            id,
            resources: resources.to_vec(),
            task,
            token,
            asked,
            from,
            until: recorded,
            is_renewed,
        });
        Self { writer, id, token, basis, origin, until, recorded: until, is_over: false }
    }

    /// The remaining validity, or `None` if the lease has expired. Records an extension.
    pub(crate) fn check(&mut self) -> Option<Duration> {
        let now = boot::now();
        let until = self.basis.valid_until()?;
        // Each reading is slightly too early, so the latest one is the most precise.
        self.until = self.until.max(until);
        if self.until > self.recorded + MOVED {
            self.recorded = self.until;
            self.writer
                .send(&ClientMessage::Extended { id: self.id, until: self.until - self.origin });
        }
        Some(Duration::from_nanos(self.until.saturating_sub(now)))
    }

    /// The latest arrival time of a write, on the boot clock, if enough validity remains.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let left = self.check()?;
        (left > ENOUGH).then_some(self.until)
    }

    /// The end of the validity on the boot clock. `None` if it has ended.
    pub(crate) fn valid_until(&mut self) -> Option<u64> {
        self.check().map(|_| self.until)
    }

    /// Number of the tenure in this client, and its fencing token.
    pub(crate) fn signature(&self) -> Option<(u64, u64)> {
        Some((self.id, self.token?))
    }

    /// Records that the library has reported the loss now.
    pub(crate) fn lose(&mut self) {
        let at = boot::now();
        self.finish(at.min(self.until), End::Lost);
        let (until, at) = (self.until - self.origin, at - self.origin);
        self.writer.send(&ClientMessage::LossReported { until, at });
    }

    /// Records a report that the lease's keys are lost. Before the end of the validity, that is a
    /// finding unless a fault explains it.
    pub(crate) fn report_early_loss(&self, report: &str) {
        let now = boot::now();
        let (report, early) = (report.to_owned(), self.until.saturating_sub(now));
        if early > 0 {
            self.writer.send(&ClientMessage::LostEarly(EarlyLoss {
                report,
                early,
                at: now - self.origin,
            }));
        }
    }

    /// Records that the tenure ends now, unless it has already ended. Must be called before the
    /// release.
    pub(crate) fn end(&mut self) {
        let now = boot::now();
        // A lease that `check` finds valid was also valid at `now`.
        match self.check() {
            Some(_) => self.finish(now, End::Released),
            None => self.finish(now.min(self.until), End::ValidUntil),
        }
    }

    fn finish(&mut self, until: u64, end: End) {
        if !std::mem::replace(&mut self.is_over, true) {
            let until = until - self.origin;
            self.writer.send(&ClientMessage::Ended { id: self.id, until, end });
        }
    }
}

impl Basis {
    /// A time on the boot clock until which the lease is certainly valid. `None` if it has expired.
    fn valid_until(&self) -> Option<u64> {
        let lease = match self {
            Self::Lease(lease) => lease,
            Self::NoLock(until) => return Some(*until).filter(|until| boot::now() < *until),
        };
        let mut latest = None;
        for _ in 0..TRIES {
            let before = boot::now();
            let validity = lease.validity();
            let took = boot::now() - before;
            if validity.is_zero() {
                return None;
            }
            latest = latest.max(Some(before + boot::nanos(validity)));
            if took < EXACT {
                break;
            }
        }
        latest
    }
}

/// Properties of a tenure at its start.
#[derive(Clone, Copy)]
pub(crate) struct Begin<'a> {
    pub(crate) writer: &'a MessageWriter,
    /// Number of the task.
    pub(crate) task: u16,
    /// Numbers of the resources.
    pub(crate) resources: &'a [u16],
    /// Fencing token with which the task writes.
    pub(crate) token: Option<u64>,
    /// Start of the run, on the boot clock.
    pub(crate) origin: u64,
    /// Start of the acquire, on the boot clock.
    pub(crate) asked: u64,
    /// Return of the acquire, on the boot clock.
    pub(crate) from: u64,
}
