//! Access to a client's clock, random numbers, connections and pending work (feature `test-util`).
//!
//! This hidden module is an interface for the crate `quorlock-test` and may change in a patch
//! version. Applications use `quorlock-test` for their tests: it enables the feature, and exports
//! the documented items.

mod gate;
mod shifted;
mod world;

pub use world::{Alarm, Bell, Gate, Stream, World};

use crate::client::{Builder, Inner, Redlock};
use crate::node::{Driver, has_driver};
use crate::random::Random;
use crate::time::{self, machine, timer};
use shifted::ShiftedClock;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Advances the clock that measures the validity of leases, for the whole process. The change cannot
/// be undone.
///
/// The remaining validity of every lease decreases by the given duration. Shortly after the call
/// returns, expired leases are lost, and [`lost`](crate::LeaseRef::lost) resolves. A lease with
/// [`auto_extend`](crate::Acquire::auto_extend) is extended if its renewal is due.
///
/// A test can use this function to cause the loss of a lease without waiting:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # // In-process nodes replace servers, but the client's clock follows the machine's clock.
/// # let settings = quorlock_test::Nodes::start(3).client().node_timeout(Duration::from_secs(1));
/// # let redlock = settings.clock(&quorlock_test::Clock::default()).build()?;
/// use quorlock::Loss;
/// use std::time::Duration;
///
/// let lease = redlock.acquire("orders/42").ttl(Duration::from_secs(60)).await?;
/// assert!(lease.is_valid());
/// quorlock_test::advance(Duration::from_secs(60));
/// assert!(!lease.is_valid());
/// assert_eq!(lease.lost().await, Loss::Expired);
/// # Ok(())
/// # }
/// ```
///
/// Note two limits of this function:
///
/// - The nodes' clocks do not change. A node keeps a key until the lock is released, or until the
///   TTL has elapsed in real time.
/// - All tests of a process share the clock, so the leases of tests in other threads expire as well.
pub fn advance(by: Duration) {
    machine::advance(by);
    timer::wake();
}

/// Returns true if every due alarm of the machine's clock has fired. On a busy machine, the thread
/// that fires the alarms can be late.
pub fn has_rung_alarms() -> bool {
    timer::is_idle()
}

/// A clock for clients under test: the machine's clock plus all durations by which a test has
/// [advanced](Self::advance) the `Clock`.
///
/// A client uses the clock that was passed to [`Builder::clock`](crate::Builder::clock). Other
/// clients are not affected, so tests in several threads can each use their own clock. In contrast,
/// the function [`advance`] affects the tests of all threads.
///
/// ```
/// use quorlock::Redlock;
/// use quorlock_test::Clock;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = Clock::default();
/// let builder = Redlock::builder().nodes(["redis://127.0.0.1"]);
/// # let builder = quorlock_test::Nodes::start(1).client_with(builder);
/// # let builder = builder.node_timeout(Duration::from_secs(1));
/// let redlock = builder.clock(&clock).build()?;
/// let lease = redlock.acquire("orders/42").ttl(Duration::from_secs(60)).await?;
/// clock.advance(Duration::from_secs(60));
/// assert!(!lease.is_valid());
/// # Ok(())
/// # }
/// ```
///
/// The clock measures the validity of leases, the node timeout, and the periods of the restart
/// guard. It also limits the waits in `acquire`, `extend`, `release` and `close`.
#[derive(Clone, Default)]
pub struct Clock(Arc<ShiftedClock>);

impl Clock {
    /// Advances the clock by the given duration. Shortly after the call returns, expired leases are lost and their
    /// holders are notified. Waits end if their deadline has passed.
    pub fn advance(&self, by: Duration) {
        self.0.advance(by);
    }

    /// Sets how far the client's wall clock is ahead of the system's wall clock, in milliseconds. A negative number
    /// sets the wall clock behind. The wall clock determines the periods of [scheduled jobs](crate::Redlock::once).
    pub fn set_wall_clock_ahead(&self, ms: i64) {
        self.0.set_wall_clock_ahead(ms);
    }
}

impl Builder {
    /// Sets the clock of the client, for tests. See `Clock` in the crate `quorlock-test`.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.environment.clock = time::Clock::Other(clock.0.clone());
        self
    }

    /// Seeds the random number generator of the client, which makes a test repeatable. The generator
    /// determines the values of the client's locks and the jitter of its waits.
    ///
    /// **Two clients must not have the same seed.** Otherwise, their locks have the same values, and
    /// each client treats the other client's locks as its own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.environment.random = Random::seeded(seed);
        self
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// Sets the offset between the wall clock that this process sees and the system's wall clock, in
/// seconds. A positive offset shifts the wall clock forward, and a negative offset shifts it back.
///
/// Clients read the wall clock only for new [fencing tokens](crate::Acquire::fenced), for the periods
/// of [scheduled jobs](crate::Redlock::once), and for the clock offsets that
/// [`check`](crate::Redlock::check) reports. The validity of leases does not
/// depend on the wall clock. Tokens increase even if the wall clock is set back, as long as the
/// nodes keep their counters.
pub fn shift_wall_clock(seconds: i64) {
    machine::shift_wall_clock(seconds);
}

/// The numbers of leases and pending operations of a client and its clones, which [`pending_work`]
/// returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingWork {
    /// Number of resources whose lease was neither released nor dropped, including lost leases.
    pub leases: usize,
    /// Number of acquires in the queues of this client, including those at the head of a queue.
    pub waiters: usize,
    /// Number of acquire attempts that are waiting for the nodes' votes.
    pub rounds: usize,
    /// Number of pending releases, summed over all nodes.
    pub releases: usize,
}

impl PendingWork {
    /// Returns true if all numbers are zero.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Counts the leases and the pending operations of `redlock`. Call this function at the end of a
/// test to check that none remain:
///
/// ```
/// use quorlock_test::pending_work;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = quorlock_test::Nodes::start(3).client().build()?;
/// drop(redlock.acquire("orders/42").await?);
/// redlock.close().await?;
/// assert!(pending_work(&redlock).is_empty());
/// # Ok(())
/// # }
/// ```
pub fn pending_work(redlock: &Redlock) -> PendingWork {
    let Inner { driver, backing, .. } = &*redlock.inner;
    PendingWork {
        leases: backing.registry().count(),
        waiters: driver.waiters(),
        rounds: driver.attempts(),
        releases: driver.pending_releases(),
    }
}

/// Returns the number of acquire attempts that needed a second round to confirm their
/// [fencing token](crate::Acquire::fenced). A high number means that the clients' wall clocks
/// differ by more than the time between two holders.
pub fn token_confirmations(redlock: &Redlock) -> u64 {
    redlock.inner.driver.token_confirmations()
}

/// Returns how many waiters the client has checked because a key was freed. This number must grow
/// with the number of freed keys, not with the number of waiters.
pub fn waiter_checks(redlock: &Redlock) -> u64 {
    redlock.inner.driver.waiter_checks()
}

/// Makes the coordinator of the client panic, to test how the client recovers.
pub fn panic_in_coordinator(redlock: &Redlock) {
    redlock.inner.driver.engine().with(|_, _| panic!("panic injected by a test"));
}

/// Replaces the nodes of `builder` with `urls`, and keeps all other settings.
pub fn replace_nodes(mut builder: Builder, urls: impl IntoIterator<Item = String>) -> Builder {
    builder.nodes.clear();
    builder.nodes(urls)
}

/// Returns true if the timers of `runtime` are enabled.
pub fn has_timers(runtime: &Handle) -> bool {
    has_driver(runtime, Driver::Time)
}
