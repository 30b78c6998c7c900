//! A task of a process: it does its calls, one after the other, and tells the checker.

use crate::call::{Call, Lock, Style, Verb};
use crate::checker::Checker;
use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::gate::{Gated, TaskGate};
use crate::holder::Relied;
use crate::process::{Beat, millis, nanos};
use crate::rule::Rule;
use crate::scenario::Times;
use crate::shared::Shared;
use crate::sleep::{Seldom, Sleep};
use crate::trace::note;
use futures::future::{Either, select};
use quorlock::{Acquire, AcquireError, ClientError, Lease, Redlock, RetryPolicy};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// What a task of the simulation has.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) checker: Arc<Checker>,
    pub(crate) process: usize,
    pub(crate) name: usize,
    pub(crate) beat: Arc<Beat>,
    pub(crate) redlock: Redlock,
    /// Tells it from the others of the process.
    pub(crate) client: u64,
    /// Makes another client of the same process.
    pub(crate) another: Arc<dyn Fn(u64) -> Redlock + Send + Sync>,
    pub(crate) runtimes: Vec<Home>,
    pub(crate) times: Times,
    pub(crate) retry: RetryPolicy,
    /// How much longer than by its bound a call may take for a process that is looked after badly.
    pub(crate) slack: Instant,
    /// True if nothing in the process keeps one who waits from moving: then none is overtaken.
    pub(crate) is_fair: bool,
    /// No task of the process is held back.
    pub(crate) is_prompt: bool,
    /// The vote of a node may be withheld for so long once it is known that it was restarted, with much to spare. None
    /// if any may.
    pub(crate) withheld_for: Option<Instant>,
    /// True if what is let go of is free at once.
    pub(crate) is_quiet: bool,
    /// How many tasks of the plan are not over.
    pub(crate) planned: Arc<AtomicUsize>,
}

/// A runtime of the process.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) index: usize,
    pub(crate) handle: Handle,
}

/// The name of a resource.
pub(crate) fn name(resource: usize) -> String {
    format!("r{resource}")
}

impl Worker {
    pub(crate) fn sleep(&self, lasting: Instant) -> Sleep {
        Sleep::new(&self.shared, lasting)
    }

    /// `future`, polled only so often.
    pub(crate) fn seldom<F: Future>(&self, every: Instant, future: F) -> Seldom<F> {
        Seldom { inner: Box::pin(future), shared: self.shared.clone(), every, pause: None }
    }

    pub(crate) fn now(&self) -> Instant {
        self.shared.lock().now
    }

    /// What `future` comes to, if that takes no longer.
    pub(crate) async fn within<F: Future>(&self, longest: Instant, future: F) -> Option<F::Output> {
        match select(pin!(future), self.sleep(longest)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }

    /// How long something of the process has not run since then.
    pub(crate) fn stalled_since(&self, begun: Instant) -> Instant {
        let core = self.shared.lock();
        core.stalled_between(self.process, begun, core.now)
    }

    pub(crate) fn say(&self, what: std::fmt::Arguments<'_>) {
        let core = &mut *self.shared.lock();
        let (process, name) = (self.process, self.name);
        core.trace.mix(&(core.now, process, name));
        note!(core, "p{process} t{name}: {what}");
    }

    /// Spawns a task beside this one.
    pub(crate) fn spawn(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        let gate = TaskGate::new(self.shared.clone(), self.process, self.beat.clone());
        runtime.spawn(Gated::new(gate, task));
    }

    /// What a call came to, after it was looked at how long it took.
    pub(crate) async fn timed<T>(
        &self,
        what: &str,
        bound: Instant,
        call: impl Future<Output = T>,
    ) -> T {
        self.checker.books().calls += 1;
        let (begun, clock) = self.read_clocks();
        let done = call.await;
        let (_, shown) = self.read_clocks();
        let mut bound = bound.saturating_add(self.slack + 2 * self.stalled_since(begun));
        if what.starts_with("release") && self.lost_a_runtime_since(begun) {
            // What that was to deliver goes by another.
            bound += nanos(self.times.node_timeout);
        }
        self.checker.books().check_bound(what, shown - clock, bound);
        done
    }

    fn lost_a_runtime_since(&self, begun: Instant) -> bool {
        let core = self.shared.lock();
        core.processes[self.process].shut_down.is_some_and(|at| at >= begun)
    }

    fn read_clocks(&self) -> (Instant, u64) {
        let core = self.shared.lock();
        (core.now, core.local(self.process))
    }

    /// Whether new calls are to be begun.
    fn is_over(&self) -> bool {
        self.shared.lock().is_healed
    }

    pub(crate) async fn run(self, calls: Vec<(usize, Call)>) {
        for (id, call) in calls {
            if self.is_over() {
                return;
            }
            self.say(format_args!("call {id}: {:?}", call.verb));
            self.clone().act(call.verb).await;
            self.sleep(self.bounded_rest(call.rest)).await;
        }
    }

    /// With one kind of node fault, rests are long: they end with the faults.
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
                let status = self.redlock.status(name(resource));
                let status = self.timed("status", node, status).await;
                self.inspect(&status);
            }
            Verb::ForceRelease => {
                // Whoever holds it is not told: it is nobody else's.
                let own = format!("own{}", self.name);
                let lease = self.redlock.try_acquire(&own).await;
                let done = self.redlock.force_release(&own);
                // It is two rounds, each of which may be late.
                let bound = 2 * node + self.slack;
                let done = self.timed("force_release", bound, done).await;
                self.inspect(&done);
                drop(lease);
            }
            Verb::ReleaseAll => {
                let released = self.timed("release_all", node, self.redlock.release_all()).await;
                self.inspect(&released);
            }
            Verb::Alone(alone) => self.act_alone(alone).await,
            Verb::Single(call) => self.act_single(call).await,
            Verb::Contend(contender) => self.contend(contender).await,
            Verb::Another { lock } => self.act_by_another(*lock).await,
            Verb::Check => {
                let found = self.timed("check", 2 * (connect + node), self.redlock.check()).await;
                self.inspect(&found);
            }
            Verb::Ready => {
                let begun = self.now();
                let told = self.within(S + self.slack, self.redlock.ready()).await;
                if told.is_none() && self.is_quiet && self.was_prompt_since(begun) {
                    let how =
                        format!("p{}: ready() tells nothing of nodes that are well", self.process);
                    self.checker.books().broken(Rule::Bounds, how);
                }
                self.inspect(&self.redlock.nodes());
            }
        }
    }

    /// Locks with a client of its own, which is closed whatever the nodes do, and asked for no more.
    async fn act_by_another(mut self, lock: Lock) {
        // It has lines of its own.
        self.is_fair = false;
        (self.client, self.redlock) = self.another_client();
        self.shared.lock().processes[self.process].has_others = true;
        self.clone().lock(lock).await;
        let begun = self.now();
        if self.close().await.is_ok() {
            self.check_census();
            self.check_alarms(begun).await;
        }
        self.expect_refusal();
    }

    /// A client that was closed, or is being closed, says so without asking anybody.
    pub(crate) fn expect_refusal(&self) {
        let mut context = Context::from_waker(Waker::noop());
        let refused = pin!(self.redlock.try_acquire("r0")).poll(&mut context);
        if !matches!(refused, Poll::Ready(Err(AcquireError::Closed))) {
            let how = format!("a closed client acquires: {refused:?}");
            self.checker.books().broken(Rule::Closes, how);
        }
        let refused = pin!(self.redlock.status("r0")).poll(&mut context);
        if !matches!(refused, Poll::Ready(Err(ClientError::Closed))) {
            let how = format!("a closed client asks nodes: {refused:?}");
            self.checker.books().broken(Rule::Closes, how);
        }
    }

    pub(crate) fn inspect(&self, shown: &impl std::fmt::Debug) {
        self.checker.books().inspect(&format!("{shown:?}"));
    }

    /// The acquire that is asked for.
    fn acquire(&self, lock: &Lock) -> Acquire {
        let names = lock.resources.iter().map(|resource| name(*resource));
        let single = || name(lock.resources[0]);
        let acquire = match (lock.resources.len(), lock.wait) {
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

    /// How long an acquire may take by the documents.
    fn bound(&self, lock: &Lock) -> Instant {
        let (node, connect) = (nanos(self.times.node_timeout), nanos(self.times.connect_timeout));
        match lock.wait {
            Some(wait) => wait * MS,
            None if lock.retries => 4 * self.times.ttl_ms * MS,
            None => connect + node * if lock.fenced { 2 } else { 1 } + S,
        }
    }

    async fn lock(self, lock: Lock) {
        let bound = self.bound(&lock);
        let acquire = self.acquire(&lock);
        match lock.style {
            Style::Awaited => {
                let waits = self.is_fair && lock.wait.is_some() && lock.resources.len() == 1;
                let place = (self.process, lock.resources[0]);
                let enter = || self.checker.books().waiting.enter(place.0, place.1);
                let ticket = waits.then(enter);
                let won = self.timed("acquire", bound, acquire).await;
                if let Some(ticket) = ticket {
                    let mut books = self.checker.books();
                    let overtaken = books.waiting.leave(place.0, place.1, ticket);
                    if won.is_ok() && overtaken > 0 {
                        let how = format!("p{} r{}: {overtaken} were overtaken", place.0, place.1);
                        books.broken(Rule::Fairness, how);
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
            Style::Seldom { every } => {
                let seldom = self.seldom(every, acquire);
                // Each step of an attempt takes a poll; a deadline ends every path with the next, and a last look takes another.
                let polls = if lock.wait.is_some() { 2 } else { 8 };
                let won = self.timed("acquire", bound + polls * every, seldom).await;
                self.hold(won, &lock).await;
            }
            Style::Moved { runtime } => self.move_to(runtime, acquire, lock).await,
            Style::Using { overtime } => self.using(acquire, &lock, overtime).await,
        }
    }

    /// Polls it once here, and then elsewhere.
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
        // That runtime may be shut down.
        let _ = is_done.await;
    }

    async fn using(self, acquire: Acquire, lock: &Lock, overtime: Instant) {
        let this = &self;
        let done = acquire.using(async move |lease: &Lease| {
            let id = this.begin(lease, lock);
            let end = Relied { worker: this, id };
            this.take_steps(lease, lock).await;
            this.work_on(lease, overtime).await;
            drop(end);
            lease.is_valid()
        });
        let done = done.await;
        if matches!(done, Ok(false)) {
            let how = format!("p{}: work that was overrun is taken for good", self.process);
            self.checker.books().broken(Rule::WorkStops, how);
        }
        if let Err(error) = &done {
            self.inspect(error);
            self.checker.books().inspect(&error.to_string());
        }
    }

    async fn adopt(self, resource: usize, mut lock: Lock) {
        let Some(value) = self.checker.books().take_over(resource) else { return };
        lock.resources = vec![resource];
        lock.wait = None;
        let bound = self.bound(&lock);
        let acquire =
            Self::set(self.redlock.adopt(name(resource), &value), &lock, self.retry.clone());
        let won = self.timed("adopt", bound, acquire).await;
        if won.is_ok() {
            self.checker.books().adopted(self.client, resource, &value);
        }
        self.hold(won, &lock).await;
    }
}

/// The dice of one task.
pub(crate) fn dice_of(seed: u64, part: u64) -> Dice {
    Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(part))
}
