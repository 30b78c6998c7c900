//! The output of `status --permits` for a semaphore.

use super::answer::{self, Answer, NodeState};
use super::verdict::{Verdict, unknown_reason};
use crate::{output, resource, target};
use quorlock::{
    Holder, LockState, NodeStatus, Semaphore, SemaphoreStatus, Status, VoteEligibility,
};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
pub(super) struct SemaphoreAnswer {
    semaphore: String,
    state: Verdict,
    acquirable_in_seconds: Option<f64>,
    #[serde(flatten)]
    status: SemaphoreStatus,
}

impl SemaphoreAnswer {
    pub(super) fn new(semaphore: &Semaphore, status: SemaphoreStatus) -> Self {
        Self {
            semaphore: resource::display_name(semaphore.name()),
            state: state(&status),
            acquirable_in_seconds: acquirable_in(&status).map(|wait| wait.as_secs_f64()),
            status,
        }
    }

    fn counts(&self) -> String {
        let (permits, free) = (self.status.permits(), self.status.free());
        let held = own_permits(&self.status).filter(|it| Verdict::of(it) == Verdict::Held);
        let counts = format!("{} of {permits} permits held, {free} free", held.count());
        match self.unknown().count() {
            0 => counts,
            unknown => format!("{counts}, {unknown} unknown"),
        }
    }

    fn unknown(&self) -> impl Iterator<Item = &Status> {
        own_permits(&self.status).filter(|permit| Verdict::of(permit) == Verdict::Unknown)
    }
}

/// The semaphore is free if a permit is free. It is held if all permits are held.
fn state(status: &SemaphoreStatus) -> Verdict {
    let own = || own_permits(status).map(Verdict::of);
    if own().any(|permit| permit == Verdict::Free) {
        Verdict::Free
    } else if own().all(|permit| permit == Verdict::Held) {
        Verdict::Held
    } else {
        Verdict::Unknown
    }
}

fn acquirable_in(status: &SemaphoreStatus) -> Option<Duration> {
    own_permits(status).filter_map(Status::acquirable_in).min()
}

/// Returns the permits that clients with this number of permits use.
fn own_permits(status: &SemaphoreStatus) -> impl Iterator<Item = &Status> {
    status.details().iter().take(status.permits())
}

impl Answer for SemaphoreAnswer {
    type Comparable = Vec<Vec<NodeState>>;

    fn state(&self) -> Verdict {
        self.state
    }

    fn acquirable_in(&self) -> Option<Duration> {
        acquirable_in(&self.status)
    }

    fn summary(&self) -> String {
        let counts = self.counts();
        let (style, text) = match (self.state, self.delay()) {
            (Verdict::Free, None) => (output::GOOD, counts),
            (Verdict::Free, Some(wait)) => {
                (output::WARNING, format!("{counts}, {}", answer::delayed(wait)))
            }
            (Verdict::Held, _) => (output::WARNING, counts),
            (Verdict::Unknown, _) => {
                let reason = self.unknown().next().map_or("", unknown_reason);
                (output::BAD, format!("unknown: {counts}: {reason}"))
            }
        };
        let other = self.status.other_permits().map_or_else(String::new, |other| {
            format!("; another client uses {other} permits: use the same number everywhere")
        });
        format!("{}: {}{other}", self.semaphore, output::styled(style, text))
    }

    fn details(&self) -> Vec<String> {
        let holders = self.status.holders().iter().map(holder);
        let nodes = self.status.details().first().map_or(0, |permit| permit.nodes().len());
        holders.chain((0..nodes).map(|node| node_line(&self.status, node))).collect()
    }

    fn comparable(&self) -> Self::Comparable {
        self.status.details().iter().map(answer::node_states).collect()
    }
}

fn holder(holder: &Holder) -> String {
    let described = target::described(holder);
    match holder.ttl() {
        // The description of a permit that is cooling down contains the time.
        _ if holder.is_cooling_down() => described,
        Some(ttl) => format!("{described} (expires in {ttl:.1?})"),
        None => format!("{described} (no expiry)"),
    }
}

/// Counts the permits on the node with this position.
fn node_line(status: &SemaphoreStatus, node: usize) -> String {
    let entries: Vec<_> = status.details().iter().filter_map(|it| it.nodes().get(node)).collect();
    let count = |is: fn(&LockState) -> bool| entries.iter().filter(|it| is(it.state())).count();
    let name = entries.first().map_or("", |it| it.name());
    let failure = entries.iter().find_map(|it| match it.state() {
        LockState::Failed(failure) => Some(failure),
        _ => None,
    });
    let failed = count(|it| matches!(it, LockState::Failed(_)));
    if let Some(failure) = failure.filter(|_| failed == entries.len()) {
        return format!("{name} {failure}");
    }
    let held = count(|it| matches!(it, LockState::Held(_)));
    let free = count(|it| *it == LockState::Free);
    let mut counts = vec![format!("{held} held"), format!("{free} free")];
    let foreign = count(|it| matches!(it, LockState::Foreign { .. }));
    if foreign > 0 {
        counts.push(format!("{foreign} not a lock of quorlock"));
    }
    if let Some(failure) = failure {
        counts.push(format!("{failed} unknown: {failure}"));
    }
    let without_vote = entries.last().map_or_else(String::new, |it| without_vote(it));
    format!("{name} {}{without_vote}", counts.join(", "))
}

/// Returns the reason why the node has no vote.
fn without_vote(node: &NodeStatus) -> String {
    match node.eligibility() {
        reason @ (VoteEligibility::RecentStart { .. } | VoteEligibility::Excluded(_)) => {
            format!(" ({reason})")
        }
        _ => String::new(),
    }
}
