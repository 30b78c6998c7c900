//! Records which nodes each process has reached, and when it last read each node's clock.

use crate::clock::{Instant, MS};
use crate::rule::Rule;
use crate::shared::Core;
use memchr::memmem;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The bytes that identify a `TIME` command.
const TIME_COMMAND: &[u8] = b"\r\nTIME\r\n";
/// The first bytes of a reply to `TIME`.
const TIME_REPLY_PREFIX: &[u8] = b"*2\r\n$10\r\n1";
/// Bytes that a client sends only during the set-up of a connection.
const SET_UP: &[u8] = b"\r\nCLIENT\r\n$2\r\nID\r\n";
/// The first bytes of the possible last requests of a set-up. The last request either kills other
/// connections or reads the time.
const LAST_SET_UP_REQUESTS: [&[u8]; 2] =
    [b"*4\r\n$6\r\nCLIENT\r\n$4\r\nKILL\r\n", b"*1\r\n$4\r\nTIME\r\n"];

/// The maximum time between two `TIME` commands. The client's limit is five seconds by its own
/// clock, which may be slow.
const LONGEST_UNASKED: Instant = 5_200 * MS;

#[derive(Default)]
pub(crate) struct Readings {
    /// The pairs of a process and a node that has sent the process a reply.
    reached: BTreeSet<(usize, usize)>,
    /// For each process and node, when the latest promptly answered `TIME` was sent.
    prompt: BTreeMap<(usize, usize), Instant>,
    /// For each process and node, the last restart that the process knows of, and the time at which
    /// it learned of this restart.
    learned: BTreeMap<(usize, usize), (Option<Instant>, Instant)>,
    connections: BTreeMap<usize, ConnectionState>,
    /// A node that has been running since long before the run. Every new client can reach it.
    pub(crate) witness: Option<usize>,
    /// The maximum additional delay of each packet until a process has reached `witness`. The delay
    /// makes the process reach other nodes first.
    pub(crate) witness_delay: Instant,
}

pub(crate) fn request_of_time(bytes: &[u8]) -> Option<usize> {
    let name = memmem::rfind(bytes, TIME_COMMAND)?;
    bytes[..name].iter().rposition(|byte| *byte == b'*')
}

/// The progress of a connection's set-up, and its unanswered `TIME` commands. Replies are ignored
/// if the connection belongs to a check of the deployment, or if the set-up fails later.
#[derive(Default)]
struct ConnectionState {
    stage: Stage,
    asked: VecDeque<Instant>,
    asked_last: Instant,
    /// A `TIME` that was answered before the set-up was known to be complete. The pair contains the
    /// sending time, and whether the reply was prompt.
    early: Option<(Instant, bool)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Greeting,
    SettingUp,
    /// The last `TIME` of the set-up, or a later `TIME`, was sent.
    Closing,
    /// A command that requires a complete set-up was sent.
    InUse,
}

impl Stage {
    fn after(self, bytes: &[u8]) -> Self {
        let is_set_up = memmem::find(bytes, SET_UP).is_some();
        let may_close = LAST_SET_UP_REQUESTS.iter().any(|closing| bytes.starts_with(closing));
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
        let count = memmem::find_iter(bytes, TIME_COMMAND).count();
        let connection_state = self.connections.entry(connection).or_default();
        connection_state.stage = connection_state.stage.after(bytes);
        connection_state.asked.extend(std::iter::repeat_n(now, count));
        if count > 0 {
            connection_state.asked_last = now;
        }
    }

    /// Returns the sending times of the `TIME` commands whose replies are in `bytes`.
    pub(crate) fn answered(&mut self, connection: usize, bytes: &[u8]) -> Vec<Instant> {
        let count = memmem::find_iter(bytes, TIME_REPLY_PREFIX).count();
        let Some(connection_state) = self.connections.get_mut(&connection) else {
            return Vec::new();
        };
        (0..count).filter_map(|_| connection_state.asked.pop_front()).collect()
    }

    pub(crate) fn has_reached(&self, process: usize, node: usize) -> bool {
        self.reached.contains(&(process, node))
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
        self.counts.add(Rule::ClocksRead, 1);
        if unread > LONGEST_UNASKED {
            let how = format!("the clock of #{connection} was not read for {} ms", unread / MS);
            self.findings.push((Rule::ClocksRead, how));
        }
        if let Some((asked, is_prompt)) = connection_state.early.take() {
            self.record_known(connection, asked, is_prompt);
        }
    }

    /// Handles a `TIME` reply that has reached a process. The command was sent at `asked`.
    pub(crate) fn record_time_reply(&mut self, connection: usize, asked: Instant) {
        let now = self.now;
        let (process, node) =
            (self.connections[connection].process, self.connections[connection].node);
        let it = &self.processes[process];
        let is_awake = !it.is_stopped && it.held.iter().all(|until| *until <= now);
        let is_prompt = is_awake && now - asked < 2 * self.network_quality.delay.1 + MS;
        let Some(connection_state) = self.readings.connections.get_mut(&connection) else { return };
        if is_awake && connection_state.stage != Stage::Greeting {
            self.readings.reached.insert((process, node));
        }
        match connection_state.stage {
            Stage::SettingUp => connection_state.early = Some((asked, is_prompt)),
            Stage::InUse => self.record_known(connection, asked, is_prompt),
            Stage::Greeting | Stage::Closing => {}
        }
    }

    /// Records that a process knew the clock and the restarts of a node at the time `asked`.
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

    /// Returns for how long a process has known of the node's last restart or flush. If the process
    /// may not know of it, returns the time since the restart. Returns `None` if the node has never
    /// restarted.
    pub(crate) fn known_restarted_for(&self, process: usize, node: usize) -> Option<Instant> {
        let restarted = self.nodes[node].restarted?;
        let learned = self.readings.learned.get(&(process, node));
        let learned = learned.filter(|learned| learned.0 == Some(restarted));
        Some(self.now - learned.map_or(restarted, |learned| learned.1))
    }

    /// Returns true if `node` is the witness, which every new process must be able to reach, and
    /// `process` has not reached it yet.
    pub(crate) fn is_unreached_witness(&self, process: usize, node: usize) -> bool {
        self.readings.witness == Some(node) && !self.readings.has_reached(process, node)
    }

    /// Returns true if `process` has not reached the run's witness yet. Returns false if the run
    /// has no witness.
    pub(crate) fn has_unreached_witness(&self, process: usize) -> bool {
        self.readings.witness.is_some_and(|node| !self.readings.has_reached(process, node))
    }

    /// Returns true if all processes know of the node's clock step at `stepped`: every live process
    /// that has reached the node has promptly read the node's clock since the step. Two opposite
    /// steps between two readings would be undetectable.
    pub(crate) fn is_known_by_all(&self, node: usize, stepped: Instant) -> bool {
        self.processes.iter().enumerate().all(|(process, it)| {
            let read = self.readings.prompt.get(&(process, node));
            it.is_dead
                || !self.readings.has_reached(process, node)
                || read.is_some_and(|at| *at > stepped)
        })
    }
}
