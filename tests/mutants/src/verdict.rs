//! Verdicts on patches, derived from the output of the tests.

use crate::tier::Tier;
use crate::timed_command::{CommandResult, End};
use std::fmt;

/// The verdict on a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The tests detected the defect.
    Detected {
        /// The number of seeds that the simulation ran. `None` for other tiers.
        seeds: Option<u64>,
        /// The failed check that the simulation reported, or the names of the failed tests.
        by: String,
    },
    /// The tests passed despite the defect.
    Survived,
    /// The tests exceeded the time limit.
    TimedOut,
    /// The output does not show a result, for this reason.
    Unclear(String),
}

/// Returns the verdict on a patch, from the result of the tests of `tier`.
pub fn judge(tier: Tier, result: &CommandResult) -> Verdict {
    let output = &result.output;
    match result.ended {
        End::TimedOut => Verdict::TimedOut,
        End::With(_) if tier != Tier::Sim && started_test_count(output) == 0 => {
            Verdict::Unclear("no test matches".to_owned())
        }
        End::With(Some(0)) => Verdict::Survived,
        End::With(code) => {
            let finding = if tier == Tier::Sim { finding(output) } else { failed(output, code) };
            match finding {
                Some(by) => Verdict::Detected { seeds: searched_seed_count(output), by },
                None => Verdict::Unclear(format!("exit code {code:?} without a finding")),
            }
        }
    }
}

/// Returns the line of the simulation that describes a finding: `seed N: finding`.
fn finding(output: &str) -> Option<String> {
    let is_finding = |line: &&str| {
        let seed = line.strip_prefix("seed ").and_then(|rest| rest.split_once(':'));
        seed.is_some_and(|(seed, _)| seed.parse::<u64>().is_ok())
    };
    output.lines().find(is_finding).map(str::to_owned)
}

/// Returns the names of the failed tests. A program that a signal ended does not print them.
fn failed(output: &str, code: Option<i32>) -> Option<String> {
    let name =
        |line: &'_ str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned());
    let failed: Vec<_> = output.lines().filter_map(name).collect();
    match code {
        None => Some("the tests were aborted".to_owned()),
        Some(_) if output.contains("test result: FAILED") => Some(failed.join(", ")),
        Some(_) => None,
    }
}

fn searched_seed_count(output: &str) -> Option<u64> {
    let (_, rest) = output.rsplit_once("found after ")?;
    rest.split_once(" seed")?.0.parse().ok()
}

fn started_test_count(output: &str) -> u64 {
    let count = |line: &str| line.strip_prefix("running ")?.split(' ').next()?.parse::<u64>().ok();
    output.lines().filter_map(count).sum()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Detected { seeds: None, by } => write!(f, "detected: {by}"),
            Self::Detected { seeds: Some(seeds), by } => {
                write!(f, "detected after {seeds} seeds: {by}")
            }
            Self::Survived => f.write_str("SURVIVED"),
            Self::TimedOut => f.write_str("TIMED OUT"),
            Self::Unclear(why) => write!(f, "UNCLEAR: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(tier: Tier, ended: End, output: &str) -> String {
        judge(tier, &CommandResult { ended, output: output.to_owned() }).to_string()
    }

    #[test]
    fn simulation_output_gives_seeds_and_finding() {
        let found = "hunting\nseed 41: two holders\nfound after 42 seeds\n";
        let expected = "detected after 42 seeds: seed 41: two holders";
        assert_eq!(verdict(Tier::Sim, End::With(Some(1)), found), expected);
        assert_eq!(verdict(Tier::Sim, End::With(Some(0)), "20000 seeds\n"), "SURVIVED");
        let unclear = "UNCLEAR: exit code Some(2) without a finding";
        assert_eq!(verdict(Tier::Sim, End::With(Some(2)), "unknown option\n"), unclear);
    }

    #[test]
    fn test_output_gives_failures_or_reports_no_match() {
        let failed =
            "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest result: FAILED.\n";
        assert_eq!(verdict(Tier::Unit, End::With(Some(101)), failed), "detected: a::c");
        let passed = verdict(Tier::It, End::With(Some(0)), "running 1 test\ntest a ... ok\n");
        assert_eq!(passed, "SURVIVED");
        let unmatched = verdict(Tier::It, End::With(Some(0)), "running 0 tests\n");
        assert_eq!(unmatched, "UNCLEAR: no test matches");
        let aborted = verdict(Tier::Unit, End::With(None), "running 1 test\n");
        assert_eq!(aborted, "detected: the tests were aborted");
    }

    #[test]
    fn timed_out_run_does_not_count_as_detected() {
        assert_eq!(verdict(Tier::Sim, End::TimedOut, ""), "TIMED OUT");
    }
}
