//! quorlock on real redis-server processes, in time that passes when a test says so.
//!
//! Both clocks, tokio's and quorlock's own, are moved by hand; replies come when they come. A wait
//! of an hour takes no time, and no timer fires because a machine is busy.

#![allow(
    clippy::incompatible_msrv,
    reason = "the library is for older toolchains; its tests run with a newer one"
)]
// A scene is set, and then it is a future of that scene that is dropped.
#![allow(clippy::async_yields_async)]

mod acquires;
mod clock;
mod dropping;
mod hands;
mod leases;
mod nodes;
mod scene;
mod stage;

use crate::nodes::Nodes;
use quorlock::{Builder, Redlock, RetryPolicy};
use std::time::Duration;

/// How long, in real time, to wait for something that takes milliseconds, on the slowest machine.
const SOON: Duration = Duration::from_secs(20);

/// Time passes in steps of this length. quorlock's clock counts real time as well: beside this, what
/// a test takes does not count, also on a busy machine.
const STEP: Duration = Duration::from_secs(1);

/// Longer than any test, by all clocks: no key goes by expiring.
const LONG: Duration = Duration::from_hours(2);

fn builder(nodes: &Nodes) -> Builder {
    let builder = Redlock::builder()
        .nodes(nodes.urls())
        .ttl(LONG)
        .max_ttl(2 * LONG)
        .retry(RetryPolicy::fixed(2 * STEP));
    builder.node_timeout(5 * STEP).connect_timeout(5 * STEP)
}
