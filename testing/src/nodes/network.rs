//! The network between clients and in-process nodes: connections and packets in transit.

use super::clock::RuntimeClock;
use super::host::{Condition, NodeHost, Packet, Planned};
use super::lock::lock;
use crate::server_model::{ConnId, Output};
use crate::stream::{Carrier, Phase, StreamEnd, Wire};
use quorlock::test_util::{Alarm, Bell, Gate, Stream, World};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

pub(super) struct Network {
    this: Weak<Self>,
    clock: Arc<RuntimeClock>,
    state: Mutex<State>,
    seeds: AtomicU64,
}

struct State {
    hosts: Vec<NodeHost>,
    connections: BTreeMap<usize, Connection>,
    last_connection: usize,
}

struct Connection {
    node: usize,
    end: StreamEnd,
    /// The server's end of the connection. `None` until the opening packet arrives, and after the
    /// server has closed the connection.
    server: Option<ConnId>,
    in_transit: VecDeque<(Duration, Packet)>,
    last_arrival: Duration,
    arrival: Option<Planned>,
}

#[derive(Clone, Copy)]
pub(super) enum NetworkEvent {
    /// A packet arrives on the connection with this number.
    Arrival(usize),
    /// Keys expire on the node with this number.
    Expiry(usize),
}

/// A gate that never delays a task: the task is polled whenever the runtime polls the gate.
pub struct OpenGate;

/// Exclusive access to the network during one call of [`Network::with`].
pub(super) struct NetworkAccess<'a> {
    network: &'a Network,
    pub(super) hosts: &'a mut Vec<NodeHost>,
    connections: &'a mut BTreeMap<usize, Connection>,
    last_connection: &'a mut usize,
    /// Tasks to wake after the network's lock is released.
    woken: Vec<Waker>,
}

pub(super) fn url(node: usize) -> String {
    format!("redis://node{node}")
}

fn node_at(address: &str) -> Option<usize> {
    address.strip_prefix("node")?.strip_suffix(":6379")?.parse().ok()
}

impl Network {
    pub(super) fn new(count: usize, clock: Arc<RuntimeClock>) -> Arc<Self> {
        let hosts = (0..count).map(|node| NodeHost::new(node, &clock)).collect();
        let state = State { hosts, connections: BTreeMap::new(), last_connection: 0 };
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            clock,
            state: Mutex::new(state),
            seeds: AtomicU64::new(0),
        })
    }

    pub(super) fn clock(&self) -> &Arc<RuntimeClock> {
        &self.clock
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.state).hosts.len()
    }

    pub(super) fn next_seed(&self) -> u64 {
        self.seeds.fetch_add(1, Ordering::Relaxed)
    }

    fn plan(&self, at: Duration, event: NetworkEvent) -> Planned {
        let network = self.this.clone();
        let handle = move |_| {
            network.upgrade()?.handle(event);
            // `NetworkAccess` plans the next event with a new alarm, so this alarm does not fire again.
            None
        };
        Planned::new(at, self.clock.set_alarm(at, Box::new(handle)))
    }

    fn handle(&self, event: NetworkEvent) {
        self.with(|turn| match event {
            NetworkEvent::Arrival(connection) => turn.deliver(connection),
            NetworkEvent::Expiry(node) => turn.expire(node),
        });
    }

    /// Runs `act` with exclusive access to the network. Tasks that `act` has to wake are woken
    /// after the lock is released.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut NetworkAccess<'_>) -> T) -> T {
        let mut state = lock(&self.state);
        let State { hosts, connections, last_connection } = &mut *state;
        let woken = Vec::new();
        let mut turn = NetworkAccess { network: self, hosts, connections, last_connection, woken };
        let done = act(&mut turn);
        let woken = turn.woken;
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        done
    }
}

impl Carrier for Network {
    fn with_end<T>(&self, connection: usize, act: impl FnOnce(&mut StreamEnd) -> T) -> Option<T> {
        lock(&self.state).connections.get_mut(&connection).map(|it| act(&mut it.end))
    }

    fn write(&self, connection: usize, bytes: &[u8]) {
        self.with(|turn| turn.send(connection, Packet::Bytes(bytes.to_vec())));
    }

    fn close(&self, connection: usize) {
        self.with(|turn| turn.close(connection));
    }
}

type Connected = io::Result<Box<dyn Stream>>;

impl World for Network {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wall_clock(&self) -> Duration {
        self.clock.wall()
    }

    fn set_alarm(&self, at: Duration, bell: Bell) -> Box<dyn Alarm> {
        Box::new(self.clock.set_alarm(at, Box::new(move |now| bell.ring(now))))
    }

    fn connect(&self, node: &str) -> Pin<Box<dyn Future<Output = Connected> + Send>> {
        let nodes = self.this.upgrade().zip(node_at(node));
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let (network, node) = nodes.ok_or_else(refused)?;
            let connection = network.with(|turn| turn.connect(node)).ok_or_else(refused)?;
            let stream: Box<dyn Stream> = Box::new(Wire::new(network, connection));
            Ok(stream)
        })
    }

    fn gate(&self) -> Box<dyn Gate> {
        Box::new(OpenGate)
    }
}

impl Gate for OpenGate {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        task: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<()> {
        task(cx)
    }
}

impl NetworkAccess<'_> {
    pub(super) fn now(&self) -> Duration {
        self.network.clock.now()
    }

    /// Returns the time of a wall clock that was never stepped, in microseconds since the Unix
    /// epoch.
    pub(super) fn wall_us(&self) -> u64 {
        self.network.clock.wall_us()
    }

    pub(super) fn plan(&self, at: Duration, event: NetworkEvent) -> Planned {
        self.network.plan(at, event)
    }

    /// Opens a connection to `node`. Returns the connection's number, or `None` if the node is
    /// down. A stalled node accepts connections, too, because its kernel does.
    fn connect(&mut self, node: usize) -> Option<usize> {
        self.hosts.get(node).filter(|host| host.condition != Condition::Down)?;
        *self.last_connection += 1;
        let connection = *self.last_connection;
        let it = Connection {
            node,
            end: StreamEnd::new(Phase::Open),
            server: None,
            in_transit: VecDeque::new(),
            last_arrival: Duration::ZERO,
            arrival: None,
        };
        self.connections.insert(connection, it);
        self.send(connection, Packet::Open);
        Some(connection)
    }

    /// Sends a packet to the node. Packets of a connection arrive in order, even if the delay was
    /// reduced between them.
    fn send(&mut self, connection: usize, packet: Packet) {
        let now = self.now();
        let Some(it) = self.connections.get_mut(&connection) else { return };
        let at = now.saturating_add(self.hosts[it.node].delay).max(it.last_arrival);
        it.last_arrival = at;
        it.in_transit.push_back((at, packet));
        if it.arrival.is_none() {
            self.deliver(connection);
        }
    }

    fn deliver(&mut self, connection: usize) {
        let now = self.now();
        while let Some(it) = self.connections.get_mut(&connection) {
            it.arrival = None;
            let Some((at, _)) = it.in_transit.front() else { return };
            let at = *at;
            if now < at {
                it.arrival = Some(self.network.plan(at, NetworkEvent::Arrival(connection)));
                return;
            }
            let Some((_, packet)) = it.in_transit.pop_front() else { return };
            self.arrive(connection, packet);
        }
    }

    fn arrive(&mut self, connection: usize, packet: Packet) {
        let Some(it) = self.connections.get(&connection) else { return };
        let host = &mut self.hosts[it.node];
        match host.condition {
            Condition::Up => self.serve(connection, packet),
            Condition::Hung => host.waiting.push_back((connection, packet)),
            Condition::Down if matches!(packet, Packet::End) => {
                self.connections.remove(&connection);
            }
            Condition::Down => {}
        }
    }

    pub(super) fn serve(&mut self, connection: usize, packet: Packet) {
        let Some(it) = self.connections.get_mut(&connection) else { return };
        let (node, server) = (it.node, it.server);
        match (packet, server) {
            (Packet::Open, _) => {
                let server = self.hosts[node].server.connect();
                it.server = Some(server);
                self.hosts[node].peers.insert(server, connection);
            }
            (Packet::Bytes(bytes), Some(server)) => {
                self.act_on(node, |host, wall_us| host.server.receive(server, &bytes, wall_us));
            }
            // The server has already closed the connection.
            (Packet::Bytes(_), None) => {}
            (Packet::End, _) => {
                self.connections.remove(&connection);
                if let Some(server) = server {
                    self.hosts[node].peers.remove(&server);
                    self.hosts[node].server.disconnect(server);
                }
            }
        }
    }

    /// Delivers the server's output to the clients immediately. Only packets to a node are delayed.
    pub(super) fn put_out(&mut self, node: usize, outputs: Vec<Output>) {
        for output in outputs {
            let peers = &mut self.hosts[node].peers;
            let (connection, bytes) = match output {
                Output::Bytes(server, bytes) => (peers.get(&server).copied(), Some(bytes)),
                Output::Close(server) => (peers.remove(&server), None),
            };
            let it = connection.and_then(|connection| self.connections.get_mut(&connection));
            let Some(it) = it else { continue };
            match bytes {
                Some(bytes) if it.end.phase != Phase::Dropped => it.end.inbox.extend(bytes),
                Some(_) => {}
                None => {
                    it.server = None;
                    if it.end.phase == Phase::Open {
                        it.end.phase = Phase::Ended;
                    }
                }
            }
            self.woken.extend(it.end.reader.take());
        }
    }

    /// Closes all connections to a node whose process has ended. Packets in transit are lost.
    pub(super) fn close_all(&mut self, node: usize) {
        self.connections.retain(|_, it| it.node != node || it.end.phase != Phase::Dropped);
        for it in self.connections.values_mut().filter(|it| it.node == node) {
            it.end.phase = Phase::Ended;
            it.server = None;
            it.in_transit.clear();
            it.arrival = None;
            self.woken.extend(it.end.reader.take());
        }
    }

    /// Closes a connection on behalf of the client. Bytes that the client has already written still
    /// arrive before the close.
    fn close(&mut self, connection: usize) {
        let Some(it) = self.connections.get_mut(&connection) else { return };
        let before = std::mem::replace(&mut it.end, StreamEnd::new(Phase::Dropped));
        self.send(connection, Packet::End);
        // Dropping a waker can run arbitrary code, so the waker must outlive the lock guard.
        self.woken.extend(before.reader);
    }
}
