//! What a task does with a lock of its own, where nodes and network are well: nobody is in its way, so more is
//! promised than where others want the lock, too.

use crate::clock::{Instant, MS, S};
use crate::dice::Dice;
use crate::event::Event;
use crate::process::{MOST_RUNTIMES, millis, nanos};
use crate::rule::Rule;
use crate::scenario::Scenario;
use crate::sleep::Seldom;
use crate::trace::note;
use crate::worker::{Home, Worker};
use futures::future::join;
use quorlock::{AcquireError, Lease, Loss, Redlock, RetryPolicy};
use std::pin::Pin;
use std::task::Poll;
use tokio::sync::oneshot;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Alone {
    /// Its acquire is polled only so often.
    Seldom { every: Instant, waits: bool },
    /// Somebody takes it away from who has extended it so often, or lets it be renewed, and waits for the loss.
    Stolen { after: Instant, extensions: u32, is_kept_up: bool },
    /// Its client is closed while it is acquired, or while somebody else has it.
    Closed { after: Instant, at_least: bool, waits: bool, is_held: bool, every: Option<Instant> },
    /// It is released by another runtime than it was acquired on, which does not run; or is shut down after so
    /// long.
    Undriven { runtime: usize, ends: Option<Instant> },
    /// Somebody waits for it with much patience, and it is let go of. Before it another waits, that is not polled
    /// any more, and gives up so long after that.
    Told { after: Instant, first: Option<Instant> },
    /// The first of some that wait for it is polled so often, and then never again.
    Neglected { polls: u32, others: u32 },
    /// It is dropped, and its runtime is shut down before anything else runs there. Another uses the client
    /// before that, or after.
    Orphaned { runtime: usize, count: u32, is_served_before: bool },
}

impl Alone {
    pub(crate) fn draw(scenario: &Scenario, dice: &mut Dice) -> Self {
        let (ttl, node) = (scenario.ttl(), nanos(scenario.times.node_timeout));
        let often = |dice: &mut Dice| dice.of_any_size(MS, ttl / 4);
        let runtime = dice.index(MOST_RUNTIMES);
        match dice.below(7) {
            0 => Self::Seldom { every: often(dice), waits: dice.chance(500) },
            1 => Self::Stolen {
                after: dice.of_any_size(MS, ttl),
                extensions: u32::try_from(dice.below(3)).expect("few"),
                is_kept_up: dice.chance(600),
            },
            2 => Self::Closed {
                after: dice.of_any_size(MS / 20, node / 2),
                at_least: dice.chance(500),
                waits: dice.chance(500),
                is_held: dice.chance(300),
                every: dice.chance(500).then(|| often(dice) / 8),
            },
            3 => {
                let ends = dice.chance(500).then(|| dice.of_any_size(MS / 20, node));
                Self::Undriven { runtime, ends }
            }
            4 => Self::Told {
                after: dice.of_any_size(MS, ttl / 10),
                first: dice.chance(500).then(|| dice.of_any_size(MS / 20, 50 * MS)),
            },
            5 => Self::Neglected {
                polls: 1 + u32::try_from(dice.below(3)).expect("few"),
                others: 1 + u32::try_from(dice.below(2)).expect("few"),
            },
            _ => Self::Orphaned {
                runtime,
                count: 1 + u32::try_from(dice.below(3)).expect("few"),
                is_served_before: dice.chance(500),
            },
        }
    }
}

impl Worker {
    pub(crate) async fn act_alone(self, alone: Alone) {
        match alone {
            Alone::Seldom { every, waits } => self.be_polled_seldom(every, waits).await,
            Alone::Stolen { after, extensions, is_kept_up } => {
                self.be_stolen_from(after, extensions, is_kept_up).await;
            }
            Alone::Closed { .. } => self.close_meanwhile(alone).await,
            Alone::Undriven { runtime, ends } => self.release_elsewhere(runtime, ends).await,
            Alone::Told { after, first } => self.be_told(after, first).await,
            Alone::Neglected { polls, others } => self.neglect(polls, others).await,
            Alone::Orphaned { runtime, count, is_served_before } => {
                self.leave_orphans(runtime, count, is_served_before).await;
            }
        }
    }

    /// The name of a lock that nobody else asks for.
    fn own_name(&self, which: u32) -> String {
        let mut books = self.checker.books();
        books.calls += 1;
        format!("own{}-{}-{}-{which}", self.process, self.name, books.calls)
    }

    /// True if nothing of the process has been held up since then.
    fn was_prompt_since(&self, begun: Instant) -> bool {
        self.is_prompt && self.stalled_since(begun) == 0
    }

    /// What is let go of is free after so long: the longest way of a release is by way of a connection that is
    /// yet to be made.
    fn freed_after(&self) -> Instant {
        nanos(self.times.connect_timeout) + 4 * nanos(self.times.node_timeout) + self.slack
    }

    async fn be_polled_seldom(self, every: Instant, waits: bool) {
        let own = self.own_name(0);
        let begun = self.now();
        let acquire = if waits {
            self.redlock.acquire(&own).wait(millis(4 * self.times.ttl_ms))
        } else {
            self.redlock.try_acquire(&own)
        };
        let shared = self.shared.clone();
        let won = Seldom { inner: Box::pin(acquire), shared, every, pause: None }.await;
        self.inspect(&won);
        match won {
            Ok(lease) => drop(lease.release().await),
            // A single attempt fails if this process does not read the answers in time.
            Err(error) if self.stalled_since(begun) > 0 || !waits && !self.is_prompt => {
                self.say(format_args!("refused: {error}"));
            }
            Err(error) => {
                let how = format!("p{} polls every {} ms: {error}", self.process, every / MS);
                self.checker.books().broken(Rule::Patient, how);
            }
        }
    }

    /// A lease of a lock of its own; none if nodes were not asked in time.
    async fn own_lease(&self, own: &str) -> Option<Lease> {
        let acquire = self.redlock.acquire(own).wait(millis(self.times.ttl_ms));
        acquire.await.ok()
    }

    async fn be_stolen_from(self, after: Instant, extensions: u32, is_kept_up: bool) {
        let own = self.own_name(0);
        let mut acquire = self.redlock.acquire(&own).wait(millis(self.times.ttl_ms));
        if is_kept_up {
            acquire = acquire.auto_extend(millis(8 * self.times.ttl_ms));
        }
        let Ok(lease) = acquire.await else { return };
        let mut lost = Box::pin(lease.lost());
        if futures::poll!(lost.as_mut()).is_ready() {
            return;
        }
        // Without being kept up it is watched from its first extension on.
        let extensions = if is_kept_up { extensions } else { extensions + 1 };
        for _ in 0..extensions {
            if lease.extend(millis(self.times.ttl_ms)).await.is_err() {
                return;
            }
        }
        if is_kept_up {
            self.within(after, lost.as_mut()).await;
        }
        // All is done that was under way.
        self.sleep(2 * nanos(self.times.node_timeout)).await;
        if !lease.is_valid() || lease.validity() < millis(self.times.ttl_ms / 2) {
            return;
        }
        if !self.steal(&own) {
            return;
        }
        let since = self.now();
        // It is asked for 100 ms after the last time at the earliest, and answered within a node timeout.
        let bound = 100 * MS + 2 * nanos(self.times.node_timeout) + self.slack;
        let told = self.within(bound, lost).await;
        let stalled = self.stalled_since(since.saturating_sub(nanos(self.times.node_timeout)));
        self.check_not_repaired(&own, since).await;
        match told {
            Some(Loss::QuorumLost | Loss::Closed) => {}
            Some(_) | None if stalled > 0 => {}
            Some(other) => {
                let how = format!("p{}: {own} was taken away, and is told as {other:?}", self.process);
                self.checker.books().broken(Rule::StolenTold, how);
            }
            None => {
                let how = format!("p{}: {own} was taken away {} ms ago", self.process, bound / MS);
                self.checker.books().broken(Rule::StolenTold, how);
            }
        }
    }

    /// What was taken away stays away.
    async fn check_not_repaired(&self, own: &str, since: Instant) {
        self.sleep(2 * nanos(self.times.node_timeout)).await;
        let count = self.shared.lock().keys_of(own);
        if count > 0 && self.was_prompt_since(since) {
            let how = format!("p{}: {own} is back on {count} nodes", self.process);
            self.checker.books().broken(Rule::Freed, how);
        }
    }

    /// Takes a lock away from whoever has it. False if nobody has it, or nodes do not push.
    fn steal(&self, own: &str) -> bool {
        let core = &mut *self.shared.lock();
        if !core.pushes {
            return false;
        }
        note!(core, "{own} is deleted everywhere");
        let is_there = core.keys_of(own) > 0;
        for node in 0..core.nodes.len() {
            core.act_on(node, |server, wall| server.delete(own.as_bytes(), wall));
        }
        is_there
    }

    /// Another client of this process.
    pub(crate) fn another_client(&self) -> Redlock {
        let number = 1_000 * (self.name as u64 + 1) + self.now() % 1_000;
        (self.another)(number)
    }

    async fn close_meanwhile(self, alone: Alone) {
        let Alone::Closed { after, at_least, waits, is_held, every } = alone else { return };
        let own = self.own_name(0);
        let client = self.another_client();
        let ttl = self.times.ttl_ms;
        let holder = if is_held { self.own_lease(&own).await } else { None };
        let mut acquire = match waits {
            true => client.acquire(&own).wait(millis(2 * ttl)),
            false => client.try_acquire(&own),
        };
        if at_least {
            acquire = acquire.at_least(millis(ttl / 2));
        }
        let mut acquire: Pin<Box<dyn Future<Output = _> + Send>> = match every {
            None => Box::pin(acquire),
            Some(every) => {
                let shared = self.shared.clone();
                Box::pin(Seldom { inner: Box::pin(acquire), shared, every, pause: None })
            }
        };
        let early = self.within(after, acquire.as_mut()).await;
        let closer = Self { redlock: client.clone(), ..self.clone() };
        let begun = self.now();
        let close = async {
            let closed = closer.close().await;
            if closed.is_ok() {
                closer.check_census();
            } else if self.was_prompt_since(begun) {
                let how = format!("p{}: where all is well: {closed:?}", self.process);
                self.checker.books().broken(Rule::Closes, how);
            }
            // What an acquire has set that will come to nothing is gone by now.
            let left = self.shared.lock().keys_of(&own);
            (closed.is_ok(), holder.is_none() && left > 0)
        };
        // Who waits is told.
        let bound = nanos(self.times.connect_timeout) + 2 * every.unwrap_or_default();
        let ((is_closed, is_left), won) = match early {
            Some(won) => (close.await, won),
            None => self.timed("an acquire that is closed", bound, join(close, acquire)).await,
        };
        let mut books = self.checker.books();
        match won {
            Ok(lease) if lease.is_valid() => {
                let how = format!("p{}: {own} is held after the close", self.process);
                books.broken(Rule::Closes, how);
            }
            Err(AcquireError::Closed) if is_closed && is_left => {
                let how = format!("p{}: {own} is left by an acquire that is closed", self.process);
                books.broken(Rule::Closes, how);
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Another runtime that runs, if there is one.
    fn elsewhere(&self, runtime: usize) -> Option<Home> {
        let here = self.beat.running();
        let core = self.shared.lock();
        let held = &core.processes[self.process].held;
        // Nobody delivers anything where all connections belong to a runtime that does not run.
        if core.processes[self.process].is_pinned {
            return None;
        }
        let runs = |home: &&Home| {
            let index = home.index;
            index != here && self.beat.is_alive(index) && held[index] <= core.now
        };
        let others: Vec<_> = self.runtimes.iter().filter(runs).collect();
        others.get(runtime % others.len().max(1)).copied().cloned()
    }

    async fn release_elsewhere(self, runtime: usize, ends: Option<Instant>) {
        let home = self.beat.running();
        let own = self.own_name(0);
        let Some(elsewhere) = self.elsewhere(runtime) else { return };
        let Some(lease) = self.own_lease(&own).await else { return };
        let lasting = 2 * self.freed_after();
        let (done, is_done) = oneshot::channel();
        let this = self.clone();
        self.spawn(&elsewhere.handle, async move {
            // There are tasks on this runtime by now that can take the release over.
            this.serve().await;
            let begun = this.now();
            match ends {
                None => this.hold_up(home, lasting),
                Some(after) => this.condemn(home, after),
            }
            let released = lease.release().await;
            let is_told = released.is_ok() || ends.is_none();
            let stalled = this.shared.lock().stalled_beside(this.process, home, begun);
            if !is_told && this.is_prompt && stalled == 0 {
                let how = format!("p{}: {own} is released elsewhere: {released:?}", this.process);
                this.checker.books().broken(Rule::Freed, how);
            }
            let left = (begun + this.freed_after()).saturating_sub(this.now());
            this.sleep(left).await;
            if this.now() < begun + lasting {
                this.check_freed(&[own], begun, home);
            }
            let _ = done.send(());
        });
        let _ = is_done.await;
    }

    /// Runs nothing on `runtime` any more, and shuts it down after so long.
    fn condemn(&self, runtime: usize, after: Instant) {
        self.beat.condemn(runtime);
        let core = &mut *self.shared.lock();
        let at = core.now + after;
        core.agenda.plan(at, Event::Shutdown { process: self.process, runtime });
    }

    /// Runs nothing on `runtime` for so long.
    fn hold_up(&self, runtime: usize, lasting: Instant) {
        let core = &mut *self.shared.lock();
        note!(core, "runtime {runtime} of p{} is not driven", self.process);
        let until = core.now + lasting;
        let it = &mut core.processes[self.process];
        it.held[runtime] = it.held[runtime].max(until);
        core.note_stall(self.process, Some(runtime), lasting);
        core.agenda.plan(until, Event::Tick);
    }

    /// Nothing is left of locks that were let go of at `begun`: unless something else than `undriven` did not run.
    fn check_freed(&self, names: &[String], begun: Instant, undriven: usize) {
        let core = self.shared.lock();
        if core.stalled_beside(self.process, undriven, begun) > 0 {
            return;
        }
        // The answers of a minority may not have been read: then nobody else may release there.
        let quorum = core.nodes.len() / 2 + 1;
        let is_free = |name: &str| core.nodes.len() - core.keys_of(name) >= quorum;
        let left = names.iter().find(|name| !is_free(name)).cloned();
        drop(core);
        if let Some(name) = left {
            let how = format!("p{}: {name} was let go of, and is not free", self.process);
            self.checker.books().broken(Rule::Freed, how);
        }
    }

    /// Whoever waits is told by the nodes, however seldom it would look by itself.
    async fn be_told(self, after: Instant, first: Option<Instant>) {
        let own = self.own_name(0);
        let Some(lease) = self.own_lease(&own).await else { return };
        let client = self.another_client();
        let wait = millis(self.times.ttl_ms);
        let patient = || {
            let pause = RetryPolicy::jittered(millis(3_000)..millis(4_000));
            client.acquire(&own).wait(wait).retry(pause)
        };
        let mut front = Box::pin(patient());
        if first.is_some() && self.within(after, front.as_mut()).await.is_some() {
            return;
        }
        let mut waiter = Box::pin(patient());
        if self.within(after, waiter.as_mut()).await.is_some() {
            return;
        }
        let begun = self.now();
        drop(lease.release().await);
        let mut early = None;
        if let Some(leaves) = first {
            early = self.within(leaves, waiter.as_mut()).await;
        }
        drop(front);
        // It is bypassed after 100 ms.
        let bound = S + self.slack;
        if early.is_none() {
            early = self.within(bound, waiter).await;
        }
        let pushes = self.shared.lock().pushes;
        if early.is_none() && pushes && self.was_prompt_since(begun) {
            let how = format!("p{}: {own} is free since {} ms", self.process, bound / MS);
            self.checker.books().broken(Rule::Patient, how);
        }
        drop(early);
        drop(client.close().await);
    }

    /// One that is not polled holds up the others for 2 s at most.
    async fn neglect(self, polls: u32, others: u32) {
        let own = self.own_name(0);
        let begun = self.now();
        let wait = millis(self.times.ttl_ms);
        let mut first = Box::pin(self.redlock.acquire(&own).wait(wait));
        for _ in 0..polls {
            if futures::poll!(first.as_mut()).is_ready() {
                return;
            }
            self.sleep(MS / 2).await;
        }
        let next = async || {
            let acquire = self.redlock.acquire(&own).wait(wait);
            match self.within(5 * S + self.slack, acquire).await {
                Some(Ok(lease)) => drop(lease.release().await),
                Some(Err(_)) | None if self.stalled_since(begun) > 0 => {}
                Some(Err(error)) => self.starve(&own, &error.to_string()),
                None => self.starve(&own, "it still waits"),
            }
        };
        let all = (0..others).map(|_| next());
        futures::future::join_all(all).await;
        drop(first);
    }

    fn starve(&self, own: &str, how: &str) {
        let how = format!("p{}: {own}: behind one that is not polled: {how}", self.process);
        self.checker.books().broken(Rule::Patient, how);
    }

    async fn leave_orphans(self, runtime: usize, count: u32, is_served_before: bool) {
        let home = self.beat.running();
        let names: Vec<_> = (0..count).map(|which| self.own_name(which)).collect();
        let Some(elsewhere) = self.elsewhere(runtime) else { return };
        let mut leases = Vec::new();
        for own in &names {
            leases.extend(self.own_lease(own).await);
        }
        let (ready, is_ready) = oneshot::channel();
        let (left, is_left) = oneshot::channel();
        let (this, planned) = (self.clone(), crate::world::Open::new(&self.planned));
        self.spawn(&elsewhere.handle, async move {
            if is_served_before {
                this.serve().await;
            }
            let _ = ready.send(());
            if is_left.await.is_ok() {
                let begun = this.now();
                // Whoever comes next serves what was left; it has to connect first.
                this.serve().await;
                this.sleep(2 * this.freed_after()).await;
                this.check_freed(&names, begun, home);
            }
            drop(planned);
        });
        if is_ready.await.is_err() || !self.beat.is_alive(elsewhere.index) {
            return;
        }
        drop(leases);
        let _ = left.send(());
        self.condemn(home, 0);
        std::future::poll_fn(|_| Poll::<()>::Pending).await;
    }

    /// Uses the client on this runtime.
    async fn serve(&self) {
        let own = self.own_name(9);
        if let Some(lease) = self.own_lease(&own).await {
            drop(lease.release().await);
        }
    }
}
