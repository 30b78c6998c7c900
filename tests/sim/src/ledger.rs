//! Who was given which token, and whether tokens follow the order of tenures.

use crate::clock::Instant;
use crate::mode::Mode;
use crate::protocol::{MAX_NODES, NodeId, NodeSet};
use std::cmp::Ordering;

/// A token that was handed out.
pub(crate) struct Commit {
    pub(crate) client: usize,
    pub(crate) claim: u32,
    pub(crate) token: u64,
    /// The nodes that have confirmed it.
    pub(crate) nodes: NodeSet,
    /// From T1 of its attempt until its holder had it.
    pub(crate) began: Instant,
    pub(crate) returned: Instant,
}

/// All tokens of a run.
pub(crate) struct Ledger {
    /// Counters are lost, and all that the order rests on: what comes of it is only counted.
    is_measured: bool,
    commits: Vec<Commit>,
    /// On each node: whose keys came to stand there, one after the other.
    tenures: Vec<Vec<u32>>,
    /// On each node: when it last forgot all.
    wiped: Vec<Option<Instant>>,
    /// How often a token was not higher than that of a lease which had been handed out before.
    pub(crate) disorders: u64,
}

impl Ledger {
    pub(crate) fn new(mode: Mode) -> Self {
        Self {
            is_measured: matches!(mode, Mode::Wiped(_)),
            commits: Vec::new(),
            tenures: vec![Vec::new(); MAX_NODES],
            wiped: vec![None; MAX_NODES],
            disorders: 0,
        }
    }

    pub(crate) fn begin_tenure(&mut self, node: usize, claim: u32) {
        // A key that is put back later was there before.
        if !self.tenures[node].contains(&claim) {
            self.tenures[node].push(claim);
        }
    }

    pub(crate) fn wipe(&mut self, node: usize, now: Instant) {
        self.wiped[node] = Some(now);
    }

    /// Takes down a token, and says what is wrong with it.
    pub(crate) fn commit(&mut self, commit: Commit) -> Option<String> {
        let wrong: Vec<_> =
            self.commits.iter().filter_map(|earlier| self.compare(earlier, &commit)).collect();
        self.disorders += wrong.len() as u64;
        self.commits.push(commit);
        wrong.into_iter().next()
    }

    /// Two tokens, the second of which was handed out after the first.
    fn compare(&self, one: &Commit, other: &Commit) -> Option<String> {
        let is_later = one.returned <= other.began;
        let order = one.token.cmp(&other.token);
        let tell = |what: &str| {
            let (one, other) = ((one.client, one.token), (other.client, other.token));
            Some(format!(
                "c{} had token {}, and c{} has {}: {what}",
                one.0, one.1, other.0, other.1
            ))
        };
        if self.is_measured {
            let is_wrong = order == Ordering::Equal || is_later && order != Ordering::Less;
            return if is_wrong { tell("counters were lost") } else { None };
        }
        let since = one.began.min(other.began);
        let has_kept = |node: &NodeId| self.wiped[node.index()].is_none_or(|at| at < since);
        let shared = |node: &NodeId| one.nodes.contains(*node) && other.nodes.contains(*node);
        let mut kept = (0..MAX_NODES).map(NodeId::new).filter(shared).filter(has_kept).peekable();
        let forgot = self.wiped.iter().flatten().any(|at| *at >= since);
        if kept.peek().is_none() {
            return if forgot { None } else { tell("no node has confirmed both") };
        }
        if is_later && order != Ordering::Less {
            return tell("it came later");
        }
        // Also of leases at the same time: keys can be gone before their time.
        let wrong = kept.find(|node| {
            let tenures = self.tenure(*node, one).zip(self.tenure(*node, other));
            tenures.is_some_and(|(one, other)| one.cmp(&other) != order)
        });
        wrong.and_then(|node| tell(&format!("that is not the order on {node:?}")))
    }

    /// The place of a lease among those that had the key of a node.
    fn tenure(&self, node: NodeId, commit: &Commit) -> Option<usize> {
        self.tenures[node.index()].iter().position(|claim| *claim == commit.claim)
    }
}
