//! For tests only (feature `test-util`): nodes in the process of a test, time that passes when it says so, and a
//! look at what a client has under way.
//!
//! [`Nodes`] are the way to begin with; [docs/TESTING.md](crate::_docs::testing) shows what they do.
//!
//! Switch it on among the dev-dependencies. Cargo then builds it into the tests and not into the
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

/// The model of a server that stands behind [`Nodes`], and the streams to it, for the simulation and for the tests that compare it
/// with real servers. No part of the API.
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

/// Moves the clock that validity is measured with forward, in the whole process and for good: all
/// leases come so much nearer to their end. Those that reach it are lost, and
/// [`lost`](crate::LeaseRef::lost) tells it, soon after this returns; those with
/// [`auto_extend`](crate::Acquire::auto_extend) are extended if that was due.
///
/// It shows how your code takes the loss of a lease, without waiting for it:
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
/// Other clocks go on as they were:
///
/// - The nodes keep the keys until they are released, or until their ttl has really passed.
/// - Waits inside of `acquire`, `extend`, `release` and `close` are kept by tokio: move its clock as
///   well, with `tokio::time::advance`.
/// - The clock is one for all tests of a process. What tests in other threads hold ends, too.
pub fn advance(by: Duration) {
    machine::advance(by);
    timer::wake();
}

/// A clock of a client's own, which runs as the machine's does until it is [moved](Self::advance). Clients
/// that are given one, by [`Builder::clock`](crate::Builder::clock), share it; all others go on as they
/// were. So tests in several threads need not know of each other, as they have to with [`advance`].
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
/// It is the clock of leases, of waits inside of `acquire`, `extend`, `release` and `close`, and of the
/// restart guard. How long a node may be silent is measured by tokio's clock.
#[derive(Clone, Default)]
pub struct Clock(Arc<Shifted>);

impl Clock {
    /// Moves it ahead. Leases whose end comes by that are lost, and tell it, soon after this returns;
    /// waits whose time has come end.
    pub fn advance(&self, by: Duration) {
        self.0.advance(by);
    }
}

impl Builder {
    /// Lets the client live by a clock of its own; see [`test_util::Clock`](Clock).
    pub fn clock(self, clock: &Clock) -> Self {
        self.living_by(time::Clock::Other(clock.0.clone()))
    }

    /// Draws all that the client leaves to chance, the values of its locks and the jitter of its waits,
    /// from this seed: so that a test can be played again. **Two clients must not have the same one**: they
    /// would hold their locks under the same values, and take them for their own.
    pub fn seed(self, seed: u64) -> Self {
        self.drawing_from(Random::seeded(seed))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// Lets this process' wall clock differ from the system's by so many seconds, forward or back.
///
/// It is read for nothing but a hint at the numbers that [fencing tokens](crate::Acquire::fenced) are
/// made of. Validity does not depend on it, and tokens grow also when it is put back, as long as the
/// nodes keep their counters.
pub fn shift_wall_clock(seconds: i64) {
    machine::shift_wall_clock(seconds);
}

/// What a client, with all its clones, holds and has under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Resources of leases that were neither released nor dropped, also if they are lost by now.
    pub leases: usize,
    /// Acquires that wait, or try at the head of their line.
    pub waiters: usize,
    /// Attempts to acquire that the nodes are voting on.
    pub rounds: usize,
    /// Releases that were asked for and not confirmed yet, of all nodes together.
    pub releases: usize,
}

impl Census {
    /// True if nothing is held or under way.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Counts what `redlock` holds and has under way, to see that nothing remains of what was given up:
///
/// ```
/// use quorlock::test_util;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let redlock = test_util::Nodes::start(3).client().build()?;
/// drop(redlock.acquire("orders/42").await?);
/// redlock.close().await?;
/// assert!(test_util::census(&redlock).is_empty());
/// # Ok(())
/// # }
/// ```
pub fn census(redlock: &Redlock) -> Census {
    let Inner { driver, backing, .. } = redlock.inner();
    Census {
        leases: backing.registry.count(),
        waiters: driver.waiters(),
        rounds: driver.attempts(),
        releases: backing.pool.shared().iter().map(|node| node.pending_releases()).sum(),
    }
}

/// How many attempts to acquire have needed a second round so far, to confirm their [fencing
/// token](crate::Acquire::fenced): where that is many, the wall clocks of the clients disagree by more
/// than the time between two holders.
pub fn raises(redlock: &Redlock) -> u64 {
    redlock.inner().driver.raises()
}

/// How often a waiter was looked at so far because something had gone that may have been in its way. It grows with what is
/// let go of, and not with how many wait.
#[doc(hidden)]
pub fn looks(redlock: &Redlock) -> u64 {
    redlock.inner().driver.looks()
}
