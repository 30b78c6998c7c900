//! What one attempt may have left on the nodes.

use crate::protocol::{NodeId, Time, Ttl};
use crate::wire::{Counters, Keys, Subject, Value};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The keys and the value that an attempt wants to stand there, with what has become of it on each
/// node. It is shared by the holder and the nodes' tasks.
///
/// `written` and `withdrawn` are each set before the other is read, in one order for all threads:
/// either the writer sees that the claim was given up, or whoever releases it sees that it was
/// written, also when they are tasks of different runtimes.
#[derive(Debug)]
pub(crate) struct Claim {
    keys: Keys,
    value: Value,
    /// The counters beside the keys, if a fencing token is wanted.
    fence: Option<Box<Counters>>,
    /// Nodes that a `SET` was written to: a release is owed there.
    written: AtomicU32,
    /// Nodes that have refused all that was written to them: nothing of ours is there.
    refused: AtomicU32,
    /// Nodes that answered an adoption without setting our value.
    declined: AtomicU32,
    /// Nodes that stalled, or whose connection broke, with a command of this claim unanswered: it
    /// may yet run, also when its ttl has passed.
    in_doubt: AtomicU32,
    /// Set once the claim is given up: nothing but its release is written from then on.
    withdrawn: AtomicBool,
    /// Set once so many nodes have refused that the others do not matter.
    outvoted: AtomicBool,
    /// When the last key written so far must have expired on its node.
    expiry: AtomicU64,
    /// A command that is first written after this is written late: it waited in this process.
    late_from: Time,
    /// Nodes that it was written to late.
    late: AtomicU32,
    /// Until when each node keeps the keys at the least, by what it has granted last; 0 if it has not, or
    /// they have gone.
    kept: Box<[AtomicU64]>,
}

impl Claim {
    /// Keys and a value for so many `nodes`.
    pub(crate) fn new(keys: Keys, value: Value, nodes: usize) -> Self {
        Self {
            keys,
            value,
            fence: None,
            written: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            declined: AtomicU32::new(0),
            in_doubt: AtomicU32::new(0),
            withdrawn: AtomicBool::new(false),
            outvoted: AtomicBool::new(false),
            expiry: AtomicU64::new(0),
            late_from: Time::END,
            late: AtomicU32::new(0),
            kept: (0..nodes).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Lets the counters of `fence` follow what becomes of the keys.
    pub(crate) fn fenced(self, fence: Option<Counters>) -> Self {
        Self { fence: fence.map(Box::new), ..self }
    }

    /// From then on a command that was not written before is late.
    pub(crate) fn late_from(self, late_from: Time) -> Self {
        Self { late_from, ..self }
    }

    pub(crate) fn fence(&self) -> Option<&Counters> {
        self.fence.as_deref()
    }

    /// What its commands for `node` are about.
    pub(super) fn subject(&self, node: NodeId) -> Subject<'_> {
        Subject { node, keys: &self.keys, value: &self.value, fence: self.fence() }
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    pub(crate) fn value(&self) -> &Value {
        &self.value
    }

    /// Gives the claim up: acquires, extensions and repairs not yet written never will be.
    pub(crate) fn withdraw(&self) {
        self.withdrawn.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Ordering::SeqCst)
    }

    /// Notes that so many nodes have refused that the others do not matter.
    pub(crate) fn note_outvoted(&self) {
        self.outvoted.store(true, Ordering::Relaxed);
    }

    /// True if it was given up because too many nodes have refused.
    pub(super) fn has_lost(&self) -> bool {
        self.is_withdrawn() && self.outvoted.load(Ordering::Relaxed)
    }

    /// Notes that a command that lets the key stand for `ttl` is being written to `node`. If this
    /// returns false the claim has been given up, and the command must not be written.
    pub(super) fn note_written(&self, node: NodeId, ttl: Ttl, now: Time) -> bool {
        self.refused.fetch_and(!node.bit(), Ordering::SeqCst);
        let before = self.written.fetch_or(node.bit(), Ordering::SeqCst);
        if now >= self.late_from && before & node.bit() == 0 {
            self.late.fetch_or(node.bit(), Ordering::Relaxed);
        }
        self.note_expiry(ttl, now);
        !self.is_withdrawn()
    }

    pub(super) fn is_written(&self, node: NodeId) -> bool {
        self.written.load(Ordering::SeqCst) & node.bit() != 0
    }

    /// Notes that `node` has refused to set the keys, which others hold. Where an earlier command may still
    /// run, that says nothing.
    pub(super) fn note_refused(&self, node: NodeId) {
        if !self.is_in_doubt(node) {
            self.refused.fetch_or(node.bit(), Ordering::SeqCst);
        }
    }

    /// True if a node has refused to set the keys: another client tried to acquire them, too.
    pub(crate) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::SeqCst) != 0
    }

    /// True if `node` has refused to set the keys, and nothing was written to it since.
    pub(super) fn is_refused(&self, node: NodeId) -> bool {
        self.refused.load(Ordering::SeqCst) & node.bit() != 0 && !self.is_in_doubt(node)
    }

    /// Records that `node` answered the adoption without setting our value.
    pub(super) fn note_declined(&self, node: NodeId) {
        self.declined.fetch_or(node.bit(), Ordering::Relaxed);
    }

    /// True if a node has set our value in an adoption, or may still set it.
    pub(crate) fn may_be_set(&self) -> bool {
        self.written.load(Ordering::SeqCst) & !self.declined.load(Ordering::Relaxed) != 0
    }

    /// True if nothing was written to `node`, or only so late that it had no time to answer.
    pub(crate) fn is_held_up(&self, node: NodeId) -> bool {
        !self.is_written(node) || self.late.load(Ordering::Relaxed) & node.bit() != 0
    }

    /// Notes that `node` stalled, or its connection broke, with a command of this claim unanswered.
    pub(super) fn note_in_doubt(&self, node: NodeId) {
        self.in_doubt.fetch_or(node.bit(), Ordering::Relaxed);
    }

    pub(super) fn is_in_doubt(&self, node: NodeId) -> bool {
        self.in_doubt.load(Ordering::Relaxed) & node.bit() != 0
    }

    /// When the last key written so far must have expired. While the claim is
    /// [in doubt](Self::is_in_doubt) on a node, a late command can still set one there.
    pub(super) fn expiry(&self) -> Time {
        Time::from_nanos(self.expiry.load(Ordering::Relaxed))
    }

    /// Notes that `node` keeps the keys until then at the least.
    pub(super) fn note_kept(&self, node: NodeId, until: Time) {
        self.kept[node.index()].fetch_max(until.as_nanos(), Ordering::AcqRel);
    }

    /// True if `node` has granted, and is not known to have lost that.
    pub(super) fn has_kept(&self, node: NodeId) -> bool {
        self.kept[node.index()].load(Ordering::Acquire) > 0
    }

    /// Until when `node` was to keep the keys, which it does no more.
    pub(super) fn forget_kept(&self, node: NodeId) -> Option<Time> {
        let until = self.kept[node.index()].swap(0, Ordering::AcqRel);
        (until > 0).then(|| Time::from_nanos(until))
    }

    /// A node's clock may run slower than ours: 1/64 and 10 ms are added, above any drift allowed.
    fn note_expiry(&self, ttl: Ttl, now: Time) {
        let ttl = ttl.as_duration();
        let slack = ttl / 64 + Duration::from_millis(10);
        self.expiry.fetch_max(now.after(ttl + slack).as_nanos(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn acquire_is_written_to_a_slow_node_after_the_quorum() {
        let claim = Claim::new(Keys::one(b"k".as_slice().into()), Value::of(b"mine"), 3);
        let [first, second, slow] = [0, 1, 2].map(NodeId::new);
        let now = Time::from_nanos(1);
        for node in [first, second] {
            assert!(claim.note_written(node, Ttl::SHORTEST, now));
            claim.note_kept(node, now);
        }
        assert!(claim.note_written(slow, Ttl::SHORTEST, now), "I6: no command is cancelled");
    }

    #[test]
    fn the_expiry_is_that_of_the_longest_standing_key() {
        let claim =
            Claim::new(Keys::one(b"k".as_slice().into()), Value::fresh(&Random::Machine), 2);
        let node = NodeId::new(0);
        let ttl = |ms| Ttl::from_duration(Duration::from_millis(ms)).expect("a good ttl");
        assert!(!claim.is_written(node));
        assert!(claim.note_written(node, ttl(6_400), Time::from_nanos(0)));
        assert!(claim.note_written(node, ttl(1), Time::from_nanos(1)));
        assert_eq!(claim.expiry(), Time::from_nanos(6_510_000_000));
        assert!(claim.note_written(node, ttl(6_400), Time::from_nanos(90_000_000)));
        assert_eq!(claim.expiry(), Time::from_nanos(6_600_000_000), "it was extended");
        assert!(claim.is_written(node) && !claim.is_written(NodeId::new(1)));
        claim.note_refused(node);
        assert!(claim.is_refused(node) && !claim.is_refused(NodeId::new(1)));
        assert!(claim.note_written(node, ttl(1), Time::from_nanos(2)) && !claim.is_refused(node));
        claim.note_refused(node);
        claim.note_in_doubt(node);
        assert!(!claim.is_refused(node), "an earlier command may still run");
        assert!(!claim.has_kept(node));
        claim.note_kept(node, Time::from_nanos(9));
        claim.note_kept(node, Time::from_nanos(8));
        assert!(claim.has_kept(node) && !claim.has_kept(NodeId::new(1)));
        assert_eq!(claim.forget_kept(node), Some(Time::from_nanos(9)));
        assert_eq!((claim.forget_kept(node), claim.has_kept(node)), (None, false));
        claim.note_outvoted();
        assert!(!claim.has_lost(), "its release is not on its way yet");
        claim.withdraw();
        assert!(claim.has_lost());
        assert!(!claim.note_written(node, ttl(1), Time::from_nanos(2)), "given up");
    }
}
