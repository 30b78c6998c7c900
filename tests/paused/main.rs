//! Tests on real redis-server processes, with clocks that only advance when a test advances them.
//!
//! Tests advance the clocks of Tokio and quorlock, while replies arrive in real time. A wait of an hour takes no real
//! time, and a busy machine causes no timeouts.

#![allow(
    clippy::incompatible_msrv,
    reason = "the library is for older toolchains; its tests run with a newer one"
)]
// The `setup` closures are async and return the future under test.
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

/// How long to wait, in real time, for an event that takes milliseconds on an idle machine.
const SOON: Duration = Duration::from_secs(20);

/// The step by which tests advance the clocks. Quorlock's clock also includes the real time that passes, which is
/// negligible compared with this step.
const STEP: Duration = Duration::from_secs(1);

/// A duration that outlasts every test, in real time and on the tests' clocks, so that no key expires.
const LONG: Duration = Duration::from_hours(2);

fn builder(nodes: &Nodes) -> Builder {
    let builder = Redlock::builder()
        .nodes(nodes.urls())
        .ttl(LONG)
        .max_ttl(2 * LONG)
        .retry(RetryPolicy::fixed(2 * STEP));
    builder.node_timeout(5 * STEP).connect_timeout(5 * STEP)
}
