//! The calls that tasks make to the library, drawn at random.

use crate::bystander::SingleCall;
use crate::clock::{Instant, MS};
use crate::dice::Dice;
use crate::jobs::{self, JobCall};
use crate::ledger::lock_of;
use crate::many_waiters::Contender;
use crate::mode::Mode;
use crate::permits;
use crate::readers::{self, Access};
use crate::scenario::Scenario;
use crate::solo::SoloCall;
use quorlock::Lease;

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) rest: Instant,
}

#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Lock(Box<Lock>),
    /// The adoption of a lock that another task has handed over.
    Adopt {
        resource: usize,
        lock: Box<Lock>,
    },
    Status {
        resource: usize,
    },
    ForceRelease,
    ReleaseAll,
    /// The creation of another client, which acquires a lock and is closed immediately afterwards.
    Another {
        lock: Box<Lock>,
    },
    Check,
    Ready,
    Job(JobCall),
    Solo(SoloCall),
    Single(SingleCall),
    /// The acquire of a client that competes with many other clients for one lock.
    Contend(Contender),
}

/// One use of a lock, from the acquire to the end of the lease. Durations are in milliseconds.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is a setting of the library.
pub(crate) struct Lock {
    pub(crate) resources: Vec<usize>,
    /// Whether the lock needs only one of the resources.
    pub(crate) any: bool,
    /// If the resources are the permits of a semaphore: their number.
    pub(crate) permits: Option<usize>,
    pub(crate) access: Access,
    /// The maximum wait, or `None` for a single attempt.
    pub(crate) wait: Option<u64>,
    pub(crate) ttl: Option<u64>,
    pub(crate) fenced: bool,
    pub(crate) auto_extend: Option<u64>,
    pub(crate) at_least: Option<u64>,
    pub(crate) stop_before: Option<u64>,
    pub(crate) metadata: bool,
    pub(crate) give_up_early: bool,
    /// Whether the acquire has a retry policy. The policy turns a single attempt into several.
    pub(crate) retries: bool,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) style: Style,
    pub(crate) watch: Option<Watch>,
    pub(crate) steps: Vec<HeldStep>,
    pub(crate) end: End,
}

impl Lock {
    /// Returns the lock with the resources that `lease` holds.
    pub(crate) fn held_by(&self, lease: &Lease) -> Self {
        let resources = lease.resources().filter_map(lock_of).collect();
        Self { resources, ..self.clone() }
    }
}

pub(crate) fn name(resource: usize) -> String {
    jobs::name(resource)
        .or_else(|| permits::name(resource))
        .or_else(|| readers::name(resource))
        .unwrap_or_else(|| format!("r{resource}"))
}

/// The event that the task awaits while it holds the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Watch {
    /// The end of the lease.
    Ended,
    /// The moment at which the remaining validity has fallen to `margin` milliseconds.
    Endangered { margin: u64 },
}

/// How a task drives the future of an acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    Awaited,
    Dropped {
        after: Instant,
    },
    RarelyPolled {
        every: Instant,
    },
    /// The future is polled once, and then moved to a task of another runtime.
    Moved {
        runtime: usize,
    },
    /// The lock is acquired by `using()`. The closure keeps running for `overtime` after it has
    /// completed its steps.
    Using {
        overtime: Instant,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum HeldStep {
    Work {
        lasting: Instant,
    },
    /// An increment of a number: a read, followed later by the write of the number plus one.
    Update {
        lasting: Instant,
    },
    Extend {
        ttl: u64,
    },
    Ensure {
        validity: u64,
    },
    Reenter {
        lasting: Instant,
    },
    Status,
    /// A writer becomes a reader.
    Downgrade,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Release,
    ReleaseAfter {
        ms: u64,
    },
    Drop,
    DropOutside,
    /// The holder keeps the lease until the lease is lost.
    Outstay,
    HandOver {
        lasting: Instant,
    },
    /// The lease is released while a reentrant guard holds it. The guard is dropped after
    /// `lasting`.
    LeaveGuard {
        lasting: Instant,
    },
    /// The future of the release is dropped after one poll.
    ReleaseDropped,
}

/// The probability of each kind of call in a run, per thousand. Many probabilities are often zero,
/// so that each run tests the interaction of only a few features.
pub(crate) struct CallMix {
    fenced: bool,
    sets: u64,
    /// The probability that an acquire of several resources needs only one of them, per thousand.
    any: u64,
    permits: u64,
    jobs: u64,
    /// The probability that a job has a minimum hold time, per thousand.
    job_cool_downs: u64,
    readers: u64,
    auto: u64,
    tries: u64,
    dropped: u64,
    rarely_polled: u64,
    moved: u64,
    using: u64,
    hand_over: u64,
    /// The probability that a holder keeps its lease until the lease expires, per thousand.
    outstays: u64,
    cool_down: u64,
    verbs: u64,
    solo: u64,
    /// The maximum hold time, in thousandths of the ttl.
    hold: u64,
    /// The probability that a step under a lease extends the lease to the longest ttl, per
    /// thousand.
    longest: u64,
}

impl CallMix {
    pub(crate) fn draw(scenario: &Scenario, dice: &mut Dice) -> Self {
        let (mode, is_promise) = (scenario.mode, scenario.mode.keeps_all_data());
        // Lost keys have consequences only if locks are held for a long time.
        let holds: &[u64] = if mode == Mode::Outages {
            &[1_500, 4_000]
        } else if is_promise {
            &[5, 50, 300, 1_500]
        } else {
            &[50, 500, 1_500, 1_500]
        };
        // A cool-down keeps the lock unavailable after its release.
        let cool_downs: &[u64] = if mode == Mode::Quiet { &[0] } else { &[0, 0, 200] };
        let (jobs, readers): (&[u64], &[u64]) = match mode {
            _ if !scenario.fencing.is_on && mode.restarts_groups() => {
                (&[0, 0, 200, 600], &[0, 300, 900])
            }
            _ if !scenario.fencing.is_on => (&[0, 0, 200, 600], &[0, 0, 300, 900]),
            // The documentation has rates of ordinary locks.
            Mode::Wiped(_) => (&[0], &[0]),
            // Nodes forget readers and writers only while they hold the lock.
            _ if mode.restarts_groups() => (&[0, 0, 0, 200], &[0, 300, 900]),
            _ => (&[0, 0, 0, 200], &[0, 0, 0, 400]),
        };
        Self {
            // Either all leases of a run have tokens, or none.
            fenced: scenario.fencing.is_on,
            sets: dice.pick(&[0, 0, 300]),
            any: dice.pick(&[0, 0, 300, 1_000]),
            // Permits have no tokens in these runs.
            permits: if scenario.fencing.is_on { 0 } else { dice.pick(&[0, 0, 200, 700]) },
            jobs: dice.pick(jobs),
            job_cool_downs: dice.pick(cool_downs),
            readers: dice.pick(readers),
            auto: if mode == Mode::Outages { 900 } else { dice.pick(&[0, 200, 800]) },
            tries: dice.pick(&[0, 100, 500]),
            dropped: dice.pick(&[0, 0, 100, 500]),
            rarely_polled: dice.pick(&[0, 0, 100, 300]),
            moved: dice.pick(&[0, 0, 200]),
            using: dice.pick(&[0, 200]),
            hand_over: dice.pick(&[0, 0, 200]),
            outstays: dice.pick(&[0, 0, 100, 500]),
            cool_down: dice.pick(cool_downs),
            verbs: dice.pick(&[0, 100, 300]),
            solo: if mode == Mode::Quiet { dice.pick(&[0, 200, 600]) } else { 0 },
            hold: dice.pick(holds),
            longest: if mode.restarts_groups() { dice.pick(&[0, 300, 600]) } else { 0 },
        }
    }
}

pub(crate) fn draw_calls(
    mix: &CallMix,
    scenario: &Scenario,
    count: usize,
    dice: &mut Dice,
) -> Vec<Call> {
    let longest = match scenario.mode.single() {
        // The pauses spread the calls of a task over the time of the fault.
        Some(_) => 2 * scenario.times.horizon / count as u64,
        None => scenario.ttl() / dice.pick(&[1_000, 50, 5]),
    };
    let call = |dice: &mut Dice| {
        let verb = draw_verb(mix, scenario, dice);
        let long_pauses = dice.chance(scenario.long_pauses);
        let longest = if long_pauses { 4 * scenario.ttl() } else { longest.max(2) };
        Call { verb, rest: dice.below(longest) }
    };
    (0..count).map(|_| call(dice)).collect()
}

fn draw_verb(mix: &CallMix, scenario: &Scenario, dice: &mut Dice) -> Verb {
    let resource = dice.index(scenario.resources);
    let lock = |dice: &mut Dice| Box::new(draw_lock(mix, scenario, dice));
    if let Some(single) = scenario.mode.single() {
        if dice.chance(500) {
            return Verb::Single(SingleCall::draw(single, scenario, dice));
        }
        return Verb::Lock(lock(dice));
    }
    if dice.chance(mix.solo) {
        return Verb::Solo(SoloCall::draw(scenario, dice));
    }
    if dice.chance(mix.jobs) {
        let lock = draw_lock(mix, scenario, dice);
        return Verb::Job(JobCall::draw(lock, scenario.times.ttl_ms, mix.job_cool_downs, dice));
    }
    if !dice.chance(mix.verbs) {
        let lock = lock(dice);
        if dice.chance(mix.readers) {
            return Verb::Lock(Box::new(readers::draw(*lock, dice)));
        }
        let is_permit = dice.chance(mix.permits);
        return Verb::Lock(if is_permit { Box::new(permits::draw(*lock, dice)) } else { lock });
    }
    match dice.below(10) {
        0..=2 if mix.hand_over > 0 => Verb::Adopt { resource, lock: lock(dice) },
        0..=3 => Verb::Status { resource },
        4 => Verb::ForceRelease,
        5 => Verb::ReleaseAll,
        6 => Verb::Check,
        7 => Verb::Ready,
        8 if scenario.mode.allows_clients_at_any_time() => Verb::Another { lock: lock(dice) },
        _ => Verb::Lock(lock(dice)),
    }
}

fn draw_lock(mix: &CallMix, scenario: &Scenario, dice: &mut Dice) -> Lock {
    let ttl = scenario.times.ttl_ms;
    let mut resources = vec![dice.index(scenario.resources)];
    if dice.chance(mix.sets) {
        resources = (0..scenario.resources).filter(|_| dice.chance(600)).collect();
        if resources.is_empty() {
            resources.push(0);
        }
    }
    let some = |dice: &mut Dice, per_mille, most: u64| {
        dice.chance(per_mille).then(|| 1 + dice.below(most))
    };
    let end = draw_end(mix, resources.len() == 1, ttl, dice);
    // Other clients can acquire the lock of a lease that expires.
    let expires = matches!(end, End::Outstay) && dice.chance(800);
    let auto_extend = dice.chance(mix.auto).then(|| ttl + dice.below(3 * ttl));
    let auto_extend = auto_extend.filter(|_| !expires);
    let style = match dice.below(1_000) {
        at if at < mix.dropped => Style::Dropped { after: dice.log_uniform(MS / 20, ttl * MS) },
        _ if dice.chance(mix.rarely_polled) => {
            Style::RarelyPolled { every: dice.log_uniform(MS, ttl * MS / 4) }
        }
        _ if dice.chance(mix.moved) => Style::Moved { runtime: dice.index(3) },
        _ if dice.chance(mix.using) => {
            let overtime = if dice.chance(300) { dice.below(3 * ttl * MS) } else { 0 };
            Style::Using { overtime }
        }
        _ => Style::Awaited,
    };
    let wait = (!dice.chance(mix.tries)).then(|| dice.log_uniform(ttl / 10, 4 * ttl));
    let any = resources.len() > 1 && dice.chance(mix.any);
    Lock {
        resources,
        any,
        permits: None,
        access: Access::Ordinary,
        wait,
        ttl: dice.chance(300).then(|| ttl + dice.below(ttl)),
        fenced: mix.fenced,
        auto_extend,
        at_least: some(dice, mix.cool_down / 2, ttl / 4),
        stop_before: some(dice, 50, ttl / 4),
        metadata: dice.chance(200),
        give_up_early: dice.chance(50),
        retries: dice.chance(50),
        max_attempts: dice.chance(50).then(|| 1 + u32::try_from(dice.below(4)).expect("few")),
        style,
        watch: dice.chance(300).then(|| draw_watch(ttl, dice)),
        steps: (0..dice.below(4)).map(|_| draw_step(mix, ttl, dice)).collect(),
        end,
    }
}

fn draw_watch(ttl: u64, dice: &mut Dice) -> Watch {
    if dice.chance(600) {
        Watch::Ended
    } else {
        Watch::Endangered { margin: 1 + dice.below(ttl / 2) }
    }
}

fn draw_end(mix: &CallMix, is_single: bool, ttl: u64, dice: &mut Dice) -> End {
    if is_single && dice.chance(mix.hand_over) {
        return End::HandOver { lasting: dice.log_uniform(MS, ttl * MS) };
    }
    if dice.chance(mix.outstays) {
        return End::Outstay;
    }
    if dice.chance(mix.cool_down) {
        return End::ReleaseAfter { ms: 1 + dice.below(ttl / 2) };
    }
    match dice.below(20) {
        0..=2 => End::Drop,
        3 => End::DropOutside,
        4 => End::Outstay,
        5 => End::ReleaseDropped,
        6 => End::LeaveGuard { lasting: dice.log_uniform(MS, ttl * MS) },
        _ => End::Release,
    }
}

fn draw_step(mix: &CallMix, ttl: u64, dice: &mut Dice) -> HeldStep {
    let longest = (ttl * MS * mix.hold / 1_000).max(1_000);
    let lasting = dice.below(longest);
    if dice.chance(mix.longest) {
        return HeldStep::Extend { ttl: 2 * ttl };
    }
    match dice.below(10) {
        0..=2 => HeldStep::Work { lasting },
        3..=5 => HeldStep::Update { lasting },
        6 => HeldStep::Extend { ttl: ttl + dice.below(ttl) },
        7 => HeldStep::Ensure { validity: 1 + dice.below(ttl * 9 / 10) },
        8 => HeldStep::Reenter { lasting },
        _ => HeldStep::Status,
    }
}
