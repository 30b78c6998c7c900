//! Requests of the status and of a forced release.

use super::inner::Inner;
use super::status::{LockState, NodeStatus, Status};
use crate::lease::Backing;
use crate::node::{Ballot, Claim, Nodes, QueuedCommand};
use crate::observe::Report;
use crate::protocol::{Goal, Round};
use crate::round::{Asked, Tally};
use crate::wire::{Answer, Conflict, Keys, NodeFailure, Value};
use std::sync::Arc;

/// Reads the state of `keys` from each node.
pub(crate) async fn status(inner: &Inner, nodes: &Arc<Nodes>, keys: Keys) -> Status {
    let backing = &inner.backing;
    let looked = look(backing, nodes, keys).await;
    let report = looked.report(nodes.names().cloned());
    let each = report.nodes().iter().zip(looked.refusals()).zip(backing.pool.shared().iter());
    let each = each.map(|((node, answer), shared)| NodeStatus {
        name: node.name().into(),
        state: LockState::new(node.vote(), answer, backing.limits.max_ttl),
        eligibility: shared.eligibility(&shared.status().0),
        latency: node.latency(),
    });
    Status { needed: report.needed(), nodes: each.collect() }
}

/// Deletes, once, the value that each node reported.
pub(crate) async fn force_release(inner: &Inner, nodes: &Arc<Nodes>, keys: Keys) -> Report {
    let backing = &inner.backing;
    let (quorum, timeout) = (backing.quorum, backing.limits.node_timeout);
    let looked = look(backing, nodes, keys.clone()).await;
    let t1 = nodes.clock().now();
    let tally = Tally::new(Round::new(quorum, Goal::Survey), t1, nodes.clock());
    let mut asked = Asked::default();
    for (node, answer) in quorum.ids().zip(looked.refusals()) {
        let ballot = Ballot::new(tally.clone(), node);
        let late = || Answer::Failed(NodeFailure::Timeout(timeout));
        match answer {
            Some(Answer::Denied(Conflict { value: Some(value), .. })) => {
                let claim = Arc::new(Claim::new(keys.clone(), value, quorum.nodes()));
                asked.note(claim.clone());
                nodes.send(node, QueuedCommand::evict(claim, ballot));
            }
            other => ballot.cast(other.unwrap_or_else(late)),
        }
    }
    tally.decided(nodes, t1.after(timeout)).await;
    tally.report(nodes.names().cloned())
}

async fn look(backing: &Backing, nodes: &Arc<Nodes>, keys: Keys) -> Arc<Tally> {
    let t1 = nodes.clock().now();
    let tally = Tally::new(Round::new(backing.quorum, Goal::Survey), t1, nodes.clock());
    let claim = Arc::new(Claim::new(keys, Value::fresh(nodes.random()), backing.quorum.nodes()));
    let mut asked = Asked::default();
    asked.note(claim.clone());
    nodes.send_each(|node| QueuedCommand::look(claim.clone(), Ballot::new(tally.clone(), node)));
    tally.decided(nodes, t1.after(backing.limits.node_timeout)).await;
    tally
}
