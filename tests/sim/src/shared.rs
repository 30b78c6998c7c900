//! State that the whole simulation shares: time, events, machines and connections.

use crate::clock::{Instant, MS};
use crate::counter_life::ReleasedLease;
use crate::dice::Dice;
use crate::event::{Events, WorldEvent};
use crate::mode::Single;
use crate::network::Connection;
use crate::node::NodeHost;
use crate::order::Order;
use crate::process::Process;
use crate::readings::Readings;
use crate::rule::Rule;
use crate::trace::Trace;
use crate::weather::{Delays, Weather};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of polls at one time, above which a task is considered to be polled endlessly.
const MOST_POLLS: u32 = 2_000_000;

/// The state of the world. The mutex is uncontended, because the simulation has one thread. No
/// client code runs while it is locked.
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
    pub(crate) weather: Weather,
    pub(crate) delays: Delays,
    pub(crate) nodes: Vec<NodeHost>,
    pub(crate) processes: Vec<Process>,
    pub(crate) connections: Vec<Connection>,
    /// The node behind each address of the clients' settings.
    pub(crate) addresses: Vec<usize>,
    /// The only fault of the run, if its mode has just one.
    pub(crate) single: Option<Single>,
    /// In the mode that limits commands: the number of commands that the nodes may still receive.
    pub(crate) commands_left: Option<u64>,
    /// Number of failovers that have not ended, and the end of the last one.
    pub(crate) failing_over: usize,
    pub(crate) failed_over: Option<Instant>,
    /// Quarantine period of a restarted node.
    pub(crate) term: Instant,
    /// Pairs of a process and a node that cannot exchange packets.
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    pub(crate) is_healed: bool,
    /// Time of the last end of a lease.
    pub(crate) released_at: Instant,
    /// End of the last cool-down, if there was any.
    pub(crate) rests: Option<Instant>,
    /// No fault occurs before this time.
    pub(crate) calm: Instant,
    pub(crate) readings: Readings,
    /// Nodes push changes of keys.
    pub(crate) pushes: bool,
    /// The time at which each value first appeared on any node, if the mode needs it.
    pub(crate) came: BTreeMap<Vec<u8>, Instant>,
    pub(crate) records_tenures: bool,
    /// Ttl of unused counters.
    pub(crate) token_ttl: Instant,
    /// Clients take hints from their wall clocks, which are never set.
    pub(crate) trusts_wall_clocks: bool,
    /// Leases with tokens that were released or dropped, by the unique part of their values.
    pub(crate) released_leases: BTreeMap<Vec<u8>, ReleasedLease>,
    /// The clock of a process stops while the process is stopped.
    pub(crate) clocks_stop: bool,
    /// Violations that were found in packets.
    pub(crate) findings: Vec<(Rule, String)>,
    /// For each process and node: the number of connections opened in a second, and that second.
    pub(crate) opened: BTreeMap<(usize, usize), (Instant, u32)>,
    /// The same by client and address, per minute.
    pub(crate) opened_a_minute: BTreeMap<(u64, usize), (Instant, u32)>,
    pub(crate) node_timeout: Instant,
    pub(crate) order: Order,
    polls: u32,
    /// Number of times that a task was polled or an alarm rang.
    pub(crate) turns: u64,
}

impl Core {
    pub(crate) fn new(
        dice: Dice,
        trace: Trace,
        weather: Weather,
        delays: Delays,
        node_timeout: Instant,
    ) -> Self {
        Self {
            now: 0,
            events: Events::default(),
            dice,
            trace,
            weather,
            delays,
            nodes: Vec::new(),
            processes: Vec::new(),
            connections: Vec::new(),
            addresses: Vec::new(),
            single: None,
            commands_left: None,
            failing_over: 0,
            failed_over: None,
            term: 0,
            blocked: BTreeSet::new(),
            is_healed: false,
            released_at: 0,
            rests: None,
            calm: 0,
            readings: Readings::default(),
            pushes: false,
            came: BTreeMap::new(),
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
            polls: 0,
            turns: 0,
        }
    }

    /// Returns true before the first fault and after the last one.
    pub(crate) fn is_calm(&self) -> bool {
        self.is_healed || self.now < self.calm
    }

    /// Takes the next event, and advances the time to it.
    pub(crate) fn next_event(&mut self) -> Option<WorldEvent> {
        let (at, event) = self.events.next()?;
        if at > self.now {
            self.polls = 0;
            self.now = at;
        }
        Some(event)
    }

    /// Panics if time no longer advances.
    pub(crate) fn count_poll(&mut self) {
        self.polls += 1;
        self.turns += 1;
        assert!(self.polls < MOST_POLLS, "tasks are polled without end at {}", self.now);
    }

    /// Draws the time for which a woken task must wait before it is polled, if any.
    pub(crate) fn draw_hold(&mut self, process: usize) -> Option<Instant> {
        let Delays { holds, longest, .. } = self.delays;
        let is_spared =
            self.processes[process].is_dead || self.now < self.calm || self.is_meeting(process);
        if holds == 0 || is_spared || !self.dice.chance(holds) {
            return None;
        }
        let longest = if self.is_healed { longest.min(MS) } else { longest };
        Some(self.dice.of_any_size(100, longest.max(200)))
    }
}
