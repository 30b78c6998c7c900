//! Converts the internal failure of an acquire to the public [`AcquireError`].

use super::inner::Inner;
#[cfg(not(quorlock_coordinator))]
use crate::acquire::AcquireFailure;
use crate::error::AcquireError;
use crate::node::NoRuntime;
use crate::protocol::Refusal;
#[cfg(not(quorlock_coordinator))]
use crate::round::Tally;
use crate::wire::Keys;
#[cfg(not(quorlock_coordinator))]
use std::sync::Arc;

#[cfg(not(quorlock_coordinator))]
impl Inner {
    pub(super) fn explain(&self, failure: AcquireFailure, keys: &Keys) -> AcquireError {
        let names = || self.backing.pool.shared().iter().map(|node| node.name.clone());
        let max_ttl = self.settings.limits.max_ttl;
        let report = |tally: Arc<Tally>| Box::new(tally.report(names()).with_max_ttl(max_ttl));
        let held_here = || keys.iter().any(|key| self.backing.registry.holds(key));
        match failure {
            AcquireFailure::Closed => AcquireError::Closed,
            AcquireFailure::NoRuntime(NoRuntime::Absent) => AcquireError::NoRuntime,
            AcquireFailure::NoRuntime(NoRuntime::Lacks(missing)) => {
                AcquireError::IncompleteRuntime { missing }
            }
            AcquireFailure::NotPolled(tally) => AcquireError::NotPolled { report: report(tally) },
            AcquireFailure::Overloaded(tally) => {
                AcquireError::Overloaded { report: tally.map(report) }
            }
            AcquireFailure::Refused(Refusal::NoQuorum, Some(tally)) if tally.is_overloaded() => {
                AcquireError::Overloaded { report: Some(report(tally)) }
            }
            AcquireFailure::Refused(refusal, Some(tally)) => {
                let report = report(tally);
                match refusal {
                    Refusal::Contended => {
                        AcquireError::Contended { report, held_here: held_here() }
                    }
                    // The attempt timed out before the nodes' replies could show the conflict with this client's lease.
                    Refusal::Timeout if held_here() => {
                        AcquireError::Contended { report, held_here: true }
                    }
                    Refusal::NoQuorum => AcquireError::NoQuorum { report },
                    Refusal::Expired => AcquireError::Expired { report },
                    Refusal::Timeout => AcquireError::Timeout { report: Some(report) },
                }
            }
            AcquireFailure::Refused(_, None) => AcquireError::Timeout { report: None },
        }
    }
}

impl AcquireError {
    /// For an adoption, contention means that the key no longer has the value to adopt.
    pub(super) fn of_adoption(self) -> Self {
        match self {
            Self::Contended { report, .. } => Self::NotHeld { report },
            other => other,
        }
    }
}

#[cfg(quorlock_coordinator)]
mod by_engine {
    use super::{AcquireError, Inner, Keys, NoRuntime, Refusal};
    use crate::acquire::AcquireRequest;
    use crate::coordinator::{self, AcquireFailure};
    use crate::engine::Failure;
    use crate::lease::Lease;
    use crate::protocol::Schedule;
    use std::time::Duration;

    impl Inner {
        /// Acquires a lock.
        pub(crate) async fn acquire_by_engine(
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
            let held_here = || keys.iter().any(|key| self.backing.registry.holds(key));
            match failure {
                Failure::NoRuntime(NoRuntime::Absent) => AcquireError::NoRuntime,
                Failure::NoRuntime(NoRuntime::Lacks(missing)) => {
                    AcquireError::IncompleteRuntime { missing }
                }
                Failure::Failed(AcquireFailure::Closed) => AcquireError::Closed,
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
}
