//! A task of a process. It makes its calls one after the other, and reports to the checker.

pub(crate) use crate::call::name;
use crate::call::{Call, Lock, Style, Verb};
use crate::checker::Checker;
use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::gate::{Gated, TaskGate};
use crate::holder::Reliance;
use crate::process::{RuntimeStates, millis, nanos};
use crate::readers::LOCK;
use crate::rule::Rule;
use crate::scenario::Times;
use crate::shared::Shared;
use crate::sleep::{RarelyPolled, Sleep};
use crate::trace::note;
use futures::future::{Either, select};
use quorlock::{Acquire, AcquireError, ClientError, Lease, Redlock, RetryPolicy};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The context of a task of the simulation.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools)] // Independent properties.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) checker: Arc<Checker>,
    pub(crate) process: usize,
    pub(crate) name: usize,
    pub(crate) runtime_states: Arc<RuntimeStates>,
    pub(crate) redlock: Redlock,
    /// The number that identifies the client within the run.
    pub(crate) client: u64,
    pub(crate) another: Arc<dyn Fn(u64) -> Redlock + Send + Sync>,
    pub(crate) runtimes: Vec<RuntimeRef>,
    pub(crate) times: Times,
    pub(crate) retry: RetryPolicy,
    /// The extra time for a call, because tasks and alarms of the process may be delayed.
    pub(crate) slack: Instant,
    /// Whether the waiters of the process are never delayed. Only then is their FIFO order exact.
    pub(crate) is_fair: bool,
    /// Whether no task of the process is delayed.
    pub(crate) is_prompt: bool,
    /// How long a client may ignore votes after learning of a node's restart. `None` for no limit.
    pub(crate) withheld_for: Option<Instant>,
    /// Whether released locks must be free immediately.
    pub(crate) is_quiet: bool,
    /// The number of planned tasks that have not ended.
    pub(crate) planned: Arc<AtomicUsize>,
}

#[derive(Clone)]
pub(crate) struct RuntimeRef {
    pub(crate) index: usize,
    pub(crate) handle: Handle,
}

impl Worker {
    pub(crate) fn sleep(&self, lasting: Instant) -> Sleep {
        Sleep::new(&self.shared, lasting)
    }

    pub(crate) fn rarely_polled<F: Future>(&self, every: Instant, future: F) -> RarelyPolled<F> {
        RarelyPolled { inner: Box::pin(future), shared: self.shared.clone(), every, pause: None }
    }

    pub(crate) fn now(&self) -> Instant {
        self.shared.lock().now
    }

    /// Returns the output of `future`, or `None` if it takes longer than `longest`.
    pub(crate) async fn within<F: Future>(&self, longest: Instant, future: F) -> Option<F::Output> {
        match select(pin!(future), self.sleep(longest)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    pub(crate) fn stalled_since(&self, begun: Instant) -> Instant {
        let core = self.shared.lock();
        core.stalled_between(self.process, begun, core.now)
    }

    pub(crate) fn log(&self, what: std::fmt::Arguments<'_>) {
        let core = &mut *self.shared.lock();
        let (process, name) = (self.process, self.name);
        core.trace.mix(&(core.now, process, name));
        note!(core, "p{process} t{name}: {what}");
    }

    pub(crate) fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let gate = TaskGate::new(self.shared.clone(), self.process, self.runtime_states.clone());
        runtime.spawn(Gated::new(gate, task));
    }

    /// Awaits `call`, and checks that it ends within `bound` plus the delays of the process.
    pub(crate) async fn timed<T>(
        &self,
        what: &str,
        bound: Instant,
        call: impl Future<Output = T>,
    ) -> T {
        self.checker.state().calls += 1;
        let (begun, clock) = self.read_clocks();
        let done = call.await;
        let (_, shown) = self.read_clocks();
        let node = nanos(self.times.node_timeout);
        // A release waits for nodes that reply to earlier commands.
        let busy = if what.starts_with("release") { (10 * node).max(S) - node } else { 0 };
        // Pending commands of a lost runtime are sent from another runtime.
        let lost = if self.lost_a_runtime_since(begun) { node } else { 0 };
        let late = self.slack + 2 * self.stalled_since(begun);
        let bound = bound.saturating_add(busy + lost + late);
        self.checker.state().check_bound(what, shown - clock, bound);
        done
    }

    /// Returns true if a runtime of this process was shut down at `begun` or later. The replies to
    /// its commands are lost.
    pub(crate) fn lost_a_runtime_since(&self, begun: Instant) -> bool {
        let core = self.shared.lock();
        core.processes[self.process].shut_down.is_some_and(|at| at >= begun)
    }

    fn read_clocks(&self) -> (Instant, u64) {
        let core = self.shared.lock();
        (core.now, core.process_clock(self.process))
    }

    fn is_over(&self) -> bool {
        self.shared.lock().is_healed
    }

    pub(crate) async fn run(self, calls: Vec<(usize, Call)>) {
        for (id, call) in calls {
            if self.is_over() {
                return;
            }
            self.log(format_args!("call {id}: {:?}", call.verb));
            self.clone().act(call.verb).await;
            self.sleep(self.bounded_rest(call.rest)).await;
        }
    }

    /// Shortens a pause that would outlast the faults. Pauses are long in runs with one kind of
    /// node fault.
    fn bounded_rest(&self, rest: Instant) -> Instant {
        let core = self.shared.lock();
        let left = self.times.horizon.saturating_sub(core.now);
        if core.single.is_some() { rest.min(left) } else { rest }
    }

    async fn act(self, verb: Verb) {
        let (node, connect) = (nanos(self.times.node_timeout), nanos(self.times.connect_timeout));
        match verb {
            Verb::Lock(lock) => self.lock(*lock).await,
            Verb::Adopt { resource, lock } => self.adopt(resource, *lock).await,
            Verb::Status { resource } => {
                let status = self.timed("status", node, self.redlock.status(name(resource))).await;
                self.inspect(&status);
            }
            Verb::ForceRelease => {
                // No other task uses this lock, so the forced release ends no other holder's lease.
                let own = format!("own{}", self.name);
                let lease = self.redlock.try_acquire(&own).await;
                let done = self.redlock.force_release(&own);
                // A forced release takes two rounds, and each round may be late.
                let bound = 2 * node + self.slack;
                let done = self.timed("force_release", bound, done).await;
                self.inspect(&done);
                drop(lease);
            }
            Verb::ReleaseAll => {
                let released = self.timed("release_all", node, self.redlock.release_all()).await;
                self.inspect(&released);
            }
            Verb::Job(call) => self.run_job(call).await,
            Verb::Solo(solo) => self.run_solo(solo).await,
            Verb::Single(call) => self.run_single(call).await,
            Verb::Contend(contender) => self.contend(contender).await,
            Verb::Another { lock } => self.act_by_another(*lock).await,
            Verb::Check => {
                let found = self.timed("check", 2 * (connect + node), self.redlock.check()).await;
                self.inspect(&found);
            }
            Verb::Ready => {
                let begun = self.now();
                let ready = self.within(S + self.slack, self.redlock.ready()).await;
                if ready.is_none() && self.is_quiet && self.was_prompt_since(begun) {
                    let how =
                        format!("p{}: ready() does not resolve with healthy nodes", self.process);
                    self.checker.state().violated(Rule::Bounds, how);
                }
                self.inspect(&self.redlock.nodes());
            }
        }
    }

    /// Uses a lock with another client. Closes that client afterwards, whatever the state of the
    /// nodes.
    async fn act_by_another(mut self, lock: Lock) {
        // The other client has its own queues.
        self.is_fair = false;
        (self.client, self.redlock) = self.another_client();
        self.shared.lock().processes[self.process].has_others = true;
        self.clone().lock(lock).await;
        let begun = self.now();
        if self.close().await.is_ok() {
            self.check_pending_work();
            self.check_alarms(begun).await;
        }
        self.expect_refusal();
    }

    /// Checks that a closed or closing client rejects calls without contacting the nodes.
    pub(crate) fn expect_refusal(&self) {
        let mut context = Context::from_waker(Waker::noop());
        let refused = pin!(self.redlock.try_acquire("r0")).poll(&mut context);
        let is_refused = matches!(refused, Poll::Ready(Err(AcquireError::Closed)));
        self.checker.state().check(Rule::Closes, is_refused, || {
            format!("an acquire of a closed client returned {refused:?}")
        });
        let refused = pin!(self.redlock.status("r0")).poll(&mut context);
        let is_refused = matches!(refused, Poll::Ready(Err(ClientError::Closed)));
        self.checker.state().check(Rule::Closes, is_refused, || {
            format!("status() of a closed client returned {refused:?}")
        });
    }

    pub(crate) fn inspect(&self, shown: &impl std::fmt::Debug) {
        self.checker.state().inspect(&format!("{shown:?}"));
    }

    fn acquire(&self, lock: &Lock) -> Acquire {
        let names = lock.resources.iter().map(|resource| name(*resource));
        let single = || name(lock.resources[0]);
        let acquire = match (lock.resources.len(), lock.wait) {
            _ if lock.permits.is_some() => self.acquire_permit(lock),
            _ if lock.resources == [LOCK] => self.acquire_shared(lock),
            (_, None) if lock.any => self.redlock.try_acquire_any(names),
            (_, Some(wait)) if lock.any => self.redlock.acquire_any(names).wait(millis(wait)),
            (1, None) => self.redlock.try_acquire(single()),
            (1, Some(wait)) => self.redlock.acquire(single()).wait(millis(wait)),
            (_, None) => self.redlock.try_acquire_all(names),
            (_, Some(wait)) => self.redlock.acquire_all(names).wait(millis(wait)),
        };
        Self::set(acquire, lock, self.retry.clone())
    }

    fn set(mut acquire: Acquire, lock: &Lock, retry: RetryPolicy) -> Acquire {
        if let Some(ttl) = lock.ttl {
            acquire = acquire.ttl(millis(ttl));
        }
        if let Some(hold) = lock.auto_extend {
            acquire = acquire.auto_extend(millis(hold));
        }
        if let Some(time) = lock.at_least {
            acquire = acquire.at_least(millis(time));
        }
        if let Some(margin) = lock.stop_before {
            acquire = acquire.stop_before(millis(margin));
        }
        if let Some(attempts) = lock.max_attempts {
            acquire = acquire.max_attempts(attempts);
        }
        if lock.fenced {
            acquire = acquire.fenced();
        }
        if lock.metadata {
            acquire = acquire.metadata("told to all");
        }
        if lock.retries {
            acquire = acquire.retry(retry);
        }
        if lock.give_up_early && lock.wait.is_some() {
            acquire = acquire.give_up_early();
        }
        acquire
    }

    /// Returns the documented time limit of an acquire.
    fn bound(&self, lock: &Lock) -> Instant {
        let (node, connect) = (nanos(self.times.node_timeout), nanos(self.times.connect_timeout));
        match lock.wait {
            Some(wait) => wait * MS,
            None if lock.retries => 4 * self.times.ttl_ms * MS,
            None => connect + node * if lock.fenced { 2 } else { 1 } + S,
        }
    }

    async fn lock(self, lock: Lock) {
        self.count_attempt(&lock);
        let bound = self.bound(&lock);
        let acquire = self.acquire(&lock);
        match lock.style {
            Style::Awaited => {
                let is_queued = lock.resources.len() == 1 && lock.resources != [LOCK];
                let waits = self.is_fair && lock.wait.is_some() && is_queued;
                let place = (self.process, lock.resources[0]);
                let enter = || self.checker.state().waiting.enter(place.0, place.1);
                let ticket = waits.then(enter);
                let won = self.timed("acquire", bound, acquire).await;
                if let Some(ticket) = ticket {
                    let mut state = self.checker.state();
                    let overtaken = state.waiting.leave(place.0, place.1, ticket);
                    if won.is_ok() {
                        let is_kept = overtaken == 0 || self.has_deferred_grants();
                        state.check(Rule::Fairness, is_kept, || {
                            let (process, lock) = place;
                            format!(
                                "p{process} r{lock}: a waiter overtook {overtaken} earlier ones"
                            )
                        });
                    }
                }
                self.hold(won, &lock).await;
            }
            Style::Dropped { after } => {
                let sleep = self.sleep(after);
                match select(acquire, sleep).await {
                    Either::Left((won, _)) => self.hold(won, &lock).await,
                    Either::Right(((), acquire)) => drop(acquire),
                }
            }
            Style::RarelyPolled { every } => {
                let rarely_polled = self.rarely_polled(every, acquire);
                // Each step of an attempt takes a poll. With a deadline, the acquire ends with the
                // next poll, or one poll later after a final attempt.
                let polls = if lock.wait.is_some() { 2 } else { 8 };
                let won = self.timed("acquire", bound + polls * every, rarely_polled).await;
                self.hold(won, &lock).await;
            }
            Style::Moved { runtime } => self.move_to(runtime, acquire, lock).await,
            Style::Using { overtime } => self.using(acquire, &lock, overtime).await,
        }
    }

    async fn move_to(self, runtime: usize, acquire: Acquire, lock: Lock) {
        let mut acquire = Box::pin(acquire);
        let elsewhere = self.runtimes[runtime % self.runtimes.len()].handle.clone();
        if let Poll::Ready(won) = futures::poll!(acquire.as_mut()) {
            return self.hold(won, &lock).await;
        }
        let (done, is_done) = oneshot::channel();
        let other = self.clone();
        self.spawn(&elsewhere, async move {
            let won = acquire.await;
            other.hold(won, &lock).await;
            let _ = done.send(());
        });
        // The other runtime may be shut down.
        let _ = is_done.await;
    }

    async fn using(self, acquire: Acquire, lock: &Lock, overtime: Instant) {
        let this = &self;
        let done = acquire.using(async move |lease: &Lease| {
            let lock = &lock.held_by(lease);
            let id = this.begin(lease, lock, None);
            let end = Reliance { worker: this, id };
            this.take_steps(id, lease, lock).await;
            this.work_on(lease, overtime).await;
            drop(end);
            lease.is_valid()
        });
        let done = done.await;
        if matches!(done, Ok(false)) {
            let how = format!(
                "p{}: using() returned the result of work that had lost its lease",
                self.process
            );
            self.checker.state().violated(Rule::WorkStops, how);
        }
        if let Err(error) = &done {
            self.inspect(error);
            self.checker.state().inspect(&error.to_string());
        }
    }

    async fn adopt(self, resource: usize, mut lock: Lock) {
        let Some(value) = self.checker.state().take_handed_over_value(resource) else { return };
        (lock.resources, lock.wait) = (vec![resource], None);
        let bound = self.bound(&lock);
        let acquire =
            Self::set(self.redlock.adopt(name(resource), &value), &lock, self.retry.clone());
        let won = self.timed("adopt", bound, acquire).await;
        if won.is_ok() {
            self.checker.state().adopted(self.client, resource, &value);
        }
        self.hold(won, &lock).await;
    }
}

pub(crate) fn dice_of(seed: u64, part: u64) -> Dice {
    Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(part))
}
