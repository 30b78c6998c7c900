//! The keys and the value that one attempt sets on the nodes.

use crate::protocol::{NodeId, NodeSet, Time, Ttl};
use crate::wire::{CommandTarget, Counters, Keys, SharedKeys, Sharing, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The keys and the value that an attempt sets on the nodes, and their state on each node. All commands of the attempt
/// and of its lease share one `Claim`.
///
/// Only the coordinator changes the state. The fields are atomic because lease handles on other threads share the
/// `Claim` to read its keys and its value.
#[derive(Debug)]
pub(crate) struct Claim {
    keys: Keys,
    value: Value,
    fence: Option<Box<Counters>>,
    /// Whether each node needs to set only one of the keys.
    is_any: bool,
    /// For a lock that has readers.
    sharing: Option<Box<ClaimSharing>>,
    /// Whether this is the [reservation](Self::reservation) of an acquire.
    is_reservation: bool,
    /// In a claim to any one of several keys: the index of the key that the acquire has chosen, or [`NO_CHOICE`].
    choice: AtomicU32,
    /// The claim to any one of several keys, some of which are this claim's keys. Its acquire commands set the keys of
    /// this claim too, so both claims share its state.
    origin: Option<Arc<Claim>>,
    /// Whether the keys are no longer needed. The client then writes no more commands with these keys, except their
    /// release.
    is_withdrawn: AtomicBool,
    is_refused: AtomicBool,
    state: NodeStates,
}

/// How a claim uses a lock that has readers.
#[derive(Debug)]
struct ClaimSharing {
    keys: Arc<SharedKeys>,
    is_reader: AtomicBool,
    /// If the acquire waits: the claim to its reservation, which nodes store when they refuse an attempt.
    reservation: Option<Arc<Claim>>,
}

const NO_CHOICE: u32 = u32::MAX;

/// The known state of a claim's keys on each node.
#[derive(Debug)]
struct NodeStates {
    /// Nodes to which a command that sets the keys was written. These nodes need a release, unless they refused the
    /// command.
    written: Nodes,
    /// Nodes that refused to set the keys. These nodes hold no key of this attempt and need no release.
    denied: Nodes,
    /// Nodes that rejected an adoption, and therefore still have the lock's previous value.
    declined: Nodes,
    /// Nodes that can still execute an unanswered command, even after the command's TTL has passed. Such a node has
    /// stalled, or its connection broke before the reply.
    in_doubt: Nodes,
    /// Nodes to which a release was written.
    released: Nodes,
    /// Nodes that had to keep the keys when the first release was written.
    kept_at_release: Nodes,
    /// Nodes to which this client wrote the first command only at or after `late_from`.
    late: Nodes,
    late_from: Time,
    /// When the last of the keys written so far must have expired, in nanoseconds.
    expiry: AtomicU64,
    /// For each node, the time until which the node must keep the keys that it granted, in nanoseconds. 0 if the node
    /// has granted no command, or has lost the keys.
    kept_until: Box<[AtomicU64]>,
}

impl NodeStates {
    fn new(nodes: usize, late_from: Time) -> Self {
        Self {
            written: Nodes::default(),
            denied: Nodes::default(),
            declined: Nodes::default(),
            in_doubt: Nodes::default(),
            released: Nodes::default(),
            kept_at_release: Nodes::default(),
            late: Nodes::default(),
            late_from,
            expiry: AtomicU64::new(0),
            kept_until: (0..nodes).map(|_| AtomicU64::new(0)).collect(),
        }
    }
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
    /// Creates the state for a client with `nodes` nodes. If the first command is written at or after `late_from`, the
    /// command is [late](Self::is_late).
    pub(super) fn new(
        keys: Keys,
        value: Value,
        fence: Option<Counters>,
        nodes: usize,
        late_from: Time,
    ) -> Self {
        let state = NodeStates::new(nodes, late_from);
        Self {
            keys,
            value,
            fence: fence.map(Box::new),
            is_any: false,
            sharing: None,
            is_reservation: false,
            choice: AtomicU32::new(NO_CHOICE),
            origin: None,
            is_withdrawn: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
            state,
        }
    }

    /// Returns true for the claim to [other keys](Self::other_keys) than the chosen one.
    fn is_unchosen(&self) -> bool {
        self.is_any && self.origin.is_some()
    }

    fn state(&self) -> &NodeStates {
        self.origin.as_ref().map_or(&self.state, |origin| &origin.state)
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

    pub(super) fn subject(&self, node: NodeId) -> CommandTarget<'_> {
        let sharing = self.sharing.as_ref().map(|it| Sharing {
            keys: &it.keys,
            is_reader: it.is_reader.load(Relaxed),
            reservation: it.reservation.as_deref().map(Self::value),
            is_refused: self.is_refused(),
        });
        CommandTarget { node, keys: &self.keys, value: &self.value, fence: self.fence(), sharing }
    }

    /// Makes this the claim of a reader or a writer of a lock that has readers. `reservation` is the claim to the
    /// reservation of an acquire that waits.
    pub(super) fn shared(
        self,
        keys: Arc<SharedKeys>,
        is_reader: bool,
        reservation: Option<Arc<Self>>,
    ) -> Self {
        let is_reader = AtomicBool::new(is_reader);
        Self { sharing: Some(Box::new(ClaimSharing { keys, is_reader, reservation })), ..self }
    }

    /// Makes this the claim to the reservation of a waiting acquire.
    pub(super) fn of_reservation(self) -> Self {
        Self { is_reservation: true, ..self }
    }

    pub(super) fn is_reservation(&self) -> bool {
        self.is_reservation
    }

    /// Returns the claim to the reservation of the acquire: the intent of a writer, or the request of a reader. `None` if
    /// the acquire does not wait.
    pub(super) fn reservation(&self) -> Option<&Arc<Self>> {
        self.sharing.as_ref()?.reservation.as_ref()
    }

    pub(super) fn is_reader(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| sharing.is_reader.load(Relaxed))
    }

    pub(crate) fn is_writer(&self) -> bool {
        self.sharing.as_ref().is_some_and(|sharing| !sharing.is_reader.load(Relaxed))
    }

    /// Makes the writer a reader. All later commands are reader commands. Has no effect on the claim to a lock
    /// without readers.
    pub(super) fn downgrade(&self) {
        if let Some(sharing) = &self.sharing {
            sharing.is_reader.store(true, Relaxed);
        }
    }

    /// Makes this the claim of an acquire of any one of the keys: each node sets at most one of them.
    pub(super) fn of_any_key(self) -> Self {
        Self { is_any: true, ..self }
    }

    pub(super) fn is_any(&self) -> bool {
        self.is_any
    }

    /// In the claim of an acquire of any one of several keys, chooses the key at `place`, which the nodes in `granted`
    /// have set. Returns the claim to this key. Returns `None` if there is no such key.
    pub(super) fn choose(self: &Arc<Self>, place: usize, granted: NodeSet) -> Option<Self> {
        let fence = self.fence().and_then(|fence| fence.of_key(place));
        let chosen = self.part(self.keys.select(&[place])?, fence);
        // The other keys expire at this time. Extensions of the chosen key change only the shared state.
        chosen.state.expiry.store(self.expiry().as_nanos(), Relaxed);
        self.choice.store(u32::try_from(place).unwrap_or(NO_CHOICE), Relaxed);
        let kept_until = self.state.kept_until.iter().enumerate();
        for (_, until) in kept_until.filter(|(node, _)| !granted.contains(NodeId::new(*node))) {
            until.store(0, Relaxed);
        }
        Some(chosen)
    }

    /// Returns true if this claim is to one of the keys of an acquire of any one of several keys.
    pub(super) fn has_other_keys(&self) -> bool {
        self.origin.is_some()
    }

    /// Returns the claim to the keys that were not [chosen](Self::choose), if there are any.
    pub(super) fn other_keys(&self) -> Option<Self> {
        let origin = self.origin.as_ref()?;
        let chosen = origin.chosen()?;
        let others: Vec<_> = (0..origin.keys.len()).filter(|place| *place != chosen).collect();
        let others = origin.part(origin.keys.select(&others)?, None).of_any_key();
        others.state.expiry.store(self.state.expiry.load(Relaxed), Relaxed);
        Some(others)
    }

    fn chosen(&self) -> Option<usize> {
        let choice = self.choice.load(Relaxed);
        usize::try_from(choice).ok().filter(|_| choice != NO_CHOICE)
    }

    /// Returns a claim to `keys`, which are some of this claim's keys.
    fn part(self: &Arc<Self>, keys: Keys, fence: Option<Counters>) -> Self {
        let origin = Some(self.clone());
        Self { origin, ..Self::new(keys, self.value.clone(), fence, 0, self.state.late_from) }
    }

    /// Cancels all unwritten commands except the release. Called when the keys are no longer needed.
    pub(super) fn withdraw(&self) {
        self.is_withdrawn.store(true, Relaxed);
    }

    pub(super) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Relaxed)
    }

    pub(super) fn handle_refusal(&self) {
        self.is_refused.store(true, Relaxed);
    }

    /// Returns true if the keys are no longer needed because the attempt was refused.
    pub(super) fn is_refused(&self) -> bool {
        self.is_withdrawn() && self.is_refused.load(Relaxed)
    }

    pub(super) fn handle_written(&self, node: NodeId, ttl: Ttl, now: Time) {
        if now >= self.state().late_from && !self.state().written.contains(node) {
            self.state().late.insert(node);
        }
        self.state().denied.remove(node);
        self.state().written.insert(node);
        // A node's clock may run slower than the client's clock. A margin of 1/64 of the TTL plus 10 ms exceeds any
        // permitted drift.
        let ttl = ttl.as_duration();
        let latest = now.after(ttl + ttl / 64 + Duration::from_millis(10));
        self.state().expiry.fetch_max(latest.as_nanos(), Relaxed);
    }

    pub(super) fn is_written(&self, node: NodeId) -> bool {
        self.state().written.contains(node)
    }

    /// Returns true if `node` had too little time to reply because of this client, which wrote the first command late
    /// or not at all.
    pub(super) fn is_late(&self, node: NodeId) -> bool {
        !self.is_written(node) || self.state().late.contains(node)
    }

    /// Records that `node` refused to set the keys. Ignored if the node can still execute an earlier command that sets
    /// the keys.
    pub(super) fn handle_denied(&self, node: NodeId) {
        if !self.is_in_doubt(node) {
            self.state().denied.insert(node);
        }
    }

    /// Returns true if `node` refused to set the keys and cannot set them later. Such a node needs no release.
    pub(super) fn is_denied(&self, node: NodeId) -> bool {
        self.state().denied.contains(node) && !self.is_in_doubt(node)
    }

    /// Returns true if a node refused to set the keys, because another client competed for them.
    pub(super) fn has_rivals(&self) -> bool {
        self.state().denied.bits() != 0
    }

    pub(super) fn handle_declined(&self, node: NodeId) {
        self.state().declined.insert(node);
    }

    /// Returns true if a node may have replaced an adopted lock's value with this claim's value, or can still do so.
    pub(super) fn may_be_set(&self) -> bool {
        self.state().written.bits() & !self.state().declined.bits() != 0
    }

    pub(super) fn handle_in_doubt(&self, node: NodeId) {
        self.state().in_doubt.insert(node);
    }

    pub(super) fn is_in_doubt(&self, node: NodeId) -> bool {
        self.state().in_doubt.contains(node)
    }

    /// Records that the first release is written to `node`. The keys of one claim may have several owners, each with its
    /// own release, so this state is not shared.
    pub(super) fn handle_release(&self, node: NodeId, now: Time) {
        self.state.released.insert(node);
        let kept_until = self.state().kept_until.get(node.index());
        if kept_until.is_some_and(|until| Time::from_nanos(until.load(Relaxed)) > now) {
            self.state.kept_at_release.insert(node);
        }
    }

    /// Records that the only release written to `node` had no effect.
    pub(super) fn handle_release_void(&self, node: NodeId) {
        self.state.released.remove(node);
    }

    pub(super) fn is_released(&self, node: NodeId) -> bool {
        self.state.released.contains(node)
    }

    /// Returns true if `node` had to keep the keys when the first release was written to it. Such a node had lost them
    /// only if it lost data.
    pub(super) fn was_kept_at_release(&self, node: NodeId) -> bool {
        self.state.kept_at_release.contains(node)
    }

    /// Returns the time at which the last of the keys written so far must have expired. Only a command that is [in
    /// doubt](Self::is_in_doubt) can still set a key that expires later.
    pub(super) fn expiry(&self) -> Time {
        let state = if self.is_unchosen() { &self.state } else { self.state() };
        Time::from_nanos(state.expiry.load(Relaxed))
    }

    /// Records that `node` has granted a command, and must keep the keys until `until`. In a claim to any one of several
    /// keys, `place` is the index of the key that the node has set. If another key is chosen, the grant is ignored.
    pub(super) fn handle_kept(&self, node: NodeId, place: usize, until: Time) {
        if self.is_any && self.chosen().is_some_and(|chosen| chosen != place) {
            return;
        }
        self.state().kept_until[node.index()].fetch_max(until.as_nanos(), Relaxed);
    }

    /// Records that `node` no longer has the keys. Returns the time until which the node should have kept them, or
    /// `None` if no grant of the node is recorded. Has no effect for keys that were not [chosen](Self::choose).
    pub(super) fn take_kept(&self, node: NodeId) -> Option<Time> {
        if self.is_unchosen() {
            return None;
        }
        let until = self.state().kept_until[node.index()].swap(0, Relaxed);
        (until > 0).then(|| Time::from_nanos(until))
    }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
