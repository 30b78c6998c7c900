//! Converts the internal failure of an acquire to the public [`AcquireError`].

use super::inner::Inner;
use crate::acquire::AcquireFailure;
use crate::error::AcquireError;
use crate::node::NoRuntime;
use crate::protocol::Refusal;
use crate::round::Tally;
use crate::wire::Keys;
use std::sync::Arc;

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
