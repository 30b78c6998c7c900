//! The signal to stop work while its lock still holds.

use super::acquire::Acquire;
use super::settings::Settings;
use crate::error::ConfigError;
use crate::lease::{Lease, LeaseRef};
use crate::protocol::Ttl;
use std::time::Duration;

impl Acquire {
    /// Gives work a signal before its lock ends: [`stopping`](LeaseRef::stopping) resolves when less
    /// than `margin` of the validity is left, and no renewal has come through. What [`using`](Self::using)
    /// runs can then end in order; if it has not by the end of the validity, it is dropped as ever.
    ///
    /// A renewal begins when two thirds of the validity are left, and is tried again until it succeeds.
    /// So the `margin` has to be less than two thirds for a lease that is renewed, and less than the
    /// whole validity for another: else it is refused as
    /// [`MarginTooLong`](crate::ConfigError::MarginTooLong). Without it, the signal comes with the end.
    ///
    /// ```no_run
    /// # async fn step() {}
    /// # async fn example(redlock: quorlock::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// let work = async |lease: &quorlock::Lease| {
    ///     let mut stopping = std::pin::pin!(lease.stopping());
    ///     let mut steps = 0;
    ///     loop {
    ///         tokio::select! {
    ///             () = step() => steps += 1,
    ///             left = &mut stopping => break println!("{steps} steps, {left:?} to clean up"),
    ///         }
    ///     }
    /// };
    /// redlock.acquire("orders/42").stop_before(Duration::from_secs(2)).using(work).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop_before(mut self, margin: Duration) -> Self {
        self.stop_before = Some(margin);
        self
    }
}

impl LeaseRef {
    /// Resolves when the work under this lease has to stop: when less is left of the validity than was
    /// given to [`stop_before`](Acquire::stop_before), and no renewal has come through; without that, when
    /// the lease has ended. Returns what is left. See [`endangered`](Self::endangered).
    ///
    /// # Cancel safety
    /// The future can be dropped and made anew at any time.
    pub async fn stopping(&self) -> Duration {
        self.endangered(self.margin).await
    }
}

impl Lease {
    /// The same lease, whose work is told to stop when so much is left.
    pub(crate) fn stopping_at(mut self, margin: Option<Duration>) -> Self {
        self.set_margin(margin.unwrap_or_default());
        self
    }
}

impl Settings {
    /// Says so if work would be told to stop before it could begin, or before each renewal.
    pub(crate) fn check_margin(
        &self,
        margin: Option<Duration>,
        ttl: Ttl,
        max_hold: Option<Duration>,
    ) -> Result<(), ConfigError> {
        let validity = ttl.as_duration().saturating_sub(self.drift.allowance(ttl));
        let limit = max_hold.map_or(validity, |most| (validity / 3).saturating_mul(2).min(most));
        match margin {
            Some(margin) if margin >= limit => Err(ConfigError::MarginTooLong { margin, limit }),
            _ => Ok(()),
        }
    }
}
