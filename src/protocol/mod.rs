//! The Redlock algorithm without any Redis code: votes in, decisions out.
//!
//! This module computes quorums, validity and retry times, and decides which nodes' replies count towards a quorum. For
//! each node, it tracks liveness, pending releases, and the commands that a broken connection may still deliver. It
//! contains no Redis commands and spawns no tasks.
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
//! - **I1** A node votes at most once in a round. A vote is the node's reply to the round's request.
//! - **I2** A round decides at most once. Votes after the decision are recorded, but do not change it.
//! - **I3** *Won* implies granted >= quorum and now < `valid_until`, with `now` read after the deciding reply.
//! - **I4** `valid_until` = T1 + ttl - drift. T1 is read before the first command of the attempt is sent.
//! - **I5** An attempt that does not win sends a release to every node to which its command was written. This cleanup
//!   is prepared before the first command is sent.
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
//! - **I13** A quorum of nodes commits a fencing token. Each of these nodes holds the attempt's value, has a counter
//!   that is not lower than the token, and replied with a number that was not higher than the token.
//! - **I14** Votes of a node that may have forgotten locks in a restart do not count until these locks have ended.
//!   There is one exception: if no known server has been running for longer than the longest ttl, the deployment is
//!   new, and no lock can have been forgotten.
//! - **I15** A node's clock may step forward and expire keys early. The node's votes then count only after every holder
//!   of such a key has stopped relying on it.
//!
//! This module enforces I1-I4, I9, I10 and I13-I15. `coordinator` enforces I5-I8, with [`PendingCommands`] and
//! [`StaleWindow`]. `wire` enforces I11.

mod acquisition;
mod attempt_limit;
mod backoff;
mod checks;
mod clock_steps;
mod contention;
mod fencing;
mod liveness;
mod node_clock;
mod pending;
mod period;
mod quarantine;
mod quorum;
mod release_log;
mod renewal;
mod retry;
mod round;
mod stale_window;
mod suspected_loss;
mod turns;
mod validity;
mod waiting;

#[cfg(test)]
mod enumeration;

pub(crate) use acquisition::{Acquisition, Next, Refusal};
pub(crate) use attempt_limit::AttemptLimit;
pub(crate) use backoff::{Backoff, ConnectionLoss, LossCause, Reconnect};
pub(crate) use checks::{CheckKind, Checks};
pub(crate) use clock_steps::ClockSteps;
pub(crate) use contention::{ClientId, Contention};
pub(crate) use fencing::{LIMIT, hint};
pub(crate) use liveness::{Action, HEARTBEAT, Liveness};
pub(crate) use node_clock::{NodeClock, Offset, Reading};
pub(crate) use pending::{PendingCommands, PendingRelease, PendingWork};
pub(crate) use period::{PeriodState, counter_ttl, period_begin, period_number};
pub(crate) use quarantine::{Event, Exclusion, Policy, Quarantine, Server};
pub(crate) use quorum::{MAX_NODES, NodeId, NodeSet, Quorum};
pub(crate) use release_log::{Epoch, FreeNodes, ReleaseLog};
pub use renewal::Loss;
pub(crate) use renewal::{Extended, LeaseStatus, Renewal, Step};
pub use retry::RetryPolicy;
pub(crate) use retry::Schedule;
pub(crate) use round::{Goal, Outcome, Round, Vote};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use stale_window::STALE_WINDOW;
pub(crate) use stale_window::{Broken, StaleWindow};
pub(crate) use suspected_loss::SuspectedLoss;
pub(crate) use turns::Turns;
pub(crate) use validity::{Drift, Time, Ttl, valid_until};
pub(crate) use waiting::Waiting;
