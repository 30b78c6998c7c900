//! Checks of the durations that a caller requests for leases.

use crate::error::ConfigError;
use crate::protocol::{Drift, Ttl};
use std::time::Duration;

/// Limits that apply to every lease of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum ttl of all clients of the nodes; see [`Builder::max_ttl`](crate::Builder::max_ttl).
    pub(crate) max_ttl: Duration,
    pub(crate) node_timeout: Duration,
    pub(crate) drift: Drift,
}

impl Limits {
    /// Converts `asked` to a ttl. Fails if it conflicts with the other settings.
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

    /// The ttl of an extension after which at least `validity` remains. Adds a node timeout for the
    /// request itself, up to `max_ttl`. Fails if `max_ttl` is too short even without that.
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

    /// Fails if a lease could reach `max_hold` while it is being acquired.
    pub(crate) fn check_max_hold(&self, asked: Option<Duration>) -> Result<(), ConfigError> {
        let node_timeout = self.node_timeout;
        match asked {
            Some(max_hold) if max_hold <= node_timeout => {
                Err(ConfigError::MaxHoldTooShort { max_hold, node_timeout })
            }
            _ => Ok(()),
        }
    }

    /// Fails if the work would be stopped before it could begin, or before each renewal.
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

    /// The ttl of the key without an owner that keeps the resource locked after a release: `asked`,
    /// at most `max_ttl`. An `asked` above `max_ttl` also gives an error.
    pub(crate) fn check_cool_down(
        &self,
        asked: Duration,
    ) -> (Option<Ttl>, Result<(), ConfigError>) {
        let max_ttl = self.max_ttl;
        let too_long = ConfigError::CoolDownExceedsMax { cool_down: asked, max_ttl };
        let checked = if asked > max_ttl { Err(too_long) } else { Ok(()) };
        // A cool-down below 1 ms is none.
        (Ttl::from_duration(asked.min(max_ttl)), checked)
    }
}

/// Converts the value of `setting` to a ttl. Fails if Redis cannot represent it.
pub(crate) fn to_ttl(setting: &'static str, asked: Duration) -> Result<Ttl, ConfigError> {
    Ttl::from_duration(asked).ok_or(ConfigError::BadTtl { setting, ttl: asked })
}
