//! Readiness of a client: every node has replied to it.

use crate::choice::LONGEST_TTL;
use crate::line::ClientConfig;
use quorlock::{NodeFailure, NodeVote, Redlock, Report};
use std::collections::BTreeSet;
use tokio::sync::watch;
use tokio::time::sleep;

/// Acquires a lock that no other client uses until every node has replied. From the replies, the
/// client learns the clock and the process of each server. Returns false if the session ends first.
pub(crate) async fn all_nodes_replied(
    redlock: &Redlock,
    config: &ClientConfig,
    mut is_ended: watch::Receiver<bool>,
) -> bool {
    let name = format!("ready:{}", config.client);
    let mut replied = BTreeSet::new();
    while replied.len() < config.nodes.urls.len() {
        let tried = redlock.try_acquire(&name).ttl(LONGEST_TTL).await;
        // The report also includes replies that arrive after the result, so this waits for them.
        tokio::select! {
            () = sleep(config.nodes.node_timeout) => {}
            _ = is_ended.wait_for(|is_ended| *is_ended) => return false,
        }
        match tried {
            Ok(lease) => {
                record(&mut replied, &lease.report());
                let _ = lease.release().await;
            }
            Err(refused) => {
                if let Some(report) = refused.report() {
                    record(&mut replied, report);
                }
            }
        }
    }
    true
}

fn record(replied: &mut BTreeSet<usize>, report: &Report) {
    let nodes = report.nodes().iter().enumerate();
    replied.extend(nodes.filter(|(_, node)| has_replied(node.vote())).map(|(index, _)| index));
}

fn has_replied(vote: &NodeVote) -> bool {
    match vote {
        NodeVote::Granted | NodeVote::Held => true,
        // The node has granted the lock, but its grant does not count yet.
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
