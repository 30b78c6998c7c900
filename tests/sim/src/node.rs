//! A node's machine: the server, the clock, and the packets that wait while the node is stalled.

use crate::clock::{Instant, MS, MachineClock, S, US};
use crate::closing::Closing;
use crate::counter_life::Counters;
use crate::event::{EventId, Way, WorldEvent};
use crate::ledger::Tenures;
use crate::network::Packet;
use crate::shared::Core;
use crate::trace::{Shown, note};
use quorlock_test::internals::{Config, ConnId, Output, Server};
use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

/// The maximum time between the expiry of a key and its deletion by the server.
const EXPIRY_CYCLE: Instant = 100 * MS;

const UP_FOR: Instant = 86_400 * S;

pub(crate) struct NodeHost {
    pub(crate) server: Server,
    pub(crate) config: Config,
    pub(crate) clock: MachineClock,
    pub(crate) is_down: bool,
    /// How the node closes connections because of a command. `None` if it does not.
    pub(crate) closing: Option<Closing>,
    /// Whether the server process is stalled. The kernel still accepts packets.
    pub(crate) is_stopped: bool,
    waiting: VecDeque<(usize, Packet)>,
    /// The index of the network connection that belongs to each of the server's connections.
    connections: BTreeMap<ConnId, usize>,
    expiry: Option<EventId>,
    pub(crate) runs: u32,
    pub(crate) is_durable: bool,
    pub(crate) tenures: Tenures,
    pub(crate) counters: Counters,
    /// The time of the last loss of fencing counters.
    pub(crate) wiped: Option<Instant>,
    /// The time of the last restart or flush.
    pub(crate) restarted: Option<Instant>,
    /// The time of the last clock step, and whether the step was forward.
    pub(crate) last_step: Option<(Instant, bool)>,
}

impl NodeHost {
    pub(crate) fn new(config: Config, clock: MachineClock) -> Self {
        Self {
            server: Server::new(config.clone(), clock.read(0) / US - UP_FOR / US),
            config,
            clock,
            is_down: false,
            closing: None,
            is_stopped: false,
            waiting: VecDeque::new(),
            connections: BTreeMap::new(),
            expiry: None,
            runs: 0,
            is_durable: false,
            tenures: Tenures::default(),
            counters: Counters::default(),
            wiped: None,
            restarted: None,
            last_step: None,
        }
    }

    pub(crate) fn disconnect(&mut self, server: ConnId) {
        self.connections.remove(&server);
        self.server.disconnect(server);
    }
}

impl Core {
    /// Returns the node's wall clock in microseconds.
    pub(crate) fn node_wall(&self, node: usize) -> u64 {
        self.nodes[node].clock.read(self.now) / US
    }

    pub(crate) fn arrive_at_node(&mut self, connection: usize, packet: Packet) -> Option<Waker> {
        let node = self.connections[connection].node;
        let host = &mut self.nodes[node];
        if host.is_down {
            if !matches!(packet, Packet::End) {
                self.send(connection, Way::ToClient, Packet::Reset);
            }
            return None;
        }
        if host.is_stopped {
            // The kernel accepts connections of a stalled process.
            if matches!(packet, Packet::Open) {
                self.send(connection, Way::ToClient, Packet::Accepted);
            }
            self.nodes[node].waiting.push_back((connection, packet));
            return None;
        }
        self.serve(connection, packet, false);
        None
    }

    fn serve(&mut self, connection: usize, packet: Packet, is_accepted: bool) {
        let node = self.connections[connection].node;
        let wall = self.node_wall(node);
        let sender = &mut self.processes[self.connections[connection].process];
        if sender.is_dead {
            // The packet may have been in transit for a long time after the sender ended.
            sender.died = Some(self.now);
        }
        match packet {
            Packet::Open => {
                let server = self.nodes[node].server.connect();
                self.connections[connection].server = Some(server);
                self.nodes[node].connections.insert(server, connection);
                if !is_accepted {
                    self.send(connection, Way::ToClient, Packet::Accepted);
                }
            }
            Packet::Bytes(bytes) => match self.connections[connection].server {
                Some(server) => {
                    let (bytes, closing) = self.cut_off(node, bytes);
                    self.maybe_lose_key(node);
                    self.count_commands(&bytes);
                    let before = self.read_counters(node);
                    let outputs = self.nodes[node].server.receive(server, &bytes, wall);
                    self.record_tenures(node);
                    self.check_counters(node, &before);
                    self.put_out(node, outputs);
                    self.plan_expiry(node);
                    if let Some(closing) = closing {
                        self.close_because(closing, connection);
                    }
                }
                None => self.send(connection, Way::ToClient, Packet::Reset),
            },
            Packet::End | Packet::Reset => {
                if let Some(server) = self.connections[connection].server.take() {
                    self.nodes[node].disconnect(server);
                }
            }
            Packet::Accepted | Packet::TimeReply { .. } => {}
        }
    }

    fn put_out(&mut self, node: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Bytes(server, bytes) => {
                    let Some(connection) = self.nodes[node].connections.get(&server).copied()
                    else {
                        continue;
                    };
                    note!(self, "n{node} -> #{connection} {}", Shown(&bytes));
                    self.trace.mix(&(self.now, connection, &bytes));
                    let answered = self.readings.answered(connection, &bytes);
                    if bytes.len() > 1 && self.dice.chance(self.network_quality.splits) {
                        let (first, rest) = bytes.split_at(1 + self.dice.index(bytes.len() - 1));
                        self.send(connection, Way::ToClient, Packet::Bytes(first.to_vec()));
                        self.send(connection, Way::ToClient, Packet::Bytes(rest.to_vec()));
                    } else {
                        self.send_in_pieces(connection, bytes);
                    }
                    for asked in answered {
                        self.send_behind(connection, Way::ToClient, Packet::TimeReply { asked });
                    }
                }
                Output::Close(server) => {
                    let Some(connection) = self.nodes[node].connections.remove(&server) else {
                        continue;
                    };
                    self.connections[connection].server = None;
                    self.send(connection, Way::ToClient, Packet::End);
                }
            }
        }
    }

    fn plan_expiry(&mut self, node: usize) {
        let Some(due) = self.nodes[node].server.next_expiry() else { return };
        if self.nodes[node].expiry.is_some() {
            return;
        }
        let late = self.dice.log_uniform(US, EXPIRY_CYCLE);
        let at = self.nodes[node].clock.when(due * US).max(self.now).saturating_add(late);
        self.nodes[node].expiry = Some(self.events.plan(at, WorldEvent::Expiry { node }));
    }

    pub(crate) fn expire(&mut self, node: usize) {
        self.nodes[node].expiry = None;
        if self.nodes[node].is_down || self.nodes[node].is_stopped {
            return;
        }
        let wall = self.node_wall(node);
        let outputs = self.nodes[node].server.expire(wall);
        self.put_out(node, outputs);
        self.plan_expiry(node);
    }

    pub(crate) fn act_on(
        &mut self,
        node: usize,
        act: impl FnOnce(&mut Server, u64) -> Vec<Output>,
    ) {
        let wall = self.node_wall(node);
        let outputs = act(&mut self.nodes[node].server, wall);
        self.put_out(node, outputs);
        self.plan_expiry(node);
    }

    pub(crate) fn stop_node(&mut self, node: usize) {
        self.nodes[node].is_stopped = true;
        note!(self, "n{node} is stalled");
    }

    /// Continues a stalled node. The node reads all waiting packets of one connection before those
    /// of the next. The order of connections is random.
    pub(crate) fn continue_node(&mut self, node: usize) {
        self.nodes[node].is_stopped = false;
        note!(self, "n{node} continues");
        if self.nodes[node].is_down {
            return;
        }
        let mut waiting = std::mem::take(&mut self.nodes[node].waiting);
        while !waiting.is_empty() {
            let first = waiting[self.dice.index(waiting.len())].0;
            let mut others = VecDeque::new();
            for (connection, packet) in waiting {
                if connection == first {
                    self.serve(connection, packet, true);
                } else {
                    others.push_back((connection, packet));
                }
            }
            waiting = others;
        }
        self.expire(node);
        self.plan_expiry(node);
    }

    /// Ends the server process. The kernel resets the connections, unless `is_silent` is true
    /// because the whole machine fails.
    pub(crate) fn crash(&mut self, node: usize, is_silent: bool) {
        note!(
            self,
            "n{node} crashes{}",
            if is_silent { " without notifying its peers" } else { "" }
        );
        let host = &mut self.nodes[node];
        host.is_down = true;
        host.waiting.clear();
        let connections = std::mem::take(&mut host.connections);
        for connection in connections.into_values() {
            self.connections[connection].server = None;
            if !is_silent {
                self.send(connection, Way::ToClient, Packet::Reset);
            }
        }
    }

    /// Restarts the server. It keeps its keys if `forgets` is false or if the node is durable.
    pub(crate) fn restart(&mut self, node: usize, forgets: bool) {
        let keeps_keys = !forgets || self.nodes[node].is_durable;
        if !keeps_keys {
            self.nodes[node].wiped = Some(self.now);
        }
        let wall = self.node_wall(node);
        note!(self, "n{node} restarts{}", if keeps_keys { "" } else { ", empty" });
        let now = self.now;
        let host = &mut self.nodes[node];
        host.restarted = Some(now);
        host.runs += 1;
        host.config.run_id = format!("{node:020x}{:020x}", host.runs);
        host.server.restart(host.config.clone(), keeps_keys, wall);
        host.is_down = false;
        if let Some(event) = host.expiry.take() {
            self.events.cancel(event);
        }
        self.plan_expiry(node);
    }

    /// Returns the keys of all locks on a node, without their auxiliary keys.
    pub(crate) fn lock_keys(&self, node: usize) -> impl Iterator<Item = String> {
        let keys = self.nodes[node].server.keys(self.node_wall(node));
        let keys = keys.map(|(key, _)| String::from_utf8_lossy(key).into_owned());
        keys.filter(|key| !key.contains("#quorlock:"))
    }

    /// Returns the number of nodes that have `key`.
    pub(crate) fn count_nodes_with_key(&self, key: &str) -> usize {
        let has = |node: &usize| {
            let mut keys = self.nodes[*node].server.keys(self.node_wall(*node));
            keys.any(|(other, _)| other == key.as_bytes())
        };
        (0..self.nodes.len()).filter(has).count()
    }

    /// Sets the node's clock forward by `by` nanoseconds, or back if `by` is negative.
    pub(crate) fn step_node(&mut self, node: usize, by: i64) {
        let now = self.now;
        note!(self, "the clock of n{node} steps by {} ms", by / 1_000_000);
        self.nodes[node].clock.step(now, by);
        self.nodes[node].last_step = Some((now, by > 0));
        if let Some(event) = self.nodes[node].expiry.take() {
            self.events.cancel(event);
        }
        self.plan_expiry(node);
    }
}
