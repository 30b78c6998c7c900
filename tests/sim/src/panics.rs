//! Panics of a client's coordinator task, and floods of pushes.

use crate::clock::{Instant, MS};
use crate::closing::ACQUIRED;
use crate::dice::Dice;
use crate::event::Way;
use crate::fault::{Fault, Planner};
use crate::network::Packet;
use crate::process::{millis, nanos};
use crate::rule::Rule;
use crate::shared::Core;
use crate::trace::note;
use crate::worker::Worker;
use futures::future::poll_immediate;
use quorlock::{AcquireError, Loss};
use quorlock_test::internals::Phase;
use std::pin::pin;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PanicCall {
    lasting: Instant,
    is_extended: bool,
    /// Whether another acquire waits for the lock when the coordinator panics.
    is_wanted: bool,
    is_released: bool,
}

pub(crate) fn plan_floods(planner: &mut Planner<'_>) {
    for _ in 0..planner.dice.between(1, 5) {
        let (at, node) = (planner.moment(), planner.dice.index(planner.scenario.nodes));
        let kilobytes = planner.dice.pick(&[16, 256]);
        planner.add(at, 0, Fault::Flood { node, kilobytes });
    }
}

impl Core {
    pub(crate) fn flood(&mut self, node: usize, kilobytes: usize) {
        note!(self, "n{node} pushes {kilobytes} KB over each connection");
        let push = b">2\r\n+invalidate\r\n*1\r\n$5\r\nother\r\n";
        let flood = push.repeat((kilobytes << 10) / push.len());
        for connection in 0..self.connections.len() {
            let it = &self.connections[connection];
            if it.node == node && it.server.is_some() && it.end.phase == Phase::Open {
                self.send(connection, Way::ToClient, Packet::Bytes(flood.clone()));
            }
        }
    }
}

impl PanicCall {
    pub(crate) fn draw(ttl: Instant, dice: &mut Dice) -> Self {
        Self {
            lasting: dice.log_uniform(MS, ttl / 4),
            is_extended: dice.chance(500),
            is_wanted: dice.chance(500),
            is_released: dice.chance(500),
        }
    }
}

impl Worker {
    pub(crate) async fn panic(self, call: PanicCall) {
        let (own, begun) = (self.own_name(0), self.now());
        let mut acquire = self.redlock.acquire(&own).wait(Duration::from_nanos(ACQUIRED));
        if call.is_extended {
            acquire = acquire.auto_extend(millis(4 * self.times.ttl_ms));
        }
        let lease = match self.timed("acquire", ACQUIRED, acquire).await {
            Ok(lease) => lease,
            Err(AcquireError::Internal { .. }) if self.has_panicked_since(begun) => return,
            Err(error) => {
                return self.report_not_contained(&format!("{own} is not acquired: {error}"));
            }
        };
        self.sleep(call.lasting).await;
        let mut wanted = pin!(self.redlock.acquire(&own).wait(millis(4 * self.times.ttl_ms)));
        if call.is_wanted && poll_immediate(wanted.as_mut()).await.is_some() {
            return;
        }
        let was_valid = lease.is_valid();
        {
            let core = &mut *self.shared.lock();
            if core.is_healed {
                // The final checks allow no failure.
                return;
            }
            core.processes[self.process].panicked = Some(core.now);
        }
        quorlock_test::internals::panic_in_coordinator(&self.redlock);
        self.checker.state().met(Rule::Contained);
        if lease.is_valid() || was_valid && lease.loss() != Some(Loss::Internal) {
            self.report_not_contained(&format!("{own} is {:?} after the panic", lease.loss()));
        }
        let bound = self.slack + 5 * MS;
        if self.within(bound, pin!(lease.lost())).await.is_none() {
            self.report_not_contained("the loss is not reported");
        }
        if call.is_wanted {
            match self.within(bound, wanted).await {
                Some(Err(AcquireError::Internal { .. })) => {}
                other => self.report_not_contained(&format!("the waiting acquire: {other:?}")),
            }
        }
        if call.is_released {
            let bound = 2 * (nanos(self.times.node_timeout) + nanos(self.times.connect_timeout));
            let released = self.timed("release", bound + self.slack, lease.release()).await;
            self.inspect(&released);
        } else {
            drop(lease);
        }
    }

    fn report_not_contained(&self, how: &str) {
        let how = format!("p{}: {how}", self.process);
        self.checker.state().violated(Rule::Contained, how);
    }
}
