//! Runs a scenario: creates the machines, handles the events, and checks the final state.

use crate::bounds::Slack;
use crate::checker::Checker;
use crate::client::new_client;
use crate::clock::{Instant, MS, MachineClock, S};
use crate::event::WorldEvent;
use crate::executor::Executor;
use crate::machines::new_node;
use crate::mode::Mode;
use crate::process::{AlarmAction, MOST_PROCESSES, MOST_RUNTIMES, Process, ProcessWorld, nanos};
use crate::rule::Rule;
use crate::scenario::Scenario;
use crate::shared::{Core, Shared};
use crate::trace::{Trace, note};
use crate::worker::{RuntimeRef, Worker, dice_of};
use quorlock::Redlock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The time between closing all clients and the final checks.
const AFTERMATH: Instant = 15 * S;

/// In the mode `Quiet`, the time between closing all clients and the final checks. It is shorter
/// than the TTL of the locks, so that the checks find keys that were not released.
const QUIET_AFTERMATH: Instant = 6 * S;

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) shared: Arc<Shared>,
    pub(crate) checker: Arc<Checker>,
    pub(crate) hosts: Vec<Host>,
    /// The number of planned tasks and final tasks that have not ended.
    pub(crate) unfinished_tasks: Arc<AtomicUsize>,
    /// The number of planned tasks that have not ended.
    planned: Arc<AtomicUsize>,
    stage: RunStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunStage {
    Faulty,
    /// All faults have ended. Every client acquires every lock once.
    Finishing {
        until: Instant,
    },
    Closing {
        until: Instant,
    },
    Over,
}

pub(crate) struct Host {
    pub(crate) executors: Vec<Option<Executor>>,
    pub(crate) redlock: Option<Redlock>,
}

/// Counts a task as unfinished until this value is dropped.
pub(crate) struct UnfinishedTask(Arc<AtomicUsize>);

impl UnfinishedTask {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for UnfinishedTask {
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
            scenario.network_quality,
            scenario.delays,
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
            core.events.plan(plan.starts, WorldEvent::Process { process, starts: true });
        }
        for (index, fault) in scenario.faults.iter().enumerate() {
            core.events.plan(fault.at, WorldEvent::Fault { index, begins: true });
        }
        for (index, task) in scenario.tasks.iter().enumerate() {
            core.events.plan(task.at, WorldEvent::Task { index });
        }
        core.events.plan(scenario.times.horizon, WorldEvent::Healed);
        if scenario.calm > 0 {
            core.events.plan(scenario.calm, WorldEvent::CalmEnded);
        }
        let mode = scenario.mode;
        let hosts =
            scenario.processes.iter().map(|_| Host { executors: Vec::new(), redlock: None });
        Self {
            hosts: hosts.collect(),
            scenario,
            shared: Arc::new(Shared::new(core)),
            checker: Arc::new(Checker::new(mode)),
            unfinished_tasks: Arc::default(),
            planned: Arc::default(),
            stage: RunStage::Faulty,
        }
    }

    pub(crate) fn run(&mut self) {
        while self.checker.state().violation.is_none() && self.stage != RunStage::Over {
            self.run_tasks();
            let before = self.stage;
            self.advance_stage();
            if self.stage != before {
                // The new stage has spawned tasks, and the next event may be far away.
                continue;
            }
            let event = self.shared.lock().next_event();
            let Some(event) = event else { break };
            self.handle(event);
        }
    }

    /// Runs all runtimes that have work, one after the other, until none has work.
    fn run_tasks(&mut self) {
        while let Some((process, runtime)) = self.next_runtime() {
            let runtime_states = self.shared.lock().processes[process].runtime_states.clone();
            runtime_states.begin(runtime);
            if let Some(Some(executor)) = self.hosts[process].executors.get(runtime) {
                executor.run();
            }
        }
        // These leases are dropped outside of any runtime.
        let dropped = std::mem::take(&mut self.checker.state().dropped_outside);
        if !dropped.is_empty() {
            drop(dropped);
            return self.run_tasks();
        }
        let found = std::mem::take(&mut self.shared.lock().findings);
        for (rule, how) in found {
            self.checker.state().violated(rule, how);
        }
        if let Some(panic) = crate::run::take_panic() {
            self.checker.state().violated(Rule::NoPanic, panic);
        }
    }

    /// Returns the process and index of a random runtime that has work, or `None` if no runtime has
    /// work.
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
                if executor.is_some()
                    && it.runtime_states.is_woken(runtime)
                    && it.held[runtime] <= core.now
                {
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
            WorldEvent::CalmEnded => self.check_all_nodes_reached(),
            WorldEvent::Healed => self.heal(),
        }
    }

    fn ring(&mut self, process: usize, alarm: u64) {
        let due = self.shared.lock().begin_ringing(process, alarm);
        if let AlarmAction::Ring { bell, now } = due {
            self.shared.lock().polls_and_rings += 1;
            let again = bell.ring(now);
            self.shared.lock().end_ringing(process, alarm, again);
        }
    }

    fn start(&mut self, process: usize) {
        let runtime_states = {
            let mut core = self.shared.lock();
            if core.must_start_later(process) {
                let at = core.now + 50 * MS;
                core.events.plan(at, WorldEvent::Process { process, starts: true });
                return;
            }
            core.processes[process].has_started = true;
            core.processes[process].is_dead = false;
            note!(core, "p{process} starts");
            core.processes[process].runtime_states.clone()
        };
        let client = process as u64;
        let world = ProcessWorld { shared: self.shared.clone(), process, client, runtime_states };
        let plan = &self.scenario.processes[process];
        let runtimes = plan.runtimes.min(MOST_RUNTIMES);
        (0..runtimes).for_each(|runtime| world.runtime_states.set_alive(runtime, true));
        let executors: Vec<_> = (0..runtimes).map(|_| Some(Executor::new())).collect();
        let first = executors.iter().flatten().map(|executor| executor.handle().clone()).next();
        let pinned = first.filter(|_| plan.is_pinned);
        let redlock = new_client(&self.scenario, world, process as u64, pinned);
        let host = &mut self.hosts[process];
        host.executors = executors;
        host.redlock = Some(redlock);
        if !self.scenario.mode.keeps_all_data() {
            self.connect_to_nodes(process);
        }
    }

    /// Makes the client of `process` connect to all nodes without waiting for its first call.
    fn connect_to_nodes(&self, process: usize) {
        let Some(worker) = self.worker(process, 3_000 + process) else { return };
        let Some(RuntimeRef { handle: runtime, .. }) = worker.runtimes.first().cloned() else {
            return;
        };
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
        let Slack { slack } = Slack::of(&self.scenario);
        let runtimes = host.executors.iter().enumerate().filter_map(|(index, executor)| {
            Some(RuntimeRef { index, handle: executor.as_ref()?.handle().clone() })
        });
        Some(Worker {
            shared: self.shared.clone(),
            checker: self.checker.clone(),
            process,
            name,
            runtime_states: core.processes[process].runtime_states.clone(),
            redlock: host.redlock.clone()?,
            client: process as u64,
            another,
            runtimes: runtimes.collect(),
            times: self.scenario.times,
            retry: self.scenario.retry.clone(),
            slack,
            is_fair: self.scenario.is_fair(process),
            is_prompt: self.scenario.delays.holds == 0,
            withheld_for: self.scenario.withheld_for(),
            is_quiet: self.scenario.mode == Mode::Quiet,
            planned: self.planned.clone(),
        })
    }

    fn another(&self, process: usize) -> Arc<dyn Fn(u64) -> Redlock + Send + Sync> {
        let runtime_states = self.shared.lock().processes[process].runtime_states.clone();
        let client = process as u64;
        let world = ProcessWorld { shared: self.shared.clone(), process, client, runtime_states };
        let scenario = self.scenario.clone();
        Arc::new(move |number| new_client(&scenario, world.clone(), number, None))
    }

    fn start_task(&mut self, index: usize) {
        let plan = self.scenario.tasks[index].clone();
        {
            let core = &mut *self.shared.lock();
            if !core.processes[plan.process].has_started {
                let at = core.now + 50 * MS;
                core.events.plan(at, WorldEvent::Task { index });
                return;
            }
        }
        let Some(worker) = self.worker(plan.process, index) else { return };
        let runtimes = worker.runtimes.clone();
        let home = runtimes.get(plan.runtime % runtimes.len().max(1));
        let Some(RuntimeRef { handle: runtime, .. }) = home else { return };
        let unfinished =
            (UnfinishedTask::new(&self.unfinished_tasks), UnfinishedTask::new(&self.planned));
        let process = worker.process;
        worker.clone().spawn(runtime, async move {
            worker.run(plan.calls).await;
            drop(unfinished);
        });
        self.shared.lock().processes[process].runtime_states.mark_all_woken();
    }

    fn advance_stage(&mut self) {
        let now = self.shared.lock().now;
        match self.stage {
            RunStage::Finishing { until }
                if self.unfinished_tasks.load(Ordering::Relaxed) == 0 || now >= until =>
            {
                if self.unfinished_tasks.load(Ordering::Relaxed) > 0 {
                    let how = format!(
                        "{} tasks do not end",
                        self.unfinished_tasks.load(Ordering::Relaxed)
                    );
                    self.checker.state().violated(Rule::Bounds, how);
                }
                self.begin_closing(now);
            }
            RunStage::Closing { until } if now >= until => {
                self.check_leftovers();
                self.stage = RunStage::Over;
            }
            RunStage::Faulty
            | RunStage::Over
            | RunStage::Finishing { .. }
            | RunStage::Closing { .. } => {}
        }
    }

    pub(crate) fn begin_finishing(&mut self) {
        let now = self.shared.lock().now;
        let scenario = &self.scenario;
        let is_quiet = scenario.mode == Mode::Quiet && !self.may_be_held_for_long();
        let longest = if is_quiet { scenario.quick_wait() } else { scenario.longest_wait() };
        let processes = scenario.processes.len() as u64;
        let turns = (scenario.processes.len() * scenario.resources) as u64;
        let until = now + scenario.rest() + scenario.longest_wait() * (turns + 1) + 60 * S;
        for process in 0..self.scenario.processes.len() {
            let Some(worker) = self.worker(process, 1_000 + process) else { continue };
            let Some(RuntimeRef { handle: runtime, .. }) = worker.runtimes.first().cloned() else {
                continue;
            };
            let unfinished = UnfinishedTask::new(&self.unfinished_tasks);
            // Without a guarantee of liveness, a lock may stay unavailable.
            let is_live = self.scenario.mode.checks(Rule::Liveness);
            let resources = if is_live { self.scenario.resources } else { 0 };
            let rest = self.scenario.rest();
            worker.clone().spawn(&runtime, async move {
                let turns = if is_quiet { processes } else { turns };
                worker.finish(resources, longest * turns, rest).await;
                drop(unfinished);
            });
        }
        let mut core = self.shared.lock();
        core.events.plan(until, WorldEvent::Tick);
        self.stage = RunStage::Finishing { until };
    }

    fn begin_closing(&mut self, now: Instant) {
        self.check_delivered();
        let aftermath = if self.scenario.mode == Mode::Quiet { QUIET_AFTERMATH } else { AFTERMATH };
        let until = now + aftermath + self.scenario.steps();
        for process in 0..self.scenario.processes.len() {
            let Some(worker) = self.worker(process, 2_000 + process) else { continue };
            let Some(RuntimeRef { handle: runtime, .. }) = worker.runtimes.first().cloned() else {
                continue;
            };
            worker.clone().spawn(&runtime, worker.close_for_good());
        }
        self.shared.lock().events.plan(until, WorldEvent::Tick);
        self.stage = RunStage::Closing { until };
    }
}
