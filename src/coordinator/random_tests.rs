//! Random operations of several processes, with faults of a minority of the nodes.
//!
//! `COORDINATOR_SEEDS=100000 cargo test --release --lib coordinator::random_tests` plays more runs, and
//! `COORDINATOR_SEED=7` plays one.

use super::world_calls_tests::{Held, keys, request, waiting};
use super::world_tests::{HostState, World, ms};
use super::{AcquireId, AcquireRequest, Completion};
use crate::protocol::{Tenure, Time, Ttl};
use crate::wire::{CounterKeys, Counters};
use quorlock_test::Trouble;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Number of runs of a test.
const SEEDS: u64 = 40;

/// Steps of one run.
const STEPS: usize = 120;

const NAMES: [&[&str]; 6] = [&["a"], &["a"], &["b"], &["a", "b"], &["b", "c"], &["a", "b", "c"]];

struct Run {
    world: World,
    random: StdRng,
    under_way: Vec<(usize, AcquireId, bool)>,
    held: Vec<Held>,
    /// The highest token of each key set that was acquired with one.
    tokens: BTreeMap<Vec<u8>, u64>,
    /// Nodes with a fault that remains: a restart or a clock step.
    marred: Vec<usize>,
    acquired: usize,
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
        world.jitter = Duration::from_micros(random.random_range(0..8_000));
        for _ in 0..random.random_range(2..5) {
            world.process();
        }
        let (under_way, held, tokens, marred) = Default::default();
        Self { world, random, under_way, held, tokens, marred, acquired: 0 }
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
            while let Some(held) = self.held.pop() {
                self.release(&held);
            }
        }
        assert!(self.under_way.is_empty(), "an acquire does not end");
        while let Some(held) = self.held.pop() {
            self.release(&held);
        }
        self.run(30 * SECOND);
        for name in ["a", "b", "c"] {
            assert_eq!(self.world.copies(name), 0, "key {name} is left");
        }
        self.world.assert_idle();
    }

    fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..45 => self.acquire(),
            45..65 => self.release_one(),
            65..70 => self.cancel_one(),
            70..75 => self.extend_one(),
            _ => self.fault(),
        }
    }

    fn acquire(&mut self) {
        let process = self.random.random_range(0..self.world.processes.len());
        let names = NAMES[self.random.random_range(0..NAMES.len())];
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
        let ttl = Ttl::from_duration(ttl).expect("a ttl");
        let id = self.world.acquire(process, AcquireRequest { ttl, counters, max_hold, ..request });
        self.under_way.push((process, id, is_fenced));
    }

    fn release(&mut self, held: &Held) {
        held.shared.end();
        let (coordinator, now) = self.world.coordinator(held.process);
        if self.random.random() {
            coordinator.handle_release(held.id, None, now);
        } else {
            coordinator.handle_drop(held.id, now);
        }
    }

    fn release_one(&mut self) {
        if !self.held.is_empty() {
            let place = self.random.random_range(0..self.held.len());
            let held = self.held.swap_remove(place);
            self.release(&held);
        }
    }

    fn cancel_one(&mut self) {
        if !self.under_way.is_empty() {
            let place = self.random.random_range(0..self.under_way.len());
            let (process, id, _) = self.under_way.swap_remove(place);
            let (coordinator, now) = self.world.coordinator(process);
            coordinator.handle_cancel(id, now);
            self.world.take_acquired(process, id);
        }
    }

    fn extend_one(&mut self) {
        if !self.held.is_empty() {
            let held = self.held[self.random.random_range(0..self.held.len())].clone();
            let ttl = Duration::from_millis(self.random.random_range(150..4_000));
            let (coordinator, now) = self.world.coordinator(held.process);
            let ttl = Ttl::from_duration(ttl).expect("a ttl");
            // An error means that the lease has ended.
            let _ended = coordinator.handle_extend(held.id, ttl, now).is_err();
        }
    }

    /// A fault of one node. At any time, only a minority has a fault of any kind.
    fn fault(&mut self) {
        let nodes = self.world.hosts.len();
        let host = self.random.random_range(0..nodes);
        let is_faulty = |world: &World, host: usize| world.hosts[host].state != HostState::Up;
        if is_faulty(&self.world, host) {
            return self.world.set_state(host, HostState::Up);
        }
        let mut faulty: Vec<_> = (0..nodes).filter(|host| is_faulty(&self.world, *host)).collect();
        faulty.extend(self.marred.iter().filter(|marred| !is_faulty(&self.world, **marred)));
        faulty.retain(|known| *known != host);
        if faulty.len() + 1 > (nodes - 1) / 2 {
            return self.cut(host);
        }
        match self.random.random_range(0..8) {
            0 | 1 => self.world.set_state(host, HostState::Hung),
            2 => self.world.set_state(host, HostState::Down),
            3 if self.marred.is_empty() || self.marred == [host] => {
                self.world.restart(host);
                self.marred = vec![host];
            }
            4 if self.marred.is_empty() || self.marred == [host] => {
                self.world.hosts[host].ahead_us += self.random.random_range(0..6_000_000);
                self.marred = vec![host];
            }
            5 => {
                let troubles = [Trouble::Busy, Trouble::ReadOnly, Trouble::OutOfMemory];
                let trouble = troubles[self.random.random_range(0..troubles.len())];
                let trouble = self.world.trouble(host).is_none().then_some(trouble);
                self.world.set_trouble(host, trouble);
            }
            _ => self.cut(host),
        }
    }

    /// All connections of the host break. Bytes under way can still arrive.
    fn cut(&mut self, host: usize) {
        self.world.cut(host);
    }

    fn heal(&mut self) {
        for host in 0..self.world.hosts.len() {
            self.world.set_state(host, HostState::Up);
            self.world.set_trouble(host, None);
        }
    }

    /// Runs, takes what was acquired, and checks the rules all the time.
    fn run(&mut self, duration: Duration) {
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
        for (process, id, is_fenced) in std::mem::take(&mut self.under_way) {
            match self.world.take_acquired(process, id) {
                None => self.under_way.push((process, id, is_fenced)),
                Some(Err(_)) => {}
                // Some callers never take their lease, or do so late.
                Some(Ok(_)) if self.random.random_ratio(1, 15) => {
                    self.under_way.push((process, id, is_fenced));
                }
                Some(Ok(held)) => {
                    if !held.shared.take(self.world.now) {
                        self.under_way.push((process, id, is_fenced));
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
        for process in &mut self.world.processes {
            process.completions.clear();
            process.events.clear();
        }
    }

    fn check_token(&mut self, held: &Held, is_fenced: bool) {
        if !is_fenced || !self.world.is_valid(held) {
            return;
        }
        let claim = held.shared.claim();
        let token = claim.fence().and_then(Counters::token).expect("a token");
        for key in claim.keys().iter() {
            let last = self.tokens.insert(key.to_vec(), token).unwrap_or_default();
            assert!(token > last, "token {token} after {last}");
        }
    }

    /// At most one lease on each key is valid.
    fn check(&self) {
        let now: Time = self.world.now;
        let mut holders = BTreeMap::new();
        for held in &self.held {
            if matches!(held.shared.tenure(now), Tenure::Held { .. }) {
                for key in held.shared.claim().keys().iter() {
                    let other = holders.insert(key.clone(), held.process);
                    assert_eq!(other, None, "two holders of {key:?}: {} and another", held.process);
                }
            }
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
    assert!(acquired > 0);
}
