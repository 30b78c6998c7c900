//! Connections: packets in transit, their order, and how connections break.

use crate::clock::{Instant, MS, S, US};
use crate::event::{Way, WorldEvent};
use crate::readings::request_of_time;
use crate::rule::Rule;
use crate::shared::Core;
use crate::trace::{Shown, note};
use quorlock_test::internals::{ConnId, Phase, StreamEnd};
use std::collections::VecDeque;
use std::task::Waker;

/// How long a sender repeats unacknowledged data. Older data is not delivered. The value is the
/// library's `TCP_USER_TIMEOUT`, shortened slightly because the sender's clock may be fast.
const USER_TIMEOUT: Instant = 9_900 * MS;

/// The maximum number of connections that a process may open to a node per second. A process can
/// have a few clients on a few runtimes, each with growing pauses.
const MOST_OPENED: u32 = 300;

pub(crate) enum Packet {
    Open,
    Accepted,
    Bytes(Vec<u8>),
    /// A marker, not a real packet. It follows the bytes of a reply to `TIME`. The `TIME` was sent
    /// at `asked`.
    TimeReply {
        asked: Instant,
    },
    End,
    /// The connection is refused or reset.
    Reset,
}

/// One direction of a connection.
#[derive(Default)]
pub(crate) struct Pipe {
    /// The packets in transit. Each has a sending time and an arrival time.
    packets: VecDeque<(Instant, Instant, Packet)>,
    last_arrival: Instant,
    is_planned: bool,
}

pub(crate) struct Connection {
    pub(crate) process: usize,
    client: u64,
    /// The client's runtime whose shutdown closes the connection.
    runtime: usize,
    pub(crate) node: usize,
    pub(crate) end: StreamEnd,
    /// The last turn of the scheduler in which the client has read, and the number of bytes that it
    /// read in that turn.
    pub(crate) read: (u64, usize),
    pub(crate) server: Option<ConnId>,
    /// When the client first wrote to the connection since it last received data. `None` if the
    /// client has received data since its last write.
    silent_since: Option<Instant>,
    to_node: Pipe,
    to_client: Pipe,
}

impl Connection {
    fn pipe(&mut self, way: Way) -> &mut Pipe {
        match way {
            Way::ToNode => &mut self.to_node,
            Way::ToClient => &mut self.to_client,
        }
    }
}

impl Core {
    /// Opens a connection from a client to the node behind `address`. Returns the connection's
    /// index.
    pub(crate) fn open(&mut self, process: usize, client: u64, address: usize) -> usize {
        let node = self.addresses[address];
        self.check_pace(process, node);
        self.check_pace_of_minute(process, client, address);
        let connection = self.connections.len();
        let runtime = self.processes[process].runtime_states.running();
        self.connections.push(Connection {
            process,
            client,
            runtime,
            node,
            read: (0, 0),
            end: StreamEnd::new(Phase::Connecting),
            server: None,
            silent_since: None,
            to_node: Pipe::default(),
            to_client: Pipe::default(),
        });
        self.send(connection, Way::ToNode, Packet::Open);
        connection
    }

    /// Returns true if a shutdown of `runtime` closes connections of the client.
    pub(crate) fn is_connected_on(&self, process: usize, client: u64, runtime: usize) -> bool {
        self.connections.iter().any(|it| {
            (it.process, it.client, it.runtime) == (process, client, runtime)
                && it.end.phase == Phase::Open
        })
    }

    /// Checks that a client pauses before it connects to an unreachable node again.
    fn check_pace(&mut self, process: usize, node: usize) {
        let second = self.now / S;
        let pace = self.opened.entry((process, node)).or_default();
        *pace = if pace.0 == second { (second, pace.1 + 1) } else { (second, 1) };
        self.counts.add(Rule::Paced, 1);
        if pace.1 > MOST_OPENED {
            let how = format!("p{process} opens {} connections to n{node} in a second", pace.1);
            self.findings.push((Rule::Paced, how));
        }
    }

    fn check_pace_of_minute(&mut self, process: usize, client: u64, address: usize) {
        let Some(single) = self.single else { return };
        let minute = self.now / (60 * S);
        let runtimes = self.processes[process].runtime_states.runtimes();
        let pace = self.opened_a_minute.entry((client, address)).or_default();
        *pace = if pace.0 == minute { (minute, pace.1 + 1) } else { (minute, 1) };
        if pace.1 > single.most_opened() * runtimes {
            let how = format!("p{process} opens {} connections to n{address} in a minute", pace.1);
            self.findings.push((Rule::Paced, how));
        }
    }

    /// Sends `bytes` from the client to the node. All bytes are accepted.
    pub(crate) fn write(&mut self, connection: usize, bytes: &[u8]) {
        let (process, node) =
            (self.connections[connection].process, self.connections[connection].node);
        self.trace.mix(&(self.now, connection, bytes));
        note!(self, "p{process} -> n{node} #{connection} {}", Shown(bytes));
        self.check_stalled(connection);
        self.check_order(connection, bytes);
        self.record_written(connection, bytes);
        if let Some(at) = request_of_time(bytes)
            && at > 0
            && !self.is_calm()
            && self.dice.chance(self.network_quality.cuts)
        {
            note!(self, "#{connection} breaks before the TIME");
            self.send(connection, Way::ToNode, Packet::Bytes(bytes[..at].to_vec()));
            self.send(connection, Way::ToNode, Packet::End);
            self.connections[connection].to_client.packets.clear();
            self.send(connection, Way::ToClient, Packet::Reset);
            return;
        }
        let cut = (bytes.len() > 1 && self.dice.chance(self.network_quality.splits))
            .then(|| 1 + self.dice.index(bytes.len() - 1));
        let (first, rest) = bytes.split_at(cut.unwrap_or(bytes.len()));
        self.send(connection, Way::ToNode, Packet::Bytes(first.to_vec()));
        if !rest.is_empty() {
            self.send(connection, Way::ToNode, Packet::Bytes(rest.to_vec()));
        }
        let is_spared = self.is_calm() || self.is_unreached_witness(process, node);
        if !is_spared && self.dice.chance(self.network_quality.breaks) {
            self.cut(connection);
        }
    }

    /// Checks that no command is written to a node that has left a command unanswered for longer
    /// than the node timeout.
    fn check_stalled(&mut self, connection: usize) {
        let now = self.now;
        let it = &mut self.connections[connection];
        let (process, since) = (it.process, *it.silent_since.get_or_insert(now));
        let delays = self.delays;
        let holds = if delays.holds > 0 { 10 * delays.longest } else { 0 };
        // A late alarm postpones the detection by a node timeout, because replies may be unread.
        // The next alarm may be late again.
        let rounds = if delays.late_alarms > 0 { 8 } else { 4 };
        let allowed = rounds * (self.node_timeout + delays.late_alarms) + 50 * MS + holds;
        let silent = now.saturating_sub(since);
        if silent > self.node_timeout {
            self.counts.add(Rule::Stalled, 1);
        }
        if silent > allowed + 4 * self.stalled_between(process, since, now) {
            let how = format!(
                "p{process} writes to #{connection}, which is silent for {} ms",
                silent / MS
            );
            self.findings.push((Rule::Stalled, how));
        }
    }

    fn delay(&mut self, connection: usize) -> Instant {
        let network_quality = self.network_quality;
        let Connection { process, node, .. } = self.connections[connection];
        let is_spared = self.is_calm() || self.is_unreached_witness(process, node);
        if !is_spared && self.dice.chance(network_quality.slow) {
            return self.dice.log_uniform(network_quality.delay.1, network_quality.longest_delay);
        }
        let delay = self.dice.between(network_quality.delay.0, network_quality.delay.1);
        if self.is_unreached_witness(process, node)
            && !self.is_calm()
            && self.readings.witness_delay > 0
        {
            return delay + self.dice.below(self.readings.witness_delay);
        }
        delay
    }

    /// Sends a packet. It arrives after all earlier packets of its direction.
    pub(crate) fn send(&mut self, connection: usize, way: Way, packet: Packet) {
        let now = self.now;
        let at = now + self.delay(connection);
        let transfer = self.transfer_time(&packet);
        let pipe = self.connections[connection].pipe(way);
        let at = at.max(pipe.last_arrival + 1) + transfer;
        pipe.last_arrival = at;
        pipe.packets.push_back((now, at, packet));
        self.plan_arrival(connection, way);
    }

    /// Sends a packet that arrives immediately after the previous packet of its direction.
    pub(crate) fn send_behind(&mut self, connection: usize, way: Way, packet: Packet) {
        let now = self.now;
        let pipe = self.connections[connection].pipe(way);
        pipe.last_arrival = pipe.last_arrival.max(now) + 1;
        let at = pipe.last_arrival;
        pipe.packets.push_back((now, at, packet));
        self.plan_arrival(connection, way);
    }

    fn plan_arrival(&mut self, connection: usize, way: Way) {
        let pipe = self.connections[connection].pipe(way);
        if pipe.is_planned {
            return;
        }
        let Some((_, at, _)) = pipe.packets.front() else { return };
        let at = *at;
        pipe.is_planned = true;
        self.events.plan(at.max(self.now), WorldEvent::Arrival { connection, way });
    }

    /// Delivers the next packet of a connection, unless the link is blocked. Returns the waker of
    /// the task that waits for the packet, if any.
    pub(crate) fn arrive(&mut self, connection: usize, way: Way) -> Option<Waker> {
        let now = self.now;
        let it = &mut self.connections[connection];
        let ends = (it.process, it.node);
        let pipe = it.pipe(way);
        pipe.is_planned = false;
        let (sent, at, _) = pipe.packets.front()?;
        let (sent, at) = (*sent, *at);
        if at > now {
            self.plan_arrival(connection, way);
            return None;
        }
        if self.blocked.contains(&ends) {
            // A sender repeats the packet until it is acknowledged, so `unblock` schedules the
            // arrival again.
            return None;
        }
        if way == Way::ToNode && now.saturating_sub(sent) > USER_TIMEOUT {
            // The sender has abandoned the connection.
            return self.break_both(connection);
        }
        let (_, _, packet) = self.connections[connection].pipe(way).packets.pop_front()?;
        let waker = match way {
            Way::ToNode => self.arrive_at_node(connection, packet),
            Way::ToClient => self.arrive_at_client(connection, packet),
        };
        self.plan_arrival(connection, way);
        waker
    }

    fn arrive_at_client(&mut self, connection: usize, packet: Packet) -> Option<Waker> {
        let it = &mut self.connections[connection];
        let is_open = matches!(it.end.phase, Phase::Connecting | Phase::Open);
        if !is_open {
            return None;
        }
        match packet {
            Packet::Accepted => it.end.phase = Phase::Open,
            Packet::Bytes(bytes) => {
                it.silent_since = None;
                it.end.inbox.extend(bytes);
            }
            Packet::TimeReply { asked } => {
                self.record_time_reply(connection, asked);
                return None;
            }
            Packet::End => it.end.phase = Phase::Ended,
            Packet::Reset if it.end.phase == Phase::Connecting => it.end.phase = Phase::Refused,
            Packet::Reset => it.end.phase = Phase::Broken,
            Packet::Open => {}
        }
        it.end.reader.take()
    }

    /// Closes the client's end of the connection. Data that the client has written still arrives,
    /// followed by the end of the stream. Returns the reader's waker, if any.
    pub(crate) fn close(&mut self, connection: usize) -> Option<Waker> {
        let it = &mut self.connections[connection];
        let before = std::mem::replace(&mut it.end.phase, Phase::Dropped);
        it.end.inbox = VecDeque::new();
        let waker = it.end.reader.take();
        it.to_client.packets.clear();
        if !matches!(before, Phase::Dropped | Phase::Broken | Phase::Refused) {
            self.send(connection, Way::ToNode, Packet::End);
        }
        waker
    }

    /// Handles the end of the client's process. The kernel closes the connection, unless
    /// `is_silent` is true because the whole machine has failed. Returns the reader's waker, if
    /// any.
    pub(crate) fn abandon(&mut self, connection: usize, is_silent: bool) -> Option<Waker> {
        if !is_silent {
            return self.close(connection);
        }
        let it = &mut self.connections[connection];
        it.end.phase = Phase::Dropped;
        it.end.inbox = VecDeque::new();
        it.to_client.packets.clear();
        it.end.reader.take()
    }

    /// Breaks the connection in the network. Packets that are in transit to the node are lost or
    /// arrive late.
    pub(crate) fn cut(&mut self, connection: usize) {
        let (now, late) = (self.now, self.network_quality.late);
        let is_late = self.dice.chance(late);
        let delay = self.dice.log_uniform(US, 9 * S);
        let it = &mut self.connections[connection];
        note!(
            self,
            "#{connection} breaks{}",
            if is_late { ", and its bytes are late" } else { "" }
        );
        if is_late {
            for (_, at, _) in &mut it.to_node.packets {
                *at += delay;
            }
            it.to_node.last_arrival = it.to_node.last_arrival.max(now) + delay;
        } else {
            it.to_node.packets.clear();
        }
        it.to_client.packets.clear();
        self.send(connection, Way::ToClient, Packet::Reset);
        self.send(connection, Way::ToNode, Packet::End);
    }

    /// Breaks the connection at both ends. Packets in transit are lost. Returns the reader's waker,
    /// if any.
    pub(crate) fn break_both(&mut self, connection: usize) -> Option<Waker> {
        let it = &mut self.connections[connection];
        it.to_node.packets.clear();
        it.to_client.packets.clear();
        let (node, server) = (it.node, it.server.take());
        if matches!(it.end.phase, Phase::Connecting | Phase::Open | Phase::Ended) {
            it.end.phase = Phase::Broken;
        }
        let waker = it.end.reader.take();
        if let Some(server) = server {
            self.nodes[node].disconnect(server);
        }
        waker
    }

    pub(crate) fn unblock(&mut self, process: usize, node: usize) {
        self.blocked.remove(&(process, node));
        for connection in 0..self.connections.len() {
            let it = &self.connections[connection];
            if (it.process, it.node) == (process, node) {
                self.plan_arrival(connection, Way::ToNode);
                self.plan_arrival(connection, Way::ToClient);
            }
        }
    }
}
