//! Converts the internal failure of an acquire to the public [`AcquireError`].

use super::inner::Inner;
use crate::acquire::{AcquireFailure, AcquireRequest, PreviousLease};
use crate::error::AcquireError;
use crate::lease::Lease;
use crate::node::NoRuntime;
use crate::protocol::{Refusal, Schedule};
use crate::round::Tally;
use crate::wire::Keys;
use std::sync::Arc;
use std::time::Duration;

impl Inner {
    /// Acquires a lock.
    pub(super) async fn obtain(
        &self,
        mut request: AcquireRequest,
        schedule: Schedule,
        at_least: Duration,
    ) -> Result<Lease, AcquireError> {
        let (ttl, max_hold, keys) = (request.ttl, request.max_hold, request.keys.clone());
        if let Some(adoption) = &mut request.adopts {
            let previous = self.backing.registry.find(keys.first(), &adoption.value);
            adoption.previous = previous.map(|lease| lease as Arc<dyn PreviousLease>);
        }
        let acquired = self.driver.acquire(request, schedule).await;
        let acquired = acquired.map_err(|failure| self.explain(failure, &keys))?;
        let lease = Lease::new(&self.backing, acquired, ttl, (max_hold, at_least));
        lease.ok_or(AcquireError::Closed)
    }

    fn explain(&self, failure: AcquireFailure, keys: &Keys) -> AcquireError {
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
