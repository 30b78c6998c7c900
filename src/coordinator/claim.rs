//! The keys and the value of one attempt, with their state on each node.

use crate::protocol::{NodeId, Time, Ttl};
use crate::wire::{Counters, Keys, Subject, Value};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The keys and the value that an attempt sets on the nodes. Shared by its commands and its lease.
///
/// Only the coordinator changes the state. It is atomic because the handle of a lease shares the claim to read its keys
/// and its value.
#[derive(Debug)]
pub(crate) struct Claim {
    keys: Keys,
    value: Value,
    /// Fencing counters, for an acquire with a fencing token.
    fence: Option<Box<Counters>>,
    /// Nodes that a command was written to that sets the keys: they need a release.
    written: Nodes,
    /// Nodes that refused every such command: they hold no key of this claim.
    refused: Nodes,
    /// Nodes that answered an adoption without setting the value.
    declined: Nodes,
    /// Nodes that stalled or whose connection broke with a command unanswered. It can still run there, even after its
    /// TTL has passed.
    in_doubt: Nodes,
    /// Nodes to which the first command was written after `late_from`.
    late: Nodes,
    late_from: Time,
    /// Set when the claim is given up. From then on only its release is written.
    is_withdrawn: AtomicBool,
    /// Set when the attempt was refused.
    is_refused: AtomicBool,
    /// When the last key that was written so far must have expired, in nanoseconds.
    expiry: AtomicU64,
    /// Until when each node keeps the keys at least, by its latest grant, in nanoseconds; 0 without a grant or if it
    /// lost the keys.
    kept_until: Box<[AtomicU64]>,
}

/// A set of nodes with interior mutability.
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
    /// A claim on this number of `nodes`. A command that is first written after `late_from` has waited in this client.
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

    /// Gives the claim up: commands that were not written yet are never written, except its release.
    pub(super) fn withdraw(&self) {
        self.is_withdrawn.store(true, Relaxed);
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Relaxed)
    }

    /// The attempt was refused.
    pub(super) fn handle_refusal(&self) {
        self.is_refused.store(true, Relaxed);
    }

    /// True if the claim was given up because its attempt was refused.
    pub(super) fn is_refused(&self) -> bool {
        self.is_withdrawn() && self.is_refused.load(Relaxed)
    }

    /// A command that sets the keys for `ttl` is being written to `node`.
    pub(super) fn handle_written(&self, node: NodeId, ttl: Ttl, now: Time) {
        if now >= self.late_from && !self.written.contains(node) {
            self.late.insert(node);
        }
        self.refused.remove(node);
        self.written.insert(node);
        // A node's clock may run slower than the client's: 1/64 and 10 ms exceed any permitted drift.
        let ttl = ttl.as_duration();
        let latest = now.after(ttl + ttl / 64 + Duration::from_millis(10));
        self.expiry.fetch_max(latest.as_nanos(), Relaxed);
    }

    pub(super) fn is_written(&self, node: NodeId) -> bool {
        self.written.contains(node)
    }

    /// True if no command was written to `node`, or only so late that the node had no time to answer.
    pub(super) fn is_late(&self, node: NodeId) -> bool {
        !self.is_written(node) || self.late.contains(node)
    }

    /// `node` refused to set the keys. An earlier command that can still run there may set the keys.
    pub(super) fn handle_denied(&self, node: NodeId) {
        if !self.is_in_doubt(node) {
            self.refused.insert(node);
        }
    }

    /// True if `node` holds no key of this claim, because it refused them.
    pub(super) fn is_denied(&self, node: NodeId) -> bool {
        self.refused.contains(node) && !self.is_in_doubt(node)
    }

    /// True if a node has refused: another client tried to acquire the keys at the same time.
    pub(super) fn has_rivals(&self) -> bool {
        self.refused.bits() != 0
    }

    /// `node` answered the adoption without setting the value.
    pub(super) fn handle_declined(&self, node: NodeId) {
        self.declined.insert(node);
    }

    /// True if a node has set the value of this adoption, or may still set it.
    pub(super) fn may_be_set(&self) -> bool {
        self.written.bits() & !self.declined.bits() != 0
    }

    /// `node` left a command unanswered, which can still run there.
    pub(super) fn handle_in_doubt(&self, node: NodeId) {
        self.in_doubt.insert(node);
    }

    pub(super) fn is_in_doubt(&self, node: NodeId) -> bool {
        self.in_doubt.contains(node)
    }

    /// When the last key that was written so far must have expired. A command that is [in doubt](Self::is_in_doubt) can
    /// set a key later.
    pub(super) fn expiry(&self) -> Time {
        Time::from_nanos(self.expiry.load(Relaxed))
    }

    /// `node` keeps the keys at least until then.
    pub(super) fn handle_kept(&self, node: NodeId, until: Time) {
        self.kept_until[node.index()].fetch_max(until.as_nanos(), Relaxed);
    }

    /// `node` no longer has the keys. Returns until when it was to keep them.
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
