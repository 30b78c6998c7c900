//! State that all nodes of one client share, and the queues of their events.

use super::settings::Settings;
use super::slots::RoundId;
use crate::observe::event::{Event, NodeHealth};
use crate::observe::{EventLevel, HealthRecord};
use crate::protocol::{Exclusion, NodeId, Quarantine, Server, Time};
use crate::random::Random;
use crate::wire::{Answer, NodeFailure, ServerInfo};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Identifies a connection. IDs are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId {
    pub(crate) node: NodeId,
    serial: u64,
}

pub(super) struct Context {
    pub(super) settings: Settings,
    pub(super) random: Random,
    pub(super) quarantine: Quarantine<Arc<str>>,
    /// The run ID of each node's server process. If two nodes report the same run ID, they are the same server.
    run_ids: Box<[Option<Arc<str>>]>,
    health: HealthRecord,
    names: Arc<[Arc<str>]>,
    /// The most detailed level of events to emit. `None` if no receiver of events is installed.
    observed: Option<EventLevel>,
    last_connection: u64,
    /// Whether the client is being closed, which limits how long pending releases are kept.
    pub(super) is_closing: bool,
    pub(super) outputs: VecDeque<NodeOutput>,
    pub(super) events: VecDeque<(EventLevel, Event)>,
    pub(super) closed: VecDeque<ConnectionId>,
}

/// A change at one node that may affect the client's rounds, leases or waiting acquires.
#[derive(Debug)]
pub(super) enum NodeOutput {
    /// `at` is when the reply was read, or when the command failed.
    Vote { round: RoundId, node: NodeId, answer: Answer, at: Time },
    /// `node` does not vote, because its command had no effect and was cancelled before it was resent.
    NotAsked { round: RoundId, node: NodeId },
    /// A key on `node` has changed. `None` means that any key may have changed.
    Changed { node: NodeId, key: Option<Box<[u8]>> },
    /// The clock of `node` has stepped forward by at most `ahead`.
    Stepped { node: NodeId, ahead: Duration },
    /// A node may have become reachable or unreachable.
    Connectivity,
}

impl Context {
    pub(super) fn new(settings: Settings, random: Random) -> Self {
        let quorum = settings.quorum;
        let period = settings.drift.quarantine(settings.max_ttl);
        Self {
            quarantine: Quarantine::new(quorum, settings.policy, period),
            run_ids: quorum.ids().map(|_| None).collect(),
            health: HealthRecord::new(quorum),
            names: settings.nodes.iter().map(|node| node.name.clone()).collect(),
            observed: None,
            last_connection: 0,
            is_closing: false,
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            closed: VecDeque::new(),
            settings,
            random,
        }
    }

    pub(super) fn next_connection(&mut self, node: NodeId) -> ConnectionId {
        self.last_connection += 1;
        ConnectionId { node, serial: self.last_connection }
    }

    pub(super) fn name(&self, node: NodeId) -> &Arc<str> {
        &self.settings.nodes[node.index()].name
    }

    pub(super) fn names(&self) -> &Arc<[Arc<str>]> {
        &self.names
    }

    pub(super) fn observe(&mut self, level: Option<EventLevel>) {
        self.observed = level;
    }

    pub(super) fn wants(&self, level: EventLevel) -> bool {
        self.observed == Some(EventLevel::Debug) || self.observed == Some(level)
    }

    pub(super) fn emit(&mut self, level: EventLevel, event: impl FnOnce(&Self) -> Event) {
        if self.wants(level) {
            let event = event(self);
            self.events.push_back((level, event));
        }
    }

    pub(super) fn emit_health(
        &mut self,
        node: NodeId,
        to: NodeHealth,
        reason: Option<NodeFailure>,
        now: Time,
    ) {
        let Some((from, lasted, counted)) = self.health.handle(node, to, now) else { return };
        let quorum = self.settings.quorum;
        self.emit(EventLevel::Warn, |cx| Event::NodeHealthChanged {
            node: cx.name(node).clone(),
            from,
            to,
            reason,
            lasted,
            counted,
            nodes: quorum.nodes(),
            needed: quorum.needed(),
        });
    }

    /// Records the run ID of the server process that `node` is connected to. Returns an error if another node has the
    /// same run ID, because a quorum requires independent servers.
    pub(super) fn record_run(
        &mut self,
        node: NodeId,
        run_id: &Arc<str>,
    ) -> Result<(), NodeFailure> {
        let known = self.run_ids.iter().position(|known| known.as_ref() == Some(run_id));
        if let Some(other) = known.filter(|other| *other != node.index()) {
            // Forgets this node's server. If the two nodes have swapped addresses, the other node can then connect to
            // that server.
            self.run_ids[node.index()] = None;
            return Err(NodeFailure::SameServer(self.settings.nodes[other].name.clone()));
        }
        self.run_ids[node.index()] = Some(run_id.clone());
        Ok(())
    }

    /// Records that a connection to `node` was set up. `info` describes the server, and was requested at `asked`.
    pub(super) fn handle_set_up(
        &mut self,
        node: NodeId,
        info: &ServerInfo,
        asked: Time,
        now: Time,
    ) {
        let server = self.server(info, asked);
        self.quarantine.handle_set_up(node, server, now);
    }

    fn server(&self, info: &ServerInfo, asked: Time) -> Server<Arc<str>> {
        Server {
            run: info.run_id.clone(),
            no_run_id_reason: info.no_run_id_reason,
            replid: info.replid.clone(),
            uptime: info.uptime,
            asked,
            // A server that is known not to persist its data is never trusted.
            is_trusted: self.settings.trusts_persistence && info.is_durable != Some(false),
        }
    }

    /// Predicts for each node whether its grants would count if the client connected to `servers` at `now`. `servers`
    /// contains `None` for a node that cannot be reached. The result contains the reason why a node's grants would not
    /// count, or `None` if they would count.
    pub(super) fn preview(
        &self,
        servers: &[Option<ServerInfo>],
        now: Time,
    ) -> Vec<Option<NodeFailure>> {
        let mut quarantine = self.quarantine.clone();
        let nodes = || self.settings.quorum.ids();
        for (node, info) in nodes().zip(servers) {
            match info {
                Some(info) => quarantine.handle_set_up(node, self.server(info, now), now),
                None => quarantine.handle_unreachable(node, now),
            }
        }
        nodes().map(|node| failure(&quarantine, node, now)).collect()
    }

    pub(super) fn handle_flush(&mut self, node: NodeId, now: Time) {
        self.quarantine.handle_flush(node, now);
    }

    pub(super) fn handle_missing(&mut self, node: NodeId, now: Time) {
        self.quarantine.handle_missing(node, now);
    }

    pub(super) fn quarantine_failure(&self, node: NodeId, now: Time) -> Option<NodeFailure> {
        failure(&self.quarantine, node, now)
    }

    /// If the votes of `node` do not count only because its server started recently, returns that exclusion. Returns
    /// `None` if the node is excluded for another reason or not excluded.
    pub(super) fn recent_start(&self, node: NodeId, now: Time) -> Option<Exclusion> {
        let recent_start = self.quarantine.recent_start(node, now)?;
        self.quarantine.exclusion(node, now).is_none().then_some(recent_start)
    }
}

fn failure(quarantine: &Quarantine<Arc<str>>, node: NodeId, now: Time) -> Option<NodeFailure> {
    if now >= quarantine.ends(node) {
        return None;
    }
    let exclusion = quarantine.exclusion(node, now);
    exclusion
        .or_else(|| quarantine.recent_start(node, now))
        .map(|it| NodeFailure::excluded(it, now))
}
