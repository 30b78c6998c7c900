//! Which process has reached which node, and when it has read the node's clock.

use crate::clock::{Instant, MS};
use crate::rule::Rule;
use crate::shared::Core;
use memchr::memmem;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes of a `TIME` command, and the beginning of its reply.
const ASKED: &[u8] = b"\r\nTIME\r\n";
const TOLD: &[u8] = b"*2\r\n$10\r\n1";
/// Bytes that only a client's set-up contains, and the possible last requests of a set-up: to kill
/// other connections, or to read the time.
const SET_UP: &[u8] = b"\r\nCLIENT\r\n$2\r\nID\r\n";
const CLOSING: [&[u8]; 2] = [b"*4\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n", b"*1\r\n$4\r\nTIME\r\n"];

/// Maximum time between two `TIME` commands, in true time: five seconds by the client's clock.
const LONGEST_UNASKED: Instant = 5_200 * MS;

#[derive(Default)]
pub(crate) struct Readings {
    /// Pairs of a process and a node from which it has received a reply.
    met: BTreeSet<(usize, usize)>,
    /// The latest `TIME` of a process with a prompt reply.
    prompt: BTreeMap<(usize, usize), Instant>,
    /// For each process and node: the last restart that the process knows, and the time at which it
    /// learned of it.
    learned: BTreeMap<(usize, usize), (Option<Instant>, Instant)>,
    connections: BTreeMap<usize, ConnectionState>,
    /// A node that is old at the start of the run, and reachable for new clients.
    pub(crate) witness: Option<usize>,
    /// Maximum additional delay of each packet until a process has reached the witness, so that it
    /// reaches other nodes first.
    pub(crate) meeting_delay: Instant,
}

/// Position of the last `TIME` command in a pipeline, if there is one.
pub(crate) fn request_of_time(bytes: &[u8]) -> Option<usize> {
    let name = memmem::rfind(bytes, ASKED)?;
    bytes[..name].iter().rposition(|byte| *byte == b'*')
}

/// State of a connection. Its replies do not count for the client if the connection belongs to a
/// check of the deployment, or if its set-up fails later.
#[derive(Default)]
struct ConnectionState {
    stage: Stage,
    /// Sending times of the unanswered `TIME` commands.
    asked: VecDeque<Instant>,
    asked_last: Instant,
    /// A `TIME` that was answered before the set-up was known to be complete, and whether the reply
    /// was prompt.
    early: Option<(Instant, bool)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Greeting,
    SettingUp,
    /// The last `TIME` of the set-up, or a later one, was sent.
    Closing,
    /// A command was sent that requires a complete set-up.
    InUse,
}

impl Stage {
    fn after(self, bytes: &[u8]) -> Self {
        let is_set_up = memmem::find(bytes, SET_UP).is_some();
        let may_close = CLOSING.iter().any(|closing| bytes.starts_with(closing));
        match self {
            Self::Greeting if is_set_up => Self::SettingUp,
            Self::Greeting => Self::Greeting,
            Self::SettingUp if may_close => Self::Closing,
            Self::SettingUp | Self::Closing | Self::InUse => Self::InUse,
        }
    }
}

impl Readings {
    fn record_written(&mut self, connection: usize, bytes: &[u8], now: Instant) {
        let count = memmem::find_iter(bytes, ASKED).count();
        let connection_state = self.connections.entry(connection).or_default();
        connection_state.stage = connection_state.stage.after(bytes);
        connection_state.asked.extend(std::iter::repeat_n(now, count));
        if count > 0 {
            connection_state.asked_last = now;
        }
    }

    /// Sending times of the `TIME` commands whose replies are in `bytes`.
    pub(crate) fn answered(&mut self, connection: usize, bytes: &[u8]) -> Vec<Instant> {
        let count = memmem::find_iter(bytes, TOLD).count();
        let Some(connection_state) = self.connections.get_mut(&connection) else {
            return Vec::new();
        };
        (0..count).filter_map(|_| connection_state.asked.pop_front()).collect()
    }

    pub(crate) fn has_met(&self, process: usize, node: usize) -> bool {
        self.met.contains(&(process, node))
    }
}

impl Core {
    pub(crate) fn record_written(&mut self, connection: usize, bytes: &[u8]) {
        self.readings.record_written(connection, bytes, self.now);
        let Some(connection_state) = self.readings.connections.get_mut(&connection) else { return };
        if connection_state.stage != Stage::InUse {
            return;
        }
        let unread = self.now - connection_state.asked_last;
        if unread > LONGEST_UNASKED {
            let how = format!("the clock of #{connection} was not read for {} ms", unread / MS);
            self.findings.push((Rule::ClocksRead, how));
        }
        if let Some((asked, is_prompt)) = connection_state.early.take() {
            self.record_known(connection, asked, is_prompt);
        }
    }

    /// Handles a reply to a `TIME` that has reached a process.
    pub(crate) fn record_time_reply(&mut self, connection: usize, asked: Instant) {
        let now = self.now;
        let (process, node) =
            (self.connections[connection].process, self.connections[connection].node);
        let it = &self.processes[process];
        let is_awake = !it.is_stopped && it.held.iter().all(|until| *until <= now);
        let is_prompt = is_awake && now - asked < 2 * self.weather.delay.1 + MS;
        let Some(connection_state) = self.readings.connections.get_mut(&connection) else { return };
        if is_awake && connection_state.stage != Stage::Greeting {
            self.readings.met.insert((process, node));
        }
        match connection_state.stage {
            Stage::SettingUp => connection_state.early = Some((asked, is_prompt)),
            Stage::InUse => self.record_known(connection, asked, is_prompt),
            Stage::Greeting | Stage::Closing => {}
        }
    }

    /// Records that a process knows the clock and the restarts of a node at the time `asked`.
    fn record_known(&mut self, connection: usize, asked: Instant, is_prompt: bool) {
        let it = &self.connections[connection];
        let (key, restarted) = ((it.process, it.node), self.nodes[it.node].restarted);
        if is_prompt {
            let last = self.readings.prompt.entry(key).or_default();
            *last = asked.max(*last);
        }
        let is_new = self.readings.learned.get(&key).is_none_or(|learned| learned.0 != restarted);
        if is_new && restarted.is_none_or(|at| at < asked) {
            self.readings.learned.insert(key, (restarted, self.now));
        }
    }

    /// Time since a process has known of the last restart or flush of a node. If the process may
    /// not know of it, the time since the restart. `None` if there was none.
    pub(crate) fn known_restarted_for(&self, process: usize, node: usize) -> Option<Instant> {
        let restarted = self.nodes[node].restarted?;
        let learned = self.readings.learned.get(&(process, node));
        let learned = learned.filter(|learned| learned.0 == Some(restarted));
        Some(self.now - learned.map_or(restarted, |learned| learned.1))
    }

    /// Returns true if the process has not reached the witness yet, and `node` is the witness,
    /// which is guaranteed to be reachable.
    pub(crate) fn is_first_meeting(&self, process: usize, node: usize) -> bool {
        self.readings.witness == Some(node) && !self.readings.has_met(process, node)
    }

    /// Returns true if there is a witness that the process has not reached yet.
    pub(crate) fn is_meeting(&self, process: usize) -> bool {
        self.readings.witness.is_some_and(|node| !self.readings.has_met(process, node))
    }

    /// Returns true if every process that has reached the node knows of all steps of its clock up
    /// to `stepped`, by a prompt reading. A step back and forth between two readings is
    /// undetectable.
    pub(crate) fn is_known_by_all(&self, node: usize, stepped: Instant) -> bool {
        self.processes.iter().enumerate().all(|(process, it)| {
            let read = self.readings.prompt.get(&(process, node));
            it.is_dead
                || !self.readings.has_met(process, node)
                || read.is_some_and(|at| *at > stepped)
        })
    }
}
