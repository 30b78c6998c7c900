//! How often a sweep must at least meet the conditions of rules. A rule whose condition is rarely
//! met finds no defect.

use crate::counts::{Condition, Situation};
use crate::mode::{Guarded, Mode};
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
            Self::Guarded(Guarded::Observed | Guarded::Strict) => GUARDED,
            _ => &[],
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
