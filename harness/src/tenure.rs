//! Records the time in which a task holds its locks, from the holder's own point of view.

use crate::boot;
use crate::line::{ClientMessage, EarlyLoss, MessageWriter};
use crate::record::End;
use quorlock::LeaseRef;
use std::time::Duration;

/// The maximum time between the two readings of the boot clock that surround a reading of the
/// validity, in nanoseconds. If they are further apart, the result is too imprecise.
const MAX_READING_NANOS: u64 = 50_000;
/// The maximum number of attempts to read a validity precisely.
const MAX_READINGS: usize = 10;
/// How far the end of the validity must move to be recorded as an extension, in nanoseconds.
/// Smaller changes result from imprecise readings.
const MIN_EXTENSION_NANOS: u64 = 1_000_000;

/// The remaining validity that a task needs to write to a counter.
const MIN_VALIDITY_FOR_WRITE: Duration = Duration::from_millis(50);

/// A hold in progress. If [`end`](Self::end) is not called before it is dropped, the hold counts
/// until the end of the validity.
pub(crate) struct OpenTenure<'a> {
    writer: &'a MessageWriter,
    resources: &'a [u16],
    id: u64,
    token: Option<u64>,
    validity_source: ValiditySource,
    origin: u64,
    until: u64,
    recorded: u64,
    is_over: bool,
}

enum ValiditySource {
    Lease(LeaseRef),
    /// A sabotaged client without a lock. The value is the pretended end of the validity on the
    /// boot clock.
    NoLock(u64),
}

impl<'a> OpenTenure<'a> {
    pub(crate) fn of(lease: LeaseRef, begin: Begin<'a>, is_renewed: bool) -> Self {
        Self::begin(ValiditySource::Lease(lease), begin, is_renewed)
    }

    /// Begins the hold of a sabotaged client, which works without a lock for `ttl`.
    pub(crate) fn without_lock(ttl: Duration, begin: Begin<'a>) -> Self {
        let until = begin.from + boot::nanos(ttl);
        Self::begin(ValiditySource::NoLock(until), begin, false)
    }

    fn begin(validity_source: ValiditySource, begin: Begin<'a>, is_renewed: bool) -> Self {
        let Begin { writer, task, resources, token, is_read, period, origin, asked, from } = begin;
        // The tenure of a lease that has already expired has a length of zero.
        let until = validity_source.valid_until().unwrap_or(from);
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
            is_read,
            period,
        });
        let (recorded, is_over) = (until, false);
        Self { writer, resources, id, token, validity_source, origin, until, recorded, is_over }
    }

    /// Returns the remaining validity, or `None` if the lease has expired. Records any extension
    /// since the last call.
    pub(crate) fn check(&mut self) -> Option<Duration> {
        let now = boot::now();
        let until = self.validity_source.valid_until()?;
        // Each reading is slightly too early, so the latest reading is the most precise.
        self.until = self.until.max(until);
        if self.until > self.recorded + MIN_EXTENSION_NANOS {
            self.recorded = self.until;
            self.writer
                .send(&ClientMessage::Extended { id: self.id, until: self.until - self.origin });
        }
        Some(Duration::from_nanos(self.until.saturating_sub(now)))
    }

    /// Returns the boot-clock time by which a write to a counter must arrive. Returns `None` if too
    /// little validity remains.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let left = self.check()?;
        (left > MIN_VALIDITY_FOR_WRITE).then_some(self.until)
    }

    /// Returns the end of the validity on the boot clock, or `None` if the lease has expired.
    pub(crate) fn valid_until(&mut self) -> Option<u64> {
        self.check().map(|_| self.until)
    }

    pub(crate) fn resources(&self) -> &'a [u16] {
        self.resources
    }

    /// Returns the ID and the fencing token, or `None` if the lease has no token.
    pub(crate) fn id_and_token(&self) -> Option<(u64, u64)> {
        Some((self.id, self.token?))
    }

    /// Records that the writer becomes a reader. Must be called before the downgrade, because
    /// another reader can acquire the lock during the downgrade.
    pub(crate) fn downgrade(&self) {
        let at = boot::now() - self.origin;
        self.writer.send(&ClientMessage::Downgraded { id: self.id, at });
    }

    /// Records that the library has just reported the loss of the lease.
    pub(crate) fn lose(&mut self) {
        let at = boot::now();
        self.finish(at.min(self.until), End::Lost);
        let (until, at) = (self.until - self.origin, at - self.origin);
        self.writer.send(&ClientMessage::LossReported { until, at });
    }

    /// Records that the library reported the lease's keys as lost. While the lease is valid, such a
    /// report is a finding unless a fault explains it.
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

    /// Records the end of the hold, unless it has already ended. Must be called before the release,
    /// because another client can acquire the lock during the release.
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

impl ValiditySource {
    /// Returns a boot-clock time until which the lease is certainly valid, or `None` if the lease
    /// has expired.
    fn valid_until(&self) -> Option<u64> {
        let lease = match self {
            Self::Lease(lease) => lease,
            Self::NoLock(until) => return Some(*until).filter(|until| boot::now() < *until),
        };
        let mut latest = None;
        for _ in 0..MAX_READINGS {
            let before = boot::now();
            let validity = lease.validity();
            let took = boot::now() - before;
            if validity.is_zero() {
                return None;
            }
            latest = latest.max(Some(before + boot::nanos(validity)));
            if took < MAX_READING_NANOS {
                break;
            }
        }
        latest
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Begin<'a> {
    pub(crate) writer: &'a MessageWriter,
    pub(crate) task: u16,
    pub(crate) resources: &'a [u16],
    /// The fencing token with which the task writes, if any.
    pub(crate) token: Option<u64>,
    /// Whether the holder is a reader.
    pub(crate) is_read: bool,
    /// The period in which the hold is the only run of a job, if any.
    pub(crate) period: Option<u64>,
    /// The start of the run on the boot clock, in nanoseconds.
    pub(crate) origin: u64,
    /// The boot-clock time at which the acquire began.
    pub(crate) asked: u64,
    /// The boot-clock time at which the acquire returned.
    pub(crate) from: u64,
}
