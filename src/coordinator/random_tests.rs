//! Randomized tests: several processes use locks while nodes fail. Runs with an even seed are safe: at most a minority
//! of the nodes lose their data, so two clients must never hold the same lock.
//!
//! `COORDINATOR_SEEDS=100000 cargo test --release --lib coordinator::random_tests` runs 100,000 seeds, and
//! `COORDINATOR_SEED=7` runs only seed 7.

use super::world_calls_tests::{Held, keys, request, waiting};
use super::world_tests::{World, ms};
use super::{AcquireFailure, AcquireId, AcquireRequest, Completion, RoundId};
use crate::protocol::{LeaseStatus, Time, Ttl};
use crate::wire::CounterKeys;
use quorlock_test::internals::{Config, Version};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

const SEEDS: u64 = 40;

const STEPS: usize = 120;

const NAMES: [&[&str]; 6] = [&["a"], &["a"], &["b"], &["a", "b"], &["b", "c"], &["a", "b", "c"]];

/// A faulty server closes the connection if a command contains one of these words.
pub(super) const WORDS: [&str; 8] =
    ["EVALSHA", "SET", "PTTL", "EVAL\r", "EXISTS", "CACHING", "TIME", "KILL"];

#[derive(Clone, Copy)]
pub(super) struct UnderWay {
    pub(super) process: usize,
    pub(super) id: AcquireId,
    pub(super) is_fenced: bool,
    pub(super) is_delivered: bool,
}

pub(super) struct Run {
    pub(super) world: World,
    pub(super) random: StdRng,
    /// Whether mutual exclusion must hold. If false, the run may adopt, flush or force-release locks, or may erase the
    /// data of any number of nodes. Two clients can then hold the same lock.
    pub(super) is_safe: bool,
    /// Whether node clocks may step. A client that connects after a step cannot detect the step.
    pub(super) has_steps: bool,
    pub(super) under_way: Vec<UnderWay>,
    pub(super) calls: Vec<(usize, RoundId)>,
    /// Processes whose client was closed, each with the time limit for the result of the close. The time limit is
    /// `None` once the result was reported.
    pub(super) closed: Vec<(usize, Option<Time>)>,
    /// Leases whose locks were adopted by another acquire.
    pub(super) given: Vec<Held>,
    pub(super) held: Vec<Held>,
    pub(super) tokens: BTreeMap<Vec<u8>, u64>,
    /// Nodes that were restarted, or whose clock has stepped.
    pub(super) faulty_nodes: Vec<usize>,
    pub(super) acquired: usize,
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse().ok());
    match number("COORDINATOR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("COORDINATOR_SEEDS").unwrap_or(SEEDS),
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let nodes = [1, 3, 3, 4, 5, 5][random.random_range(0..6)];
        let mut world = World::new(nodes, seed);
        world.delay = Duration::from_micros(random.random_range(50..2_000));
        let jitter = if random.random_ratio(1, 5) { 60_000 } else { 8_000 };
        world.jitter = Duration::from_micros(random.random_range(0..jitter));
        if random.random_ratio(1, 3) {
            for host in &mut world.hosts {
                host.gains_us = random.random_range(-3_000..3_000);
            }
        }
        world.splits = random.random_ratio(1, 3);
        let versions = [
            Version::redis(6, 0, 0),
            Version::redis(7, 2, 0),
            Version::redis(8, 4, 0),
            Version::valkey(9, 0, 0),
            Version::valkey(9, 1, 0),
        ];
        let forbidden = [
            "client|kill",
            "client|id",
            "client|tracking",
            "script|load",
            "delex",
            "delifeq",
            "msetex",
            "exists",
            "evalsha",
        ];
        for host in &mut world.hosts {
            let version = versions[random.random_range(0..versions.len())].clone();
            let command = forbidden[random.random_range(0..forbidden.len())].to_owned();
            let is_forbidden = random.random_ratio(1, 3);
            host.server.configure(|config: &mut Config| {
                config.version = version;
                config.forbidden.extend(is_forbidden.then_some(command));
            });
        }
        for _ in 0..random.random_range(2..5) {
            world.process();
        }
        let (is_safe, has_steps) = (seed.is_multiple_of(2), random.random());
        Self {
            world,
            random,
            is_safe,
            has_steps,
            under_way: Vec::new(),
            calls: Vec::new(),
            closed: Vec::new(),
            given: Vec::new(),
            held: Vec::new(),
            tokens: BTreeMap::new(),
            faulty_nodes: Vec::new(),
            acquired: 0,
        }
    }

    fn play(&mut self) {
        for _ in 0..STEPS {
            self.step();
            let pause = Duration::from_micros(self.random.random_range(0..40_000));
            let pause = if self.random.random_ratio(1, 20) { 40 * pause } else { pause };
            self.run(pause);
        }
        self.heal();
        let lasting = self.world.now.after(30 * SECOND);
        while !self.under_way.is_empty() && self.world.now < lasting {
            self.run(ms(100));
            self.release_held();
        }
        assert!(self.under_way.is_empty(), "an acquire does not end");
        self.release_held();
        for held in std::mem::take(&mut self.given) {
            self.release(&held);
        }
        self.run(30 * SECOND);
        for name in ["a", "b", "c"] {
            assert_eq!(self.world.copies(name), 0, "key {name} is left");
        }
        assert_eq!(self.calls, [], "calls do not end");
        assert!(self.closed.iter().all(|(_, until)| until.is_none()), "a close does not end");
        self.world.assert_idle();
        for process in self.running() {
            let now = self.world.now;
            let id = self.world.acquire(process, waiting(&["a"], now, 100 * SECOND));
            let held = self.world.acquired(process, id);
            self.release(&held.unwrap_or_else(|failure| panic!("not acquired: {failure:?}")));
            self.run(SECOND);
        }
    }

    fn release_held(&mut self) {
        for held in std::mem::take(&mut self.held) {
            self.release(&held);
        }
    }

    fn running(&self) -> Vec<usize> {
        let is_closed = |process: &usize| self.closed.iter().any(|(closed, _)| closed == process);
        let all = 0..self.world.processes.len();
        all.filter(|process| !self.world.is_frozen(*process) && !is_closed(process)).collect()
    }

    pub(super) fn any_running(&mut self) -> Option<usize> {
        let running = self.running();
        (!running.is_empty()).then(|| running[self.random.random_range(0..running.len())])
    }

    pub(super) fn names(&mut self) -> &'static [&'static str] {
        NAMES[self.random.random_range(0..NAMES.len())]
    }

    fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..40 => self.acquire(),
            40..58 => self.release_one(),
            58..62 => self.cancel_one(),
            62..67 => self.extend_one(),
            67..69 => self.survey(),
            69 => self.release_all(),
            70 if !self.is_safe || !self.has_steps => self.close_one(),
            71..74 => self.freeze_one(),
            74 | 75 => {
                let host = self.random.random_range(0..self.world.hosts.len());
                self.world.flush_scripts(host);
            }
            76..79 if !self.is_safe => self.adopt_one(),
            79 if !self.is_safe => {
                let host = self.random.random_range(0..self.world.hosts.len());
                self.world.flush(host);
            }
            82..84 => self.hold_up(),
            80..82 => {
                let host = self.random.random_range(0..self.world.hosts.len());
                let word = WORDS[self.random.random_range(0..WORDS.len())];
                let host = &mut self.world.hosts[host];
                // Replies are matched by their order. If the server omits a reply, the `OK` of another command can
                // count as the reply to a `SET`.
                let closes = self.is_safe || self.random.random();
                let fault =
                    if closes { &mut host.closes_on } else { &mut host.drops_commands_with };
                *fault = if fault.is_empty() { word } else { "" };
            }
            _ => self.fault(),
        }
    }

    fn acquire(&mut self) {
        let Some(process) = self.any_running() else { return };
        let names = self.names();
        let ttl = Duration::from_millis(self.random.random_range(150..4_000));
        let now = self.world.now;
        let wait = Duration::from_millis(self.random.random_range(1..5_000));
        let request = if self.random.random() { waiting(names, now, wait) } else { request(names) };
        let is_fenced = self.random.random_ratio(1, 3);
        let keys = keys(names);
        let counters = is_fenced.then(|| {
            let ttl = Ttl::from_duration(600 * SECOND).expect("a ttl");
            Arc::new(CounterKeys::for_keys(&keys, ttl).expect("plain keys"))
        });
        let max_hold = self.random.random_ratio(1, 3).then_some(60 * SECOND);
        let at_least = self.random.random_ratio(1, 6);
        let at_least = if at_least { self.random.random_range(1..1_500) } else { 0 };
        let (ttl, at_least) = (Ttl::from_duration(ttl).expect("a ttl"), ms(at_least));
        let gives_up_early = self.random.random_ratio(1, 10);
        let request =
            AcquireRequest { ttl, counters, max_hold, at_least, gives_up_early, ..request };
        let id = self.world.acquire(process, request);
        self.under_way.push(UnderWay { process, id, is_fenced, is_delivered: false });
    }

    fn adopt_one(&mut self) {
        let Some(process) = self.any_running() else { return };
        let places = 0..self.held.len();
        let single = places.filter(|place| self.held[*place].shared.claim().keys().len() == 1);
        let Some(place) = single.max() else { return };
        let held = self.held.swap_remove(place);
        let claim = held.shared.claim();
        let name = String::from_utf8(claim.keys().first().to_vec()).expect("a name");
        let adopts = Some(Arc::new(claim.value().clone()));
        let request = AcquireRequest { adopts, ..request(&[&name]) };
        let id = self.world.acquire(process, request);
        self.under_way.push(UnderWay { process, id, is_fenced: false, is_delivered: false });
        self.given.push(held);
    }

    fn release(&mut self, held: &Held) {
        held.shared.end(self.world.now);
        let (coordinator, now) = self.world.coordinator(held.process);
        if self.random.random() {
            let cool_down = self.random.random_ratio(1, 8).then(|| Ttl::covering(ms(700)));
            let call = coordinator.handle_release(held.id, cool_down, now);
            self.calls.extend(call.map(|call| (held.process, call)));
        } else {
            coordinator.handle_drop(held.id, now);
        }
    }

    fn release_one(&mut self) {
        if !self.held.is_empty() {
            let place = self.random.random_range(0..self.held.len());
            if !self.world.is_frozen(self.held[place].process) {
                let held = self.held.swap_remove(place);
                self.release(&held);
            }
        }
    }

    fn release_all(&mut self) {
        let Some(process) = self.any_running() else { return };
        let (coordinator, now) = self.world.coordinator(process);
        let released = coordinator.handle_release_all(now);
        self.calls.extend(released.into_iter().map(|(_, call)| (process, call)));
        // Leases that were delivered and not taken have ended with their acquires.
        self.under_way.retain(|it| it.process != process || !it.is_delivered);
        let is_held = |held: &Held| matches!(held.shared.status(now), LeaseStatus::Held { .. });
        let mut of_process = self.held.iter().filter(|held| held.process == process);
        assert!(!of_process.any(is_held), "a lease was not released");
    }

    /// Runs the world for `duration`. Whenever an acquire ends, takes its lease and checks the invariants.
    pub(super) fn run(&mut self, duration: Duration) {
        let limit = self.world.now.after(duration);
        loop {
            let has_acquired = |world: &World| {
                world.processes.iter().flat_map(|process| &process.completions).any(|completion| {
                    matches!(
                        completion,
                        Completion::Acquired { .. } | Completion::AcquireFailed { .. }
                    )
                })
            };
            let is_done = !self.world.run_until(limit, has_acquired);
            self.take();
            self.check();
            if is_done {
                return;
            }
        }
    }

    fn take(&mut self) {
        for it in std::mem::take(&mut self.under_way) {
            let UnderWay { process, id, is_fenced, .. } = it;
            let is_closed = self.closed.iter().any(|(closed, _)| *closed == process);
            if it.is_delivered && self.random.random_ratio(1, 5) {
                let (coordinator, now) = self.world.coordinator(process);
                coordinator.handle_untaken(id, now);
            }
            match self.world.take_acquired(process, id) {
                None => self.under_way.push(it),
                Some(Err(failure)) => {
                    let is_closed_failure = matches!(failure, AcquireFailure::Closed);
                    assert!(is_closed || !is_closed_failure, "{failure:?}");
                }
                // Some callers never take their lease, or take it late.
                Some(Ok(_)) if self.random.random_ratio(1, 15) => {
                    self.under_way.push(UnderWay { is_delivered: true, ..it });
                }
                Some(Ok(held)) => {
                    if !held.shared.take(self.world.now) {
                        assert!(is_closed, "revoked at once");
                        self.under_way.push(it);
                        continue;
                    }
                    let (coordinator, now) = self.world.coordinator(process);
                    coordinator.handle_taken(held.id, now);
                    self.acquired += 1;
                    self.check_token(&held, is_fenced);
                    self.held.push(held);
                }
            }
        }
        for (place, process) in self.world.processes.iter_mut().enumerate() {
            for completion in process.completions.drain(..) {
                match completion {
                    Completion::Extended { call, .. }
                    | Completion::Released { call, .. }
                    | Completion::Status { call, .. }
                    | Completion::ForceReleased { call, .. } => {
                        self.calls.retain(|known| *known != (place, call));
                    }
                    Completion::Closed(_) => {
                        let closed = self.closed.iter_mut().find(|(closed, _)| *closed == place);
                        let closed = closed.expect("a close");
                        assert!(closed.1.take().is_some(), "closed twice");
                    }
                    _ => {}
                }
            }
            process.events.clear();
        }
        for (process, until) in &self.closed {
            let is_late = until.is_some_and(|until| until < self.world.now);
            assert!(!is_late, "the close of {process} is late");
        }
    }
}

#[test]
fn random_operations_keep_mutual_exclusion_and_leave_nothing() {
    let mut acquired = 0;
    for seed in seeds() {
        let result = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            run.play();
            run.acquired
        });
        match result {
            Ok(count) => acquired += count,
            Err(panic) => {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    assert!(acquired > 0 || seeds().count() == 1);
}
