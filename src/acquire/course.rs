//! The course of one acquire: waiting for connections and for the turn, attempts, and rests between them.

use super::attempt::{Attempt, AttemptResult, Rounds};
use super::driver::{Driver, READY_LOOK};
use super::observed::WaitWatch;
use super::queue_slot::QueueSlot;
use super::request::{AcquireFailure, AcquireRequest, Acquired};
use crate::node::{Links, Nodes, sleep_until};
use crate::observe::Weight;
use crate::observe::event::{AttemptOutcome, Event};
use crate::protocol::{Acquisition, Goal, NodeId, Outcome, Refusal, Round, Schedule, Time};
use crate::round::Tally;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// The end of time.
const NEVER: Time = Time::END;

/// An acquire that has asked one node only, and was refused, asks all nodes after this time.
const ALONE_FOR: Duration = Duration::from_millis(3);

/// One acquire under way.
pub(super) struct Course<'a> {
    driver: &'a Driver,
    request: &'a AcquireRequest,
    acquisition: Acquisition,
    /// Where it stands, if it waits.
    slot: Option<QueueSlot>,
    begun: Time,
    /// How many attempts it has made.
    attempts: u32,
    /// Its last attempt, which was refused.
    refused: Option<Arc<Tally>>,
    watch: WaitWatch<'a>,
    /// The next attempt asks all nodes at once.
    asks_all: bool,
}

impl<'a> Course<'a> {
    pub(super) fn new(driver: &'a Driver, request: &'a AcquireRequest, schedule: Schedule) -> Self {
        let (context, deadline) = (&driver.context, request.deadline.unwrap_or(NEVER));
        let terms = (request.ttl, driver.drift);
        let acquisition =
            Acquisition::new(context.quorum, terms, context.node_timeout, deadline, schedule)
                .giving_up_early(request.gives_up_early)
                .fenced(request.counters.is_some())
                .with_max_hold(request.max_hold);
        let join = |deadline| QueueSlot::join(&context.queues, &request.keys, deadline);
        let slot = request.deadline.map(join);
        let (begun, watch) = (driver.now(), WaitWatch::new(driver, request));
        let (attempts, refused, asks_all) = (0, None, false);
        Self { driver, request, acquisition, slot, begun, attempts, refused, watch, asks_all }
    }

    /// Makes attempts until one is won or there is reason to give up.
    pub(super) async fn run(self) -> Result<Acquired, AcquireFailure> {
        let waiter = self.slot.as_ref().map(|slot| slot.waiter.clone());
        let Some(waiter) = waiter else { return self.compete().await };
        let mut competing = pin!(self.compete());
        poll_fn(|cx| waiter.poll(competing.as_mut(), cx.waker())).await
    }

    async fn compete(mut self) -> Result<Acquired, AcquireFailure> {
        loop {
            let nodes = self.driver.ready()?;
            wait_for_connections(self.driver, self.request, &nodes).await;
            if !self.has_turn(&nodes).await {
                return Err(self.out_of_time(&nodes));
            }
            self.hold_back(&nodes).await;
            let Some(permit) = permit(self.driver, self.request, &nodes).await else {
                return Err(AcquireFailure::Overloaded(self.refused));
            };
            // All of that may have taken long; and who closes the client looks for permits last.
            if self.driver.is_closed() {
                return Err(AcquireFailure::Closed);
            }
            // What one wins that was bypassed meanwhile would be looked after by nobody: it goes back to
            // its place first. So does one whose runtime was shut down.
            if self.slot.as_ref().is_some_and(|slot| !slot.is_first() || !nodes.is_open()) {
                continue;
            }
            // The deadline ends every path, however long the future was not polled.
            if self.acquisition.is_over(self.driver.now()).is_some() {
                return Err(self.out_of_time(&nodes));
            }
            let first = self.first_node(&nodes);
            let context = &self.driver.context;
            let slot = self.slot.as_ref();
            let (attempt, guard) = Attempt::new(context, &nodes, self.request, slot, permit);
            let attempt = attempt.repeated(self.refused.is_some()).asking_first(first);
            let (ended, rounds) = attempt.run(guard, &mut self.acquisition).await;
            self.emit(&nodes, &ended, rounds);
            match ended {
                AttemptResult::RefusedByOne { node, free_at } => {
                    self.rest_after(&nodes, node, free_at).await;
                }
                AttemptResult::Won(acquired) => {
                    self.slot.as_ref().inspect(|slot| slot.handle_won());
                    return Ok(acquired);
                }
                AttemptResult::Retry { reason, at } => self.rest(&nodes, reason, at).await,
                AttemptResult::Refused { refusal, reason, is_latest } => {
                    return Err(self.failure(refusal, reason, is_latest));
                }
                AttemptResult::GivenUp(_) if self.driver.is_closed() => {
                    return Err(AcquireFailure::Closed);
                }
                AttemptResult::GivenUp(tally) => {
                    let random = nodes.random().number();
                    if !self.acquisition.handle_abandoned(self.driver.now(), random) {
                        return Err(given_up(tally));
                    }
                }
            }
        }
    }

    /// Counts an attempt that has finished, and emits [`Event::AttemptFinished`].
    fn emit(&mut self, nodes: &Nodes, ended: &AttemptResult, rounds: Rounds) {
        let outcome = match ended {
            AttemptResult::Won(_) => AttemptOutcome::Won,
            AttemptResult::Retry { .. } | AttemptResult::Refused { .. } => AttemptOutcome::Refused,
            AttemptResult::GivenUp(_) => AttemptOutcome::Abandoned,
            AttemptResult::RefusedByOne { .. } => return,
        };
        self.attempts = self.attempts.saturating_add(1);
        let Rounds { first: Some(first), confirmation } = rounds else { return };
        nodes.observers().emit(Weight::Detail, || {
            let report = |tally: &Tally| tally.report(nodes.names().cloned());
            let AcquireRequest { tag, keys, prefix, .. } = self.request;
            Event::AttemptFinished {
                lock: tag.lock(keys, *prefix),
                number: self.attempts,
                outcome,
                elapsed: self.driver.now().since(first.t1()),
                report: report(&first),
                confirmation: confirmation.as_deref().map(report),
            }
        });
    }

    /// Waits for the turn, if it waits at all; false if the deadline came first.
    async fn has_turn(&mut self, nodes: &Nodes) -> bool {
        let Some(slot) = &mut self.slot else { return true };
        let mut turn = pin!(slot.turn());
        if poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        self.watch.start();
        let mut deadline = pin!(sleep_until(nodes, self.request.deadline.unwrap_or(NEVER)));
        poll_fn(|cx| match turn.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending => deadline.as_mut().poll(cx).map(|()| false),
        })
        .await
    }

    /// An attempt was refused for this `reason`: waits until `at`, or until there is news that makes
    /// another one worth while.
    async fn rest(&mut self, nodes: &Nodes, reason: Arc<Tally>, at: Time) {
        self.watch.start();
        if let Some(slot) = &mut self.slot {
            slot.refuse(&reason, &self.request.keys);
        }
        let until = reason.counts_again_at().map_or(at, |again| at.min(again));
        self.refused = Some(reason);
        sleep(self.slot.as_ref(), nodes, until).await;
    }

    /// Before the first attempt: lets other clients go first, if they competed when this client used the lock last.
    async fn hold_back(&mut self, nodes: &Nodes) {
        let Some(slot) = self.slot.as_ref().filter(|_| self.attempts == 0) else { return };
        let until = slot.waiter.rests_until();
        if until > self.driver.now() {
            sleep_until(nodes, until.min(self.request.deadline.unwrap_or(NEVER))).await;
        }
    }

    /// The node that the next attempt asks before all others: of those that reported the key deleted, if any did, the same
    /// for all clients, and different ones for different keys.
    fn first_node(&mut self, nodes: &Nodes) -> Option<NodeId> {
        if std::mem::take(&mut self.asks_all) || !self.acquisition.may_ask_one_first() {
            return None;
        }
        let freed = self.slot.as_ref()?.waiter.asks_one_of()?;
        let sum = |sum: usize, byte: &u8| sum.wrapping_mul(31).wrapping_add(usize::from(*byte));
        let count = self.driver.context.quorum.nodes();
        let start = self.request.keys.first().iter().fold(0, sum) % count;
        let mut ids = (start..count).chain(0..start).map(NodeId::new);
        let is_free = |id| freed.len() == 0 || freed.contains(id);
        ids.find(|id| is_free(*id) && nodes.links().is_up(*id))
    }

    /// The first `node` did not grant. If it pushes the deletion of the key, which expires at `free_at`,
    /// waits for that. Else the next attempt asks all nodes.
    async fn rest_after(&mut self, nodes: &Nodes, node: NodeId, free_at: Option<Time>) {
        self.asks_all = free_at.is_none();
        let Some((slot, free_at)) = self.slot.as_ref().zip(free_at) else { return };
        slot.handle_single_refusal(node);
        let (now, random) = (self.driver.now(), nodes.random().number());
        let mut until = self.acquisition.handle_single_refusal(free_at, now, random);
        if self.refused.is_none() {
            // No other node has refused yet. A key left behind on this one must not hold up the acquire.
            self.asks_all = true;
            until = until.min(now.after(ALONE_FOR));
        }
        sleep(Some(slot), nodes, until).await;
    }

    /// Why there is no lock, once the time is over.
    fn out_of_time(self, nodes: &Nodes) -> AcquireFailure {
        let seen = || self.slot.as_ref().and_then(QueueSlot::refused);
        if let Some(refused) = self.refused.clone().or_else(seen) {
            return out_of_time_after(refused);
        }
        let tally = Tally::new(
            Round::new(self.driver.context.quorum, Goal::Survey),
            self.begun,
            nodes.clock(),
        );
        tally.close_unasked(nodes.links());
        AcquireFailure::Refused(Refusal::Timeout, Some(tally))
    }

    /// Why there is no lock, after an attempt that was refused for this `reason`, or an earlier one if it
    /// is not the latest that counts. Where it was cut short by its deadline, what the first in its queue
    /// saw is the reason, if that is known.
    fn failure(self, refusal: Refusal, reason: Arc<Tally>, is_latest: bool) -> AcquireFailure {
        let slot = self.slot.as_ref().filter(|_| refusal == Refusal::Timeout);
        if let Some(seen) = slot.and_then(QueueSlot::refused) {
            return out_of_time_after(seen);
        }
        let earlier = self.refused.filter(|_| !is_latest);
        AcquireFailure::Refused(refusal, Some(earlier.unwrap_or(reason)))
    }
}

/// Waits until then, or until there is news for `slot` that makes another attempt worth while.
async fn sleep(slot: Option<&QueueSlot>, nodes: &Nodes, mut until: Time) {
    let news = || slot.map_or(Poll::Pending, QueueSlot::poll_news);
    loop {
        let mut timer = pin!(sleep_until(nodes, until));
        let news = poll_fn(|cx| match news() {
            Poll::Ready(try_at) if try_at < until => Poll::Ready(Some(try_at)),
            _ => timer.as_mut().poll(cx).map(|()| None),
        });
        match news.await {
            Some(try_at) if try_at > nodes.clock().now() => until = try_at,
            _ => return,
        }
    }
}

/// Waits for the first connections of a client that is new here, for as long as they may take:
/// what a node answers is bounded from then on.
async fn wait_for_connections(driver: &Driver, request: &AcquireRequest, nodes: &Nodes) {
    if nodes.links().is_warm() {
        return;
    }
    let limit = driver.connect_timeout.saturating_add(READY_LOOK);
    let until = driver.now().after(limit).min(request.deadline.unwrap_or(NEVER));
    let mut warm = pin!(nodes.links().wait_for(Links::is_warm));
    let mut limit = pin!(sleep_until(nodes, until));
    poll_fn(|cx| match warm.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending if driver.is_closed() => Poll::Ready(()),
        Poll::Pending => limit.as_mut().poll(cx),
    })
    .await;
}

/// A permit for an attempt; `None` if there is none in time.
async fn permit(
    driver: &Driver,
    request: &AcquireRequest,
    nodes: &Nodes,
) -> Option<OwnedSemaphorePermit> {
    let context = &driver.context;
    if let Some(permit) = context.permits.try_take() {
        return Some(permit);
    }
    let until = request.deadline;
    let until = until.unwrap_or_else(|| driver.now().after(context.node_timeout));
    tokio::select! {
        biased;
        permit = context.permits.take() => permit,
        () = sleep_until(nodes, until) => None,
    }
}

/// Why there is no lock for one whose last attempt was given up because it was not polled.
fn given_up(cut: Arc<Tally>) -> AcquireFailure {
    match cut.with_round(Round::outcome) {
        Some(Outcome::Won | Outcome::TooLate) | None => AcquireFailure::NotPolled(cut),
        Some(_) => out_of_time_after(cut),
    }
}

/// Why there is no lock for one whose time ended after `refused`: its own last attempt, or what the first
/// in its queue saw.
fn out_of_time_after(refused: Arc<Tally>) -> AcquireFailure {
    let refusal = match refused.with_round(Round::outcome) {
        Some(Outcome::NoQuorum) | None => Refusal::NoQuorum,
        Some(Outcome::TooLate) => Refusal::Expired,
        Some(Outcome::Denied | Outcome::Missing | Outcome::Won) => Refusal::Contended,
    };
    AcquireFailure::Refused(refusal, Some(refused))
}
