//! Detects while a command waits that the nodes, and not another client, are the reason.
//!
//! An outage that can end by itself is reported, even with `--quiet`. A failure that only other settings can end, such as
//! a wrong password, ends the wait.

use crate::exit::{Code, Failure};
use crate::locked_work::LockRequest;
use crate::nodes::Client;
use crate::{progress, scheme};
use quorlock::{NodeFailure, NodeState, NodeVote, Report};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const INTERVAL: Duration = Duration::from_secs(1);

/// The duration of an outage before `--quiet` prints a message about it.
const LONG: Duration = Duration::from_secs(30);

/// The duration of an outage before the nodes are asked whether their URLs have the wrong scheme. A node that starts
/// needs less.
const BEFORE_SCHEMES: Duration = Duration::from_secs(3);

/// The outage that the latest attempts to acquire the lock, or to read the state of a job, have found.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<Option<Outage>>);

#[derive(Clone, Debug)]
pub(crate) struct Outage {
    since: Instant,
    /// The number of failed attempts since then.
    attempts: u64,
    /// The nodes' replies to the latest of them.
    pub(crate) report: Report,
}

impl Attempts {
    pub(crate) fn handle(&self, report: &Report) {
        let mut outage = self.lock();
        if !prevents_quorum(report, |vote| matches!(vote, NodeVote::Failed(_))) {
            *outage = None;
            return;
        }
        let (since, attempts) =
            outage.as_ref().map_or_else(|| (Instant::now(), 0), |it| (it.since, it.attempts));
        *outage = Some(Outage { since, attempts: attempts + 1, report: report.clone() });
    }

    pub(crate) fn outage(&self) -> Option<Outage> {
        self.lock().clone()
    }

    fn clear(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Outage>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if too few nodes are left for a quorum without those for which `is_missing` returns true.
fn prevents_quorum(report: &Report, is_missing: impl Fn(&NodeVote) -> bool) -> bool {
    let missing = report.nodes().iter().filter(|node| is_missing(node.vote())).count();
    report.nodes().len() - missing < report.needed()
}

/// Waits until two attempts in a row, a second apart, have failed for a reason that only other settings can end, and
/// returns the failure. If `wanted` suppresses progress output, prints one message about each long outage.
pub(crate) async fn watch(client: &Client, wanted: &LockRequest<'_>) -> Failure {
    let is_silent = wanted.lock.quiet && !wanted.wait.no_wait;
    let (mut seen, mut are_schemes_known, mut is_announced) = (None, false, false);
    loop {
        sleep(INTERVAL).await;
        let Some(outage) = client.attempts.outage() else {
            (seen, are_schemes_known, is_announced) = (None, false, false);
            continue;
        };
        let lasted = outage.since.elapsed();
        if is_permanent(client, &outage.report) {
            if seen.is_some_and(|seen| seen != outage.attempts) {
                return failure(wanted, &outage.report);
            }
            seen = Some(outage.attempts);
        } else {
            seen = None;
        }
        if !are_schemes_known && lasted >= BEFORE_SCHEMES {
            are_schemes_known = true;
            if let Some(wrong) = scheme::wrong_on_majority(client).await {
                let message = format!("{}: no quorum of nodes available: {wrong}", wanted.target);
                return Failure::new(Code::NO_QUORUM, message);
            }
        }
        if is_silent && !is_announced && lasted >= LONG {
            // An attempt of a waiting client may ask only one node, and is not reported if the lock is held.
            if wanted.target.conflict(client).await.is_some() {
                client.attempts.clear();
                continue;
            }
            progress::print(client, wanted.target, lasted).await;
            is_announced = true;
        }
    }
}

/// Returns true if the permanent failures of nodes prevent a quorum.
fn is_permanent(client: &Client, report: &Report) -> bool {
    let nodes = client.redlock.nodes();
    let votes = nodes.iter().zip(report.nodes()).filter(|(node, reply)| {
        let of_vote = matches!(reply.vote(), NodeVote::Failed(failure) if failure.is_permanent());
        of_vote || down(node.state()).is_some_and(NodeFailure::is_permanent)
    });
    nodes.len() - votes.count() < report.needed()
}

fn down(state: &NodeState) -> Option<&NodeFailure> {
    if let NodeState::Down(failure) = state { Some(failure) } else { None }
}

fn failure(wanted: &LockRequest<'_>, report: &Report) -> Failure {
    let reason = "no quorum of nodes available, and waiting cannot change this";
    Failure::new(Code::NO_QUORUM, format!("{}: {reason}: {report}", wanted.target))
}
