//! Converts the coordinator's failure of an acquire to the public [`AcquireError`].

use super::inner::Inner;
use crate::acquire::AcquireRequest;
use crate::coordinator::{self, AcquireFailure};
use crate::engine::Failure;
use crate::error::AcquireError;
use crate::lease::Lease;
use crate::node::NoRuntime;
use crate::protocol::{Refusal, Schedule};
use crate::wire::{Key, Keys};
use std::time::Duration;

impl Inner {
    /// Acquires a lock.
    pub(super) async fn obtain(
        &self,
        request: AcquireRequest,
        schedule: Schedule,
        at_least: Duration,
    ) -> Result<Lease, AcquireError> {
        let (ttl, tag, keys) = (request.ttl, request.tag, request.keys.clone());
        let is_renewed = request.max_hold.is_some();
        let request = coordinator::AcquireRequest {
            keys: request.keys,
            ttl,
            metadata: request.metadata,
            adopts: request.adopts.map(|adoption| adoption.value),
            counters: request.counters,
            schedule,
            has_one_attempt: request.is_last_chance,
            max_hold: request.max_hold,
            at_least,
            deadline: request.deadline,
            gives_up_early: request.gives_up_early,
            tag,
        };
        let won = self.driver.acquire(request, is_renewed).await;
        let won = won.map_err(|failure| self.explain(failure, &keys))?;
        if self.driver.is_closed() {
            drop(self.backing.lease(won, ttl, tag));
            return Err(AcquireError::Closed);
        }
        Ok(self.backing.lease(won, ttl, tag))
    }

    fn explain(&self, failure: Failure, keys: &Keys) -> AcquireError {
        let max_ttl = self.settings.limits.max_ttl;
        let holds =
            |key: &Key| self.driver.engine().with(|it, now| it.holds(key, now)).unwrap_or_default();
        let held_here = || keys.iter().any(holds);
        match failure {
            Failure::NoRuntime(NoRuntime::Absent) => AcquireError::NoRuntime,
            Failure::NoRuntime(NoRuntime::Lacks(missing)) => {
                AcquireError::IncompleteRuntime { missing }
            }
            Failure::Failed(AcquireFailure::Closed) => AcquireError::Closed,
            Failure::Internal(failure) => {
                let reason = failure.map(|failure| failure.to_string());
                AcquireError::Internal { reason: reason.unwrap_or_default() }
            }
            Failure::Failed(AcquireFailure::NotTaken { report }) => {
                AcquireError::NotPolled { report: Box::new(report.with_max_ttl(max_ttl)) }
            }
            Failure::Failed(AcquireFailure::Overloaded { report }) => {
                let report = report.map(|report| Box::new(report.with_max_ttl(max_ttl)));
                AcquireError::Overloaded { report }
            }
            Failure::Failed(AcquireFailure::Refused { refusal, report, is_overloaded }) => {
                let report = Box::new(report.with_max_ttl(max_ttl));
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
