//! The nodes, with a raw connection to each of them. The tests send thousands of commands, and a raw connection is
//! faster than the test kit's commands.

use crate::SOON;
use kit::{Cluster, Server};
use quorlock::Lease;
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

pub(crate) const R: &str = "r";

/// The key of [`R`]'s fencing counter. A release does not delete this key.
const COUNTER: &str = "r#quorlock:token:{r}";

/// The value of the other holder's keys, which the client must not delete.
const OTHER_VALUE: &[u8] = b"other";

pub(crate) struct Nodes {
    cluster: Cluster,
    connections: Vec<Connection>,
    is_held_by_other: Cell<bool>,
}

struct Connection {
    health: Cell<Health>,
    stream: RefCell<Option<BufReader<TcpStream>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Up,
    Hung,
    Dead,
}

impl Nodes {
    pub(crate) fn start() -> Self {
        let cluster = Cluster::start(3);
        let connection =
            |_| Connection { health: Cell::new(Health::Up), stream: RefCell::default() };
        let connections = cluster.iter().map(connection).collect();
        Self { cluster, connections, is_held_by_other: Cell::default() }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.cluster.urls()
    }

    pub(crate) fn stop(&self, node: usize) {
        self.cluster[node].stop();
        self.connections[node].health.set(Health::Hung);
    }

    pub(crate) fn kill(&self, node: usize) {
        self.cluster[node].kill();
        self.connections[node].health.set(Health::Dead);
        self.connections[node].stream.take();
    }

    pub(crate) fn heal(&self) {
        for (connection, node) in self.connections.iter().zip(&self.cluster) {
            match connection.health.replace(Health::Up) {
                Health::Up => {}
                Health::Hung => node.cont(),
                Health::Dead => node.restart(),
            }
        }
    }

    pub(crate) fn flush(&self) {
        self.is_held_by_other.set(false);
        self.healthy()
            .for_each(|(connection, node)| assert_eq!(connection.ask(node, "FLUSHALL"), "+OK"));
    }

    /// Waits until the healthy nodes have replied to all earlier commands. A server replies in order, so its reply to
    /// `PING` is the last one.
    pub(crate) fn wait_for_replies(&self) {
        self.healthy()
            .for_each(|(connection, node)| assert_eq!(connection.ask(node, "PING"), "+PONG"));
    }

    /// Gives each node a different fencing counter, ahead of all clocks. An acquire with a token then needs a second
    /// round.
    pub(crate) fn spread_counters(&self) {
        for (place, (_, node)) in self.healthy().enumerate() {
            node.set(COUNTER, (4_000_000_000_000_000 + 1_000 * place).to_string());
        }
    }

    pub(crate) fn hold_by_other(&self) {
        self.is_held_by_other.set(true);
        for (_, node) in self.healthy() {
            node.cmd(&[b"SET", R.as_bytes(), OTHER_VALUE, b"EX", b"3600"]);
        }
    }

    pub(crate) fn expire_by_other(&self) {
        self.is_held_by_other.set(false);
        for (_, node) in self.healthy() {
            node.cmd(&["PEXPIRE", R, "1"]);
            kit::eventually(SOON, "the key expires", || node.get(R).is_none());
        }
    }

    /// Deletes the other holder's key, if any. First checks that the client under test has not changed this key.
    pub(crate) fn release_by_other(&self) {
        if self.is_held_by_other.take() {
            for (_, node) in self.healthy() {
                assert_eq!(
                    node.get(R).as_deref(),
                    Some(OTHER_VALUE),
                    "the other holder kept its key"
                );
                node.del(R);
            }
        }
    }

    pub(crate) fn leftover_key(&self) -> Option<String> {
        self.healthy().filter(|(connection, node)| connection.ask(node, "DBSIZE") != ":0").find_map(
            |(_, node)| {
                let is_leftover = |key: &Vec<u8>| {
                    key != COUNTER.as_bytes()
                        && node.get(key).is_some_and(|value| value != OTHER_VALUE)
                };
                let key = node.keys().into_iter().find(is_leftover)?;
                Some(format!("{} has {}", node.addr(), String::from_utf8_lossy(&key)))
            },
        )
    }

    pub(crate) fn node_without_lease(&self, lease: &Lease) -> Option<String> {
        let has =
            |node: &Server| node.get(lease.resource()).as_deref() == Some(lease.value().as_bytes());
        let lacking = self.healthy().find(|(_, node)| !has(node));
        lacking.map(|(_, node)| format!("{} does not hold the lease", node.addr()))
    }

    fn healthy(&self) -> impl Iterator<Item = (&Connection, &Server)> {
        self.connections
            .iter()
            .zip(&self.cluster)
            .filter(|(connection, _)| connection.health.get() == Health::Up)
    }
}

impl Connection {
    fn ask(&self, node: &Server, command: &str) -> String {
        let mut stream = self.stream.borrow_mut();
        let stream = stream.get_or_insert_with(|| {
            let stream = TcpStream::connect(node.addr()).expect("the node is up");
            stream.set_nodelay(true).expect("a socket");
            stream.set_read_timeout(Some(SOON)).expect("a socket");
            BufReader::new(stream)
        });
        let command = format!("{command}\r\n");
        stream.get_mut().write_all(command.as_bytes()).expect("the node is up");
        let mut reply = String::new();
        stream.read_line(&mut reply).expect("a reply");
        reply.trim_end().to_owned()
    }
}
