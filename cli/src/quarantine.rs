//! Messages about nodes whose votes do not count, for example because they restarted and may have lost their locks.

use crate::nodes::Client;
use crate::output;
use quorlock::{NodeFailure, NodeInfo, NodeState, VoteEligibility};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

/// Advice for users of a new deployment.
pub(crate) const IF_NEW: &str =
    "for a new deployment, on which no lock has been held yet, use --restart-guard observed";

const PERMIT_INFO: &str = "permit INFO (+info), so that quorlock can read the uptime of the nodes";

/// If too few votes count for an acquire, prints the reason and how long this lasts. Never resolves.
pub(crate) async fn warn(client: &Client) -> Infallible {
    if client.settle().await.is_ok()
        && let Some(reason) = reason(client)
    {
        output::print_message(format_args!("waiting: {reason}"));
    }
    pending().await
}

/// If a majority of the nodes replies but too few votes count, returns the reason and how long this lasts. Returns
/// `None` if a lock can be acquired, or if too few nodes reply.
pub(crate) fn reason(client: &Client) -> Option<String> {
    let nodes = client.redlock.nodes();
    let up = || nodes.iter().filter(|node| *node.state() == NodeState::Up);
    let lasts = until_quorum(up().map(|node| node.eligibility().counts_in()), nodes.len())?;
    let recent = up().filter(|node| is_recently_started(node)).count();
    let has_no_vote = |node: &&NodeInfo| {
        *node.state() != NodeState::Up || !node.eligibility().counts_in().is_zero()
    };
    let without_vote: Vec<_> = nodes.iter().filter(has_no_vote).map(ToString::to_string).collect();
    let mut reason = format!(
        "no lock can be acquired for up to {}, because {} of {} nodes have no vote ({})",
        seconds(lasts),
        without_vote.len(),
        nodes.len(),
        without_vote.join("; ")
    );
    if up().any(lacks_info) {
        reason = format!("{reason}; {PERMIT_INFO}");
    }
    // If any node had started earlier, the deployment would not be new.
    if client.is_strict() && recent == up().count() {
        reason = format!("{reason}; {IF_NEW}");
    }
    Some(reason)
}

/// Returns true if the node's vote does not count because the Redis user has no permission for `INFO`.
fn lacks_info(node: &NodeInfo) -> bool {
    match node.eligibility() {
        VoteEligibility::Excluded(NodeFailure::MaybeRestarted { missing, .. }) => {
            *missing == "INFO is not permitted"
        }
        _ => false,
    }
}

/// Returns the time until the votes of a majority of `all` nodes count. `waits` contains this time for each node that
/// replies. Returns `None` if a majority counts already, or if too few nodes reply.
fn until_quorum(waits: impl Iterator<Item = Duration>, all: usize) -> Option<Duration> {
    let mut waits: Vec<Duration> = waits.collect();
    waits.sort_unstable();
    waits.get(all / 2).copied().filter(|wait| !wait.is_zero())
}

/// Returns true if the node started recently, or may have started recently.
fn is_recently_started(node: &NodeInfo) -> bool {
    match node.eligibility() {
        VoteEligibility::RecentStart { .. } => true,
        VoteEligibility::Excluded(failure) => {
            matches!(failure, NodeFailure::Restarted { .. } | NodeFailure::MaybeRestarted { .. })
        }
        _ => false,
    }
}

/// Formats a duration in whole seconds, rounded up.
pub(crate) fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    format!("{whole} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_quorum_is_the_wait_of_the_median_node() {
        for (waits, all, lasts) in [
            (&[0, 0, 61][..], 3, None),
            (&[61, 0, 61], 3, Some(61)),
            (&[60, 20, 40], 3, Some(40)),
            (&[0, 61], 3, Some(61)),
            (&[61], 3, None),
            (&[0, 0, 61, 61], 4, Some(61)),
            (&[9], 1, Some(9)),
        ] {
            let waits = waits.iter().copied().map(Duration::from_secs);
            assert_eq!(until_quorum(waits, all), lasts.map(Duration::from_secs), "{all}");
        }
    }

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(seconds(Duration::from_millis(60_001)), "61 s");
        assert_eq!(seconds(Duration::from_secs(60)), "60 s");
    }
}
