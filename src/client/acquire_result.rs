//! Converts the coordinator's result of an acquire to a [`Lease`](crate::Lease), or to the public [`AcquireError`].

use super::inner::Inner;
use super::observed::AcquireEvents;
use crate::coordinator::AcquireFailure;
use crate::engine::{Failure, PendingAcquire};
use crate::error::AcquireError;
use crate::lease::Lease;
use crate::observe::Report;
use crate::protocol::{Refusal, Ttl};
use crate::wire::Key;

impl Inner {
    pub(super) async fn await_lease(
        &self,
        pending: Result<PendingAcquire, Failure>,
        acquire: &AcquireEvents,
        ttl: Ttl,
    ) -> Result<Lease, AcquireError> {
        let acquired = match pending {
            Ok(pending) => pending.lease().await,
            Err(failure) => Err(failure),
        };
        let acquired = acquired.map_err(|failure| self.acquire_error(failure, acquire))?;
        let lease = self.backing.lease(acquired, ttl, acquire.tag);
        if self.driver.is_closed() { Err(AcquireError::Closed) } else { Ok(lease) }
    }

    fn acquire_error(&self, failure: Failure, acquire: &AcquireEvents) -> AcquireError {
        let max_ttl = self.settings.limits.max_ttl;
        let holds =
            |key: &Key| self.driver.engine().with(|it, now| it.holds(key, now)).unwrap_or_default();
        let held_here = || {
            let mut keys = acquire.keys.iter();
            if acquire.is_any { keys.all(holds) } else { keys.any(holds) }
        };
        let boxed = |report: Report| Box::new(report.with_max_ttl(max_ttl));
        match failure {
            Failure::NoRuntime(reason) => AcquireError::NoRuntime { reason },
            Failure::Failed(AcquireFailure::Closed) => AcquireError::Closed,
            Failure::Internal(failure) => {
                let reason = failure.map(|failure| failure.to_string());
                AcquireError::Internal { reason: reason.unwrap_or_default() }
            }
            Failure::Failed(AcquireFailure::NotTaken { report }) => {
                AcquireError::NotPolled { report: boxed(report) }
            }
            Failure::Failed(AcquireFailure::Overloaded { report }) => {
                AcquireError::Overloaded { report: report.map(boxed) }
            }
            Failure::Failed(AcquireFailure::Refused { refusal, report, is_overloaded }) => {
                let report = boxed(report);
                match refusal {
                    Refusal::NoQuorum if is_overloaded => {
                        AcquireError::Overloaded { report: Some(report) }
                    }
                    Refusal::NoQuorum => AcquireError::NoQuorum { report },
                    Refusal::Contended => {
                        AcquireError::Contended { report, held_here: held_here() }
                    }
                    Refusal::Timeout if held_here() => {
                        AcquireError::Contended { report, held_here: true }
                    }
                    Refusal::Expired => AcquireError::Expired { report },
                    Refusal::Timeout => AcquireError::Timeout { report: Some(report) },
                }
            }
        }
    }
}
