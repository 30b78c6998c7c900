//! quorlock on real redis-server processes, with time that passes only when a test advances it.
//!
//! Tests advance Tokio's and quorlock's clocks; replies arrive in real time. A wait of an hour
//! takes no time, and no timer fires because the machine is busy.

#![allow(
    clippy::incompatible_msrv,
    reason = "the library is for older toolchains; its tests run with a newer one"
)]
// `setup` closures are async and return the future under test.
#![allow(clippy::async_yields_async)]

mod acquires;
mod clock;
mod dropping;
mod fixture;
mod leases;
mod nodes;
mod operations;
mod scenario;

use crate::nodes::Nodes;
use quorlock::{Builder, Redlock, RetryPolicy};
use std::time::Duration;

/// The longest wait, in real time, for something that takes milliseconds on an idle machine.
const SOON: Duration = Duration::from_secs(20);

/// The step in which tests advance time. Real time also counts on quorlock's clock, but is negligible compared
/// with this step.
const STEP: Duration = Duration::from_secs(1);

/// Longer than any test on any clock: no key expires.
const LONG: Duration = Duration::from_hours(2);

fn builder(nodes: &Nodes) -> Builder {
    let builder = Redlock::builder()
        .nodes(nodes.urls())
        .ttl(LONG)
        .max_ttl(2 * LONG)
        .retry(RetryPolicy::fixed(2 * STEP));
    builder.node_timeout(5 * STEP).connect_timeout(5 * STEP)
}
