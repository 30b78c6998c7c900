//! What a task tells of a lease that it has got, beside that it has got it.

use crate::ledger::Commit;
use crate::rule::Rule;
use crate::worker::Worker;
use quorlock::{LeaseRef, NodeFailure, NodeVote, Report};

impl Worker {
    /// What is known of the tokens of a lease that is handed out now.
    pub(crate) fn commits(&self, resources: &[usize], lease: &LeaseRef) -> Vec<(usize, Commit)> {
        let Some(token) = lease.token().map(quorlock::FencingToken::get) else { return Vec::new() };
        let value = lease.value();
        let core = self.shared.lock();
        let commit =
            |resource: &usize| (*resource, core.commit(self.process, *resource, value, token));
        resources.iter().map(commit).collect()
    }

    /// Where a deployment is new, every vote counts.
    pub(crate) fn check_withheld(&self, report: Option<&Report>) {
        let withheld = report.into_iter().flat_map(Report::nodes).find(|node| {
            use NodeFailure::{Flushed, MaybeRestarted, Restarted};
            let failure =
                if let NodeVote::Failed(failure) = node.vote() { Some(failure) } else { None };
            matches!(failure, Some(Restarted { .. } | MaybeRestarted { .. } | Flushed { .. }))
        });
        if let Some(node) = withheld {
            self.checker.books().broken(Rule::Withheld, format!("p{}: {node}", self.process));
        }
    }
}
