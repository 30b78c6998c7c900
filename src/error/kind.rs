//! What kind of trouble an error is, for code that decides what to do.

use crate::error::{AcquireError, ExtendError, ReleaseError};
use crate::observe::Report;
use std::time::Duration;

impl AcquireError {
    /// True if another holds the lock: [`Contended`](Self::Contended). The nodes are well, and trying
    /// again later can help.
    ///
    /// Not for [`NotHeld`](Self::NotHeld): an adoption that came too late comes too late for ever.
    pub const fn is_contended(&self) -> bool {
        matches!(self, Self::Contended { .. })
    }

    /// True if the nodes, the network or this process could not decide who has the lock, which says
    /// nothing of who holds it:
    ///
    /// - [`NoQuorum`](Self::NoQuorum): too few nodes answered;
    /// - [`Expired`](Self::Expired): they answered too late for the ttl;
    /// - [`Timeout`](Self::Timeout): they had not answered when the wait bound ended;
    /// - [`Overloaded`](Self::Overloaded) and [`NotPolled`](Self::NotPolled): this process was too slow.
    pub const fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::NoQuorum { .. }
                | Self::Expired { .. }
                | Self::Timeout { .. }
                | Self::Overloaded { .. }
                | Self::NotPolled { .. }
        )
    }

    /// When it is worth while to try again, counted from when this error was returned: when a quorum of
    /// the nodes can be free at the earliest, if those who hold the lock keep it to the end of their
    /// ttl. They can extend it, and they can release it sooner.
    ///
    /// Known for [`Contended`](Self::Contended) where the nodes were asked for the ttl: by
    /// [`acquire`](crate::Redlock::acquire), also with
    /// [`max_attempts(1)`](crate::Acquire::max_attempts), and by attempts at several resources; not by
    /// [`try_acquire`](crate::Redlock::try_acquire) of one, which asks for nothing that it does not
    /// need. `None` also if what is in the way stands for ever.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Contended { report, .. } => report.retry_after(),
            _ => None,
        }
    }
}

impl ExtendError {
    /// True if the lease has ended: [`Lost`](Self::Lost) or [`Released`](Self::Released). What it
    /// protected has to stop. Else it is held for as long as it was before.
    pub const fn has_ended(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Released)
    }

    /// What each node said, if any was asked.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Lost { report, .. } => report.as_deref(),
            Self::NoQuorum { report, .. } => Some(report),
            Self::Released | Self::Invalid(_) => None,
        }
    }
}

impl ReleaseError {
    /// What each node said, if any was asked.
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
    use crate::observe::{NodeReport, NodeVote};
    use crate::protocol::Loss;
    use crate::wire::NodeFailure;
    use std::error::Error;

    fn report() -> Report {
        let failed = NodeVote::Failed(NodeFailure::Replica);
        Report::new(1, Box::new([NodeReport::new("a:6379".into(), failed, None)]))
    }

    #[test]
    fn contention_and_outage_are_two_kinds() {
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
            (AcquireError::NoRuntime, false, false),
            (AcquireError::Invalid(ConfigError::NoResources), false, false),
        ] {
            assert_eq!(error.is_contended(), is_contended, "{error}");
            assert_eq!(error.is_unavailable(), is_unavailable, "{error}");
        }
    }

    #[test]
    fn an_error_leads_to_how_the_lease_ended() {
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
    fn outcomes_are_said_in_words() {
        for (outcome, words) in [
            (ReleaseOutcome::Released, "released"),
            (ReleaseOutcome::Expired, "expired or deleted before it was released"),
            (ReleaseOutcome::TakenOver, "taken over before it was released"),
            (ReleaseOutcome::StillHeld { guards: 2 }, "still held by 2 guards"),
            (ReleaseOutcome::StillHeld { guards: 1 }, "still held by 1 guard"),
            (ReleaseOutcome::AlreadyReleased, "released before"),
        ] {
            assert_eq!(outcome.to_string(), words);
        }
        let found = ReleaseOutcome::TakenOver;
        let overrun = UsingError::Overrun { output: (), found: Ok(found) };
        assert!(overrun.to_string().ends_with("(taken over before it was released)"), "{overrun}");
    }

    #[test]
    fn for_developers_a_report_prints_its_line() {
        let report = Box::new(report());
        let line = "0/1 granted (need 1): a:6379 replica: configure the address of a master";
        assert_eq!(format!("{report:?} {report:#?}"), format!("{line} {line}"));
        assert_eq!(format!("{:?}", report.nodes()[0]), report.nodes()[0].to_string());
        let error = AcquireError::NoQuorum { report };
        assert_eq!(format!("{error:?}"), format!("NoQuorum {{ report: {line} }}"));
    }
}
