//! The fencing tokens of readers.

use crate::clock::Instant;
use crate::ledger::{Commit, unique_part};
use crate::readers::LOCK;
use crate::rule::Rule;
use crate::worker::Worker;
use quorlock::LeaseRef;

/// The value of the lock's key while the lock has readers.
pub(crate) const READERS: &[u8] = b"quorlock:readers";

/// The text between the name of a lock and the rest of the key of its readers.
const KEY_OF_READERS: &[u8] = b"#quorlock:readers";

/// The token of a reader, and the state of the nodes when the lease was handed out.
struct ReaderToken {
    /// 0 if the reader has no token.
    token: u64,
    /// The time at which the reader's value first appeared on a node.
    first_seen: Instant,
    /// For each node, the time at which the node last lost its counters or this counter expired.
    wiped: Vec<Option<Instant>>,
    /// The number of nodes that clients use.
    nodes: usize,
}

/// Returns true for the key that contains the values of a lock's readers.
pub(crate) fn is_key_of_readers(key: &[u8]) -> bool {
    key.windows(KEY_OF_READERS.len()).any(|part| part == KEY_OF_READERS)
}

impl Worker {
    /// Checks that the token of a reader is not below the token of any earlier writer.
    pub(crate) fn check_reader_token(&self, lease: &LeaseRef) {
        let reader = {
            let core = self.shared.lock();
            ReaderToken {
                token: lease.token().map_or(0, quorlock::FencingToken::get),
                first_seen: core.first_seen_at(unique_part(lease.value().as_bytes())),
                wiped: core.counters_wiped(LOCK),
                nodes: core.addresses.len(),
            }
        };
        let mut state = self.checker.state();
        let is_met = state.ledger.commits(LOCK).next().is_some();
        state.counts.add(Rule::ReaderTokens, u64::from(is_met));
        let above = state.ledger.commits(LOCK).find(|writer| reader.is_wrong_after(writer));
        if let Some(Commit { process, token, .. }) = above {
            let how = format!(
                "the reader p{} has token {}, but the earlier writer p{process} had {token}",
                self.process, reader.token
            );
            state.violated(Rule::ReaderTokens, how);
        }
    }
}

impl ReaderToken {
    /// Returns true if the token is below the token of `writer`, although the writer's acquire had
    /// returned before the reader's attempt began, and fewer nodes than a quorum can have a lower
    /// counter.
    fn is_wrong_after(&self, writer: &Commit) -> bool {
        let has_kept = |node: &&usize| self.wiped[**node].is_none_or(|at| at < writer.returned);
        let kept = writer.confirmed.iter().filter(has_kept).count();
        let is_earlier = writer.returned <= self.first_seen;
        is_earlier && self.nodes - kept <= self.nodes / 2 && self.token < writer.token
    }
}
