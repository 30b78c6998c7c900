//! How often a sweep must at least meet the conditions of rules. A rule whose condition is rarely
//! met finds no defect.

use crate::counts::{Condition, Situation};
use crate::mode::{Guarded, Mode, Single, Stepped};
use crate::rule::Rule;
use crate::sweep::Sweep;

/// A floor below this number of occurrences is not judged, because few seeds can miss it by chance.
const LEAST_JUDGED: u64 = 10;

impl Mode {
    /// Returns the minimum of each condition's count, per thousand seeds of this mode. The minima are
    /// about a third of the counts when they were chosen.
    fn floors(self) -> &'static [(Condition, u64)] {
        match self {
            Self::Promise => PROMISE,
            Self::Quiet => QUIET,
            Self::Outages => OUTAGES,
            Self::ManyWaiters => MANY_WAITERS,
            Self::Tokens => TOKENS,
            Self::Guarded(Guarded::Observed | Guarded::Strict) => GUARDED,
            Self::Guarded(Guarded::Minority) => MINORITY,
            Self::Guarded(Guarded::Rolling) => ROLLING,
            Self::Guarded(Guarded::Fresh) => FRESH,
            Self::Stepped(Stepped::Known) => STEPS,
            Self::Stepped(Stepped::Restarts) => STEPS_AND_RESTARTS,
            Self::Single(Single::Failover) => FAILOVER,
            Self::Single(Single::ClosingCommand) => CLOSING_COMMAND,
            Self::Single(Single::LargeValue) => LARGE_VALUE,
            Self::Single(Single::Panic) => PANIC,
            Self::Outside(_) | Self::Wiped(_) => &[],
        }
    }
}

const PROMISE: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Exclusion), 2_000),
    (Condition::Rule(Rule::Readers), 100),
    (Condition::Rule(Rule::Permits), 70),
    (Condition::Rule(Rule::Periods), 500),
    (Condition::Rule(Rule::Tokens), 1_200),
    (Condition::Rule(Rule::ReaderTokens), 80),
    (Condition::Rule(Rule::CoolDowns), 200),
    (Condition::Rule(Rule::Counters), 20_000),
    (Condition::Rule(Rule::NotLost), 6_000),
    (Condition::Rule(Rule::Updates), 1_000),
    (Condition::Rule(Rule::EndangeredReported), 400),
    (Condition::Rule(Rule::Guards), 130),
    (Condition::Rule(Rule::Delivered), 200),
    (Condition::Rule(Rule::Ordered), 5_000),
    (Condition::Rule(Rule::StaysLost), 300),
    (Condition::Rule(Rule::Liveness), 2_000),
    (Condition::Rule(Rule::Stalled), 400),
    (Condition::Situation(Situation::ExpiryTakeOver), 140),
];

const GUARDED: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Exclusion), 1_700),
    (Condition::Rule(Rule::Readers), 200),
    (Condition::Rule(Rule::Permits), 80),
    (Condition::Rule(Rule::Periods), 450),
    (Condition::Rule(Rule::Tokens), 1_000),
    (Condition::Rule(Rule::CoolDowns), 250),
    (Condition::Rule(Rule::Withheld), 10_000),
    (Condition::Situation(Situation::ExpiryTakeOver), 160),
    (Condition::Situation(Situation::ForgottenLock), 90),
    (Condition::Situation(Situation::ForgottenReader), 70),
    (Condition::Situation(Situation::ForgottenCounter), 25),
];

const QUIET: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::DeletionReported), 200),
    (Condition::Rule(Rule::Outcomes), 130),
    (Condition::Rule(Rule::Repaired), 130),
    (Condition::Rule(Rule::Freed), 250),
    (Condition::Rule(Rule::Patient), 500),
    (Condition::Rule(Rule::Adopted), 300),
    (Condition::Rule(Rule::Closes), 1_700),
    (Condition::Rule(Rule::Elsewhere), 50),
];

const OUTAGES: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Exclusion), 2_000),
    (Condition::Rule(Rule::NotLost), 5_000),
    (Condition::Rule(Rule::Renewed), 2_000),
    (Condition::Rule(Rule::StaysLost), 2_000),
    (Condition::Situation(Situation::ExpiryTakeOver), 300),
];

const MANY_WAITERS: &[(Condition, u64)] =
    &[(Condition::Rule(Rule::Served), 33_000), (Condition::Rule(Rule::FewCompete), 1_000_000)];

const TOKENS: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Tokens), 3_500),
    (Condition::Rule(Rule::ReaderTokens), 350),
    (Condition::Rule(Rule::Counters), 80_000),
    (Condition::Situation(Situation::ForgottenLock), 130),
];

const MINORITY: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Exclusion), 2_000),
    (Condition::Rule(Rule::Readers), 450),
    (Condition::Rule(Rule::Withheld), 7_000),
    (Condition::Situation(Situation::ForgottenLock), 350),
];

const ROLLING: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Exclusion), 1_800),
    (Condition::Rule(Rule::Withheld), 9_000),
    (Condition::Situation(Situation::ForgottenLock), 200),
];

const FRESH: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Exclusion), 2_500),
    (Condition::Rule(Rule::Readers), 600),
    (Condition::Rule(Rule::Withheld), 40_000),
];

const STEPS: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Exclusion), 1_900),
    (Condition::Rule(Rule::Readers), 200),
    (Condition::Rule(Rule::Tokens), 1_100),
    (Condition::Situation(Situation::ExpiryTakeOver), 350),
    (Condition::Situation(Situation::SteppedLock), 140),
];

const STEPS_AND_RESTARTS: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Exclusion), 1_600),
    (Condition::Situation(Situation::ForgottenLock), 70),
    (Condition::Situation(Situation::SteppedLock), 140),
];

const FAILOVER: &[(Condition, u64)] = &[
    (Condition::Rule(Rule::Exclusion), 4_500),
    (Condition::Rule(Rule::Unaffected), 6_000),
    (Condition::Rule(Rule::Rejoined), 1_600),
];

const CLOSING_COMMAND: &[(Condition, u64)] =
    &[(Condition::Rule(Rule::Delivered), 2_500), (Condition::Rule(Rule::Unaffected), 2_400)];

const LARGE_VALUE: &[(Condition, u64)] =
    &[(Condition::Rule(Rule::Unaffected), 1_900), (Condition::Rule(Rule::Foreign), 1_100)];

const PANIC: &[(Condition, u64)] =
    &[(Condition::Rule(Rule::Unaffected), 2_000), (Condition::Rule(Rule::Contained), 1_100)];

impl Sweep {
    /// Returns the conditions that the sweep of `mode` has met too rarely, each with its count and
    /// its floor for this number of seeds.
    pub fn rare_conditions(&self, mode: Mode) -> Vec<(Condition, u64, u64)> {
        let floors = mode.floors().iter().map(|(condition, floor)| {
            (*condition, self.counts.get(*condition), floor * self.seeds / 1_000)
        });
        floors.filter(|(_, count, floor)| *floor >= LEAST_JUDGED && count < floor).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a sweep that has met each condition as often as its floor, except `rarer` once less.
    fn swept(rarer: Option<Condition>) -> Sweep {
        let mut swept = Sweep { seeds: 1_000, ..Sweep::default() };
        for (condition, floor) in PROMISE {
            swept.counts.add(*condition, floor - u64::from(rarer == Some(*condition)));
        }
        swept
    }

    #[test]
    fn only_conditions_below_their_floor_are_reported() {
        assert_eq!(swept(None).rare_conditions(Mode::Promise), []);
        let tokens = Condition::Rule(Rule::Tokens);
        assert_eq!(swept(Some(tokens)).rare_conditions(Mode::Promise), [(tokens, 1_199, 1_200)]);
    }

    #[test]
    fn floors_of_few_occurrences_are_not_judged() {
        let rare = |seeds| Sweep { seeds, ..Sweep::default() }.rare_conditions(Mode::Outages).len();
        assert_eq!([1, 2, 5, 33, 34].map(rare), [0, 1, 4, 4, 5]);
    }

    #[test]
    fn each_mode_with_a_guarantee_has_floors() {
        for (label, mode) in Mode::ALL {
            assert_eq!(mode.is_promised(), !mode.floors().is_empty(), "{label}");
        }
    }
}
