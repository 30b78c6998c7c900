//! Blocking form of leader elections.

use super::error::{Error, flatten_result};
use super::waiting::{CloseOnDrop, wait, wait_here, wait_within};
use crate::client::{Leader, UsingError, work_result};
use crate::error::{AcquireError, ConfigError, ReleaseError};
use crate::lease::{Ended, LeaseRef, ReleaseOutcome};
use crate::observe::FencingToken;
use crate::protocol::Loss;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

macro_rules! settings {
    ($($(#[$summary:meta])* $name:ident($argument:ident: $type:ty);)*) => {$(
        $(#[$summary])*
        #[doc = ""]
        #[doc = concat!("See [`ElectionBuilder::", stringify!($name), "`](crate::ElectionBuilder::", stringify!($name), ").")]
        pub fn $name(self, $argument: $type) -> Self {
            Self { inner: self.inner.$name($argument), ..self }
        }
    )*};
}

/// Settings of a blocking [`Election`]; see [`ElectionBuilder`](crate::ElectionBuilder).
/// [`Redlock::election`](super::Redlock::election) creates it.
#[derive(Clone, Debug)]
#[must_use = "nothing happens until build() is called"]
pub struct ElectionBuilder {
    inner: crate::ElectionBuilder,
    client: Arc<CloseOnDrop>,
}

impl ElectionBuilder {
    pub(super) fn new(inner: crate::ElectionBuilder, client: Arc<CloseOnDrop>) -> Self {
        Self { inner, client }
    }

    settings! {
        /// Sets the time after which the lock of a crashed leader expires.
        ttl(ttl: Duration);
        /// Sets how long renewals may fail until the leader must stop.
        renew_deadline(deadline: Duration);
        /// Sets the delay between two attempts of a candidate.
        retry_delay(delay: Duration);
        /// Limits the duration of each leadership.
        max_hold(max_hold: Duration);
        /// Sets the minimum time between the elections of two leaders.
        at_least(time: Duration);
        /// Sets the metadata of candidates that campaign without their own.
        metadata(metadata: impl Into<String>);
        /// Sets the class of the lock for events and metrics.
        class(class: &'static str);
    }

    /// Checks the settings and returns the election; see
    /// [`ElectionBuilder::build`](crate::ElectionBuilder::build).
    ///
    /// # Errors
    /// Returns a [`ConfigError`] that names the settings that conflict.
    pub fn build(self) -> Result<Election, ConfigError> {
        let Self { inner, client } = self;
        Ok(Election { inner: inner.build()?, client })
    }
}

/// An election: candidates campaign, and one at a time is the leader; see
/// [`Election`](crate::Election).
#[derive(Clone, Debug)]
pub struct Election {
    inner: crate::Election,
    client: Arc<CloseOnDrop>,
}

impl Election {
    /// Returns the name of the election.
    pub fn name(&self) -> &[u8] {
        self.inner.name()
    }

    /// Blocks until this candidate is elected; see [`Election::campaign`](crate::Election::campaign).
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`AcquireError`].
    pub fn campaign(&self, metadata: impl Into<String>) -> Result<Leadership, Error<AcquireError>> {
        Ok(self.leadership(flatten_result(wait(self.inner.campaign(metadata)))?))
    }

    /// Returns an iterator over the leaders, which blocks until the next change; see
    /// [`Election::observe`](crate::Election::observe).
    pub fn observe(&self) -> Leaders {
        Leaders { inner: self.inner.observe(), _client: self.client.clone() }
    }

    /// Campaigns, runs `work` while leading, resigns, and returns the output. If the leadership is
    /// lost before `work` returns, discards the output, and campaigns again after the retry delay.
    /// The work is not stopped at the loss. It must check
    /// [`is_leader`](Leadership::is_leader) and then return.
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task, without running the work. For all other errors, see
    /// [`Election::run`](crate::Election::run).
    pub fn run<T>(
        &self,
        mut work: impl FnMut(&Leadership) -> T,
    ) -> Result<T, Error<UsingError<T>>> {
        let mut won = wait(self.inner.win()).map_err(|_| Error::InsideRuntime)?;
        loop {
            let leadership = self.leadership(won.map_err(UsingError::from)?);
            let output = work(&leadership);
            if leadership.loss().is_none() {
                let was_valid = leadership.is_leader();
                // The first `wait` has already checked that this thread can block.
                return Ok(work_result(output, was_valid, wait_here(leadership.inner.resign()))?);
            }
            drop((output, leadership));
            won = wait_here(async {
                self.inner.back_off().await;
                self.inner.win().await
            });
        }
    }

    fn leadership(&self, inner: crate::Leadership) -> Leadership {
        Leadership { inner, _client: self.client.clone() }
    }
}

/// The leadership of a blocking [`Election`]; see [`Leadership`](crate::Leadership). Dropping it
/// resigns in the background.
#[derive(Debug)]
#[must_use = "a leader resigns when its leadership is dropped"]
pub struct Leadership {
    // Fields are dropped in this order. `inner` submits the release of the lease, and `client` waits
    // for the release if it is the last handle.
    inner: crate::Leadership,
    _client: Arc<CloseOnDrop>,
}

impl Leadership {
    /// Returns true while this process leads; see
    /// [`Leadership::is_leader`](crate::Leadership::is_leader).
    pub fn is_leader(&self) -> bool {
        self.inner.is_leader()
    }

    /// Returns the fencing token, which is higher than the token of each earlier leader.
    pub fn token(&self) -> FencingToken {
        self.inner.token()
    }

    /// Waits until the leadership is lost, for at most `limit`, and returns the reason. Returns
    /// `None` if this process still leads after `limit`. On a thread that is polling an async task,
    /// this method returns the current state without waiting.
    pub fn lost_within(&self, limit: Duration) -> Option<Loss> {
        match wait_within(limit, self.inner.ended()) {
            Ok(Some(Ended::Lost(loss))) => Some(loss),
            Ok(Some(Ended::Released) | None) => None,
            Err(_) => self.inner.loss(),
        }
    }

    /// Ends the leadership, so that a waiting candidate can lead at once; see
    /// [`Leadership::resign`](crate::Leadership::resign). On a thread that is polling an async task,
    /// this method does not wait, and the resignation continues in the background.
    ///
    /// # Errors
    /// Returns [`InsideRuntime`](Error::InsideRuntime) if called on a thread that is polling an
    /// async task. For all other errors, see [`ReleaseError`].
    pub fn resign(self) -> Result<ReleaseOutcome, Error<ReleaseError>> {
        flatten_result(wait(self.inner.resign()))
    }
}

impl Deref for Leadership {
    type Target = LeaseRef;

    fn deref(&self) -> &LeaseRef {
        &self.inner
    }
}

/// Iterator over the leaders of a blocking [`Election`]; see [`Leaders`](crate::Leaders). The first
/// item is the current leader. `next` blocks until the next change. It returns `None` once the
/// client is closed, or on a thread that is polling an async task.
#[derive(Debug)]
#[must_use = "iterators do nothing unless advanced"]
pub struct Leaders {
    inner: crate::Leaders,
    _client: Arc<CloseOnDrop>,
}

impl Leaders {
    /// Waits for the next item, for at most `limit`. Returns `None` if the leader does not change
    /// within `limit`, or if the iterator has ended.
    pub fn next_within(&mut self, limit: Duration) -> Option<Option<Leader>> {
        wait_within(limit, self.inner.next()).ok().flatten().flatten()
    }
}

impl Iterator for Leaders {
    type Item = Option<Leader>;

    fn next(&mut self) -> Option<Self::Item> {
        wait(self.inner.next()).ok().flatten()
    }
}
