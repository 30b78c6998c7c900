//! One attempt to acquire: its round, or two, with the clean-up armed.

use super::driver::{AcquireRequest, Driver};
use super::wait_queue::QueueSlot;
use super::waiter::AttemptGuard;
use crate::node::{Ballot, Claim, Nodes, QueuedCommand};
use crate::protocol::{Acquisition, Next, Round, Time, hint};
use crate::round::{ReleaseGuard, Tally};
use crate::time::clock;
use crate::wire::{Counters, Value, Wants};
use rand::random;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// How long an attempt without a deadline waits until what was granted counts, where nodes' clocks have
/// stepped ahead.
const MAX_LAG: Duration = Duration::from_secs(1);

/// An attempt under way.
pub(crate) struct Attempt<'a> {
    driver: &'a Driver,
    nodes: &'a Arc<Nodes>,
    /// Where it stands in line, if it waits: the stake is kept there, so that it can be given up when
    /// the future is not polled.
    place: Option<&'a QueueSlot>,
    claim: Arc<Claim>,
    t1: Time,
    /// The end of all waiting, if there is one.
    deadline: Option<Time>,
    /// True if there was another before, which was refused.
    is_repeated: bool,
    kept: Option<AttemptGuard>,
}

/// What became of an attempt.
pub(crate) enum AttemptResult {
    Ended(Ended),
    /// Its future was not polled for so long that it was given up; the round that was under way.
    GivenUp(Arc<Tally>),
}

/// How an attempt ended.
pub(crate) struct Ended {
    /// Gives up whatever it left on the nodes when it is dropped.
    pub(crate) guard: AttemptGuard,
    /// The round that asked for the locks.
    pub(crate) asked: Arc<Tally>,
    /// The round that is the reason for what is next.
    pub(crate) reason: Arc<Tally>,
    pub(crate) next: Next,
}

impl<'a> Attempt<'a> {
    /// An attempt to get what `wish` says.
    pub(crate) fn new(
        driver: &'a Driver,
        nodes: &'a Arc<Nodes>,
        wish: &AcquireRequest,
        place: Option<&'a QueueSlot>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let t1 = clock::now();
        let value = Value::telling(wish.keys.len(), wish.metadata.as_deref());
        let hint = || hint(driver.seen.load(Ordering::Relaxed), clock::wall_us());
        let fence = wish.counters.clone().map(|counters| Counters::new(counters, hint()));
        let claim = Claim::new(wish.keys.clone(), value, driver.quorum.nodes()).fenced(fence);
        let claim = Arc::new(claim.late_from(t1.after(driver.node_timeout / 2)));
        // The clean-up is armed before the first send (I5).
        let release = ReleaseGuard::new(claim.clone(), nodes.clone(), driver.waiters.clone());
        let kept = Some(AttemptGuard { release, permit, valid_until: t1 });
        let deadline = wish.deadline;
        Self { driver, nodes, place, claim, t1, deadline, is_repeated: false, kept }
    }

    /// There was another before, which was refused.
    pub(crate) fn repeated(self, is_repeated: bool) -> Self {
        Self { is_repeated, ..self }
    }

    /// Asks the nodes, and again if a token has to be confirmed.
    ///
    /// # Cancel safety
    /// Dropping the future releases on every node what the attempt may have set there.
    pub(crate) async fn run(
        mut self,
        wish: &AcquireRequest,
        acquisition: &mut Acquisition,
    ) -> AttemptResult {
        let t1 = self.t1;
        let is_repeated = self.is_repeated;
        let order = |claim, ballot| wish.order(claim, is_repeated, ballot);
        let asked = match self.round(t1, acquisition.begin(t1), order).await {
            Ok(asked) => asked,
            Err(cut) => return AttemptResult::GivenUp(cut),
        };
        self.note_numbers(&asked);
        let (reason, next) = match next_step(&asked, acquisition) {
            Next::Raise { valid_until, token } => {
                self.driver.raises.fetch_add(1, Ordering::Relaxed);
                let t1 = clock::now();
                let begun = acquisition.begin_raise(valid_until, token, t1);
                let order = |claim, ballot| QueuedCommand::raise(claim, token, ballot);
                let raised = match self.round(t1, begun, order).await {
                    Ok(raised) => raised,
                    Err(cut) => return AttemptResult::GivenUp(cut),
                };
                let next = next_step(&raised, acquisition);
                (raised, next)
            }
            next => (asked.clone(), next),
        };
        if let (Next::Lease { token: Some(token), .. }, Some(fence)) = (next, self.claim.fence()) {
            fence.commit(token);
        }
        match self.kept {
            Some(guard) => AttemptResult::Ended(Ended { guard, asked, reason, next }),
            None => AttemptResult::GivenUp(reason),
        }
    }

    /// One round: sends each node its order, and waits until it is decided. An error if the attempt
    /// was given up meanwhile.
    async fn round(
        &mut self,
        t1: Time,
        (round, close_at): (Round, Time),
        order: impl Fn(Arc<Claim>, Ballot) -> QueuedCommand,
    ) -> Result<Arc<Tally>, Arc<Tally>> {
        let valid_until = round.goal().valid_until();
        let tally = Tally::new(round, t1);
        if let Some(place) = self.place
            && let Some(guard) = self.kept.take()
        {
            place.begin(
                AttemptGuard { valid_until: valid_until.unwrap_or(t1), ..guard },
                tally.clone(),
            );
        }
        // The last of a crowd end when it is gone, with answers that were late because of it.
        let was_crowded = self.driver.is_crowded();
        let order = |node| order(self.claim.clone(), Ballot::new(tally.clone(), node));
        self.nodes.send_each(order);
        let limit = self.deadline.unwrap_or_else(|| t1.after(MAX_LAG)).max(close_at);
        tally.decided_within(self.nodes, close_at, limit).await;
        let (links, is_crowded) = (self.nodes.links(), was_crowded || self.driver.is_crowded());
        tally.note_held_up(is_crowded, |node| {
            links.is_up(node) && (is_crowded || self.claim.is_held_up(node))
        });
        if let Some(place) = self.place {
            let Some(guard) = place.end() else { return Err(tally) };
            self.kept = Some(guard);
        }
        Ok(tally)
    }

    /// Remembers the highest number for the next hint.
    fn note_numbers(&self, tally: &Tally) {
        let highest = self.claim.fence().and_then(|_| tally.highest_number());
        if let Some(highest) = highest {
            self.driver.seen.fetch_max(highest, Ordering::Relaxed);
        }
    }
}

impl AcquireRequest {
    fn order(&self, claim: Arc<Claim>, is_repeated: bool, ballot: Ballot) -> QueuedCommand {
        // Who waits is told when the lock is free, and who keeps it when it is touched. Who holds it
        // is not asked where most find it free.
        let wants = match self.deadline {
            Some(_) if is_repeated || self.is_last_chance => Wants::WatchAndHolder,
            Some(_) => Wants::Watch,
            None if self.is_watched => Wants::Watch,
            None => Wants::Nothing,
        };
        match &self.adopts {
            None => QueuedCommand::acquire(claim, self.ttl, wants, ballot),
            Some(from) => QueuedCommand::adopt(claim, self.ttl, from.clone(), ballot),
        }
    }
}

fn next_step(tally: &Tally, acquisition: &mut Acquisition) -> Next {
    tally.with_round(|round| acquisition.handle_outcome(round, clock::now(), random()))
}
