//! Calls that users make.

use crate::bystander::SingleCall;
use crate::clock::{Instant, MS};
use crate::dice::Dice;
use crate::many_waiters::Contender;
use crate::mode::Mode;
use crate::scenario::Scenario;
use crate::solo::SoloCall;

/// A call of a task, and the pause after it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) rest: Instant,
}

#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Lock(Box<Lock>),
    /// Adopts a lock that another task has handed over.
    Adopt {
        resource: usize,
        lock: Box<Lock>,
    },
    Status {
        resource: usize,
    },
    ForceRelease,
    ReleaseAll,
    /// Creates another client, locks with it, and closes it immediately.
    Another {
        lock: Box<Lock>,
    },
    Check,
    Ready,
    Solo(SoloCall),
    Single(SingleCall),
    /// One of many clients that wait for the same lock.
    Contend(Contender),
}

/// A lock from its acquire to its end.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // Each is a setting of the library.
pub(crate) struct Lock {
    pub(crate) resources: Vec<usize>,
    /// In milliseconds. `None` for a single attempt.
    pub(crate) wait: Option<u64>,
    pub(crate) ttl: Option<u64>,
    pub(crate) fenced: bool,
    /// In milliseconds.
    pub(crate) auto_extend: Option<u64>,
    pub(crate) at_least: Option<u64>,
    pub(crate) stop_before: Option<u64>,
    pub(crate) metadata: bool,
    pub(crate) give_up_early: bool,
    /// With a retry policy, a single attempt becomes several.
    pub(crate) retries: bool,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) style: Style,
    pub(crate) watch: Option<Watch>,
    pub(crate) steps: Vec<HeldStep>,
    pub(crate) end: End,
}

/// Notification that the task awaits during its work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Watch {
    /// The end of the lease.
    Ended,
    /// The remaining validity reaches this margin, in milliseconds.
    Endangered { margin: u64 },
}

/// Treatment of an acquire's future.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Style {
    Awaited,
    /// Dropped after a while.
    Dropped {
        after: Instant,
    },
    /// Polled only at this interval.
    RarelyPolled {
        every: Instant,
    },
    /// Polled once, and then moved to a task of another runtime.
    Moved {
        runtime: usize,
    },
    /// Runs the work as a closure, which continues after its steps.
    Using {
        overtime: Instant,
    },
}

/// Action of a holder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HeldStep {
    Work {
        lasting: Instant,
    },
    /// Reads a number, and writes it back later, incremented by one.
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
}

/// End of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Release,
    ReleaseAfter {
        ms: u64,
    },
    Drop,
    /// Dropped outside of any runtime.
    DropOutside,
    /// Held until it is lost.
    Outstay,
    /// Hands the value over to another task.
    HandOver {
        lasting: Instant,
    },
    /// Releases one guard, and another one later.
    LeaveGuard {
        lasting: Instant,
    },
    /// Drops the future of the release.
    ReleaseDropped,
}

/// Frequencies of the calls in a run. Many frequencies are often zero, to expose interactions of
/// few features.
pub(crate) struct CallMix {
    fenced: bool,
    sets: u64,
    auto: u64,
    tries: u64,
    dropped: u64,
    rarely_polled: u64,
    moved: u64,
    using: u64,
    hand_over: u64,
    cool_down: u64,
    verbs: u64,
    solo: u64,
    /// Maximum hold time, in thousandths of the ttl.
    hold: u64,
    /// Extensions to the longest ttl, per thousand steps under a lease.
    longest: u64,
}

impl CallMix {
    pub(crate) fn draw(scenario: &Scenario, dice: &mut Dice) -> Self {
        let (mode, is_promise) = (scenario.mode, scenario.mode.keeps_all_data());
        // Lost keys have consequences only if locks are held for long.
        let holds: &[u64] = if mode == Mode::Outages {
            &[1_500, 4_000]
        } else if is_promise {
            &[5, 50, 300, 1_500]
        } else {
            &[50, 500, 1_500, 1_500]
        };
        // A cool-down keeps the lock unavailable after its end.
        let cool_downs: &[u64] = if mode == Mode::Quiet { &[0] } else { &[0, 0, 200] };
        Self {
            // Either all leases of a run have tokens, or none.
            fenced: scenario.fencing.is_on,
            sets: dice.pick(&[0, 0, 300]),
            auto: if mode == Mode::Outages { 900 } else { dice.pick(&[0, 200, 800]) },
            tries: dice.pick(&[0, 100, 500]),
            dropped: dice.pick(&[0, 0, 100, 500]),
            rarely_polled: dice.pick(&[0, 0, 100, 300]),
            moved: dice.pick(&[0, 0, 200]),
            using: dice.pick(&[0, 200]),
            hand_over: dice.pick(&[0, 0, 200]),
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
        // The calls of a task take as long as the fault.
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
    if !dice.chance(mix.verbs) {
        return Verb::Lock(lock(dice));
    }
    match dice.below(10) {
        0..=2 if mix.hand_over > 0 => Verb::Adopt { resource, lock: lock(dice) },
        0..=3 => Verb::Status { resource },
        4 => Verb::ForceRelease,
        5 => Verb::ReleaseAll,
        6 => Verb::Check,
        7 => Verb::Ready,
        8 if scenario.mode.admits_anybody() => Verb::Another { lock: lock(dice) },
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
    let auto_extend = dice.chance(mix.auto).then(|| ttl + dice.below(3 * ttl));
    let end = draw_end(mix, resources.len() == 1, ttl, dice);
    let style = match dice.below(1_000) {
        at if at < mix.dropped => Style::Dropped { after: dice.of_any_size(MS / 20, ttl * MS) },
        _ if dice.chance(mix.rarely_polled) => {
            Style::RarelyPolled { every: dice.of_any_size(MS, ttl * MS / 4) }
        }
        _ if dice.chance(mix.moved) => Style::Moved { runtime: dice.index(3) },
        _ if dice.chance(mix.using) => {
            let overtime = if dice.chance(300) { dice.below(3 * ttl * MS) } else { 0 };
            Style::Using { overtime }
        }
        _ => Style::Awaited,
    };
    let wait = (!dice.chance(mix.tries)).then(|| dice.of_any_size(ttl / 10, 4 * ttl));
    Lock {
        resources,
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
        return End::HandOver { lasting: dice.of_any_size(MS, ttl * MS) };
    }
    if dice.chance(mix.cool_down) {
        return End::ReleaseAfter { ms: 1 + dice.below(ttl / 2) };
    }
    match dice.below(20) {
        0..=2 => End::Drop,
        3 => End::DropOutside,
        4 => End::Outstay,
        5 => End::ReleaseDropped,
        6 => End::LeaveGuard { lasting: dice.of_any_size(MS, ttl * MS) },
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
