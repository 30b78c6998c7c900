//! Decisions of a client. The library's own `protocol` objects make the decisions. The model
//! rebuilds these objects from the grants in its state.

use crate::protocol::{
    Acquisition, Drift, Extended, LeaseStatus, Next, NodeId, Outcome, Quorum, Renewal, RetryPolicy,
    Round, Time, Ttl, Vote,
};
use crate::setting::Setting;
use std::time::Duration;

/// The decision that follows from the grants received so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    Open,
    /// The lease was acquired or extended, and is valid for this number of ticks.
    Held(u8),
    /// The lock was not acquired, or the lease is lost.
    Failed,
    /// A quorum granted the request after the validity had ended.
    TooLate,
}

/// The duration of a tick in this module. A millisecond is the smallest unit of a ttl.
const TICK: Duration = Duration::from_millis(1);

fn at(ticks: u8) -> Time {
    Time::default().after(TICK * u32::from(ticks))
}

fn ticks(end: Time, now: Time) -> u8 {
    u8::try_from(end.since(now).as_millis()).expect("a validity of at most 255 ticks")
}

fn timings(setting: &Setting) -> (Ttl, Drift) {
    let ttl =
        Ttl::from_duration(TICK * u32::from(setting.ttl)).expect("a ttl of at least one tick");
    let drift = Drift::DEFAULT.with_factor(0.0).expect("a valid drift factor");
    (ttl, drift.with_constant(TICK * u32::from(setting.allowance)))
}

fn feed(round: &mut Round, grants: impl Iterator<Item = usize>, now: Time) {
    for node in grants {
        round.handle_vote(NodeId::new(node), Vote::Granted, now);
    }
}

/// Decides an acquire, `age` ticks after the attempt started (T1). `grants` are the nodes that have
/// granted it.
///
/// All grants get the time of the last grant, because the times of earlier grants cannot change the
/// outcome.
pub(crate) fn acquire(setting: &Setting, grants: impl Iterator<Item = usize>, age: u8) -> Decided {
    let quorum = Quorum::majority(setting.electorate);
    let schedule = RetryPolicy::none().schedule();
    let (timings, never) = (timings(setting), Time::from_nanos(u64::MAX));
    let mut acquisition = Acquisition::new(quorum, timings, Duration::MAX, never, schedule);
    let now = at(age);
    let t1 = if setting.from_t1 { at(0) } else { now };
    let (mut round, _) = acquisition.begin(t1);
    feed(&mut round, grants, now);
    let Some(outcome) = round.outcome() else { return Decided::Open };
    match acquisition.handle_outcome(&round, now, 0) {
        Next::Lease { valid_until, .. } => Decided::Held(ticks(valid_until, now)),
        _ if outcome == Outcome::TooLate => Decided::TooLate,
        _ => Decided::Failed,
    }
}

/// Decides an extension, `age` ticks after the extension started. `grants` are the nodes that have
/// granted it, and `left` is the lease's remaining validity in ticks.
pub(crate) fn extend(
    setting: &Setting,
    grants: impl Iterator<Item = usize>,
    age: u8,
    left: u8,
) -> Decided {
    let (ttl, drift) = timings(setting);
    let quorum = Quorum::majority(setting.electorate);
    let mut renewal = Renewal::new(quorum, drift, at(age + left));
    let now = at(age);
    let Ok(mut round) = renewal.begin(ttl, at(0)) else { return Decided::Failed };
    feed(&mut round, grants, now);
    let Some(outcome) = round.outcome() else { return Decided::Open };
    match renewal.handle_outcome(&round, now) {
        Extended::Until(end) | Extended::Unchanged(end) => Decided::Held(ticks(end, now)),
        Extended::Ended(_) if outcome == Outcome::TooLate => Decided::TooLate,
        Extended::Ended(_) => Decided::Failed,
    }
}

/// Returns true if a holder whose validity ends in `left` ticks believes that it holds the lock
/// (I10).
pub(crate) fn believes(setting: &Setting, left: u8) -> bool {
    let (_, drift) = timings(setting);
    let renewal = Renewal::new(Quorum::majority(setting.electorate), drift, at(left));
    matches!(renewal.status(at(0)), LeaseStatus::Held { .. })
}
