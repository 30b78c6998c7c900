//! For tests only (feature `test-util`): in-process nodes, controllable clocks, and counts of a
//! client's pending work.
//!
//! Start with [`Nodes`]; [docs/TESTING.md](crate::_docs::testing) shows their use.
//!
//! Enable the feature under dev-dependencies. Cargo then builds it into the tests, but not into the
//! program:
//!
//! ```toml
//! [dev-dependencies]
//! quorlock = { version = "0.1", features = ["test-util"] }
//! ```

mod nodes;
mod world;

pub use crate::server_model::Trouble;
pub use nodes::{Nodes, Which};
pub use world::{Alarm, Bell, Gate, Stream, World};

/// The server model behind [`Nodes`] and its streams. Used by the simulation, and by the tests that
/// compare the model with real servers. Not part of the API.
#[doc(hidden)]
pub mod server_model {
    pub use super::nodes::{Carrier, Phase, StreamEnd, Wire};
    pub use crate::server_model::{Config, ConnId, Fsync, Kind, Output, Server};
    pub use crate::server_model::{Stored, Trouble, Version};
}

use crate::client::{Builder, Inner, Redlock};
use crate::random::Random;
use crate::time::{self, Shifted, machine, timer};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Advances the machine clock that leases are measured with, for the whole process and permanently.
/// The remaining validity of every lease decreases by this time. Soon after this returns, leases
/// whose validity has passed are lost, and [`lost`](crate::LeaseRef::lost) resolves. Leases with
/// [`auto_extend`](crate::Acquire::auto_extend) are extended if a renewal is due.
///
/// Use it to test how your code handles the loss of a lease, without a wait:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // In place of servers: nodes, and a client whose clock is the machine's.
/// # let settings = test_util::Nodes::start(3).client().node_timeout(Duration::from_secs(1));
/// # let redlock = settings.clock(&test_util::Clock::default()).build()?;
/// use quorlock::{Loss, test_util};
/// use std::time::Duration;
///
/// let lease = redlock.acquire("orders/42").ttl(Duration::from_secs(60)).await?;
/// assert!(lease.is_valid());
/// test_util::advance(Duration::from_secs(60));
/// assert!(!lease.is_valid());
/// assert_eq!(lease.lost().await, Loss::Expired);
/// # Ok(())
/// # }
/// ```
///
/// Other clocks do not change, and other tests are affected:
///
/// - Nodes keep keys until they are released, or until their ttl has really passed.
/// - Waits in `acquire`, `extend`, `release` and `close` use tokio's clock: advance it as well,
///   with `tokio::time::advance`.
/// - All tests of a process share the machine clock, so leases of tests in other threads end as
///   well.
pub fn advance(by: Duration) {
    machine::advance(by);
    timer::wake();
}

/// A clock that follows the machine's clock until it is [advanced](Self::advance). Clients that are
/// built with it, by [`Builder::clock`](crate::Builder::clock), share it; other clients are not
/// affected. Tests in several threads can each use one without affecting each other, which
/// [`advance`] does not allow.
///
/// ```
/// use quorlock::{Redlock, test_util::Clock};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = Clock::default();
/// let redlock = Redlock::builder()
///     .nodes(["redis://127.0.0.1"])
/// #   .test_nodes(&quorlock::test_util::Nodes::start(1))
/// #   .node_timeout(Duration::from_secs(1))
///     .clock(&clock)
///     .build()?;
/// let lease = redlock.acquire("orders/42").ttl(Duration::from_secs(60)).await?;
/// clock.advance(Duration::from_secs(60));
/// assert!(!lease.is_valid());
/// # Ok(())
/// # }
/// ```
///
/// This clock measures leases, the waits in `acquire`, `extend`, `release` and `close`, and the
/// restart guard. Timeouts of unresponsive nodes use tokio's clock.
#[derive(Clone, Default)]
pub struct Clock(Arc<Shifted>);

impl Clock {
    /// Advances the clock. Soon after this returns, leases whose validity has passed are lost and
    /// send their notifications, and due waits end.
    pub fn advance(&self, by: Duration) {
        self.0.advance(by);
    }
}

impl Builder {
    /// Sets the client's clock; see [`test_util::Clock`](Clock).
    pub fn clock(self, clock: &Clock) -> Self {
        self.living_by(time::Clock::Other(clock.0.clone()))
    }

    /// Seeds the client's randomness (the values of its locks and the jitter of its waits), so that
    /// a test can be repeated. **Two clients must not have the same seed**: their locks would have
    /// the same values, and each client would take the other's locks for its own.
    pub fn seed(self, seed: u64) -> Self {
        self.drawing_from(Random::seeded(seed))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// Shifts this process's wall clock from the system's by this many seconds: forward, or back if
/// negative.
///
/// Clients read the wall clock only for new [fencing tokens](crate::Acquire::fenced), and for the
/// clock offsets that [`check`](crate::Redlock::check) reports. Validity does not depend on it.
/// Tokens increase even if it is set back, as long as the nodes keep their counters.
pub fn shift_wall_clock(seconds: i64) {
    machine::shift_wall_clock(seconds);
}

/// Leases and pending work of a client and all its clones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingWork {
    /// Number of resources whose lease was neither released nor dropped, including lost leases.
    pub leases: usize,
    /// Number of acquires that wait, or that run at the head of their queue.
    pub waiters: usize,
    /// Number of acquire attempts that await votes of the nodes.
    pub rounds: usize,
    /// Number of pending releases, summed over all nodes.
    pub releases: usize,
}

impl PendingWork {
    /// Returns true if all counts are zero.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Counts the leases and the pending work of `redlock`, to check that none remain:
///
/// ```
/// use quorlock::test_util;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = test_util::Nodes::start(3).client().build()?;
/// drop(redlock.acquire("orders/42").await?);
/// redlock.close().await?;
/// assert!(test_util::pending_work(&redlock).is_empty());
/// # Ok(())
/// # }
/// ```
pub fn pending_work(redlock: &Redlock) -> PendingWork {
    let Inner { driver, backing, .. } = redlock.inner();
    PendingWork {
        leases: backing.registry.count(),
        waiters: driver.waiters(),
        rounds: driver.attempts(),
        releases: backing.pool.shared().iter().map(|node| node.pending_releases()).sum(),
    }
}

/// Number of acquire attempts so far that needed a second round to confirm their [fencing
/// token](crate::Acquire::fenced). A high number means that the clients' wall clocks differ by more
/// than the time between two holders.
pub fn token_confirmations(redlock: &Redlock) -> u64 {
    redlock.inner().driver.token_confirmations()
}

/// Number of checks of waiters so far that a freed key caused. It grows with the number of freed
/// keys, not with the number of waiters.
#[doc(hidden)]
pub fn waiter_checks(redlock: &Redlock) -> u64 {
    redlock.inner().driver.waiter_checks()
}
