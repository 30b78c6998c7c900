//! One attempt to acquire: its round, or two, with the clean-up armed.

use crate::clock;
use crate::driver::{Driver, Wish};
use crate::hold::Hold;
use crate::node::{Ballot, Claim, Fence, Nodes, Order, Value};
use crate::protocol::{Acquisition, Next, Round, Time, hint};
use crate::tally::Tally;
use crate::waiters::Place;
use rand::random;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An attempt under way.
pub(crate) struct Attempt<'a> {
    driver: &'a Driver,
    nodes: &'a Arc<Nodes>,
    /// Where it stands in line, if it waits: the hold is kept there, so that it can be given up when
    /// the future is not polled.
    place: Option<&'a Place>,
    claim: Arc<Claim>,
    kept: Option<Hold>,
}

/// How an attempt ended.
pub(crate) struct Ended {
    /// Gives up whatever it left on the nodes when it is dropped.
    pub(crate) hold: Hold,
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
        wish: &Wish,
        place: Option<&'a Place>,
    ) -> Self {
        let value = Value::telling(wish.metadata.as_deref());
        let hint = || hint(driver.seen.load(Ordering::Relaxed), clock::wall_us());
        let fence = wish.token_ttl.map(|ttl| Fence::new(&wish.keys, ttl, hint()));
        let claim = Arc::new(Claim::new(wish.keys.clone(), value).fenced(fence));
        // The clean-up is armed before the first send (I5).
        let kept = Some(Hold::new(claim.clone(), nodes.clone()));
        Self { driver, nodes, place, claim, kept }
    }

    /// Asks the nodes, and again if a token has to be confirmed. `None` if the future was not polled
    /// for so long that it lost its turn.
    ///
    /// # Cancel safety
    /// Dropping the future releases on every node what the attempt may have set there.
    pub(crate) async fn run(mut self, wish: &Wish, acquisition: &mut Acquisition) -> Option<Ended> {
        let t1 = clock::now();
        let asked =
            self.round(t1, acquisition.begin(t1), |claim, ballot| wish.order(claim, ballot));
        let asked = asked.await?;
        self.note_numbers(&asked);
        let (reason, next) = match judge(&asked, acquisition) {
            Next::Raise { valid_until, token } => {
                self.driver.raises.fetch_add(1, Ordering::Relaxed);
                let t1 = clock::now();
                let begun = acquisition.begin_raise(valid_until, token, t1);
                let order = |claim, ballot| Order::raise(claim, token, ballot);
                let raised = self.round(t1, begun, order).await?;
                let next = judge(&raised, acquisition);
                (raised, next)
            }
            next => (asked.clone(), next),
        };
        if let (Next::Lease { token: Some(token), .. }, Some(fence)) = (next, self.claim.fence()) {
            fence.commit(token);
        }
        Some(Ended { hold: self.kept?, asked, reason, next })
    }

    /// One round: sends each node its order, and waits until it is decided.
    async fn round(
        &mut self,
        t1: Time,
        (round, close_at): (Round, Time),
        order: impl Fn(Arc<Claim>, Ballot) -> Order,
    ) -> Option<Arc<Tally>> {
        let tally = Tally::new(round, t1);
        if let Some(place) = self.place {
            place.begin(self.kept.take()?, tally.clone());
        }
        let order = |node| order(self.claim.clone(), Ballot::new(tally.clone(), node));
        self.nodes.send_each(order);
        tally.decided(self.nodes, close_at).await;
        if let Some(place) = self.place {
            self.kept = Some(place.end()?);
        }
        Some(tally)
    }

    /// Remembers the highest number for the next hint.
    fn note_numbers(&self, tally: &Tally) {
        let highest = self.claim.fence().and_then(|_| tally.highest_number());
        if let Some(highest) = highest {
            self.driver.seen.fetch_max(highest, Ordering::Relaxed);
        }
    }
}

impl Wish {
    fn order(&self, claim: Arc<Claim>, ballot: Ballot) -> Order {
        // Who waits is told when the lock is free, and who keeps it when it is touched.
        let watches = self.is_watched || self.deadline.is_some();
        match &self.adopts {
            None => Order::acquire(claim, self.ttl, watches, ballot),
            Some(from) => Order::adopt(claim, self.ttl, from.clone(), ballot),
        }
    }
}

fn judge(tally: &Tally, acquisition: &mut Acquisition) -> Next {
    tally.judge(|round| acquisition.handle_outcome(round, clock::now(), random()))
}
