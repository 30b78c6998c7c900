//! The nodes, and a line to each for looking inside: faster than the kit's, and used thousands of
//! times.

use crate::SOON;
use kit::{Cluster, Server};
use quorlock::Lease;
use std::cell::{Cell, RefCell};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

/// What is locked.
pub(crate) const R: &str = "r";

/// The key of its fencing counter, which outlives the lock.
const COUNTER: &str = "r#quorlock:token:{r}";

/// What the keys of others hold: those are not ours to delete.
const THEIRS: &[u8] = b"theirs";

/// Three servers.
pub(crate) struct Nodes {
    cluster: Cluster,
    lines: Vec<Line>,
    /// True while somebody else holds the lock.
    is_theirs: Cell<bool>,
}

struct Line {
    health: Cell<Health>,
    stream: RefCell<Option<BufReader<TcpStream>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Hung,
    Dead,
}

impl Nodes {
    pub(crate) fn start() -> Self {
        let cluster = Cluster::start(3);
        let line = |_| Line { health: Cell::new(Health::Well), stream: RefCell::default() };
        let lines = cluster.iter().map(line).collect();
        Self { cluster, lines, is_theirs: Cell::default() }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.cluster.urls()
    }

    /// Has a node hang.
    pub(crate) fn stop(&self, node: usize) {
        self.cluster[node].stop();
        self.lines[node].health.set(Health::Hung);
    }

    /// Kills a node.
    pub(crate) fn kill(&self, node: usize) {
        self.cluster[node].kill();
        self.lines[node].health.set(Health::Dead);
        self.lines[node].stream.take();
    }

    /// Gets all going again. Who was dead has lost its memory.
    pub(crate) fn heal(&self) {
        for (line, node) in self.lines.iter().zip(&self.cluster) {
            match line.health.replace(Health::Well) {
                Health::Well => {}
                Health::Hung => node.cont(),
                Health::Dead => node.restart(),
            }
        }
    }

    pub(crate) fn flush(&self) {
        self.is_theirs.set(false);
        self.well().for_each(|(line, node)| assert_eq!(line.ask(node, "FLUSHALL"), "+OK"));
    }

    /// Waits until all that was sent to the nodes that are well has been answered, however busy the
    /// machine is: a server answers in the order in which it is asked.
    pub(crate) fn wait_for_replies(&self) {
        self.well().for_each(|(line, node)| assert_eq!(line.ask(node, "PING"), "+PONG"));
    }

    /// The fencing counters stand so far apart, and so far ahead of all clocks, that a token takes a
    /// second round.
    pub(crate) fn disagree(&self) {
        for (place, (_, node)) in self.well().enumerate() {
            node.set(COUNTER, (4_000_000_000_000_000 + 1_000 * place).to_string());
        }
    }

    /// Somebody else holds the lock.
    pub(crate) fn hold_elsewhere(&self) {
        self.is_theirs.set(true);
        for (_, node) in self.well() {
            node.cmd(&[b"SET", R.as_bytes(), THEIRS, b"EX", b"3600"]);
        }
    }

    /// Their lock expires.
    pub(crate) fn expire_elsewhere(&self) {
        self.is_theirs.set(false);
        for (_, node) in self.well() {
            node.cmd(&["PEXPIRE", R, "1"]);
            kit::eventually(SOON, "it expires", || node.get(R).is_none());
        }
    }

    /// They let go of it, if they hold it.
    pub(crate) fn release_elsewhere(&self) {
        if self.is_theirs.take() {
            for (_, node) in self.well() {
                assert_eq!(node.get(R).as_deref(), Some(THEIRS), "it was theirs all the time");
                node.del(R);
            }
        }
    }

    /// Keys of ours that a node has.
    pub(crate) fn ours(&self) -> Option<String> {
        self.well().filter(|(line, node)| line.ask(node, "DBSIZE") != ":0").find_map(|(_, node)| {
            let is_ours = |key: &Vec<u8>| {
                key != COUNTER.as_bytes() && node.get(key).is_some_and(|value| value != THEIRS)
            };
            let key = node.keys().into_iter().find(is_ours)?;
            Some(format!("{} has {}", node.addr(), String::from_utf8_lossy(&key)))
        })
    }

    /// A node that is well and does not hold `lease`.
    pub(crate) fn lacks(&self, lease: &Lease) -> Option<String> {
        let has =
            |node: &Server| node.get(lease.resource()).as_deref() == Some(lease.value().as_bytes());
        let lacking = self.well().find(|(_, node)| !has(node));
        lacking.map(|(_, node)| format!("{} does not hold it", node.addr()))
    }

    fn well(&self) -> impl Iterator<Item = (&Line, &Server)> {
        self.lines.iter().zip(&self.cluster).filter(|(line, _)| line.health.get() == Health::Well)
    }
}

impl Line {
    /// The first line of the reply.
    fn ask(&self, node: &Server, command: &str) -> String {
        let mut stream = self.stream.borrow_mut();
        let stream = stream.get_or_insert_with(|| {
            let stream = TcpStream::connect(node.addr()).expect("a node that is well");
            stream.set_nodelay(true).expect("a socket");
            stream.set_read_timeout(Some(SOON)).expect("a socket");
            BufReader::new(stream)
        });
        let command = format!("{command}\r\n");
        stream.get_mut().write_all(command.as_bytes()).expect("a node that is well");
        let mut reply = String::new();
        stream.read_line(&mut reply).expect("a reply");
        reply.trim_end().to_owned()
    }
}
