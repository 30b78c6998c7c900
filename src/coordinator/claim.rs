//! The keys and the value of one attempt, with their state on each node.

use crate::protocol::{NodeId, Time, Ttl};
use crate::wire::{Counters, Keys, Subject, Value};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The keys and the value that an attempt sets on the nodes, shared by the attempt's commands and its lease.
///
/// Only the coordinator changes the state. The state is atomic because lease handles share the claim to read its keys
/// and value.
#[derive(Debug)]
pub(crate) struct Claim {
    keys: Keys,
    value: Value,
    /// The fencing counters, if the caller requested a fencing token.
    fence: Option<Box<Counters>>,
    /// The nodes to which a command that sets the keys was written. All these nodes need a release.
    written: Nodes,
    /// The nodes that refused every command that sets the keys, and so hold no key of this claim.
    refused: Nodes,
    /// The nodes that answered an adoption without setting the value.
    declined: Nodes,
    /// The nodes that stalled, or whose connection broke, with a command unanswered. A node can still execute this
    /// command, even after the command's TTL has passed.
    in_doubt: Nodes,
    /// The nodes to which the first command was written at or after `late_from`.
    late: Nodes,
    late_from: Time,
    /// Whether the claim was withdrawn. The client writes only the release of a withdrawn claim.
    is_withdrawn: AtomicBool,
    is_refused: AtomicBool,
    /// The time by which all keys written so far must have expired, in nanoseconds.
    expiry: AtomicU64,
    /// For each node, the time until which the node must keep the keys by its latest grant, in nanoseconds. 0 if the
    /// node has not granted the claim or has lost the keys.
    kept_until: Box<[AtomicU64]>,
}

#[derive(Debug, Default)]
struct Nodes(AtomicU32);

impl Nodes {
    fn insert(&self, node: NodeId) {
        self.0.fetch_or(node.bit(), Relaxed);
    }

    fn remove(&self, node: NodeId) {
        self.0.fetch_and(!node.bit(), Relaxed);
    }

    fn contains(&self, node: NodeId) -> bool {
        self.0.load(Relaxed) & node.bit() != 0
    }

    fn bits(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

impl Claim {
    /// Creates a claim for a client with `nodes` nodes. If the first command to a node is written at or after
    /// `late_from`, this client has delayed the command.
    pub(super) fn new(
        keys: Keys,
        value: Value,
        fence: Option<Counters>,
        nodes: usize,
        late_from: Time,
    ) -> Self {
        Self {
            keys,
            value,
            fence: fence.map(Box::new),
            written: Nodes::default(),
            refused: Nodes::default(),
            declined: Nodes::default(),
            in_doubt: Nodes::default(),
            late: Nodes::default(),
            late_from,
            is_withdrawn: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            expiry: AtomicU64::new(0),
            kept_until: (0..nodes).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    pub(crate) fn fence(&self) -> Option<&Counters> {
        self.fence.as_deref()
    }

    pub(super) fn subject(&self, node: NodeId) -> Subject<'_> {
        Subject { node, keys: &self.keys, value: &self.value, fence: self.fence() }
    }

    /// Withdraws the claim: its unwritten commands are cancelled, except its release.
    pub(super) fn withdraw(&self) {
        self.is_withdrawn.store(true, Relaxed);
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Relaxed)
    }

    pub(super) fn handle_refusal(&self) {
        self.is_refused.store(true, Relaxed);
    }

    /// Returns true if the claim was withdrawn because its attempt was refused.
    pub(super) fn is_refused(&self) -> bool {
        self.is_withdrawn() && self.is_refused.load(Relaxed)
    }

    pub(super) fn handle_written(&self, node: NodeId, ttl: Ttl, now: Time) {
        if now >= self.late_from && !self.written.contains(node) {
            self.late.insert(node);
        }
        self.refused.remove(node);
        self.written.insert(node);
        // A node's clock may run slower than the client's clock. A margin of 1/64 of the TTL plus 10 ms exceeds any
        // permitted drift.
        let ttl = ttl.as_duration();
        let latest = now.after(ttl + ttl / 64 + Duration::from_millis(10));
        self.expiry.fetch_max(latest.as_nanos(), Relaxed);
    }

    pub(super) fn is_written(&self, node: NodeId) -> bool {
        self.written.contains(node)
    }

    /// Returns true if no command was written to `node`, or if the first command was written too late for the node to
    /// answer.
    pub(super) fn is_late(&self, node: NodeId) -> bool {
        !self.is_written(node) || self.late.contains(node)
    }

    /// Records that `node` refused to set the keys. Ignores the refusal if the node can still execute an earlier
    /// command that sets the keys.
    pub(super) fn handle_denied(&self, node: NodeId) {
        if !self.is_in_doubt(node) {
            self.refused.insert(node);
        }
    }

    /// Returns true if `node` holds no key of this claim because the node refused to set the keys.
    pub(super) fn is_denied(&self, node: NodeId) -> bool {
        self.refused.contains(node) && !self.is_in_doubt(node)
    }

    /// Returns true if a node has refused the claim, because another client tried to acquire the keys at the same time.
    pub(super) fn has_rivals(&self) -> bool {
        self.refused.bits() != 0
    }

    pub(super) fn handle_declined(&self, node: NodeId) {
        self.declined.insert(node);
    }

    /// Returns true if a node has set the value of this adoption, or may still set it.
    pub(super) fn may_be_set(&self) -> bool {
        self.written.bits() & !self.declined.bits() != 0
    }

    pub(super) fn handle_in_doubt(&self, node: NodeId) {
        self.in_doubt.insert(node);
    }

    pub(super) fn is_in_doubt(&self, node: NodeId) -> bool {
        self.in_doubt.contains(node)
    }

    /// Returns the time by which all keys written so far must have expired. A command that is [in
    /// doubt](Self::is_in_doubt) can set a key later.
    pub(super) fn expiry(&self) -> Time {
        Time::from_nanos(self.expiry.load(Relaxed))
    }

    pub(super) fn handle_kept(&self, node: NodeId, until: Time) {
        self.kept_until[node.index()].fetch_max(until.as_nanos(), Relaxed);
    }

    /// Records that `node` has lost the keys. Returns the time until which the node should have kept them.
    pub(super) fn take_kept(&self, node: NodeId) -> Option<Time> {
        let until = self.kept_until[node.index()].swap(0, Relaxed);
        (until > 0).then(|| Time::from_nanos(until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Claim {
        let keys = Keys::one(b"k".as_slice().into());
        let late_from = Time::default().after(Duration::from_millis(25));
        Claim::new(keys, Value::of(b"v"), None, 3, late_from)
    }

    fn at(ms: u64) -> Time {
        Time::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn refusal_proves_nothing_while_a_command_can_still_run() {
        let (claim, node) = (claim(), NodeId::new(1));
        claim.handle_written(node, Ttl::SHORTEST, at(0));
        claim.handle_denied(node);
        assert!(claim.is_denied(node) && claim.has_rivals());
        claim.handle_written(node, Ttl::SHORTEST, at(1));
        assert!(!claim.is_denied(node), "a later command may set the key");
        claim.handle_in_doubt(node);
        claim.handle_denied(node);
        assert!(!claim.is_denied(node));
        assert!(claim.is_written(node) && !claim.is_written(NodeId::new(0)));
    }

    #[test]
    fn expiry_is_that_of_the_longest_key_with_slack() {
        let (claim, ttl) = (claim(), Ttl::covering(Duration::from_millis(640)));
        claim.handle_written(NodeId::new(0), ttl, at(5));
        claim.handle_written(NodeId::new(1), Ttl::SHORTEST, at(6));
        assert_eq!(claim.expiry(), at(5 + 640 + 10 + 10));
    }

    #[test]
    fn command_is_late_if_the_first_one_was_written_late() {
        let claim = claim();
        let [first, second, third] = [0, 1, 2].map(NodeId::new);
        claim.handle_written(first, Ttl::SHORTEST, at(24));
        claim.handle_written(first, Ttl::SHORTEST, at(30));
        claim.handle_written(second, Ttl::SHORTEST, at(25));
        assert_eq!([first, second, third].map(|node| claim.is_late(node)), [false, true, true]);
    }

    #[test]
    fn kept_time_grows_until_the_keys_are_lost() {
        let (claim, node) = (claim(), NodeId::new(2));
        claim.handle_kept(node, at(9));
        claim.handle_kept(node, at(5));
        assert_eq!(claim.take_kept(node), Some(at(9)));
        assert_eq!(claim.take_kept(node), None);
    }
}
