//! Carries protocol objects over the nodes: sends, timers, one wake per decision.

use crate::clock;
use crate::hold::Hold;
use crate::node::{Ballot, Claim, NoRuntime, Nodes, Order, Pool, Value};
use crate::protocol::{Acquisition, Drift, Next, Quorum, Refusal, Schedule, Time, Ttl};
use crate::tally::Tally;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::{EnterGuard, Handle};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Sleep, timeout};

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
    places: Semaphore,
    is_closed: AtomicBool,
}

/// What is to be acquired, and how long to try.
pub(crate) struct Wish {
    pub(crate) key: Box<[u8]>,
    pub(crate) ttl: Ttl,
    /// The end of all waiting; `None` to let one attempt take its time.
    pub(crate) deadline: Option<Time>,
}

/// A lock that is held.
pub(crate) struct Win {
    pub(crate) hold: Hold,
    pub(crate) valid_until: Time,
    pub(crate) tally: Arc<Tally>,
}

/// Why there is none.
pub(crate) enum Defeat {
    /// What the nodes said in the round that is the reason, if there was one.
    Refused(Refusal, Option<Arc<Tally>>),
    Closed,
    NoRuntime,
}

impl Driver {
    pub(crate) fn new(quorum: Quorum, drift: Drift, node_timeout: Duration, pool: Pool) -> Self {
        let places = Semaphore::new(MOST_ROUNDS);
        Self { quorum, drift, node_timeout, pool, places, is_closed: AtomicBool::new(false) }
    }

    /// Makes attempts until one is won or there is reason to give up.
    ///
    /// # Cancel safety
    /// Dropping the future releases on every node what an attempt may have set there.
    pub(crate) async fn win(&self, wish: Wish, schedule: Schedule) -> Result<Win, Defeat> {
        let deadline = wish.deadline.unwrap_or(Time::from_nanos(u64::MAX));
        let timings = (wish.ttl, self.drift);
        let mut acquisition =
            Acquisition::new(self.quorum, timings, self.node_timeout, deadline, schedule);
        let mut latest_refusal = None;
        loop {
            if self.is_closed.load(Ordering::Acquire) {
                return Err(Defeat::Closed);
            }
            let nodes = self.pool.here().map_err(|NoRuntime| Defeat::NoRuntime)?;
            if !nodes.is_open() {
                return Err(Defeat::NoRuntime);
            }
            let Some(place) = self.place(&nodes, wish.deadline).await else {
                return Err(Defeat::Refused(Refusal::Timeout, latest_refusal));
            };
            let (hold, tally) = self.attempt(&nodes, &wish, &mut acquisition).await;
            drop(place);
            match tally
                .judge(|round| acquisition.handle_outcome(round, clock::now(), rand::random()))
            {
                Next::Lease { valid_until } => {
                    return Ok(Win { hold, valid_until, tally });
                }
                Next::Retry { at } => {
                    latest_refusal = Some(tally);
                    drop(hold);
                    sleep_until(&nodes, at).await;
                }
                Next::Refuse { refusal, latest } => {
                    let reason = if latest { Some(tally) } else { latest_refusal };
                    return Err(Defeat::Refused(refusal, reason));
                }
            }
        }
    }

    /// One round of acquire. The clean-up is armed before the first send (I5).
    async fn attempt(
        &self,
        nodes: &Arc<Nodes>,
        wish: &Wish,
        acquisition: &mut Acquisition,
    ) -> (Hold, Arc<Tally>) {
        let claim = Arc::new(Claim::new(wish.key.clone(), Value::fresh()));
        let hold = Hold::new(claim, nodes.clone());
        let t1 = clock::now();
        let (round, close_at) = acquisition.begin(t1);
        let tally = Tally::new(round, t1);
        nodes.send_each(|node| {
            Order::acquire(hold.claim().clone(), wish.ttl, Ballot::new(tally.clone(), node))
        });
        tally.decided(nodes, close_at).await;
        (hold, tally)
    }

    /// A place among the rounds under way; `None` if there is none in time.
    async fn place(&self, nodes: &Nodes, deadline: Option<Time>) -> Option<SemaphorePermit<'_>> {
        if let Ok(place) = self.places.try_acquire() {
            return Some(place);
        }
        let left = deadline.map_or(self.node_timeout, |deadline| deadline.since(clock::now()));
        let waiting = {
            let _entered = enter(nodes);
            timeout(left, self.places.acquire())
        };
        waiting.await.ok()?.ok()
    }

    /// Refuses all acquires from now on, and waits up to `limit` until every release that was asked
    /// for is delivered. Returns the nodes that are still owed some, and how many.
    pub(crate) async fn close(&self, limit: Duration) -> Vec<(Arc<str>, usize)> {
        self.is_closed.store(true, Ordering::Release);
        let owed = || {
            let nodes = self.pool.shared().iter().map(|node| (node.name.clone(), node.debts()));
            nodes.filter(|(_, debts)| *debts > 0).collect::<Vec<_>>()
        };
        if owed().is_empty() {
            return Vec::new();
        }
        // Starts the tasks that deliver, if the runtime that they ran on was shut down.
        let Ok(nodes) = self.pool.here() else {
            return owed();
        };
        let deadline = clock::now().after(limit);
        while !owed().is_empty() && clock::now() < deadline {
            sleep_until(&nodes, clock::now().after(CLOSE_POLL)).await;
        }
        owed()
    }
}

/// Waits until `at` on our clock, by a timer of the current runtime, or else of the nodes' one.
pub(crate) fn sleep_until(nodes: &Nodes, at: Time) -> Sleep {
    let _entered = enter(nodes);
    tokio::time::sleep(at.since(clock::now()))
}

/// The context for a timer: a future may also be polled outside of any runtime.
fn enter(nodes: &Nodes) -> Option<EnterGuard<'_>> {
    Handle::try_current().is_err().then(|| nodes.runtime().enter())
}
