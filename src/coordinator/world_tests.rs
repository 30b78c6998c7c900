//! A simulated world: several coordinators and in-process model servers, in one thread and on a virtual clock.

use super::{Completion, ConnectionId, Coordinator, NodeSettings, RoundId, Settings};
use crate::observe::EventLevel;
use crate::observe::event::Event;
use crate::protocol::{ClientId, Drift, Extended, Policy, Quorum, Time, Ttl};
use crate::random::Random;
use quorlock_test::Trouble;
use quorlock_test::internals::{Config, ConnId, Server};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Wall-clock time at the origin of the virtual clock, in microseconds.
const WALL_US: u64 = 1_700_000_000_000_000;

const UPTIME: Duration = Duration::from_secs(1_000);

pub(super) const NODE_TIMEOUT: Duration = Duration::from_millis(50);

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) struct World {
    pub(super) now: Time,
    pub(super) hosts: Vec<Host>,
    pub(super) processes: Vec<Process>,
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
    /// Whether some writes and reads are split at random.
    pub(super) splits: bool,
    pub(super) random: StdRng,
    pub(super) deliveries: BTreeMap<(Time, u64), Delivery>,
    pub(super) serial: u64,
    /// Connections whose bytes are lost in both directions.
    pub(super) dead: Vec<(usize, ConnectionId)>,
}

pub(super) struct Host {
    pub(super) server: Server,
    /// How far the host's wall clock is ahead of the virtual clock.
    pub(super) ahead_us: u64,
    /// Drift of the host's wall clock, in microseconds per second.
    pub(super) gains_us: i64,
    pub(super) state: HostState,
    /// Bytes that arrived while the host was hung.
    pub(super) held: VecDeque<Delivery>,
    pub(super) peers: BTreeMap<ConnId, (usize, ConnectionId)>,
    pub(super) trouble: Option<Trouble>,
    /// If a command contains this word, the server closes the connection. Empty to disable this fault.
    pub(super) closes_on: &'static str,
    /// Commands that contain this word do not reach the server. Empty to disable this fault.
    pub(super) drops_commands_with: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostState {
    Up,
    /// Accepts connections and bytes, but does not reply.
    Hung,
    Down,
}

pub(super) struct Process {
    pub(super) coordinator: Coordinator,
    pub(super) streams: BTreeMap<ConnectionId, ConnId>,
    /// When the last bytes sent so far arrive, for each connection and direction. `true` is the direction to the
    /// server.
    pub(super) arrivals: BTreeMap<(ConnectionId, bool), Time>,
    pub(super) completions: Vec<Completion>,
    pub(super) extended: Vec<(RoundId, Extended)>,
    pub(super) drops_extensions: bool,
    pub(super) events: Vec<Event>,
    pub(super) sent: u64,
    /// Whether the process wrote only a part of the available bytes when it last ran.
    pub(super) writes_on: bool,
    pub(super) frozen_until: Time,
    /// Added to the delay in both directions.
    pub(super) distance: Duration,
}

#[derive(Debug)]
pub(super) enum Delivery {
    Connect { process: usize, connection: ConnectionId },
    ToServer { process: usize, connection: ConnectionId, bytes: Vec<u8> },
    ToClient { process: usize, connection: ConnectionId, bytes: Vec<u8> },
    Closed { process: usize, connection: ConnectionId },
}

impl World {
    /// Creates a world of `count` servers, which have run for long enough that their votes count.
    pub(super) fn new(count: usize, seed: u64) -> Self {
        let host = |place: usize| {
            let run_id = format!("{place:040}");
            let config = Config { run_id, ..Config::default() };
            let wall_us = WALL_US - u64::try_from(UPTIME.as_micros()).expect("few");
            Host {
                server: Server::new(config, wall_us),
                ahead_us: 0,
                gains_us: 0,
                state: HostState::Up,
                held: VecDeque::new(),
                peers: BTreeMap::new(),
                closes_on: "",
                drops_commands_with: "",
                trouble: None,
            }
        };
        Self {
            now: Time::default().after(Duration::from_secs(1)),
            hosts: (0..count).map(host).collect(),
            processes: Vec::new(),
            delay: Duration::from_micros(100),
            jitter: Duration::ZERO,
            splits: false,
            random: StdRng::seed_from_u64(seed),
            deliveries: BTreeMap::new(),
            serial: 0,
            dead: Vec::new(),
        }
    }

    pub(super) fn settings(&self) -> Settings {
        let names: Vec<_> = (0..self.hosts.len()).map(|place| format!("node-{place}")).collect();
        let nodes = names.iter().map(|name| NodeSettings {
            name: name.as_str().into(),
            hint_if_closed: "",
            hint_if_silent: "",
        });
        let quorum = Quorum::majority(names.len());
        let max_ttl = Duration::from_secs(60);
        Settings {
            quorum,
            drift: Drift::DEFAULT,
            node_timeout: NODE_TIMEOUT,
            connect_timeout: Duration::from_secs(1),
            opening_timeout: Duration::from_secs(1),
            max_ttl: Ttl::from_duration(max_ttl).expect("a ttl"),
            policy: Policy::Observed,
            trusts_persistence: false,
            client: ClientId(u32::try_from(self.processes.len()).expect("few") + 1),
            nodes: nodes.collect(),
            prefix: 0,
        }
    }

    pub(super) fn process(&mut self) -> usize {
        self.process_with(self.settings())
    }

    pub(super) fn process_with(&mut self, settings: Settings) -> usize {
        let random = Random::seeded(self.random.random());
        let mut coordinator = Coordinator::new(settings, random);
        coordinator.observe(Some(EventLevel::Debug));
        coordinator.set_wall_clock(WALL_US + self.now.as_nanos() / 1_000, self.now);
        self.processes.push(Process {
            coordinator,
            streams: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            completions: Vec::new(),
            extended: Vec::new(),
            drops_extensions: false,
            events: Vec::new(),
            sent: 0,
            writes_on: false,
            frozen_until: Time::default(),
            distance: Duration::ZERO,
        });
        self.processes.len() - 1
    }

    pub(super) fn connected(&mut self) -> usize {
        let process = self.process();
        self.processes[process].coordinator.handle_ready(self.now);
        self.run_for(ms(20));
        let is_ready = |completion: &Completion| matches!(completion, Completion::Ready);
        assert!(self.processes[process].completions.iter().any(is_ready));
        self.processes[process].completions.clear();
        process
    }

    pub(super) fn coordinator(&mut self, process: usize) -> (&mut Coordinator, Time) {
        (&mut self.processes[process].coordinator, self.now)
    }

    pub(super) fn wall_us(&self, host: usize) -> u64 {
        let elapsed_us = self.now.as_nanos() / 1_000;
        let gained =
            i64::try_from(elapsed_us).expect("few") * self.hosts[host].gains_us / 1_000_000;
        (WALL_US + elapsed_us + self.hosts[host].ahead_us).saturating_add_signed(gained)
    }

    pub(super) fn is_frozen(&self, process: usize) -> bool {
        self.processes[process].frozen_until > self.now
    }

    /// Returns the time at which a frozen process can handle `delivery`, or `None` if the process is not frozen.
    fn postponed(&self, delivery: &Delivery) -> Option<Time> {
        let (Delivery::Connect { process, .. }
        | Delivery::ToClient { process, .. }
        | Delivery::Closed { process, .. }) = delivery
        else {
            return None;
        };
        self.is_frozen(*process).then_some(self.processes[*process].frozen_until)
    }

    pub(super) fn deliver(
        &mut self,
        stream: Option<(usize, ConnectionId, bool)>,
        delivery: Delivery,
    ) {
        let jitter = self.jitter.as_nanos();
        let jitter = u64::try_from(jitter).expect("short");
        let delay = self.delay + Duration::from_nanos(self.random.random_range(0..=jitter));
        let mut at = self.now.after(delay);
        if let Some((process, connection, is_up)) = stream {
            at = at.after(self.processes[process].distance);
            // Bytes of a stream stay in order.
            let last = self.processes[process].arrivals.entry((connection, is_up)).or_insert(at);
            at = at.max(*last);
            *last = at;
        }
        self.serial += 1;
        self.deliveries.insert((at, self.serial), delivery);
    }

    pub(super) fn turn(&mut self) {
        for place in 0..self.processes.len() {
            let now = self.now;
            if self.is_frozen(place) {
                continue;
            }
            let process = &mut self.processes[place];
            process.writes_on = false;
            while let Some(connection) = process.coordinator.poll_connect(now) {
                let delivery = Delivery::Connect { process: place, connection };
                self.serial += 1;
                self.deliveries.insert((now.after(self.delay), self.serial), delivery);
            }
            let mut out = Vec::new();
            let connections: Vec<_> = process.streams.keys().copied().collect();
            for connection in connections {
                let mut bytes = process.coordinator.poll_transmit(connection, now).to_vec();
                if !bytes.is_empty() {
                    if self.splits && self.random.random_ratio(1, 4) {
                        bytes.truncate(self.random.random_range(1..=bytes.len()));
                        process.writes_on = true;
                    }
                    process.coordinator.handle_sent(connection, bytes.len());
                    process.sent += 1;
                    out.push((connection, bytes));
                }
            }
            let mut closed = Vec::new();
            while let Some(connection) = process.coordinator.poll_close() {
                closed.extend(process.streams.remove(&connection).map(|conn| (connection, conn)));
            }
            while let Some(completion) = process.coordinator.poll_completion() {
                if let Completion::Extended { call, ended, replies } = &completion
                    && !process.drops_extensions
                {
                    let take = || process.coordinator.handle_extended(replies, now);
                    process.extended.push((*call, ended.map_or_else(take, Extended::Ended)));
                }
                process.completions.push(completion);
            }
            while let Some((_, event)) = process.coordinator.poll_event() {
                process.events.push(event);
            }
            for (connection, bytes) in out {
                let delivery = Delivery::ToServer { process: place, connection, bytes };
                self.deliver(Some((place, connection, true)), delivery);
            }
            for (connection, conn) in closed {
                // Earlier bytes still arrive. After them, the server sees the end of the stream.
                let delivery = Delivery::ToServer { process: place, connection, bytes: Vec::new() };
                let _ = conn;
                self.deliver(Some((place, connection, true)), delivery);
            }
        }
    }

    pub(super) fn next(&mut self) -> Option<Time> {
        let now = self.now;
        let delivery = self.deliveries.keys().next().map(|(at, _)| *at);
        let timeouts: Vec<_> = self
            .processes
            .iter_mut()
            .filter_map(|process| {
                let timeout = process.coordinator.poll_timeout(now);
                let soon = process.writes_on.then(|| now.after(Duration::from_micros(100)));
                match process.frozen_until {
                    until if until > now => Some(until),
                    _ => [timeout, soon].into_iter().flatten().min(),
                }
            })
            .collect();
        let is_up = |host: &usize| self.hosts[*host].state == HostState::Up;
        let expiry = (0..self.hosts.len()).filter(is_up).filter_map(|host| {
            let at_us = self.hosts[host].server.next_expiry()?;
            Some(now.after(Duration::from_micros(at_us.saturating_sub(self.wall_us(host)))))
        });
        delivery.into_iter().chain(timeouts).chain(expiry).min()
    }

    /// Runs the world until `is_done` returns true. Returns false if `limit` is reached first.
    pub(super) fn run_until(&mut self, limit: Time, is_done: impl Fn(&Self) -> bool) -> bool {
        let (mut turns, mut spins) = (0_u32, 0_u32);
        loop {
            self.turn();
            if is_done(self) {
                return true;
            }
            let Some(next) = self.next().filter(|next| *next <= limit) else {
                self.now = self.now.max(limit);
                return false;
            };
            turns = if next > self.now { 0 } else { turns + 1 };
            assert!(turns < 10_000, "no progress at {:?}", self.now);
            spins = if next > self.now { 0 } else { spins + 1 };
            self.now = self.now.max(next);
            while let Some(entry) = self.deliveries.first_entry()
                && entry.key().0 <= self.now
            {
                let serial = entry.key().1;
                spins = 0;
                let delivery = entry.remove();
                match self.postponed(&delivery) {
                    Some(until) => _ = self.deliveries.insert((until, serial), delivery),
                    None => self.handle(delivery),
                }
            }
            // Handling the timeouts of 16,384 acquires takes 256 calls.
            assert!(spins < 300, "timeouts that have passed are reported again at {:?}", self.now);
            for host in 0..self.hosts.len() {
                let wall_us = self.wall_us(host);
                if self.hosts[host].state == HostState::Up
                    && self.hosts[host].server.next_expiry().is_some_and(|at| at <= wall_us)
                {
                    let outputs = self.hosts[host].server.expire(wall_us);
                    self.send(host, outputs);
                }
            }
            let now = self.now;
            for process in &mut self.processes {
                let timeout = process.coordinator.poll_timeout(now);
                if process.frozen_until <= now && timeout.is_some_and(|at| at <= now) {
                    process.coordinator.handle_timeout(now, true);
                }
            }
        }
    }

    pub(super) fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now.after(duration), |_| false);
    }
}
