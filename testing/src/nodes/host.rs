//! A simulated host: its server, its wall clock and its queued packets.

use super::alarm::AlarmHandle;
use super::clock::RuntimeClock;
use crate::server_model::{Config, ConnId, Server};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Uptime of the nodes at the start of a test. After a day, the restart guard excludes no node.
const UP_FOR_US: u64 = 86_400 * 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Up,
    /// The host accepts packets, but the process does not read them.
    Hung,
    Down,
}

pub(super) enum Packet {
    Open,
    Bytes(Vec<u8>),
    End,
}

/// Handle to a scheduled event of the network. Dropping the handle cancels the event.
pub(super) struct Planned {
    pub(super) at: Duration,
    _alarm: AlarmHandle,
}

impl Planned {
    pub(super) fn new(at: Duration, alarm: AlarmHandle) -> Self {
        Self { at, _alarm: alarm }
    }
}

pub(super) struct NodeHost {
    pub(super) number: usize,
    pub(super) server: Server,
    pub(super) condition: Condition,
    /// Network delay from clients to this host.
    pub(super) delay: Duration,
    /// Offset of this host's wall clock from the shared wall clock, in microseconds.
    pub(super) ahead_us: i64,
    /// Number of restarts of the server process.
    pub(super) runs: u64,
    pub(super) persists: bool,
    /// Packets that arrived while the host was hung, each with its connection number.
    pub(super) waiting: VecDeque<(usize, Packet)>,
    /// The network's connection number for each connection of the server.
    pub(super) peers: BTreeMap<ConnId, usize>,
    pub(super) expiry: Option<Planned>,
}

impl NodeHost {
    pub(super) fn new(number: usize, clock: &RuntimeClock) -> Self {
        let config = Config { run_id: run_id(number, 0), ..Config::default() };
        Self {
            number,
            server: Server::new(config, clock.wall_us().saturating_sub(UP_FOR_US)),
            condition: Condition::Up,
            delay: Duration::ZERO,
            ahead_us: 0,
            runs: 0,
            persists: false,
            waiting: VecDeque::new(),
            peers: BTreeMap::new(),
            expiry: None,
        }
    }
}

pub(super) fn run_id(number: usize, runs: u64) -> String {
    format!("{number:020x}{runs:020x}")
}
