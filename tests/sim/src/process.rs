//! A process that uses the library: its clocks, its alarms and its runtimes.

use crate::clock::{Instant, MS, MachineClock};
use crate::event::{EventId, WorldEvent};
use crate::gate::TaskGate;
use crate::shared::{Core, Shared};
use futures::future::BoxFuture;
use quorlock_test::{Alarm, Bell, Gate, Stream, World};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) const MOST_PROCESSES: usize = 4;

/// The maximum number of runtimes per process.
pub(crate) const MOST_RUNTIMES: usize = 3;

/// The state of a process's runtimes that the scheduler needs.
#[derive(Default)]
pub(crate) struct RuntimeStates {
    woken: [AtomicBool; MOST_RUNTIMES],
    /// The index of the runtime that is running now.
    running: AtomicUsize,
    pub(crate) tasks: AtomicUsize,
    /// The number of tasks that the process has created so far.
    pub(crate) tasks_created: AtomicUsize,
    is_closing: AtomicBool,
    /// For each runtime, whether it has started and has not been shut down.
    alive: [AtomicBool; MOST_RUNTIMES],
    /// For each runtime, whether it is no longer polled because it will be shut down.
    unpolled: [AtomicBool; MOST_RUNTIMES],
    /// The tasks that were dropped during a shutdown. Each has its creation number.
    dropped_tasks: Mutex<Vec<(usize, Box<dyn Send>)>>,
}

impl RuntimeStates {
    pub(crate) fn mark_woken(&self, runtime: usize) {
        self.woken[runtime].store(true, Ordering::Relaxed);
    }

    pub(crate) fn mark_all_woken(&self) {
        (0..MOST_RUNTIMES).for_each(|runtime| self.mark_woken(runtime));
    }

    pub(crate) fn is_woken(&self, runtime: usize) -> bool {
        self.woken[runtime].load(Ordering::Relaxed)
    }

    /// Marks `runtime` as running and as no longer woken. The caller then runs the runtime until it
    /// has no more work.
    pub(crate) fn begin(&self, runtime: usize) {
        self.running.store(runtime, Ordering::Relaxed);
        self.woken[runtime].store(false, Ordering::Relaxed);
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(crate) fn set_alive(&self, runtime: usize, is_alive: bool) {
        self.alive[runtime].store(is_alive, Ordering::Relaxed);
    }

    pub(crate) fn is_alive(&self, runtime: usize) -> bool {
        self.alive[runtime].load(Ordering::Relaxed) && !self.is_unpolled(runtime)
    }

    /// Returns the number of runtimes that are still polled.
    pub(crate) fn runtimes(&self) -> u32 {
        (0..MOST_RUNTIMES).map(|runtime| u32::from(self.is_alive(runtime))).sum()
    }

    pub(crate) fn stop_polling(&self, runtime: usize) {
        self.unpolled[runtime].store(true, Ordering::Relaxed);
    }

    /// Returns true if a runtime is no longer polled, but not shut down yet. Another runtime then
    /// takes over its connections, and the replies on them are lost.
    pub(crate) fn has_unpolled(&self) -> bool {
        let is_alive = |runtime: usize| self.alive[runtime].load(Ordering::Relaxed);
        (0..MOST_RUNTIMES).any(|runtime| is_alive(runtime) && self.is_unpolled(runtime))
    }

    pub(crate) fn is_unpolled(&self, runtime: usize) -> bool {
        self.unpolled[runtime].load(Ordering::Relaxed)
    }

    /// Keeps a task that a runtime drops during its shutdown. Tasks that are dropped at other times
    /// are not kept.
    pub(crate) fn keep_dropped_task(&self, number: usize, task: Box<dyn Send>) {
        if self.is_closing.load(Ordering::Relaxed) {
            self.dropped_tasks().push((number, task));
        }
    }

    /// Shuts `runtimes` down by dropping them. Afterwards, drops their tasks in the order of
    /// creation.
    pub(crate) fn close(&self, runtimes: impl Sized) {
        self.is_closing.store(true, Ordering::Relaxed);
        drop(runtimes);
        self.is_closing.store(false, Ordering::Relaxed);
        let mut dropped_tasks = std::mem::take(&mut *self.dropped_tasks());
        dropped_tasks.sort_by_key(|(number, _)| *number);
        dropped_tasks.into_iter().for_each(drop);
    }

    fn dropped_tasks(&self) -> MutexGuard<'_, Vec<(usize, Box<dyn Send>)>> {
        self.dropped_tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(clippy::struct_excessive_bools)] // Independent states.
pub(crate) struct Process {
    /// The clock that measures the validity of leases.
    pub(crate) clock: MachineClock,
    pub(crate) wall: MachineClock,
    pub(crate) runtime_states: Arc<RuntimeStates>,
    pub(crate) is_dead: bool,
    /// The time at which the process was killed, or at which a node last read a packet of the
    /// killed process.
    pub(crate) died: Option<Instant>,
    /// The time of the last shutdown of a runtime.
    pub(crate) shut_down: Option<Instant>,
    /// The time of the last panic of the client's coordinator task.
    pub(crate) panicked: Option<Instant>,
    /// Whether the process has created another client for a call. That client is used on one
    /// runtime only.
    pub(crate) has_others: bool,
    pub(crate) has_started: bool,
    pub(crate) is_stopped: bool,
    /// The events that occurred while the process was stopped.
    pub(crate) missed: Vec<WorldEvent>,
    /// For each runtime, the time until which a task blocks it.
    pub(crate) held: [Instant; MOST_RUNTIMES],
    alarms: BTreeMap<u64, AlarmEntry>,
    last_alarm: u64,
    /// Whether all connections of the process use its first runtime.
    pub(crate) is_pinned: bool,
    /// All periods in which the process, or one of its runtimes, was not polled.
    stalls: Vec<Stall>,
}

#[derive(Clone, Copy)]
struct Stall {
    since: Instant,
    until: Instant,
    /// The runtime that was not polled, or `None` if the whole process was stopped.
    runtime: Option<usize>,
}

impl Stall {
    fn within(&self, from: Instant, to: Instant) -> Instant {
        self.until.min(to).saturating_sub(self.since.max(from))
    }
}

struct AlarmEntry {
    client: u64,
    /// When the alarm is due by the process's clock, or `None` while the alarm rings.
    at: Option<u64>,
    bell: Bell,
    event: Option<EventId>,
}

impl Process {
    pub(crate) fn new(clock: MachineClock, wall: MachineClock) -> Self {
        Self {
            clock,
            wall,
            runtime_states: Arc::default(),
            is_dead: true,
            died: None,
            shut_down: None,
            panicked: None,
            has_others: false,
            has_started: false,
            is_stopped: false,
            missed: Vec::new(),
            held: [0; MOST_RUNTIMES],
            alarms: BTreeMap::new(),
            last_alarm: 0,
            is_pinned: false,
            stalls: Vec::new(),
        }
    }

    pub(crate) fn alarms(&self) -> usize {
        self.alarms.len()
    }
}

pub(crate) enum AlarmAction {
    Nothing,
    Ring { bell: Bell, now: Duration },
}

impl Core {
    pub(crate) fn process_clock(&self, process: usize) -> u64 {
        self.processes[process].clock.read(self.now)
    }

    /// Returns the times until a client's alarms become due, in milliseconds.
    pub(crate) fn alarms_of(&self, process: usize, client: u64) -> Vec<u64> {
        let now = self.process_clock(process);
        let alarms = self.processes[process].alarms.values();
        let alarms = alarms.filter(|alarm| alarm.client == client);
        alarms.map(|alarm| alarm.at.unwrap_or(now).saturating_sub(now) / MS).collect()
    }

    fn set_alarm(&mut self, process: usize, client: u64, at: u64, bell: Bell) -> u64 {
        let it = &mut self.processes[process];
        it.last_alarm += 1;
        let alarm = it.last_alarm;
        it.alarms.insert(alarm, AlarmEntry { client, at: Some(at), bell, event: None });
        self.plan_alarm(process, alarm);
        alarm
    }

    fn plan_alarm(&mut self, process: usize, alarm: u64) {
        let late = self.delays.late_alarms;
        let is_spared = self.now < self.calm || self.has_unreached_witness(process);
        let late = if late == 0 || is_spared { 0 } else { self.dice.below(late) };
        let now = self.now;
        let it = &mut self.processes[process];
        let Some(entry) = it.alarms.get_mut(&alarm) else { return };
        let Some(at) = entry.at else { return };
        if let Some(event) = entry.event.take() {
            self.events.cancel(event);
        }
        let due = it.clock.when(at).max(now);
        if due < Instant::MAX {
            let event = WorldEvent::Alarm { process, alarm };
            entry.event = Some(self.events.plan(due.saturating_add(late), event));
        }
    }

    fn hasten(&mut self, process: usize, alarm: u64, at: u64) {
        let Some(entry) = self.processes[process].alarms.get_mut(&alarm) else { return };
        if entry.at.is_none_or(|known| at < known) {
            let is_ringing = entry.at.is_none();
            entry.at = Some(at);
            if !is_ringing {
                self.plan_alarm(process, alarm);
            }
        }
    }

    fn drop_alarm(&mut self, process: usize, alarm: u64) {
        let entry = self.processes[process].alarms.remove(&alarm);
        if let Some(event) = entry.and_then(|entry| entry.event) {
            self.events.cancel(event);
        }
    }

    /// Handles the event of an alarm. If the alarm is due, returns the bell that the caller must
    /// ring.
    pub(crate) fn begin_ringing(&mut self, process: usize, alarm: u64) -> AlarmAction {
        let now = self.process_clock(process);
        let it = &mut self.processes[process];
        if it.is_dead {
            return AlarmAction::Nothing;
        }
        if it.is_stopped {
            it.missed.push(WorldEvent::Alarm { process, alarm });
            return AlarmAction::Nothing;
        }
        let Some(entry) = it.alarms.get_mut(&alarm) else { return AlarmAction::Nothing };
        entry.event = None;
        if entry.at.is_none_or(|at| now < at) {
            self.plan_alarm(process, alarm);
            return AlarmAction::Nothing;
        }
        entry.at = None;
        AlarmAction::Ring { bell: entry.bell.clone(), now: Duration::from_nanos(now) }
    }

    /// Handles the end of an alarm's ring. `again` is the alarm's next due time, or `None` if the
    /// alarm has ended.
    pub(crate) fn end_ringing(&mut self, process: usize, alarm: u64, again: Option<Duration>) {
        let Some(entry) = self.processes[process].alarms.get_mut(&alarm) else { return };
        let Some(again) = again else {
            // An ended alarm cannot be rescheduled, as in the library's timer.
            entry.at = None;
            self.processes[process].alarms.remove(&alarm);
            return;
        };
        let again = nanos(again);
        entry.at = Some(entry.at.map_or(again, |hastened| hastened.min(again)));
        self.plan_alarm(process, alarm);
    }

    /// Reschedules the alarms of `process` after a change of the process's clock.
    pub(crate) fn replan_alarms(&mut self, process: usize) {
        let alarms: Vec<_> = self.processes[process].alarms.keys().copied().collect();
        for alarm in alarms {
            self.plan_alarm(process, alarm);
        }
    }

    /// Records that `process` is not polled for `lasting` nanoseconds from now. If `runtime` is
    /// set, only that runtime is affected.
    pub(crate) fn record_stall(
        &mut self,
        process: usize,
        runtime: Option<usize>,
        lasting: Instant,
    ) {
        let stall = Stall { since: self.now, until: self.now.saturating_add(lasting), runtime };
        self.processes[process].stalls.push(stall);
    }

    /// Returns for how long the process or any of its runtimes was not polled between `from` and
    /// `to`. Periods of different runtimes add up.
    pub(crate) fn stalled_between(&self, process: usize, from: Instant, to: Instant) -> Instant {
        self.processes[process].stalls.iter().map(|stall| stall.within(from, to)).sum()
    }

    /// Returns for how long the process or a runtime other than `runtime` has not been polled since
    /// `from`. Periods of different runtimes add up.
    pub(crate) fn stalled_beside(&self, process: usize, runtime: usize, from: Instant) -> Instant {
        let others = self.processes[process].stalls.iter();
        let others = others.filter(|stall| stall.runtime != Some(runtime));
        others.map(|stall| stall.within(from, self.now)).sum()
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn millis(ms: u64) -> Duration {
    Duration::from_nanos(ms * MS)
}

/// The simulated environment in which a client of a process runs.
#[derive(Clone)]
pub(crate) struct ProcessWorld {
    pub(crate) shared: Arc<Shared>,
    pub(crate) process: usize,
    pub(crate) client: u64,
    pub(crate) runtime_states: Arc<RuntimeStates>,
}

struct SetAlarm {
    shared: Arc<Shared>,
    process: usize,
    alarm: u64,
}

impl World for ProcessWorld {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.lock().process_clock(self.process))
    }

    fn wall_clock(&self) -> Duration {
        let core = self.shared.lock();
        Duration::from_nanos(core.processes[self.process].wall.read(core.now))
    }

    fn set_alarm(&self, at: Duration, bell: Bell) -> Box<dyn Alarm> {
        let alarm = self.shared.lock().set_alarm(self.process, self.client, nanos(at), bell);
        Box::new(SetAlarm { shared: self.shared.clone(), process: self.process, alarm })
    }

    fn connect(&self, node: &str) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        // Addresses have the form `n0:6379`.
        let digits = node.trim_start_matches('n').split(':').next().unwrap_or_default();
        let address = digits.parse().expect("a node of the simulation");
        crate::stream::connect(self.shared.clone(), (self.process, self.client), address)
    }

    fn gate(&self) -> Box<dyn Gate> {
        Box::new(TaskGate::new(self.shared.clone(), self.process, self.runtime_states.clone()))
    }
}

impl Alarm for SetAlarm {
    fn hasten(&self, at: Duration) {
        self.shared.lock().hasten(self.process, self.alarm, nanos(at));
    }
}

impl Drop for SetAlarm {
    fn drop(&mut self) {
        self.shared.lock().drop_alarm(self.process, self.alarm);
    }
}
