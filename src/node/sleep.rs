//! Waiting, on whichever runtime there is, or on none.

use crate::node::{Nodes, RuntimeDriver, lack};
use crate::protocol::Time;
use crate::time::Wakeup;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use tokio::runtime::{Handle, Id};
use tokio::time::Sleep;

/// Waits until `at` on our clock: by the timer of the runtime that polls it, or else by the
/// process's own. The runtime of `nodes` is used only while it polls this: it may live, and be driven
/// by nobody.
pub(crate) async fn sleep_until(nodes: &Nodes, at: Time) {
    let clock = nodes.clock();
    let mut of_runtime: Option<Id> = None;
    let mut sleep = pin!(None::<Sleep>);
    let mut own: Option<Wakeup> = None;
    poll_fn(|cx| {
        // A timer tells nothing before its runtime has looked at the time, and whoever is polled seldom
        // may not be polled again for long.
        if clock.now() >= at {
            return Poll::Ready(());
        }
        let here = Handle::try_current().ok();
        // The timer of a runtime that was shut down must not be polled.
        let here = here.filter(|here| here.id() != nodes.runtime().id() || nodes.is_open());
        // It goes by the machine's clock.
        let here = here.filter(|_| clock.is_machine());
        let here = here.filter(|here| lack(here) != Some(RuntimeDriver::Time));
        let Some(here) = here else {
            return Pin::new(own.get_or_insert_with(|| Wakeup::at(clock, at))).poll(cx);
        };
        if of_runtime != Some(here.id()) {
            let _entered = here.enter();
            sleep.set(Some(tokio::time::sleep(at.since(clock.now()))));
            of_runtime = Some(here.id());
        }
        sleep.as_mut().as_pin_mut().map_or(Poll::Ready(()), |sleep| sleep.poll(cx))
    })
    .await;
}
