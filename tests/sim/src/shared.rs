//! The state that the whole simulation shares: time, events, machines and connections.

use crate::clock::{Instant, MS};
use crate::counter_life::ReleasedLease;
use crate::counts::Counts;
use crate::dice::Dice;
use crate::event::{Events, WorldEvent};
use crate::mode::Single;
use crate::network::Connection;
use crate::network_quality::{Delays, NetworkQuality};
use crate::node::NodeHost;
use crate::order::Order;
use crate::process::Process;
use crate::readings::Readings;
use crate::rule::Rule;
use crate::trace::Trace;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The maximum number of polls without an advance of time. If it is exceeded, some task is being
/// polled endlessly.
const MOST_POLLS: u32 = 2_000_000;

/// The state of the simulated world. The mutex is uncontended, because the simulation has one
/// thread. No client code runs while the mutex is locked.
pub(crate) struct Shared(Mutex<Core>);

impl Shared {
    pub(crate) fn new(core: Core) -> Self {
        Self(Mutex::new(core))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(clippy::struct_excessive_bools)] // Independent states.
pub(crate) struct Core {
    pub(crate) now: Instant,
    pub(crate) events: Events,
    pub(crate) dice: Dice,
    pub(crate) trace: Trace,
    pub(crate) network_quality: NetworkQuality,
    pub(crate) delays: Delays,
    pub(crate) nodes: Vec<NodeHost>,
    pub(crate) processes: Vec<Process>,
    pub(crate) connections: Vec<Connection>,
    /// The index of the node behind each address in the clients' settings.
    pub(crate) addresses: Vec<usize>,
    /// The kind of fault in the run, if the mode has only one kind.
    pub(crate) single: Option<Single>,
    /// The number of commands that the nodes may still receive, or `None` for no limit.
    pub(crate) commands_left: Option<u64>,
    /// The number of failovers that have not ended.
    pub(crate) failing_over: usize,
    /// The time at which the last failover ended. `None` before the first failover and while a
    /// failover is in progress.
    pub(crate) failed_over: Option<Instant>,
    /// How long clients ignore the votes of a restarted node.
    pub(crate) quarantine_period: Instant,
    /// A lower limit of that time. Zero without a restart guard.
    pub(crate) shortest_quarantine: Instant,
    /// Pairs of a process and a node that cannot exchange packets.
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    pub(crate) is_healed: bool,
    /// The time at which a lease last ended.
    pub(crate) released_at: Instant,
    /// The end of the last cool-down, if any.
    pub(crate) cool_down_until: Option<Instant>,
    /// The time before which no fault occurs.
    pub(crate) calm: Instant,
    pub(crate) readings: Readings,
    pub(crate) pushes: bool,
    /// The time at which each value first appeared on any node, if the mode needs this time.
    pub(crate) first_seen: BTreeMap<Vec<u8>, Instant>,
    pub(crate) records_tenures: bool,
    /// The ttl of an unused fencing counter.
    pub(crate) token_ttl: Instant,
    /// Whether clients derive minimum tokens from their wall clocks, and no wall clock jumps.
    pub(crate) trusts_wall_clocks: bool,
    /// Leases with fencing tokens that were released or dropped, by the unique part of their
    /// values.
    pub(crate) released_leases: BTreeMap<Vec<u8>, ReleasedLease>,
    /// Whether the clock of a process stops while the process is stopped.
    pub(crate) clocks_stop: bool,
    /// Violations that were found in packets or on nodes. The checker has not received them yet.
    pub(crate) findings: Vec<(Rule, String)>,
    /// For each process and node, the last second in which connections were opened, and how many
    /// were opened in that second.
    pub(crate) opened: BTreeMap<(usize, usize), (Instant, u32)>,
    /// For each client and address, the last minute in which connections were opened, and how many
    /// were opened in that minute.
    pub(crate) opened_a_minute: BTreeMap<(u64, usize), (Instant, u32)>,
    pub(crate) node_timeout: Instant,
    pub(crate) order: Order,
    /// How often the conditions of rules about packets and nodes were met.
    pub(crate) counts: Counts,
    polls: u32,
    /// The total number of task polls and alarm rings.
    pub(crate) polls_and_rings: u64,
}

impl Core {
    pub(crate) fn new(
        dice: Dice,
        trace: Trace,
        network_quality: NetworkQuality,
        delays: Delays,
        node_timeout: Instant,
    ) -> Self {
        Self {
            now: 0,
            events: Events::default(),
            dice,
            trace,
            network_quality,
            delays,
            nodes: Vec::new(),
            processes: Vec::new(),
            connections: Vec::new(),
            addresses: Vec::new(),
            single: None,
            commands_left: None,
            failing_over: 0,
            failed_over: None,
            quarantine_period: 0,
            shortest_quarantine: 0,
            blocked: BTreeSet::new(),
            is_healed: false,
            released_at: 0,
            cool_down_until: None,
            calm: 0,
            readings: Readings::default(),
            pushes: false,
            first_seen: BTreeMap::new(),
            records_tenures: false,
            token_ttl: 0,
            trusts_wall_clocks: false,
            released_leases: BTreeMap::new(),
            clocks_stop: false,
            findings: Vec::new(),
            opened: BTreeMap::new(),
            opened_a_minute: BTreeMap::new(),
            node_timeout,
            order: Order::default(),
            counts: Counts::default(),
            polls: 0,
            polls_and_rings: 0,
        }
    }

    /// Returns true before the first fault and after the last fault.
    pub(crate) fn is_calm(&self) -> bool {
        self.is_healed || self.now < self.calm
    }

    pub(crate) fn next_event(&mut self) -> Option<WorldEvent> {
        let (at, event) = self.events.next()?;
        if at > self.now {
            self.polls = 0;
            self.now = at;
        }
        Some(event)
    }

    /// Counts a poll. Panics if there have been too many polls without an advance of time.
    pub(crate) fn count_poll(&mut self) {
        self.polls += 1;
        self.polls_and_rings += 1;
        assert!(self.polls < MOST_POLLS, "tasks are polled without end at {}", self.now);
    }

    /// Draws how long a woken task waits before it is polled. Returns `None` if the task is polled
    /// immediately.
    pub(crate) fn draw_hold(&mut self, process: usize) -> Option<Instant> {
        let Delays { holds, longest, .. } = self.delays;
        let is_spared = self.processes[process].is_dead
            || self.now < self.calm
            || self.has_unreached_witness(process);
        if holds == 0 || is_spared || !self.dice.chance(holds) {
            return None;
        }
        let longest = if self.is_healed { longest.min(MS) } else { longest };
        Some(self.dice.log_uniform(100, longest.max(200)))
    }
}
