//! The Redlock algorithm without Redis: votes in, decisions out.
//!
//! Here live the rules: what a quorum is, how long a lock is valid, when to try again, which nodes count;
//! and of each node whether it is alive, what it is owed, and what broken connections may still deliver
//! there. No Redis, no task, no waiting.
//!
//! Nothing here reads a clock, draws a random number, does I/O, waits, or logs. **The rule of
//! time**: every method that needs to know the time takes it as a parameter `now`, read by the
//! caller from one clock (`crate::time::clock`) after whatever it reports happened; calls are made in
//! the order of their `now`. The same objects are therefore driven by the library, by enumeration
//! of every arrival order, and by simulation. What only paces connections ([`Liveness`], [`Backoff`],
//! [`Reconnect`], [`StaleWindow`]) is told the time of the clock that timers run by, which need not be that
//! one.
//!
//! # The invariants
//!
//! Rounds
//! - **I1** A node votes at most once in a round.
//! - **I2** A round decides at most once; votes after the decision are recorded, and change nothing.
//! - **I3** *Won* implies granted >= quorum and now < `valid_until`, with `now` read after the
//!   deciding reply.
//! - **I4** `valid_until` = T1 + ttl - drift, with T1 read before the first command is sent.
//! - **I5** Any other end of an attempt sends a release to every node that its command was written
//!   to. The clean-up is armed before the first send.
//! - **I6** A quorum decides early, but commands already asked for are not cancelled, and a node
//!   that missed an extension is extended again until it answers.
//! - **I7** Every attempt has a fresh value, so a late packet of an earlier one is harmless.
//!
//! Order on a node
//! - **I8** Commands to a node are first in, first out: a release never overtakes the `SET` it
//!   undoes.
//!
//! Extension
//! - **I9** A failed extension changes nothing. It counts only if a quorum of all N nodes still
//!   holds the value and it is decided before the old `valid_until`. Once lost, a lease stays lost.
//!   An extension never shortens.
//! - **I10** A lease is not valid from `valid_until` on, without any I/O.
//!
//! Votes and bounds
//! - **I11** Only `OK` is Granted; only nil (and a foreign type at the key) is Denied; every error,
//!   timeout or broken connection is Failed, and Failed is never reported as contention.
//! - **I12** Every loop, queue, retry and spawned task has a named bound.
//!
//! Fencing and restarts
//! - **I13** A fencing token is committed by a quorum that holds our value, with counters that are not
//!   lower than the token and answers that were not higher.
//! - **I14** A node that may have forgotten locks in a restart does not count, unless it is known of no
//!   node that it is older than any lock: then the deployment itself is new.
//! - **I15** A grant counts only when everybody whose key the node's clock can have dropped early has
//!   stopped to rely on it.
//!
//! I1-I4, I9, I10 and I13-I15 are kept here; I5-I8 by `driver` and `node`, by the rules of [`Pending`] and
//! [`StaleWindow`]; I11 by `node::reply`.

mod acquisition;
mod backoff;
mod checks;
mod clock_skew;
mod doubt;
mod fencing;
mod freed;
mod liveness;
mod node_clock;
mod pending;
mod promise_skew;
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
pub(crate) use checks::{Checks, Wanted};
pub(crate) use clock_skew::ClockSkew;
pub(crate) use doubt::Doubt;
pub(crate) use fencing::{LIMIT, hint};
pub(crate) use freed::{Free, FreedKey, Moment};
pub(crate) use liveness::{Action, HEARTBEAT, Liveness};
pub(crate) use node_clock::{Offset, Reading, Told};
pub(crate) use pending::{Owed, OwedRelease, Pending};
pub(crate) use promise_skew::{Promise, PromiseSkew, Verdict};
pub(crate) use quarantine::{Event, Quarantine, Rule, Sentence, Server};
pub(crate) use quorum::{MAX_NODES, NodeId, NodeSet, Quorum};
pub use renewal::Loss;
pub(crate) use renewal::{Extended, Renewal, Step, Tenure};
pub use retry::RetryPolicy;
pub(crate) use retry::Schedule;
pub(crate) use round::{Goal, Outcome, Round, Vote};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use stale_window::STALE_WINDOW;
pub(crate) use stale_window::{Broken, StaleWindow};
pub(crate) use steps::Steps;
pub(crate) use turns::Turns;
pub(crate) use validity::{Drift, Time, Ttl, TtlError, valid_until};
pub(crate) use waiting::{Move, Neglect, Waiting};
