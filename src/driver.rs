//! Carries protocol objects over the nodes: sends, timers, one wake per decision.

use crate::attempt::{Attempt, Ended};
use crate::clock;
use crate::hold::Hold;
use crate::node::{Keys, NoRuntime, Nodes, Pool, Value};
use crate::protocol::{Acquisition, Drift, Next, Outcome, Quorum, Refusal, Round, Schedule};
use crate::protocol::{Time, Ttl};
use crate::tally::Tally;
use crate::waiters::{Place, Waiters};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The end of time.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// The most rounds under way at once in one client (I12). More callers than that wait for a place,
/// within their wait bound.
const MOST_ROUNDS: usize = 1 << 14;

/// How often a closing client looks whether all is delivered.
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// What one client needs to run rounds.
pub(crate) struct Driver {
    pub(crate) quorum: Quorum,
    pub(crate) drift: Drift,
    pub(crate) node_timeout: Duration,
    pub(crate) pool: Pool,
    pub(crate) waiters: Arc<Waiters>,
    /// The highest number that a fencing counter was seen to show.
    pub(crate) seen: AtomicU64,
    /// How many attempts had to confirm their token in a second round.
    pub(crate) raises: AtomicU64,
    permits: Arc<Semaphore>,
    is_closed: AtomicBool,
}

/// What is to be acquired, and how long to try.
pub(crate) struct Wish {
    pub(crate) keys: Keys,
    pub(crate) ttl: Ttl,
    /// What to tell those who ask who holds it.
    pub(crate) metadata: Option<Arc<str>>,
    /// The value that stands there and is to be taken over, if it is not to be free.
    pub(crate) adopts: Option<Arc<Value>>,
    /// How long the counters stand, if a fencing token is wanted.
    pub(crate) token_ttl: Option<Ttl>,
    /// True to be told when the lock is touched, also when nobody waits for it.
    pub(crate) is_watched: bool,
    /// The end of all waiting; `None` to let one attempt take its time.
    pub(crate) deadline: Option<Time>,
    /// True to give up as soon as the holder is seen to outlast the deadline.
    pub(crate) gives_up_early: bool,
}

/// A lock that is held.
pub(crate) struct Win {
    pub(crate) hold: Hold,
    pub(crate) valid_until: Time,
    pub(crate) tally: Arc<Tally>,
    /// Until it is dropped, a client that closes waits for what becomes of this.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Why there is none.
pub(crate) enum Defeat {
    /// What the nodes said in the round that is the reason, if there was one.
    Refused(Refusal, Option<Arc<Tally>>),
    Closed,
    NoRuntime,
}

impl Driver {
    pub(crate) fn new(
        quorum: Quorum,
        drift: Drift,
        node_timeout: Duration,
        pool: Pool,
        waiters: Arc<Waiters>,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(MOST_ROUNDS));
        let (seen, raises) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_closed = AtomicBool::new(false);
        Self { quorum, drift, node_timeout, pool, waiters, seen, raises, permits, is_closed }
    }

    /// Makes attempts until one is won or there is reason to give up.
    ///
    /// # Cancel safety
    /// Dropping the future releases on every node what an attempt may have set there.
    pub(crate) async fn win(&self, wish: Wish, schedule: Schedule) -> Result<Win, Defeat> {
        let timings = (wish.ttl, self.drift);
        let (timeout, deadline) = (self.node_timeout, wish.deadline.unwrap_or(NEVER));
        let acquisition = Acquisition::new(self.quorum, timings, timeout, deadline, schedule)
            .giving_up_early(wish.gives_up_early)
            .fenced(wish.token_ttl.is_some());
        if wish.deadline.is_none() {
            return self.compete(&wish, acquisition, None).await;
        }
        let place = self.waiters.join(&wish.keys);
        let waiter = place.waiter.clone();
        let mut competing = pin!(self.compete(&wish, acquisition, Some(place)));
        poll_fn(|cx| waiter.poll(competing.as_mut(), cx.waker())).await
    }

    async fn compete(
        &self,
        wish: &Wish,
        mut acquisition: Acquisition,
        mut place: Option<Place>,
    ) -> Result<Win, Defeat> {
        let mut latest_refusal = None;
        loop {
            if let Some(refusal) = acquisition.is_over(clock::now()) {
                return Err(Defeat::Refused(refusal, latest_refusal));
            }
            let nodes = self.ready()?;
            if let Some(place) = &place {
                if !self.has_turn(place, &nodes, wish).await {
                    return Err(place.out_of_time(latest_refusal));
                }
                // It may have taken long.
                self.ready()?;
            }
            let Some(permit) = self.permit(&nodes, wish.deadline).await else {
                return Err(Defeat::Refused(Refusal::Timeout, latest_refusal));
            };
            let attempt = Attempt::new(self, &nodes, wish, place.as_ref());
            let Some(ended) = attempt.run(wish, &mut acquisition).await else {
                // It took so long to be polled that another was let in.
                continue;
            };
            let Ended { mut hold, asked, reason, next } = ended;
            match next {
                Next::Lease { valid_until, .. } => {
                    hold.note_won(self.waiters.clone());
                    return Ok(Win { hold, valid_until, tally: asked, permit });
                }
                Next::Retry { at } => {
                    drop((hold, permit));
                    if let Some(place) = &mut place {
                        place.refuse(&reason, &wish.keys);
                    }
                    let at = reason.counts_again_at().map_or(at, |again| at.min(again));
                    latest_refusal = Some(reason);
                    rest(place.as_ref(), &nodes, at).await;
                }
                Next::Refuse { refusal, latest } => {
                    let reason = if latest { Some(reason) } else { latest_refusal };
                    return Err(Defeat::Refused(refusal, reason));
                }
                Next::Raise { .. } => unreachable!("an attempt ends when it is confirmed, or not"),
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// The nodes, if they can be asked.
    pub(crate) fn ready(&self) -> Result<Arc<Nodes>, Defeat> {
        if self.is_closed() {
            return Err(Defeat::Closed);
        }
        let nodes = self.pool.here().map_err(|NoRuntime| Defeat::NoRuntime)?;
        if nodes.is_open() { Ok(nodes) } else { Err(Defeat::NoRuntime) }
    }

    /// Waits for the turn; false if the deadline came first.
    async fn has_turn(&self, place: &Place, nodes: &Nodes, wish: &Wish) -> bool {
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

    /// How many attempts are under way.
    pub(crate) fn rounds(&self) -> usize {
        MOST_ROUNDS - self.permits.available_permits()
    }

    /// Refuses all acquires from now on, and waits up to `limit` until every round is over and every
    /// release that was asked for is delivered. Returns the nodes that are still owed some, and how
    /// many.
    pub(crate) async fn close(&self, limit: Duration) -> Vec<(Arc<str>, usize)> {
        self.is_closed.store(true, Ordering::Release);
        self.waiters.wake_all();
        let is_done = || self.rounds() == 0 && self.undelivered().is_empty();
        let deadline = clock::now().after(limit);
        while !is_done() && clock::now() < deadline {
            // Starts the tasks that deliver, if the runtime that they ran on was shut down.
            let Ok(nodes) = self.pool.here() else { break };
            sleep_until(&nodes, clock::now().after(CLOSE_POLL)).await;
        }
        self.undelivered()
    }

    /// The nodes that are owed releases, and how many.
    pub(crate) fn undelivered(&self) -> Vec<(Arc<str>, usize)> {
        let nodes = self.pool.shared().iter().map(|node| (node.name.clone(), node.debts()));
        nodes.filter(|(_, debts)| *debts > 0).collect()
    }
}

impl Place {
    /// The defeat of one whose time ended in the line: what the first in it saw is the reason.
    fn out_of_time(&self, latest_refusal: Option<Arc<Tally>>) -> Defeat {
        let Some(tally) = latest_refusal.or_else(|| self.refused()) else {
            return Defeat::Refused(Refusal::Timeout, None);
        };
        let refusal = match tally.judge(Round::outcome) {
            Some(Outcome::NoQuorum) | None => Refusal::NoQuorum,
            Some(Outcome::TooLate) => Refusal::Expired,
            Some(Outcome::Denied | Outcome::Missing | Outcome::Won) => Refusal::Contended,
        };
        Defeat::Refused(refusal, Some(tally))
    }
}

/// Waits until `at`, or until there is news that makes an attempt worth while.
async fn rest(place: Option<&Place>, nodes: &Nodes, at: Time) {
    let mut until = at;
    loop {
        let mut timer = pin!(sleep_until(nodes, until));
        let news = poll_fn(|cx| match place.map_or(Poll::Pending, Place::poll_news) {
            Poll::Ready(try_at) if try_at < until => Poll::Ready(Some(try_at)),
            _ => timer.as_mut().poll(cx).map(|()| None),
        });
        match news.await {
            Some(try_at) if try_at > clock::now() => until = try_at,
            _ => return,
        }
    }
}

/// Waits until `at` on our clock, by a timer of the runtime that it is first polled on, or else of
/// the nodes' one; if that is gone, of the one that it is polled on then, if there is any.
pub(crate) async fn sleep_until(nodes: &Nodes, at: Time) {
    let here = || Handle::try_current().unwrap_or_else(|_| nodes.runtime().clone());
    let timer_of = |runtime: &Handle| {
        let _entered = runtime.enter();
        tokio::time::sleep(at.since(clock::now()))
    };
    let mut runtime = here();
    let mut timer = pin!(timer_of(&runtime));
    poll_fn(|cx| {
        // The timer of a runtime that was shut down must not be polled. The nodes' one is known to
        // live, without asking which one this is; another may not be ours to poll any more.
        let is_nodes = runtime.id() == nodes.runtime().id();
        if is_nodes && nodes.is_open() {
            return timer.as_mut().poll(cx);
        }
        let now_on = here();
        if now_on.id() != runtime.id() {
            timer.set(timer_of(&now_on));
            runtime = now_on;
        } else if is_nodes {
            return Poll::Ready(());
        }
        timer.as_mut().poll(cx)
    })
    .await;
}
