//! The Redlock algorithm without any Redis code: votes in, decisions out.
//!
//! This module computes quorums, validity and retry times, and decides which nodes' votes count. For each node, it
//! tracks liveness, pending releases, and the commands that a broken connection may still deliver. It contains no Redis
//! commands and spawns no tasks.
//!
//! Code in this module does not read a clock, draw random numbers, do I/O, wait or log. **The rule of time**: a method
//! that needs the time takes a parameter `now`. The caller reads `now` from one clock (`crate::time::clock`) after the
//! event that it reports, and calls the methods in the order of `now`. The same types therefore run in the library, in
//! an enumeration of every arrival order, and in the simulation. [`Liveness`], [`Backoff`], [`Reconnect`] and
//! [`StaleWindow`] only pace connections. They use the clock of the timers, which can be a different clock.
//!
//! # The invariants
//!
//! Rounds
//! - **I1** A node votes at most once in a round.
//! - **I2** A round decides at most once. Votes after the decision are recorded, but do not change it.
//! - **I3** *Won* implies granted >= quorum and now < `valid_until`, with `now` read after the deciding reply.
//! - **I4** `valid_until` = T1 + ttl - drift, with T1 read before the first command is sent.
//! - **I5** An attempt that does not win sends a release to every node to which its command was written. The clean-up
//!   is armed before the first send.
//! - **I6** A quorum decides early, but commands that were already sent are not cancelled. If a node missed an
//!   extension, the client repeats the extension until the node replies.
//! - **I7** Every attempt uses a fresh value, so a late packet of an earlier attempt is harmless.
//!
//! Order on a node
//! - **I8** Commands to a node are first in, first out: a release never overtakes the `SET` that it undoes.
//!
//! Extension
//! - **I9** A failed extension has no effect. An extension counts only if a quorum of all N nodes still
//!   holds the value and the round is decided before the old `valid_until`. Once lost, a lease stays lost.
//!   An extension never shortens a lease.
//! - **I10** From `valid_until` on, a lease is invalid. This needs no I/O.
//!
//! Votes and bounds
//! - **I11** Only `OK` is Granted. Only nil (or a key of another type) is Denied. Every error, timeout or broken
//!   connection is Failed, and Failed is never reported as contention.
//! - **I12** Every loop, queue, retry and spawned task has a named bound.
//!
//! Fencing and restarts
//! - **I13** A quorum of nodes commits a fencing token. These nodes hold the attempt's value, their counters are not
//!   lower than the token, and their replies were not higher.
//! - **I14** Votes of a node that may have forgotten locks in a restart do not count. Exception: if no known node is
//!   older than the longest ttl, the deployment is new, and no lock could have been forgotten.
//! - **I15** Votes of a node whose clock may have expired keys early count only after every holder of such a key has
//!   stopped relying on the key.
//!
//! This module enforces I1-I4, I9, I10 and I13-I15. `coordinator` enforces I5-I8, with [`PendingCommands`] and
//! [`StaleWindow`]. `wire` enforces I11.

mod acquisition;
mod backoff;
mod checks;
mod contention;
mod doubt;
mod fencing;
mod freed;
mod liveness;
mod node_clock;
mod pending;
mod quarantine;
mod quorum;
mod renewal;
mod retry;
mod round;
mod stale_window;
mod steps;
mod turns;
mod validity;
mod waiting;

#[cfg(test)]
mod enumeration;

pub(crate) use acquisition::{Acquisition, Next, Refusal};
pub(crate) use backoff::{Backoff, ConnectionLoss, LossCause, Reconnect};
pub(crate) use checks::{CheckKind, Checks};
pub(crate) use contention::{ClientId, Contention};
pub(crate) use doubt::SuspectedLoss;
pub(crate) use fencing::{LIMIT, hint};
pub(crate) use freed::{Epoch, FreeNodes, ReleaseLog};
pub(crate) use liveness::{Action, HEARTBEAT, Liveness};
pub(crate) use node_clock::{NodeClock, Offset, Reading};
pub(crate) use pending::{PendingCommands, PendingRelease, PendingWork};
pub(crate) use quarantine::{Event, Exclusion, Policy, Quarantine, Server};
pub(crate) use quorum::{MAX_NODES, NodeId, NodeSet, Quorum};
pub use renewal::Loss;
pub(crate) use renewal::{Extended, Renewal, Step, Tenure};
pub use retry::RetryPolicy;
pub(crate) use retry::Schedule;
pub(crate) use round::{Goal, Outcome, Round, Vote};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use stale_window::STALE_WINDOW;
pub(crate) use stale_window::{Broken, StaleWindow};
pub(crate) use steps::ClockSteps;
pub(crate) use turns::Turns;
pub(crate) use validity::{Drift, Time, Ttl, valid_until};
pub(crate) use waiting::Waiting;
