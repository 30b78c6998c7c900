//! Checks of the tokens and votes of a new lease.

use crate::call::Lock;
use crate::clock::{Instant, MS};
use crate::counts::Situation;
use crate::ledger::Commit;
use crate::readers::Access;
use crate::rule::Rule;
use crate::worker::Worker;
use quorlock::{LeaseRef, NodeFailure, NodeInfo, NodeVote, Report, VoteEligibility};

impl Worker {
    /// Checks the token of a lease that begins. Returns the tokens of the ledger: one per resource,
    /// and none for a reader or without a token. `begun` is the time of the call if the lease may
    /// have been renewed since its acquire.
    pub(crate) fn check_token(
        &self,
        lease: &LeaseRef,
        lock: &Lock,
        begun: Option<Instant>,
    ) -> Vec<(usize, Commit)> {
        if !lock.fenced {
            return Vec::new();
        }
        if lock.access == Access::Read {
            self.check_reader_token(lease);
            return Vec::new();
        }
        if lease.token().is_none() {
            let how = format!("p{}: the lease of {:?} has no token", self.process, lock.resources);
            self.checker.state().violated(Rule::Tokens, how);
        }
        let ttl = begun.map_or(lock.ttl.unwrap_or(self.times.ttl_ms), |begun| {
            (self.now() - begun).div_ceil(MS)
        });
        self.commits(&lock.resources, lease, ttl)
    }

    /// Returns one [`Commit`] per resource, with the lease's token and the current state of the
    /// nodes. Returns an empty list if the lease has no token. A valid lease was acquired at most
    /// `longest_ms` ago.
    pub(crate) fn commits(
        &self,
        resources: &[usize],
        lease: &LeaseRef,
        longest_ms: u64,
    ) -> Vec<(usize, Commit)> {
        let Some(token) = lease.token().map(quorlock::FencingToken::get) else { return Vec::new() };
        // The limit is by a clock that may be slow.
        let age = lease.is_valid().then_some(longest_ms * MS / 50 * 51 + 20 * MS);
        let value = lease.value();
        let core = self.shared.lock();
        let commit = |resource: &usize| {
            (*resource, core.commit(self.process, *resource, value, (token, age)))
        };
        resources.iter().map(commit).collect()
    }

    /// Counts an attempt to acquire a lock of which a node may have forgotten a valid lease, or may
    /// let it expire early.
    pub(crate) fn count_attempt(&self, lock: &Lock) {
        let (wiped, stepped) = {
            let nodes = &self.shared.lock().nodes;
            let steps = nodes.iter().filter_map(|node| node.last_step);
            let ahead = steps.filter_map(|(at, is_ahead)| is_ahead.then_some(at)).max();
            (nodes.iter().filter_map(|node| node.wiped).max(), ahead)
        };
        let (mut state, is_reader) = (self.checker.state(), lock.access == Access::Read);
        for resource in &lock.resources {
            if let Some(wiped) = wiped {
                state.count_attempt(*resource, is_reader, wiped);
            }
            if stepped.is_some_and(|at| !is_reader && state.is_held_since(*resource, at)) {
                state.met(Situation::SteppedLock);
            }
        }
    }

    /// Checks that an acquire ignored only the votes of nodes that restarted or were flushed
    /// recently. In a new deployment, no vote may be ignored.
    pub(crate) fn check_withheld(&self, report: Option<&Report>) {
        use NodeFailure::{Flushed, MaybeRestarted, Restarted};
        let reports = report.into_iter().flat_map(Report::nodes).enumerate();
        let restarted = {
            let core = self.shared.lock();
            let has_restarted = |(node, _): &(usize, _)| core.nodes[*node].restarted.is_some();
            reports.clone().filter(has_restarted).count() as u64
        };
        self.checker.state().counts.add(Rule::Withheld, restarted);
        let withheld = reports.filter(|(_, node)| {
            let NodeVote::Failed(failure) = node.vote() else { return false };
            matches!(failure, Restarted { .. } | MaybeRestarted { .. } | Flushed { .. })
        });
        for (index, node) in withheld {
            let is_due = {
                let core = self.shared.lock();
                let since = core.known_restarted_for(self.process, index);
                self.withheld_for.is_none_or(|longest| since.is_some_and(|it| it < longest))
            };
            if !is_due {
                let how = format!("p{}: {node}", self.process);
                self.checker.state().violated(Rule::Withheld, how);
            }
        }
    }

    /// Returns true if a node's grants are deferred because its clock has stepped. A lease may then
    /// expire before its caller takes it, and the caller moves to the end of the queue.
    pub(crate) fn has_deferred_grants(&self) -> bool {
        let is_deferred =
            |node: &NodeInfo| matches!(node.eligibility(), VoteEligibility::Deferred { .. });
        self.redlock.nodes().iter().any(is_deferred)
    }
}
