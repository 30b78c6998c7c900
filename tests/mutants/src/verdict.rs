//! Verdicts on patches, derived from the output of the tests.

use crate::tier::Tier;
use crate::timed_command::{CommandResult, End};
use std::fmt;

/// The verdict on a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The tests detected the defect.
    Detected {
        /// The number of seeds that the simulator ran. `None` if its output does not contain the number.
        seeds: Option<u64>,
        /// The failed check that the simulator reported, or the names of the failed tests.
        by: String,
    },
    /// The tests passed despite the defect.
    Survived,
    /// The patch does not match the code, for this reason.
    DoesNotApply(String),
    /// The patched code does not build. Contains the compiler's first error.
    DoesNotBuild(String),
    /// The build or the tests exceeded the time limit.
    TimedOut,
    /// The output does not show a result, for this reason.
    Unclear(String),
}

impl Verdict {
    /// Returns true if the tests detected the defect.
    pub fn is_detected(&self) -> bool {
        matches!(self, Self::Detected { .. })
    }

    /// Creates the verdict on a patch whose build failed. `output` is the output of the compiler.
    pub fn of_build(output: &str) -> Self {
        let error = output.lines().find(|line| line.starts_with("error"));
        Self::DoesNotBuild(error.unwrap_or("no error line in the output").to_owned())
    }
}

/// Returns the verdict on a patch, from the result of the tests of `tier`.
pub fn judge(tier: Tier, result: &CommandResult) -> Verdict {
    match result.ended {
        End::TimedOut => Verdict::TimedOut,
        End::With(_) if tier.is_tests() && started_test_count(&result.output) == 0 => {
            Verdict::Unclear("no test matches".to_owned())
        }
        End::With(Some(0)) => Verdict::Survived,
        End::With(code) => match finding(tier, &result.output) {
            Some(by) => Verdict::Detected { seeds: searched_seed_count(&result.output), by },
            None => Verdict::Unclear(format!("exit code {code:?} without a finding")),
        },
    }
}

fn finding(tier: Tier, output: &str) -> Option<String> {
    let mut lines = output.lines();
    match tier {
        Tier::Sim => lines.find(|line| parse_seed_line(line).is_some()).map(str::to_owned),
        Tier::Model => lines
            .find(|line| line.contains("TWO HOLDERS") || line.contains("NOT FOUND"))
            .map(str::to_owned),
        _ => {
            let failed =
                lines.filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
            let failed = failed.collect::<Vec<_>>().join(", ");
            // An aborted test binary does not print the names of failed tests.
            let is_red =
                output.contains("test result: FAILED") || output.contains("error: test failed");
            is_red.then_some(if failed.is_empty() {
                "the tests were aborted".to_owned()
            } else {
                failed
            })
        }
    }
}

/// Returns the seed of a failure that the simulator prints as `seed N: finding`, or `None` for any other line.
fn parse_seed_line(line: &str) -> Option<u64> {
    line.strip_prefix("seed ")?.split_once(':')?.0.parse().ok()
}

fn searched_seed_count(output: &str) -> Option<u64> {
    let (_, rest) = output.rsplit_once("found after ")?;
    rest.split_once(" seed")?.0.parse().ok()
}

fn started_test_count(output: &str) -> u64 {
    let running = output
        .lines()
        .filter_map(|line| line.strip_prefix("running ")?.split(' ').next()?.parse::<u64>().ok());
    running.sum()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Detected { by, .. } => write!(f, "detected: {by}"),
            Self::Survived => f.write_str("SURVIVED"),
            Self::DoesNotApply(why) => write!(f, "DOES NOT APPLY: {why}"),
            Self::DoesNotBuild(why) => write!(f, "DOES NOT BUILD: {why}"),
            Self::TimedOut => f.write_str("TIMED OUT"),
            Self::Unclear(why) => write!(f, "UNCLEAR: {why}"),
        }
    }
}

#[cfg(test)]
mod tests_of_verdicts {
    use super::*;
    use std::time::Duration;

    fn run_job(tier: Tier, code: i32, output: &str) -> String {
        let ended = End::With(Some(code));
        let result = CommandResult { ended, output: output.to_owned(), took: Duration::ZERO };
        let verdict = judge(tier, &result);
        let seeds =
            if let Verdict::Detected { seeds: Some(seeds), .. } = verdict { seeds } else { 0 };
        format!("{seeds} {verdict}")
    }

    #[test]
    fn simulator_output_gives_seeds_and_finding() {
        let found = "hunting\nseed 41: two holders\nfound after 42 seeds\n";
        assert_eq!(run_job(Tier::Sim, 1, found), "42 detected: seed 41: two holders");
        assert_eq!(run_job(Tier::Sim, 0, "20000 seeds\n"), "0 SURVIVED");
        assert_eq!(
            run_job(Tier::Sim, 2, "unknown option\n"),
            "0 UNCLEAR: exit code Some(2) without a finding"
        );
    }

    #[test]
    fn test_output_gives_failures_or_reports_no_match() {
        let failed =
            "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest result: FAILED.\n";
        assert_eq!(run_job(Tier::Unit, 101, failed), "0 detected: a::c");
        assert_eq!(run_job(Tier::It, 0, "running 1 test\ntest a ... ok\n"), "0 SURVIVED");
        assert_eq!(run_job(Tier::It, 0, "running 0 tests\n"), "0 UNCLEAR: no test matches");
        let aborted = "running 1 test\nerror: test failed, to rerun pass `--lib`\n";
        assert_eq!(run_job(Tier::Unit, 101, aborted), "0 detected: the tests were aborted");
    }

    #[test]
    fn timed_out_run_does_not_count_as_detected() {
        let result =
            CommandResult { ended: End::TimedOut, output: String::new(), took: Duration::ZERO };
        assert!(!judge(Tier::Sim, &result).is_detected());
    }
}
