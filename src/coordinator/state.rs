//! The [`Coordinator`]: the state of one client, and the handling of events from its nodes.

use super::acquire::Acquire;
use super::changes::ChangeRequests;
use super::closing::Closing;
use super::completion::{Completion, PermitsDifference};
use super::context::{Context, NodeOutput};
use super::lease::Lease;
use super::node::Node;
use super::nodes::Nodes;
use super::settings::Settings;
use super::slots::{AcquireId, Acquires, LeaseId, Leases, RoundId, Rounds, Slots};
use super::survey::Survey;
use super::timeout::Timeout;
use super::timers::Timers;
use super::votes::{Owner, VoteCounter};
use super::waiting::WaitQueues;
use crate::observe::EventLevel;
use crate::observe::event::LockInfo;
use crate::protocol::{AttemptLimit, ClockSteps, Liveness, NodeClock, NodeId, NodeSet, Time};
use crate::random::Random;
use crate::wire::Key;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The state machine of one client: decides which commands to send, and whether acquires, extensions and releases
/// succeed.
///
/// # Methods
///
/// | kind | methods | when to call |
/// |---|---|---|
/// | requests | [`handle_acquire`](Self::handle_acquire), [`handle_cancel`](Self::handle_cancel), [`handle_taken`](Self::handle_taken), [`handle_watch`](Self::handle_watch), [`handle_extend`](Self::handle_extend), [`handle_release`](Self::handle_release), [`handle_drop`](Self::handle_drop), [`handle_release_all`](Self::handle_release_all), [`handle_status`](Self::handle_status), [`handle_force_release`](Self::handle_force_release), [`handle_cancel_call`](Self::handle_cancel_call), [`handle_ready`](Self::handle_ready), [`handle_close`](Self::handle_close) | a caller has submitted one |
/// | network | [`handle_connected`](Self::handle_connected), [`handle_connect_failed`](Self::handle_connect_failed), [`handle_bytes`](Self::handle_bytes), [`handle_sent`](Self::handle_sent), [`handle_unsent`](Self::handle_unsent), [`handle_closed`](Self::handle_closed), [`handle_runtime_end`](Self::handle_runtime_end), [`handle_new_runtime`](Self::handle_new_runtime) | the driver has opened, read, written or lost a connection |
/// | time | [`handle_timeout`](Self::handle_timeout) | [`poll_timeout`](Self::poll_timeout) has passed |
/// | output | [`poll_close`](Self::poll_close), [`poll_connect`](Self::poll_connect), [`poll_transmit`](Self::poll_transmit), [`poll_completion`](Self::poll_completion), [`poll_event`](Self::poll_event), [`poll_timeout`](Self::poll_timeout) | after any `handle_*`, until they return `None` or no bytes |
///
/// # Order of calls
///
/// In each turn (one pass over all connections), the driver submits requests, passes all bytes that were read, and
/// calls `poll_transmit` once for each connection. When the alarm fires, the driver takes a turn, unless another thread
/// is taking one. The driver then calls `handle_timeout` if a timeout has passed.
///
/// The driver reads the clock for `now` after it has read the bytes that it passes to `handle_bytes` (I3), and before
/// it writes the bytes of `poll_transmit` (I4). `now` never goes back. A node is declared stalled only in the second of
/// two calls of `handle_timeout`. Between the two calls, the driver reads all connections.
pub(crate) struct Coordinator {
    pub(super) cx: Context,
    pub(super) nodes: Nodes,
    pub(super) rounds: Slots<Rounds, VoteCounter>,
    pub(super) acquires: Slots<Acquires, Acquire>,
    pub(super) queues: WaitQueues,
    pub(super) leases: Slots<Leases, Lease>,
    pub(super) leases_by_key: HashMap<Key, LeaseId>,
    pub(super) steps: ClockSteps,
    /// Status requests, requests for the counters of jobs, and forced releases, by the ID of their first round. Callers
    /// identify the request by the same ID.
    pub(super) surveys: BTreeMap<RoundId, Survey>,
    pub(super) changes: ChangeRequests,
    pub(super) timers: Timers<Timeout>,
    pub(super) lease_timers: Timers<LeaseId>,
    pub(super) attempts: usize,
    pub(super) limit: AttemptLimit,
    /// Number of attempts so far that needed a second round to confirm the fencing token.
    pub(super) confirmations: u64,
    /// Acquires that wait until fewer attempts are in progress.
    pub(super) blocked: VecDeque<AcquireId>,
    /// Acquires that [`settle`](Self::settle) will advance.
    pub(super) ready: VecDeque<AcquireId>,
    pub(super) completions: VecDeque<Completion>,
    /// The highest fencing counter that a node has reported. The next acquire requests a higher token.
    pub(super) highest_number: u64,
    /// The last reading of the wall clock: the time of the reading, and the microseconds since 1970. Used to choose
    /// fencing tokens.
    pub(super) wall_clock: (Time, u64),
    /// Whether [`is_warm`](Self::is_warm) has returned true. Never reset.
    pub(super) is_warm: bool,
    pub(super) awaits_ready: bool,
    /// The semaphores that another client uses with another number of permits, each by the key of a permit.
    pub(super) differing_permits: BTreeMap<Key, PermitsDifference>,
    pub(super) closing: Closing,
}

impl Coordinator {
    pub(crate) fn new(settings: Settings, random: Random) -> Self {
        let (quorum, drift) = (settings.quorum, settings.drift);
        let node_timeout = settings.node_timeout;
        let key_lifetime = settings.max_ttl.as_duration();
        let node = |node| Node::new(node, NodeClock::new(drift, key_lifetime));
        Self {
            nodes: Nodes::new(quorum.ids().map(node).collect()),
            cx: Context::new(settings, random),
            rounds: Slots::new(),
            acquires: Slots::new(),
            queues: WaitQueues::new(quorum),
            leases: Slots::new(),
            leases_by_key: HashMap::new(),
            steps: ClockSteps::default(),
            surveys: BTreeMap::new(),
            changes: ChangeRequests::new(),
            timers: Timers::new(),
            lease_timers: Timers::new(),
            attempts: 0,
            limit: AttemptLimit::new(node_timeout),
            confirmations: 0,
            blocked: VecDeque::new(),
            ready: VecDeque::new(),
            completions: VecDeque::new(),
            highest_number: 0,
            wall_clock: (Time::default(), 0),
            is_warm: false,
            awaits_ready: false,
            differing_permits: BTreeMap::new(),
            closing: Closing::Open,
        }
    }

    /// Sets the most detailed level of events to emit. `None` disables all events, for a client without a receiver.
    pub(crate) fn observe(&mut self, level: Option<EventLevel>) {
        self.cx.observe(level);
    }

    /// Records that the wall clock showed `wall_us` microseconds since 1970 at `now`. Fencing tokens are derived from
    /// the wall clock. Without a reading, they start at 1.
    pub(crate) fn set_wall_clock(&mut self, wall_us: u64, now: Time) {
        self.wall_clock = (now, wall_us);
    }

    pub(super) fn wall_us(&self, now: Time) -> u64 {
        let (at, wall_us) = self.wall_clock;
        let elapsed = u64::try_from(now.since(at).as_micros()).unwrap_or(u64::MAX);
        if wall_us == 0 { 0 } else { wall_us.saturating_add(elapsed) }
    }

    pub(super) fn close_due_round(&mut self, round: RoundId, now: Time) {
        let connected = self.connected();
        let busy_until = self.busy_until(round, now);
        let Some(votes) = self.rounds.get_mut(round) else { return };
        if votes.is_due(connected, now) {
            match busy_until {
                None => return self.close_round(round, now),
                Some(until) => votes.close_at = until,
            }
        }
        let close_at = votes.close_at;
        self.set_timeout(close_at, Timeout::Round(round));
    }

    /// Returns until when the round of a release stays open although its time has passed, because a node that has not
    /// voted replies to the commands before it. Each reply gives the node another node timeout, within the time after
    /// which an unresponsive connection is abandoned. Returns `None` if the round must be closed.
    fn busy_until(&self, round: RoundId, now: Time) -> Option<Time> {
        let votes = self.rounds.get(round).filter(|it| matches!(it.owner, Owner::Release))?;
        let timeout = self.cx.settings.node_timeout;
        let replied_at = |node: NodeId| {
            let connection = self.nodes[node].connection().filter(|it| !it.is_stalled())?;
            connection.replied_at().filter(|at| *at > votes.t1())
        };
        let late = now.since(votes.close_at);
        let until = votes.silent().filter_map(replied_at).max()?.after(timeout + late);
        let until = until.min(votes.t1().after(Liveness::patience(timeout)));
        (until > now).then_some(until)
    }

    pub(super) fn forget_round(&mut self, round: Option<RoundId>) {
        if let Some(round) = round {
            self.rounds.remove(round);
        }
    }

    pub(super) fn close_round(&mut self, round: RoundId, now: Time) {
        let connected = self.connected();
        let Some(votes) = self.rounds.get_mut(round) else { return };
        if votes.close(connected, now).is_some() {
            self.handle_decision(round, now);
        }
    }

    /// Completes the extension, release, status request, request for a job's counter, or forced release that started the
    /// decided `round`. Ignores rounds of acquires, which handle their own outcome.
    pub(super) fn handle_decision(&mut self, round: RoundId, now: Time) {
        match self.rounds.get(round).map(|votes| votes.owner) {
            Some(Owner::Extension { .. }) => self.complete_extension(round, now),
            Some(Owner::Release) => self.complete_release(round),
            Some(Owner::Status | Owner::Period | Owner::ForcedRelease | Owner::Deletion { .. }) => {
                self.complete_survey(round, now);
            }
            Some(Owner::Acquire(_) | Owner::Lease(_)) | None => {}
        }
    }

    /// Handles all queued node events and advances all acquires that can continue, until both queues are empty.
    pub(super) fn settle(&mut self, now: Time) {
        if self.closing == Closing::Open && self.cx.outputs.is_empty() && self.ready.is_empty() {
            return;
        }
        loop {
            if let Some(output) = self.cx.outputs.pop_front() {
                self.handle_output(output, now);
            } else if let Some(acquire) = self.ready.pop_front() {
                self.advance(acquire, now);
            } else {
                break;
            }
        }
        self.step_close(now);
    }

    fn handle_output(&mut self, output: NodeOutput, now: Time) {
        match output {
            NodeOutput::Vote { round, node, answer, at } => {
                let Some(votes) = self.rounds.get_mut(round) else { return };
                let outcome = votes.handle_reply(node, answer, at);
                match votes.owner {
                    Owner::Acquire(id) => self.handle_acquire_vote(id, outcome, now),
                    Owner::Lease(lease) => self.handle_late_vote(lease, node, now),
                    Owner::Extension { .. } => {
                        self.handle_extension_vote(round, node, outcome, now);
                        self.forget_answered_extension(round);
                    }
                    _ if outcome.is_some() => self.handle_decision(round, now),
                    _ => {}
                }
            }
            NodeOutput::NotAsked { round, node } => {
                let Some(votes) = self.rounds.get_mut(round) else { return };
                votes.handle_not_asked(node);
                match votes.owner {
                    Owner::Acquire(id) => self.handle_acquire_vote(id, None, now),
                    Owner::Lease(lease) => self.handle_late_vote(lease, node, now),
                    _ => {}
                }
            }
            NodeOutput::Changed { node, key } => self.handle_changed(node, key.as_deref(), now),
            NodeOutput::Stepped { node, ahead } => self.handle_clock_step(node, ahead, now),
            NodeOutput::Connectivity => self.handle_connectivity(now),
        }
    }

    fn handle_changed(&mut self, node: NodeId, key: Option<&[u8]>, now: Time) {
        let mut ready = Vec::new();
        self.queues.handle_changed(node, key, &self.rounds, now, &mut ready);
        self.ready.extend(ready);
        self.report_change(key);
        let leases = match key {
            Some(key) => self.leases_by_key.get(key).copied().into_iter().collect(),
            None => self.leases.ids(),
        };
        for lease in leases {
            self.handle_lease_change(lease, node, now);
        }
    }

    /// Requests a [`Completion::Ready`]. The coordinator reports it once a quorum is connected, or immediately
    /// if the client is closing.
    pub(crate) fn handle_ready(&mut self, now: Time) {
        if self.is_closing() {
            return self.completions.push_back(Completion::Ready);
        }
        self.awaits_ready = true;
        self.handle_connectivity(now);
        self.settle(now);
    }

    pub(super) fn handle_connectivity(&mut self, now: Time) {
        let was_warm = std::mem::replace(&mut self.is_warm, false);
        let is_warm = was_warm || self.is_warm(now);
        self.is_warm = is_warm;
        if is_warm && !was_warm {
            let waiting = self.acquires.ids();
            self.ready.extend(waiting);
        }
        let has_quorum = self.cx.settings.quorum.reached(self.connected().len());
        if is_warm && has_quorum && std::mem::take(&mut self.awaits_ready) {
            self.completions.push_back(Completion::Ready);
        }
    }

    /// Returns true once an attempt can succeed. For this, a quorum must be connected, or the client must have tried to
    /// connect to every node. The client must also know which nodes' votes count.
    pub(super) fn is_warm(&self, now: Time) -> bool {
        if self.is_warm {
            return true;
        }
        let was_tried = self.nodes.iter().all(|node| node.was_tried);
        let has_quorum = self.cx.settings.quorum.reached(self.connected().len());
        (was_tried || has_quorum) && self.cx.quarantine.is_settled(now)
    }

    pub(super) fn connected(&self) -> NodeSet {
        self.nodes.iter().filter(|node| node.is_connected()).map(|node| node.id).collect()
    }

    pub(super) fn lock_info(&self, id: LeaseId) -> Option<LockInfo> {
        self.leases.get(id).map(|lease| lease.lock_info(self.cx.settings.prefix))
    }

    /// Returns the kinds of state that are left, each with the number of entries. Empty once all operations have ended
    /// and all commands are answered.
    #[cfg(test)]
    pub(super) fn left(&self) -> Vec<(&'static str, usize)> {
        let nodes = self.nodes.iter().filter(|node| !node.is_done()).count();
        let waiting = usize::from(!self.queues.is_empty());
        let all = [
            ("acquires", self.acquires.len()),
            ("leases", self.leases.len()),
            ("keys of leases", self.leases_by_key.len()),
            ("rounds", self.rounds.len()),
            ("surveys", self.surveys.len()),
            ("requests for changes", self.changes.len()),
            ("attempts", self.attempts),
            ("waiting acquires", waiting),
            ("nodes with commands", nodes),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

pub(super) fn is_current(
    at: Time,
    key: Timeout,
    acquires: &Slots<Acquires, Acquire>,
    rounds: &Slots<Rounds, VoteCounter>,
    closing: Closing,
) -> bool {
    match key {
        Timeout::Acquire(id) => acquires.get(id).is_some_and(|it| it.timeout == Some(at)),
        Timeout::Round(id) => rounds
            .get(id)
            .is_some_and(|votes| votes.close_at == at && votes.round().outcome().is_none()),
        Timeout::Close => closing == Closing::Delivering { until: at },
    }
}

pub(super) fn is_lease_current(at: Time, id: LeaseId, leases: &Slots<Leases, Lease>) -> bool {
    leases.get(id).is_some_and(|it| it.timeout == Some(at))
}
