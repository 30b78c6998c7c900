//! What the whole simulation shares: the time, what is to come, machines and wires between them.

use crate::clock::{Instant, MS};
use crate::dice::Dice;
use crate::event::{Agenda, WorldEvent};
use crate::mode::Single;
use crate::network::Connection;
use crate::node::NodeHost;
use crate::order::Order;
use crate::process::Process;
use crate::readings::Readings;
use crate::rule::Rule;
use crate::standing::LetGo;
use crate::trace::Trace;
use crate::weather::{Nerves, Weather};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A task that is polled so often at one time will be polled for ever.
const MOST_POLLS: u32 = 2_000_000;

/// The state of the world, behind a lock that nobody contends for: all runs on one thread. No code of a
/// client runs while it is locked.
pub(crate) struct Shared(Mutex<Core>);

impl Shared {
    pub(crate) fn new(core: Core) -> Self {
        Self(Mutex::new(core))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
pub(crate) struct Core {
    pub(crate) now: Instant,
    pub(crate) agenda: Agenda,
    pub(crate) dice: Dice,
    pub(crate) trace: Trace,
    pub(crate) weather: Weather,
    pub(crate) nerves: Nerves,
    pub(crate) nodes: Vec<NodeHost>,
    pub(crate) processes: Vec<Process>,
    pub(crate) connections: Vec<Connection>,
    /// Which node each address of the clients' settings leads to.
    pub(crate) addresses: Vec<usize>,
    /// The only fault of the run, if its mode is about one.
    pub(crate) single: Option<Single>,
    /// Commands that the nodes may still receive before too many waiters compete, in the mode that counts them.
    pub(crate) commands_left: Option<u64>,
    /// How many failovers have not ended, and when the last of them did.
    pub(crate) failing_over: usize,
    pub(crate) failed_over: Option<Instant>,
    /// How long a node that was restarted does not count.
    pub(crate) term: Instant,
    /// Between whom nothing passes: process and node.
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    pub(crate) is_healed: bool,
    /// When a lease was let go of last.
    pub(crate) let_go: Instant,
    /// Until when locks rest after their release, if any do.
    pub(crate) rests: Option<Instant>,
    /// Nothing goes wrong before.
    pub(crate) calm: Instant,
    pub(crate) readings: Readings,
    /// Nodes tell of keys that change.
    pub(crate) pushes: bool,
    /// When a value came to stand on any node for the first time, if that is of interest.
    pub(crate) came: BTreeMap<Vec<u8>, Instant>,
    pub(crate) notes_tenures: bool,
    /// How long counters stand.
    pub(crate) token_ttl: Instant,
    /// Clients take hints from their wall clocks, which nobody sets.
    pub(crate) trusts_walls: bool,
    /// Leases with tokens that were let go of, by what tells their values apart.
    pub(crate) let_go_of: BTreeMap<Vec<u8>, LetGo>,
    /// Clocks of processes stand still while they are stopped.
    pub(crate) stands_still: bool,
    /// What was found on the wires that must not be.
    pub(crate) findings: Vec<(Rule, String)>,
    /// In which second it was, and how often a process has opened a connection to a node in it.
    pub(crate) opened: BTreeMap<(usize, usize), (Instant, u32)>,
    /// The same by client and address, and in which minute.
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
        nerves: Nerves,
        node_timeout: Instant,
    ) -> Self {
        Self {
            now: 0,
            agenda: Agenda::default(),
            dice,
            trace,
            weather,
            nerves,
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
            let_go: 0,
            rests: None,
            calm: 0,
            readings: Readings::default(),
            pushes: false,
            came: BTreeMap::new(),
            notes_tenures: false,
            token_ttl: 0,
            trusts_walls: false,
            let_go_of: BTreeMap::new(),
            stands_still: false,
            findings: Vec::new(),
            opened: BTreeMap::new(),
            opened_a_minute: BTreeMap::new(),
            node_timeout,
            order: Order::default(),
            polls: 0,
            turns: 0,
        }
    }

    /// True while nothing goes wrong: not yet, or not any more.
    pub(crate) fn is_calm(&self) -> bool {
        self.is_healed || self.now < self.calm
    }

    /// The next thing that happens; the time goes on to it.
    pub(crate) fn next_event(&mut self) -> Option<WorldEvent> {
        let (at, event) = self.agenda.next()?;
        if at > self.now {
            self.polls = 0;
            self.now = at;
        }
        Some(event)
    }

    /// Ends a run in which time does not go on any more.
    pub(crate) fn count_poll(&mut self) {
        self.polls += 1;
        self.turns += 1;
        assert!(self.polls < MOST_POLLS, "tasks are polled without end at {}", self.now);
    }

    /// How long a task that was woken has to wait until it is polled, if it has to.
    pub(crate) fn draw_hold(&mut self, process: usize) -> Option<Instant> {
        let Nerves { holds, longest, .. } = self.nerves;
        let is_spared =
            self.processes[process].is_dead || self.now < self.calm || self.is_meeting(process);
        if holds == 0 || is_spared || !self.dice.chance(holds) {
            return None;
        }
        let longest = if self.is_healed { longest.min(MS) } else { longest };
        Some(self.dice.of_any_size(100, longest.max(200)))
    }
}
