//! Calls in runs with one kind of node fault, including calls on locks that the fault must not
//! affect.

use crate::clock::{Instant, MS, S};
use crate::closing::{ACQUIRED, ClosingCall, DELIVERED};
use crate::dice::Dice;
use crate::large::LargeCall;
use crate::mode::Single;
use crate::panics::PanicCall;
use crate::process::{millis, nanos};
use crate::rule::Rule;
use crate::scenario::Scenario;
use crate::shared::Core;
use crate::worker::Worker;
use quorlock::AcquireError;
use std::time::Duration;

/// A call in a run with one kind of node fault.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SingleCall {
    /// The use of a lock that the fault must not affect. No other task uses the lock.
    Bystander { lasting: Instant, is_extended: bool },
    /// A check that clients use the nodes again after a failover.
    Rejoin,
    /// A call whose commands make nodes close the connection.
    Closing(ClosingCall),
    /// A call on a lock whose key may have a large value.
    Large(LargeCall),
    /// A call during which the coordinator panics.
    Panic(PanicCall),
}

impl SingleCall {
    pub(crate) fn draw(single: Single, scenario: &Scenario, dice: &mut Dice) -> Self {
        match single {
            Single::Failover if dice.chance(200) => Self::Rejoin,
            Single::ClosingCommand if dice.chance(300) => {
                Self::Closing(ClosingCall::draw(scenario.ttl(), dice))
            }
            Single::LargeValue if dice.chance(400) => {
                Self::Large(LargeCall::draw(scenario.ttl(), dice))
            }
            Single::Panic if dice.chance(300) => Self::Panic(PanicCall::draw(scenario.ttl(), dice)),
            _ => Self::Bystander {
                lasting: dice.log_uniform(MS, 2 * scenario.ttl()),
                is_extended: dice.chance(500),
            },
        }
    }
}

impl Worker {
    pub(crate) async fn run_single(self, call: SingleCall) {
        match call {
            SingleCall::Bystander { lasting, is_extended } => {
                self.hold_bystander(lasting, is_extended).await;
            }
            SingleCall::Rejoin => self.check_rejoined().await,
            SingleCall::Closing(call) => self.close_connections(call).await,
            SingleCall::Large(call) => self.use_large(call).await,
            SingleCall::Panic(call) => self.panic(call).await,
        }
    }

    async fn hold_bystander(self, lasting: Instant, is_extended: bool) {
        let own = self.own_name(0);
        let is_single = self.spares_single_attempts();
        let mut acquire = if is_single {
            self.redlock.try_acquire(&own)
        } else {
            self.redlock.acquire(&own).wait(Duration::from_nanos(ACQUIRED))
        };
        if is_extended {
            acquire = acquire.auto_extend(millis(4 * self.times.ttl_ms));
        }
        let bound = nanos(self.times.connect_timeout) + nanos(self.times.node_timeout) + S;
        let bound = if is_single { bound } else { ACQUIRED };
        let begun = self.now();
        self.checker.state().met(Rule::Unaffected);
        let lease = match self.timed("acquire", bound, acquire).await {
            Ok(lease) => lease,
            Err(AcquireError::Internal { .. }) if self.has_panicked_since(begun) => return,
            // The fault has reached a majority of the nodes since the call began.
            Err(_) if is_single && !self.spares_single_attempts() => return,
            Err(error) => return self.report_affected(&format!("{own} is not acquired: {error}")),
        };
        let acquired = self.now();
        let longest = if is_extended { Instant::MAX } else { nanos(lease.validity()) / 2 };
        self.sleep(lasting.min(longest)).await;
        let has_panicked = self.has_panicked_since(begun);
        if self.has_panicked_since(acquired + 1) && lease.loss().is_none() {
            let how = format!("p{}: {own} is still valid after the panic", self.process);
            self.checker.state().violated(Rule::Contained, how);
        }
        if let Some(loss) = lease.loss().filter(|_| !has_panicked) {
            return self.report_affected(&format!("{own} is lost: {loss}"));
        }
        match lease.release().await {
            Err(error) if is_single && self.spares_single_attempts() => {
                return self.report_affected(&format!("{own} is not released: {error}"));
            }
            _ => {}
        }
        if self.shared.lock().single == Some(Single::Failover) {
            return;
        }
        self.sleep(DELIVERED).await;
        let left = self.shared.lock().count_nodes_with_key(&own);
        self.checker.state().check(Rule::Delivered, left == 0, || {
            format!("p{}: the key {own} remains on {left} nodes", self.process)
        });
    }

    pub(crate) fn has_panicked_since(&self, begun: Instant) -> bool {
        let panicked = self.shared.lock().processes[self.process].panicked;
        panicked.is_some_and(|panicked| panicked >= begun)
    }

    fn spares_single_attempts(&self) -> bool {
        self.shared.lock().spares_single_attempts()
    }

    fn report_affected(&self, how: &str) {
        let how = format!("p{}: {how}", self.process);
        self.checker.state().violated(Rule::Unaffected, how);
    }
}

impl Core {
    /// Returns true if a majority of the nodes keeps its connections open. A single attempt to
    /// acquire an unaffected lock must then succeed.
    fn spares_single_attempts(&self) -> bool {
        let closing = self.nodes.iter().filter(|node| node.closing.is_some()).count();
        2 * closing < self.nodes.len()
    }
}
