//! When a client has heard of all nodes.

use crate::choice::LONGEST_TTL;
use crate::line::Orders;
use quorlock::{NodeFailure, NodeVote, Redlock, Report};
use std::collections::BTreeSet;
use tokio::sync::watch;
use tokio::time::sleep;

/// Waits until each node has answered this client's request for a lock that nobody else wants, so
/// that the client has measured its clock and knows which process it is. False if the end came first.
pub(crate) async fn of_all(
    redlock: &Redlock,
    orders: &Orders,
    mut is_ended: watch::Receiver<bool>,
) -> bool {
    let name = format!("sight:{}", orders.client);
    let mut seen = BTreeSet::new();
    while seen.len() < orders.nodes.urls.len() {
        let tried = redlock.try_acquire(&name).ttl(LONGEST_TTL).await;
        // Who answers after the round was decided is in the report a little later.
        tokio::select! {
            () = sleep(orders.nodes.node_timeout) => {}
            _ = is_ended.wait_for(|is_ended| *is_ended) => return false,
        }
        match tried {
            Ok(lease) => {
                note(&mut seen, &lease.report());
                let _ = lease.release().await;
            }
            Err(refused) => {
                if let Some(report) = refused.report() {
                    note(&mut seen, report);
                }
            }
        }
    }
    true
}

fn note(seen: &mut BTreeSet<usize>, report: &Report) {
    let nodes = report.nodes().iter().enumerate();
    seen.extend(nodes.filter(|(_, node)| has_answered(node.vote())).map(|(index, _)| index));
}

fn has_answered(vote: &NodeVote) -> bool {
    match vote {
        NodeVote::Granted | NodeVote::Held => true,
        // What they granted does not count: so they were asked, and have answered.
        NodeVote::Failed(failure) => matches!(
            failure,
            NodeFailure::Restarted { .. }
                | NodeFailure::MaybeRestarted { .. }
                | NodeFailure::Flushed { .. }
                | NodeFailure::Suspect { .. }
        ),
        _ => false,
    }
}
