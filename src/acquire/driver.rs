//! Carries protocol objects over the nodes: sends, timers, one wake per decision.

use super::attempt::{Attempt, AttemptResult, Ended};
use super::wait_queue::{QueueSlot, WaitQueues};
use super::waiter::AttemptGuard;
use crate::error::CloseError;
use crate::node::{Links, NoRuntime, Nodes, Pool, Timings, sleep_until};
use crate::protocol::{
    Acquisition, Drift, Goal, Next, Outcome, Quorum, Refusal, Round, Schedule, Time, Ttl,
};
use crate::round::Tally;
use crate::time::clock;
use crate::wire::{CounterKeys, Keys, Value};
use rand::random;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The end of time.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// The most rounds under way at once in one client (I12). More callers than that wait for a place,
/// within their wait bound.
const MAX_ROUNDS: usize = 1 << 14;

/// From so many rounds under way on, nodes that are slow to answer say more of this process than of
/// themselves. (Where nodes hang, rounds end at once, and few are under way.)
const CROWD: usize = 1 << 10;

/// How often one that waits for its connections looks whether its client is closed.
const READY_LOOK: Duration = Duration::from_millis(100);

/// How often a closing client looks whether all is delivered.
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// What one client needs to run rounds.
pub(crate) struct Driver {
    pub(crate) quorum: Quorum,
    pub(crate) drift: Drift,
    pub(crate) node_timeout: Duration,
    connect_timeout: Duration,
    pub(crate) pool: Arc<Pool>,
    pub(crate) waiters: Arc<WaitQueues>,
    /// The highest number that a fencing counter was seen to show.
    pub(crate) seen: AtomicU64,
    /// How many attempts had to confirm their token in a second round.
    pub(crate) raises: AtomicU64,
    permits: Arc<Semaphore>,
    is_closed: AtomicBool,
}

/// What is to be acquired, and how long to try.
pub(crate) struct AcquireRequest {
    pub(crate) keys: Keys,
    pub(crate) ttl: Ttl,
    /// What to tell those who ask who holds it.
    pub(crate) metadata: Option<Arc<str>>,
    /// The value that stands there and is to be taken over, if it is not to be free.
    pub(crate) adopts: Option<Arc<Value>>,
    /// The counters beside the keys, if a fencing token is wanted.
    pub(crate) counters: Option<Arc<CounterKeys>>,
    /// True if it has one attempt only: who is in the way is asked at once.
    pub(crate) is_last_chance: bool,
    /// True to be told when the lock is touched, also when nobody waits for it.
    pub(crate) is_watched: bool,
    /// The end of all waiting; `None` to let one attempt take its time.
    pub(crate) deadline: Option<Time>,
    /// True to give up as soon as the holder is seen to outlast the deadline.
    pub(crate) gives_up_early: bool,
}

/// A lock that is held.
pub(crate) struct Acquired {
    pub(crate) guard: AttemptGuard,
    pub(crate) valid_until: Time,
    pub(crate) tally: Arc<Tally>,
}

/// Why there is none.
pub(crate) enum AcquireFailure {
    /// What the nodes said in the round that is the reason, if there was one.
    Refused(Refusal, Option<Arc<Tally>>),
    /// The future was not polled, and what its attempt may have won was given up.
    NotPolled(Arc<Tally>),
    /// So many other rounds of this client were under way that there was no room for one more.
    Overloaded(Option<Arc<Tally>>),
    Closed,
    NoRuntime(NoRuntime),
}

impl Driver {
    pub(crate) fn new(
        quorum: Quorum,
        drift: Drift,
        timings: Timings,
        pool: Arc<Pool>,
        waiters: Arc<WaitQueues>,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(MAX_ROUNDS));
        let (seen, raises) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_closed = AtomicBool::new(false);
        Self {
            quorum,
            drift,
            node_timeout: timings.answer,
            connect_timeout: timings.connect,
            pool,
            waiters,
            seen,
            raises,
            permits,
            is_closed,
        }
    }

    /// Makes attempts until one is won or there is reason to give up.
    ///
    /// # Cancel safety
    /// Dropping the future releases on every node what an attempt may have set there.
    pub(crate) async fn win(
        &self,
        wish: AcquireRequest,
        schedule: Schedule,
    ) -> Result<Acquired, AcquireFailure> {
        let timings = (wish.ttl, self.drift);
        let (timeout, deadline) = (self.node_timeout, wish.deadline.unwrap_or(NEVER));
        let acquisition = Acquisition::new(self.quorum, timings, timeout, deadline, schedule)
            .giving_up_early(wish.gives_up_early)
            .fenced(wish.counters.is_some());
        if wish.deadline.is_none() {
            return self.compete(&wish, acquisition, None).await;
        }
        let place = self.waiters.join(&wish.keys, deadline);
        let waiter = place.waiter.clone();
        let mut competing = pin!(self.compete(&wish, acquisition, Some(place)));
        poll_fn(|cx| waiter.poll(competing.as_mut(), cx.waker())).await
    }

    async fn compete(
        &self,
        wish: &AcquireRequest,
        mut acquisition: Acquisition,
        mut place: Option<QueueSlot>,
    ) -> Result<Acquired, AcquireFailure> {
        let begun = clock::now();
        let mut latest_refusal = None;
        loop {
            let nodes = self.ready()?;
            let out_of_time = |place: Option<&QueueSlot>, latest: Option<Arc<Tally>>| {
                let refused = latest.or_else(|| place?.refused());
                Err(refused.map_or_else(|| self.unasked(&nodes, begun), out_of_time_after))
            };
            self.connected(&nodes, wish.deadline).await;
            if let Some(place) = &mut place
                && !self.has_turn(place, &nodes, wish).await
            {
                return out_of_time(Some(place), latest_refusal);
            }
            let Some(permit) = self.permit(&nodes, wish.deadline).await else {
                return Err(AcquireFailure::Overloaded(latest_refusal));
            };
            // All of that may have taken long; and who closes the client looks for permits last.
            if self.is_closed() {
                return Err(AcquireFailure::Closed);
            }
            // What one wins that was bypassed meanwhile would be looked after by nobody: it goes back to
            // its place first. So does one whose runtime was shut down.
            if place.as_ref().is_some_and(|place| !place.is_mine() || !nodes.is_open()) {
                continue;
            }
            // The deadline ends every path, however long the future was not polled.
            if acquisition.is_over(clock::now()).is_some() {
                return out_of_time(place.as_ref(), latest_refusal);
            }
            let attempt = Attempt::new(self, &nodes, wish, place.as_ref(), permit)
                .repeated(latest_refusal.is_some());
            let ended = match attempt.run(wish, &mut acquisition).await {
                AttemptResult::Ended(ended) => ended,
                AttemptResult::GivenUp(_) if self.is_closed() => {
                    return Err(AcquireFailure::Closed);
                }
                AttemptResult::GivenUp(tally) => {
                    if acquisition.handle_given_up(clock::now(), random()) {
                        continue;
                    }
                    return Err(given_up(tally));
                }
            };
            let Ended { mut guard, asked, reason, next } = ended;
            if !matches!(next, Next::Lease { .. }) {
                guard.release.note_refused();
            }
            match next {
                Next::Lease { valid_until, .. } => {
                    return Ok(Acquired { guard, valid_until, tally: asked });
                }
                Next::Retry { at } => {
                    drop(guard);
                    if let Some(place) = &mut place {
                        place.refuse(&reason, &wish.keys);
                    }
                    let at = reason.counts_again_at().map_or(at, |again| at.min(again));
                    latest_refusal = Some(reason);
                    rest(place.as_ref(), &nodes, at).await;
                }
                Next::Refuse { refusal, latest } => {
                    let earlier = latest_refusal.filter(|_| !latest);
                    return Err(refused(refusal, (reason, earlier), place.as_ref()));
                }
                Next::Raise { .. } => unreachable!("an attempt ends when it is confirmed, or not"),
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The nodes, if they can be asked.
    pub(crate) fn ready(&self) -> Result<Arc<Nodes>, AcquireFailure> {
        if self.is_closed() {
            return Err(AcquireFailure::Closed);
        }
        let nodes = self.pool.here().map_err(AcquireFailure::NoRuntime)?;
        if nodes.is_open() { Ok(nodes) } else { Err(AcquireFailure::NoRuntime(NoRuntime::Absent)) }
    }

    /// Waits for the first connections of a client that is new here, for as long as they may take:
    /// what a node answers is bounded from then on.
    async fn connected(&self, nodes: &Nodes, deadline: Option<Time>) {
        if nodes.links().is_warm() {
            return;
        }
        let limit = self.connect_timeout.saturating_add(READY_LOOK);
        let until = clock::now().after(limit).min(deadline.unwrap_or(NEVER));
        let mut warm = pin!(nodes.links().wait_for(Links::is_warm));
        let mut limit = pin!(sleep_until(nodes, until));
        poll_fn(|cx| match warm.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending if self.is_closed() => Poll::Ready(()),
            Poll::Pending => limit.as_mut().poll(cx),
        })
        .await;
    }

    /// Resolves when a quorum is connected on the current runtime, and no attempt has to wait for more.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), AcquireFailure> {
        loop {
            let nodes = self.ready()?;
            let mut ready =
                pin!(nodes.links().wait_for(|links| links.has_quorum() && links.is_warm()));
            // A client that is closed, or a runtime that is shut down, tells nobody.
            let mut look = pin!(sleep_until(&nodes, clock::now().after(READY_LOOK)));
            let is_ready = poll_fn(|cx| match ready.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(true),
                Poll::Pending => look.as_mut().poll(cx).map(|()| false),
            });
            if is_ready.await {
                return Ok(());
            }
        }
    }

    /// The defeat of one whose time ended before it could ask the nodes.
    fn unasked(&self, nodes: &Nodes, begun: Time) -> AcquireFailure {
        let tally = Tally::new(Round::new(self.quorum, Goal::Survey), begun);
        tally.close_unasked(nodes.links());
        AcquireFailure::Refused(Refusal::Timeout, Some(tally))
    }

    /// Waits for the turn; false if the deadline came first.
    async fn has_turn(&self, place: &mut QueueSlot, nodes: &Nodes, wish: &AcquireRequest) -> bool {
        let mut turn = pin!(place.turn());
        if poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        let mut deadline = pin!(sleep_until(nodes, wish.deadline.unwrap_or(NEVER)));
        poll_fn(|cx| match turn.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => deadline.as_mut().poll(cx).map(|()| false),
        })
        .await
    }

    /// A permit for a round; `None` if there is none in time.
    async fn permit(&self, nodes: &Nodes, deadline: Option<Time>) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Some(permit);
        }
        let until = deadline.unwrap_or_else(|| clock::now().after(self.node_timeout));
        tokio::select! {
            biased;
            permit = self.permits.clone().acquire_owned() => permit.ok(),
            () = sleep_until(nodes, until) => None,
        }
    }

    /// True if so many are that answers can wait here, and be read late.
    pub(crate) fn is_crowded(&self) -> bool {
        self.rounds() >= CROWD
    }

    /// How many attempts are under way.
    pub(crate) fn rounds(&self) -> usize {
        MAX_ROUNDS - self.permits.available_permits()
    }

    /// Refuses all acquires from now on, and waits up to `limit` until every round is over and every
    /// release that was asked for is delivered.
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), CloseError> {
        self.is_closed.store(true, Ordering::SeqCst);
        self.waiters.close();
        self.pool.wake();
        let is_done = || self.rounds() == 0 && self.undelivered().is_empty();
        let deadline = clock::now().after(limit);
        while !is_done() && clock::now() < deadline {
            // Starts the tasks that deliver, if the runtime that they ran on was shut down.
            let Ok(nodes) = self.pool.here() else { break };
            sleep_until(&nodes, clock::now().after(CLOSE_POLL)).await;
        }
        if !is_done() {
            return Err(self.remains());
        }
        // Nothing can be owed from now on.
        self.pool.end();
        Ok(())
    }

    /// What a client that was closed has not given back.
    pub(crate) fn remains(&self) -> CloseError {
        CloseError::new(self.undelivered(), self.rounds())
    }

    /// The nodes that are owed releases, and how many.
    fn undelivered(&self) -> Vec<(Arc<str>, usize)> {
        let nodes = self.pool.shared().iter().map(|node| (node.name.clone(), node.debts()));
        nodes.filter(|(_, debts)| *debts > 0).collect()
    }
}

/// The defeat of one whose last attempt was `latest`, if the reason is not an `earlier` one. Where it
/// was cut short by its deadline, what the first in its line saw is the reason, if that is known.
fn refused(
    refusal: Refusal,
    (latest, earlier): (Arc<Tally>, Option<Arc<Tally>>),
    place: Option<&QueueSlot>,
) -> AcquireFailure {
    let seen = place.filter(|_| refusal == Refusal::Timeout).and_then(QueueSlot::refused);
    let refused = AcquireFailure::Refused(refusal, Some(earlier.unwrap_or(latest)));
    seen.map_or(refused, out_of_time_after)
}

/// The defeat of one whose last attempt was given up because it was not polled.
fn given_up(cut: Arc<Tally>) -> AcquireFailure {
    match cut.with_round(Round::outcome) {
        Some(Outcome::Won | Outcome::TooLate) | None => AcquireFailure::NotPolled(cut),
        Some(_) => out_of_time_after(cut),
    }
}

/// The defeat of one whose time ended after `refused`: its own last attempt, or what the first in its
/// line saw.
fn out_of_time_after(refused: Arc<Tally>) -> AcquireFailure {
    let refusal = match refused.with_round(Round::outcome) {
        Some(Outcome::NoQuorum) | None => Refusal::NoQuorum,
        Some(Outcome::TooLate) => Refusal::Expired,
        Some(Outcome::Denied | Outcome::Missing | Outcome::Won) => Refusal::Contended,
    };
    AcquireFailure::Refused(refusal, Some(refused))
}

/// Waits until `at`, or until there is news that makes an attempt worth while.
async fn rest(place: Option<&QueueSlot>, nodes: &Nodes, at: Time) {
    let mut until = at;
    loop {
        let mut timer = pin!(sleep_until(nodes, until));
        let news = poll_fn(|cx| match place.map_or(Poll::Pending, QueueSlot::poll_news) {
            Poll::Ready(try_at) if try_at < until => Poll::Ready(Some(try_at)),
            _ => timer.as_mut().poll(cx).map(|()| None),
        });
        match news.await {
            Some(try_at) if try_at > clock::now() => until = try_at,
            _ => return,
        }
    }
}
