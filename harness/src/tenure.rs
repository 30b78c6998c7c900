//! Keeps the books of one tenure, as its holder sees it.

use crate::boot;
use crate::line::{Line, Robbery, Teller};
use crate::record::End;
use quorlock::LeaseRef;
use std::time::Duration;

/// Two readings of the clock that are further apart tell nothing exact of what was read between.
const EXACT: u64 = 50_000;
const TRIES: usize = 10;
/// A validity that ends that much later was extended.
const MOVED: u64 = 1_000_000;

/// What must be left of a validity for a write.
const ENOUGH: Duration = Duration::from_millis(50);

/// A tenure under way. Dropped without an [`end`](Self::end), it counts until its validity ends.
pub(crate) struct OpenTenure<'a> {
    teller: &'a Teller,
    id: u64,
    token: Option<u64>,
    claim: Basis,
    origin: u64,
    until: u64,
    told: u64,
    is_over: bool,
}

/// What a tenure rests on.
enum Basis {
    Lease(LeaseRef),
    /// On nothing, until then: the work of a saboteur.
    Nothing(u64),
}

impl<'a> OpenTenure<'a> {
    /// Begins with a lease that was acquired at `from`, on the boot clock.
    pub(crate) fn of(lease: LeaseRef, begin: Begin<'a>, is_renewed: bool) -> Self {
        Self::begin(Basis::Lease(lease), begin, is_renewed)
    }

    /// Begins without a lock.
    pub(crate) fn stolen(ttl: Duration, begin: Begin<'a>) -> Self {
        let until = begin.from + boot::nanos(ttl);
        Self::begin(Basis::Nothing(until), begin, false)
    }

    fn begin(claim: Basis, begin: Begin<'a>, is_renewed: bool) -> Self {
        let Begin { teller, task, resources, token, origin, asked, from } = begin;
        // One that has ended already has no length.
        let until = claim.valid_until().unwrap_or(from);
        let id = teller.number();
        let (asked, from, told) = (asked - origin, from - origin, until - origin);
        teller.tell(&Line::Begun {
            id,
            resources: resources.to_vec(),
            task,
            token,
            asked,
            from,
            until: told,
            is_renewed,
        });
        Self { teller, id, token, claim, origin, until, told: until, is_over: false }
    }

    /// What is left of the validity, if it is valid; keeps the books.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        let now = boot::now();
        let until = self.claim.valid_until()?;
        // Each reading is a little too early: the latest is the best.
        self.until = self.until.max(until);
        if self.until > self.told + MOVED {
            self.told = self.until;
            self.teller.tell(&Line::Moved { id: self.id, until: self.until - self.origin });
        }
        Some(Duration::from_nanos(self.until.saturating_sub(now)))
    }

    /// Until when a write may land, on the boot clock, if there is time for one.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let left = self.look()?;
        (left > ENOUGH).then_some(self.until)
    }

    /// The end of the validity on the boot clock, if it is valid.
    pub(crate) fn valid_until(&mut self) -> Option<u64> {
        self.look().map(|_| self.until)
    }

    /// Its number in this client, and the fencing token to write with.
    pub(crate) fn signature(&self) -> Option<(u64, u64)> {
        Some((self.id, self.token?))
    }

    /// Notes that the loss was told now.
    pub(crate) fn lose(&mut self) {
        let at = boot::now();
        self.finish(at.min(self.until), End::Lost);
        let (until, at) = (self.until - self.origin, at - self.origin);
        self.teller.tell(&Line::Told { until, at });
    }

    /// To be called when somebody says that the nodes have forgotten the lease: it must not be so
    /// before its validity ends.
    pub(crate) fn doubt(&self, said: &str) {
        let now = boot::now();
        let (said, early) = (said.to_owned(), self.until.saturating_sub(now));
        if early > 0 {
            self.teller.tell(&Line::Robbed(Robbery { said, early, at: now - self.origin }));
        }
    }

    /// Notes that it ends now, if it has not ended before. To be called before the release.
    pub(crate) fn end(&mut self) {
        let now = boot::now();
        // Valid later than `now` is valid at `now`.
        match self.look() {
            Some(_) => self.finish(now, End::Released),
            None => self.finish(now.min(self.until), End::ValidUntil),
        }
    }

    fn finish(&mut self, until: u64, end: End) {
        if !std::mem::replace(&mut self.is_over, true) {
            let until = until - self.origin;
            self.teller.tell(&Line::Ended { id: self.id, until, end });
        }
    }
}

impl Basis {
    /// When the validity ends, on the boot clock; never later than that. `None` if it has ended.
    fn valid_until(&self) -> Option<u64> {
        let lease = match self {
            Self::Lease(lease) => lease,
            Self::Nothing(until) => return Some(*until).filter(|until| boot::now() < *until),
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

/// What is known when a tenure begins.
#[derive(Clone, Copy)]
pub(crate) struct Begin<'a> {
    /// Where to tell.
    pub(crate) teller: &'a Teller,
    /// Whose it is.
    pub(crate) task: u16,
    /// What is held.
    pub(crate) resources: &'a [u16],
    /// The fencing token to write with.
    pub(crate) token: Option<u64>,
    /// When the run began.
    pub(crate) origin: u64,
    /// When the acquire began.
    pub(crate) asked: u64,
    /// When the acquire returned.
    pub(crate) from: u64,
}
