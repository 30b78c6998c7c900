//! Converts the coordinator's failure of an acquire to the public [`AcquireError`].

use super::inner::Inner;
use crate::coordinator::AcquireFailure;
use crate::engine::{Acquiring, Failure};
use crate::error::AcquireError;
use crate::lease::Lease;
use crate::node::NoRuntime;
use crate::observe::{Report, Tag};
use crate::protocol::{Refusal, Ttl};
use crate::wire::{Key, Keys};

impl Inner {
    pub(super) async fn obtain(
        &self,
        acquiring: Result<Acquiring, Failure>,
        keys: &Keys,
        ttl: Ttl,
        tag: Tag,
    ) -> Result<Lease, AcquireError> {
        let won = match acquiring {
            Ok(acquiring) => acquiring.won().await,
            Err(failure) => Err(failure),
        };
        let won = won.map_err(|failure| self.explain(failure, keys))?;
        let lease = self.backing.lease(won, ttl, tag);
        if self.driver.is_closed() { Err(AcquireError::Closed) } else { Ok(lease) }
    }

    fn explain(&self, failure: Failure, keys: &Keys) -> AcquireError {
        let max_ttl = self.settings.limits.max_ttl;
        let holds =
            |key: &Key| self.driver.engine().with(|it, now| it.holds(key, now)).unwrap_or_default();
        let held_here = || keys.iter().any(holds);
        let boxed = |report: Report| Box::new(report.with_max_ttl(max_ttl));
        match failure {
            Failure::NoRuntime(NoRuntime) => AcquireError::NoRuntime,
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
