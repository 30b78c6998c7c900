//! Validation of the durations that callers request for leases.

use crate::error::ConfigError;
use crate::protocol::{Drift, Ttl};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_ttl: Duration,
    pub(crate) node_timeout: Duration,
    pub(crate) drift: Drift,
}

impl Limits {
    pub(crate) fn check_ttl(&self, asked: Duration) -> Result<Ttl, ConfigError> {
        let ttl = to_ttl("ttl", asked)?;
        let max_ttl = self.max_ttl;
        if asked > max_ttl {
            return Err(ConfigError::TtlExceedsMax { ttl: asked, max_ttl });
        }
        let (drift, node_timeout) = (self.drift.allowance(ttl), self.node_timeout);
        let validity = ttl.as_duration().saturating_sub(drift);
        if validity.is_zero() {
            return Err(ConfigError::DriftExceedsTtl { ttl: asked, drift });
        }
        if node_timeout >= validity {
            let ttl = asked;
            return Err(ConfigError::NodeTimeoutExceedsValidity { node_timeout, ttl, validity });
        }
        Ok(ttl)
    }

    /// Returns the TTL of an extension after which at least `validity` remains. The TTL includes
    /// one node timeout for the duration of the extension itself, but is limited to `max_ttl`.
    /// Returns an error if `validity` requires more than `max_ttl` even without the node timeout.
    pub(crate) fn ttl_for(&self, validity: Duration) -> Result<Ttl, ConfigError> {
        let max_ttl = self.max_ttl;
        let ttl_for = |validity| self.drift.ttl_for(validity);
        let asked = ttl_for(validity).map_or(Duration::MAX, Ttl::as_duration);
        if asked > max_ttl {
            return Err(ConfigError::EnsureExceedsMax { validity, max_ttl });
        }
        let with_time = ttl_for(validity.saturating_add(self.node_timeout));
        let ttl = with_time.map_or(max_ttl, |ttl| ttl.as_duration().min(max_ttl));
        self.check_ttl(ttl)
    }

    /// Returns an error if `asked` does not exceed the node timeout. The lease could otherwise
    /// reach its `max_hold` while it is being acquired.
    pub(crate) fn check_max_hold(&self, asked: Option<Duration>) -> Result<(), ConfigError> {
        let node_timeout = self.node_timeout;
        match asked {
            Some(max_hold) if max_hold <= node_timeout => {
                Err(ConfigError::MaxHoldTooShort { max_hold, node_timeout })
            }
            _ => Ok(()),
        }
    }

    /// Returns an error if the margin of [`stop_before`](crate::Acquire::stop_before) is too long:
    /// such a margin would stop the work before the work could begin, or before each renewal.
    pub(crate) fn check_margin(
        &self,
        margin: Option<Duration>,
        ttl: Ttl,
        max_hold: Option<Duration>,
    ) -> Result<(), ConfigError> {
        let limit = Self::margin_limit(self.validity(ttl), max_hold);
        match margin {
            Some(margin) if margin >= limit => Err(ConfigError::MarginTooLong { margin, limit }),
            _ => Ok(()),
        }
    }

    /// Returns the duration that the margin of [`stop_before`](crate::Acquire::stop_before) must not reach. A lease that
    /// is renewed has a `max_hold`.
    pub(crate) fn margin_limit(validity: Duration, max_hold: Option<Duration>) -> Duration {
        max_hold.map_or(validity, |most| (validity / 3).saturating_mul(2).min(most))
    }

    pub(crate) fn validity(&self, ttl: Ttl) -> Duration {
        ttl.as_duration().saturating_sub(self.drift.allowance(ttl))
    }

    /// Returns the TTL of the key that keeps the resource locked after a release. The TTL is
    /// `asked`, or `None` if `asked` is below 1 ms. If `asked` exceeds `max_ttl`, returns `max_ttl`
    /// and an error.
    pub(crate) fn check_cool_down(
        &self,
        asked: Duration,
    ) -> (Option<Ttl>, Result<(), ConfigError>) {
        let max_ttl = self.max_ttl;
        let too_long = ConfigError::CoolDownExceedsMax { cool_down: asked, max_ttl };
        let checked = if asked > max_ttl { Err(too_long) } else { Ok(()) };
        (Ttl::from_duration(asked.min(max_ttl)), checked)
    }
}

pub(crate) fn to_ttl(setting: &'static str, asked: Duration) -> Result<Ttl, ConfigError> {
    Ttl::from_duration(asked).ok_or(ConfigError::BadTtl { setting, ttl: asked })
}
