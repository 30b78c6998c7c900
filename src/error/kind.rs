//! Methods that classify errors and tell callers how to react.

use crate::error::{AcquireError, ExtendError, ReleaseError};
use crate::observe::Report;
use std::time::Duration;

impl AcquireError {
    /// Returns true if another lease holds the lock ([`Contended`](Self::Contended)). A quorum of nodes is available,
    /// and a later attempt can succeed.
    ///
    /// Returns false for [`NotHeld`](Self::NotHeld), because a retry of a failed adoption cannot succeed.
    pub const fn is_contended(&self) -> bool {
        matches!(self, Self::Contended { .. })
    }

    /// Returns true if the acquire failed because of the nodes, the network or this process, and not because another
    /// lease holds the lock. The lock may be free or held. The errors of this kind are:
    ///
    /// - [`NoQuorum`](Self::NoQuorum): too few nodes replied with a vote that counts.
    /// - [`Expired`](Self::Expired): a quorum granted the lock only after the validity had expired.
    /// - [`Timeout`](Self::Timeout): the wait time elapsed before an attempt completed.
    /// - [`Overloaded`](Self::Overloaded) and [`NotPolled`](Self::NotPolled): this process was too slow.
    /// - [`Internal`](Self::Internal): the client has failed internally.
    pub const fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::NoQuorum { .. }
                | Self::Expired { .. }
                | Self::Timeout { .. }
                | Self::Overloaded { .. }
                | Self::NotPolled { .. }
                | Self::Internal { .. }
        )
    }

    /// Returns how long to wait before the next attempt, measured from the time at which this error was returned:
    ///
    /// - [`Contended`](Self::Contended): the shortest time after which a quorum of nodes can be free, provided that the
    ///   holders neither extend nor release the lock. `None` if an existing key has no expiry, or if the nodes did not
    ///   report the TTL of the existing keys. [`acquire`](crate::Redlock::acquire) requests the TTL, even with
    ///   [`max_attempts(1)`](crate::Acquire::max_attempts), and so does every attempt to lock several resources.
    ///   [`try_acquire`](crate::Redlock::try_acquire) of a single resource does not request the TTL.
    /// - [`NoQuorum`](Self::NoQuorum): the time after which enough nodes for a quorum have a vote again. `None` unless
    ///   enough nodes are excluded only for a limited time, for example because they were restarted.
    /// - All other errors: `None`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Contended { report, .. } => report.retry_after(),
            Self::NoQuorum { report } => report.counts_in(),
            _ => None,
        }
    }
}

impl ExtendError {
    /// Returns true if the lease has ended ([`Lost`](Self::Lost) or [`Released`](Self::Released)), so that the
    /// protected work must stop. For all other errors, the failed extension did not shorten the lease's validity.
    pub const fn has_ended(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Released)
    }

    /// Returns the nodes' replies, or `None` if no request was sent.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Lost { report, .. } => report.as_deref(),
            Self::NoQuorum { report, .. } => Some(report),
            Self::Released | Self::Invalid(_) => None,
        }
    }
}

impl ReleaseError {
    /// Returns the nodes' replies, or `None` for [`Invalid`](Self::Invalid).
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::NoQuorum { report } => Some(report),
            Self::Invalid(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::UsingError;
    use crate::error::{ConfigError, ReenterError};
    use crate::lease::ReleaseOutcome;
    use crate::node::NoRuntime;
    use crate::observe::{NodeReport, NodeVote};
    use crate::protocol::Loss;
    use crate::wire::NodeFailure;
    use std::error::Error;

    fn report() -> Report {
        let failed = NodeVote::Failed(NodeFailure::Replica);
        Report::new(1, std::sync::Arc::new([NodeReport::new("a:6379".into(), failed, None)]))
    }

    #[test]
    fn contended_and_unavailable_errors() {
        let report = Box::new(report());
        for (error, is_contended, is_unavailable) in [
            (AcquireError::Contended { report: report.clone(), held_here: true }, true, false),
            (AcquireError::NotHeld { report: report.clone() }, false, false),
            (AcquireError::NoQuorum { report: report.clone() }, false, true),
            (AcquireError::Expired { report: report.clone() }, false, true),
            (AcquireError::Timeout { report: Some(report.clone()) }, false, true),
            (AcquireError::Timeout { report: None }, false, true),
            (AcquireError::Overloaded { report: None }, false, true),
            (AcquireError::NotPolled { report: report.clone() }, false, true),
            (AcquireError::Closed, false, false),
            (AcquireError::Internal { reason: "panic".into() }, false, true),
            (AcquireError::NoRuntime { reason: NoRuntime::ShutDown }, false, false),
            (AcquireError::Invalid(ConfigError::NoResources), false, false),
        ] {
            assert_eq!(error.is_contended(), is_contended, "{error}");
            assert_eq!(error.is_unavailable(), is_unavailable, "{error}");
        }
    }

    #[test]
    fn retry_follows_the_end_of_a_quarantine() {
        let seconds = std::time::Duration::from_secs;
        let restarted = |left| {
            NodeVote::Failed(NodeFailure::Restarted { ago: seconds(3), counts_in: seconds(left) })
        };
        let down = || NodeVote::Failed(NodeFailure::Unreachable("connection refused".into()));
        let retry_after = |votes: Vec<NodeVote>| {
            let nodes = votes.into_iter().map(|vote| NodeReport::new("a".into(), vote, None));
            let report = Report::new(3, nodes.collect());
            AcquireError::NoQuorum { report: Box::new(report) }.retry_after()
        };
        let votes = vec![NodeVote::Granted, restarted(57), restarted(7), restarted(9), down()];
        assert_eq!(retry_after(votes), Some(seconds(9)));
        assert_eq!(retry_after(vec![restarted(7), restarted(9), down(), down(), down()]), None);
    }

    #[test]
    fn error_sources_contain_the_loss() {
        let reason = Loss::TakenOver;
        let extended = ExtendError::Lost { reason, report: Some(Box::new(report())) };
        assert!(extended.has_ended() && extended.report().is_some());
        assert!(!ExtendError::Invalid(ConfigError::NoResources).has_ended());
        let errors: [Box<dyn Error>; 3] = [
            Box::new(extended),
            Box::new(ReenterError::Lost { reason }),
            Box::new(UsingError::<()>::Lost { reason }),
        ];
        for error in errors {
            let source = error.source().and_then(|source| source.downcast_ref::<Loss>());
            assert_eq!(source, Some(&reason), "{error}");
            assert!(error.to_string().contains(&reason.to_string()), "{error}");
        }
        let failure: Box<dyn Error> = Box::new(NodeFailure::Replica);
        assert_eq!(failure.to_string(), "replica: configure the address of a master");
    }

    #[test]
    fn release_outcome_display() {
        for (outcome, words) in [
            (ReleaseOutcome::Released, "released"),
            (ReleaseOutcome::Expired, "expired or deleted before it was released"),
            (ReleaseOutcome::TakenOver, "taken over before it was released"),
            (ReleaseOutcome::StillHeld { guards: 2 }, "still held by 2 guards"),
            (ReleaseOutcome::StillHeld { guards: 1 }, "still held by 1 guard"),
            (ReleaseOutcome::AlreadyReleased, "already released"),
        ] {
            assert_eq!(outcome.to_string(), words);
        }
        let found = ReleaseOutcome::TakenOver;
        let overrun = UsingError::Overrun { output: (), found: Ok(found) };
        assert!(overrun.to_string().ends_with("(taken over before it was released)"), "{overrun}");
    }

    #[test]
    fn report_debug_equals_display() {
        let report = Box::new(report());
        let line = "0/1 granted (need 1): a:6379 replica: configure the address of a master";
        assert_eq!(format!("{report:?} {report:#?}"), format!("{line} {line}"));
        assert_eq!(format!("{:?}", report.nodes()[0]), report.nodes()[0].to_string());
        let error = AcquireError::NoQuorum { report };
        assert_eq!(format!("{error:?}"), format!("NoQuorum {{ report: {line} }}"));
    }
}
