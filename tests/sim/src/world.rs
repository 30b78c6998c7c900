//! One run: machines are made, events happen one after the other, and in the end it is looked at what is
//! left.

use crate::checker::Checker;
use crate::client::new_client;
use crate::clock::{Instant, MS, MachineClock, S};
use crate::event::WorldEvent;
use crate::executor::Executor;
use crate::machines::new_node;
use crate::mode::Mode;
use crate::patience::Weathered;
use crate::process::{DueWork, Inhabitant, MOST_PROCESSES, MOST_RUNTIMES, Process, nanos};
use crate::rule::Rule;
use crate::scenario::Scenario;
use crate::shared::{Core, Shared};
use crate::trace::{Trace, note};
use crate::worker::{Home, Worker, dice_of};
use quorlock::Redlock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Once all is healed, what is left is looked at after so long.
const AFTERMATH: Instant = 15 * S;

/// Where nothing is to be made up for: less than a ttl, so that what goes by itself in the end is not spared.
const QUIET_AFTERMATH: Instant = 6 * S;

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) shared: Arc<Shared>,
    pub(crate) checker: Arc<Checker>,
    pub(crate) hosts: Vec<Host>,
    /// Tasks of the plan, and last acquires, that are not over.
    pub(crate) open: Arc<AtomicUsize>,
    /// Of these, the tasks of the plan.
    planned: Arc<AtomicUsize>,
    stage: RunStage,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStage {
    Faulty,
    /// All is healed, and every client has every lock once more.
    Finishing {
        until: Instant,
    },
    Closing {
        until: Instant,
    },
    Over,
}

/// What is needed to run a process.
pub(crate) struct Host {
    pub(crate) executors: Vec<Option<Executor>>,
    pub(crate) redlock: Option<Redlock>,
}

/// Counts a task of the plan until it is over.
pub(crate) struct Open(Arc<AtomicUsize>);

impl Open {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl World {
    pub(crate) fn new(scenario: Scenario, is_traced: bool) -> Self {
        let seed = scenario.seed;
        let mut core = Core::new(
            dice_of(seed, 1),
            Trace::new(is_traced),
            scenario.weather,
            scenario.nerves,
            nanos(scenario.times.node_timeout),
        );
        let mut dice = dice_of(seed, 2);
        for (node, rate) in scenario.node_rates.iter().enumerate() {
            core.nodes.push(new_node(&scenario, node, *rate, &mut dice));
        }
        for plan in &scenario.processes {
            let clock = MachineClock::new(S + dice.below(1_000 * S), plan.rate);
            let mut process = Process::new(clock, MachineClock::new(plan.wall, plan.rate));
            process.is_pinned = plan.is_pinned;
            core.processes.push(process);
        }
        core.prepare(&scenario, &mut dice);
        for (process, plan) in scenario.processes.iter().enumerate() {
            core.agenda.plan(plan.starts, WorldEvent::Process { process, starts: true });
        }
        for (index, fault) in scenario.faults.iter().enumerate() {
            core.agenda.plan(fault.at, WorldEvent::Fault { index, begins: true });
        }
        for (index, task) in scenario.tasks.iter().enumerate() {
            core.agenda.plan(task.at, WorldEvent::Task { index });
        }
        core.agenda.plan(scenario.times.horizon, WorldEvent::Healed);
        if scenario.calm > 0 {
            core.agenda.plan(scenario.calm, WorldEvent::Stirred);
        }
        let mode = scenario.mode;
        let hosts =
            scenario.processes.iter().map(|_| Host { executors: Vec::new(), redlock: None });
        Self {
            hosts: hosts.collect(),
            scenario,
            shared: Arc::new(Shared::new(core)),
            checker: Arc::new(Checker::new(mode)),
            open: Arc::default(),
            planned: Arc::default(),
            stage: RunStage::Faulty,
        }
    }

    /// Runs to the end, or to the first rule that is broken.
    pub(crate) fn run(&mut self) {
        while self.checker.books().violation.is_none() && self.stage != RunStage::Over {
            self.run_tasks();
            let before = self.stage;
            self.advance_stage();
            if self.stage != before {
                // It has spawned tasks, and there may be no other event for long.
                continue;
            }
            let event = self.shared.lock().next_event();
            let Some(event) = event else { break };
            self.handle(event);
        }
    }

    /// Runs every runtime that has something to do, one after the other, until none has.
    fn run_tasks(&mut self) {
        while let Some((process, runtime)) = self.next_runtime() {
            let beat = self.shared.lock().processes[process].beat.clone();
            beat.begin(runtime);
            if let Some(Some(executor)) = self.hosts[process].executors.get(runtime) {
                executor.run();
            }
        }
        // Leases that somebody drops outside of any runtime.
        let dropped = std::mem::take(&mut self.checker.books().graveyard);
        if !dropped.is_empty() {
            drop(dropped);
            return self.run_tasks();
        }
        let found = std::mem::take(&mut self.shared.lock().findings);
        for (rule, how) in found {
            self.checker.books().broken(rule, how);
        }
        if let Some(what) = crate::run::take_panic() {
            self.checker.books().broken(Rule::NoPanic, what);
        }
    }

    /// One of those that have something to do, by chance.
    fn next_runtime(&self) -> Option<(usize, usize)> {
        let mut core = self.shared.lock();
        let mut ready = [(0, 0); MOST_PROCESSES * MOST_RUNTIMES];
        let mut count = 0;
        for (process, host) in self.hosts.iter().enumerate() {
            let it = &core.processes[process];
            if it.is_dead || it.is_stopped {
                continue;
            }
            for (runtime, executor) in host.executors.iter().enumerate() {
                if executor.is_some() && it.beat.is_woken(runtime) && it.held[runtime] <= core.now {
                    ready[count] = (process, runtime);
                    count += 1;
                }
            }
        }
        match count {
            0 => None,
            1 => Some(ready[0]),
            count => Some(ready[core.dice.index(count)]),
        }
    }

    fn handle(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Arrival { connection, way } => {
                let waker = self.shared.lock().arrive(connection, way);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            WorldEvent::Alarm { process, alarm } => self.ring(process, alarm),
            WorldEvent::Wake(waker) => waker.wake(),
            WorldEvent::Tick => {}
            WorldEvent::Shutdown { process, runtime } => self.shut_down(process, runtime),
            WorldEvent::Expiry { node } => self.shared.lock().expire(node),
            WorldEvent::Fault { index, begins } => self.handle_fault(index, begins),
            WorldEvent::Process { process, starts } => {
                if starts {
                    self.start(process);
                } else {
                    self.kill(process, false);
                }
            }
            WorldEvent::Task { index } => self.start_task(index),
            WorldEvent::Stirred => self.check_meetings(),
            WorldEvent::Healed => self.heal(),
        }
    }

    fn ring(&mut self, process: usize, alarm: u64) {
        let due = self.shared.lock().begin_ringing(process, alarm);
        if let DueWork::Ring { bell, now } = due {
            self.shared.lock().turns += 1;
            let again = bell.ring(now);
            self.shared.lock().end_ringing(process, alarm, again);
        }
    }

    /// A process starts: it makes its client.
    fn start(&mut self, process: usize) {
        let beat = {
            let mut core = self.shared.lock();
            if core.must_start_later(process) {
                let at = core.now + 50 * MS;
                core.agenda.plan(at, WorldEvent::Process { process, starts: true });
                return;
            }
            core.processes[process].has_started = true;
            core.processes[process].is_dead = false;
            note!(core, "p{process} starts");
            core.processes[process].beat.clone()
        };
        let client = process as u64;
        let inhabitant = Inhabitant { shared: self.shared.clone(), process, client, beat };
        let plan = &self.scenario.processes[process];
        let runtimes = plan.runtimes.min(MOST_RUNTIMES);
        (0..runtimes).for_each(|runtime| inhabitant.beat.set_alive(runtime, true));
        let executors: Vec<_> = (0..runtimes).map(|_| Some(Executor::new())).collect();
        let first = executors.iter().flatten().map(|executor| executor.handle().clone()).next();
        let pinned = first.filter(|_| plan.is_pinned);
        let redlock = new_client(&self.scenario, inhabitant, process as u64, pinned);
        let host = &mut self.hosts[process];
        host.executors = executors;
        host.redlock = Some(redlock);
        if !self.scenario.mode.is_whole() {
            self.meet(process);
        }
    }

    /// A client connects to all nodes before anything is asked of it.
    fn meet(&self, process: usize) {
        let Some(worker) = self.worker(process, 3_000 + process) else { return };
        let Some(Home { handle: runtime, .. }) = worker.runtimes.first().cloned() else { return };
        worker.clone().spawn(&runtime, async move {
            let _ = worker.redlock.ready().await;
        });
    }

    fn worker(&self, process: usize, name: usize) -> Option<Worker> {
        let host = &self.hosts[process];
        let another = self.another(process);
        let core = self.shared.lock();
        if core.processes[process].is_dead {
            return None;
        }
        let Weathered { slack } = Weathered::of(&self.scenario);
        let runtimes = host.executors.iter().enumerate().filter_map(|(index, executor)| {
            Some(Home { index, handle: executor.as_ref()?.handle().clone() })
        });
        Some(Worker {
            shared: self.shared.clone(),
            checker: self.checker.clone(),
            process,
            name,
            beat: core.processes[process].beat.clone(),
            redlock: host.redlock.clone()?,
            client: process as u64,
            another,
            runtimes: runtimes.collect(),
            times: self.scenario.times,
            retry: self.scenario.retry.clone(),
            slack,
            is_fair: self.scenario.is_fair(process),
            is_prompt: self.scenario.nerves.holds == 0,
            withheld_for: self.scenario.withheld_for(),
            is_quiet: self.scenario.mode == Mode::Quiet,
            planned: self.planned.clone(),
        })
    }

    /// Makes more clients of a process.
    fn another(&self, process: usize) -> Arc<dyn Fn(u64) -> Redlock + Send + Sync> {
        let beat = self.shared.lock().processes[process].beat.clone();
        let client = process as u64;
        let inhabitant = Inhabitant { shared: self.shared.clone(), process, client, beat };
        let scenario = self.scenario.clone();
        Arc::new(move |number| new_client(&scenario, inhabitant.clone(), number, None))
    }

    fn start_task(&mut self, index: usize) {
        let plan = self.scenario.tasks[index].clone();
        {
            let core = &mut *self.shared.lock();
            if !core.processes[plan.process].has_started {
                let at = core.now + 50 * MS;
                core.agenda.plan(at, WorldEvent::Task { index });
                return;
            }
        }
        let Some(worker) = self.worker(plan.process, index) else { return };
        let runtimes = worker.runtimes.clone();
        let home = runtimes.get(plan.runtime % runtimes.len().max(1));
        let Some(Home { handle: runtime, .. }) = home else { return };
        let open = (Open::new(&self.open), Open::new(&self.planned));
        let process = worker.process;
        worker.clone().spawn(runtime, async move {
            worker.run(plan.calls).await;
            drop(open);
        });
        self.shared.lock().processes[process].beat.note_all();
    }

    /// Goes on to the next stage once all of this one is done, or its time has come.
    fn advance_stage(&mut self) {
        let now = self.shared.lock().now;
        match self.stage {
            RunStage::Finishing { until }
                if self.open.load(Ordering::Relaxed) == 0 || now >= until =>
            {
                if self.open.load(Ordering::Relaxed) > 0 {
                    let how = format!("{} tasks do not end", self.open.load(Ordering::Relaxed));
                    self.checker.books().broken(Rule::Bounds, how);
                }
                self.begin_closing(now);
            }
            RunStage::Closing { until } if now >= until => {
                self.check_remains();
                self.stage = RunStage::Over;
            }
            RunStage::Faulty
            | RunStage::Over
            | RunStage::Finishing { .. }
            | RunStage::Closing { .. } => {}
        }
    }

    /// All faults have ended: every client gets every lock once more.
    pub(crate) fn begin_finishing(&mut self) {
        let now = self.shared.lock().now;
        let scenario = &self.scenario;
        let is_quiet = scenario.mode == Mode::Quiet;
        let longest = if is_quiet { scenario.quick_wait() } else { scenario.longest_wait() };
        let processes = scenario.processes.len() as u64;
        let turns = (scenario.processes.len() * scenario.resources) as u64;
        let until = now + scenario.rest() + scenario.longest_wait() * (turns + 1) + 60 * S;
        for process in 0..self.scenario.processes.len() {
            let Some(worker) = self.worker(process, 1_000 + process) else { continue };
            let Some(Home { handle: runtime, .. }) = worker.runtimes.first().cloned() else {
                continue;
            };
            let open = Open::new(&self.open);
            // Where nothing is promised, a lock may never be had.
            let is_live = self.scenario.mode.looks_at(Rule::Liveness);
            let resources = if is_live { self.scenario.resources } else { 0 };
            let rest = self.scenario.rest();
            worker.clone().spawn(&runtime, async move {
                let turns = if is_quiet { processes } else { turns };
                worker.finish(resources, longest * turns, rest).await;
                drop(open);
            });
        }
        let mut core = self.shared.lock();
        core.agenda.plan(until, WorldEvent::Tick);
        self.stage = RunStage::Finishing { until };
    }

    fn begin_closing(&mut self, now: Instant) {
        self.check_delivered();
        let aftermath = if self.scenario.mode == Mode::Quiet { QUIET_AFTERMATH } else { AFTERMATH };
        let until = now + aftermath + self.scenario.steps();
        for process in 0..self.scenario.processes.len() {
            let Some(worker) = self.worker(process, 2_000 + process) else { continue };
            let Some(Home { handle: runtime, .. }) = worker.runtimes.first().cloned() else {
                continue;
            };
            worker.clone().spawn(&runtime, worker.close_for_good());
        }
        self.shared.lock().agenda.plan(until, WorldEvent::Tick);
        self.stage = RunStage::Closing { until };
    }
}
