//! Whether a defect was caught.

use crate::bound::{Ended, Played};
use crate::tier::Tier;
use std::fmt;

/// What became of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was found, by the simulator after so many seeds.
    Caught {
        /// How many, if it tells.
        seeds: Option<u64>,
        /// The finding, or the tests that failed.
        by: String,
    },
    /// Nothing has noticed it.
    Survived,
    /// The code has changed: the patch must follow.
    DoesNotApply(String),
    /// The same.
    DoesNotBuild(String),
    /// Neither found nor not, within the time that it may take.
    TimeOver,
    /// The tier did not say anything.
    Unclear(String),
}

impl Verdict {
    /// True if all is as it must be.
    pub fn is_caught(&self) -> bool {
        matches!(self, Self::Caught { .. })
    }

    /// That of a build that failed, with the first error that the compiler tells.
    pub fn of_build(output: &str) -> Self {
        let error = output.lines().find(|line| line.starts_with("error"));
        Self::DoesNotBuild(error.unwrap_or("it does not say why").to_owned())
    }
}

/// What it means that `tier` was played like that.
pub fn judge(tier: Tier, played: &Played) -> Verdict {
    match played.ended {
        Ended::TimeOver => Verdict::TimeOver,
        Ended::With(_) if tier.is_tests() && tests(&played.output) == 0 => {
            Verdict::Unclear("there is no such test".to_owned())
        }
        Ended::With(Some(0)) => Verdict::Survived,
        Ended::With(code) => match finding(tier, &played.output) {
            Some(by) => Verdict::Caught { seeds: seeds(&played.output), by },
            None => Verdict::Unclear(format!("ended with {code:?} and no finding")),
        },
    }
}

/// What was found; `None` if the output tells of nothing.
fn finding(tier: Tier, output: &str) -> Option<String> {
    let mut lines = output.lines();
    match tier {
        Tier::Sim => lines.find(|line| found_at(line).is_some()).map(str::to_owned),
        Tier::Model => lines
            .find(|line| line.contains("TWO HOLDERS") || line.contains("NOT FOUND"))
            .map(str::to_owned),
        _ => {
            let failed =
                lines.filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
            let failed = failed.collect::<Vec<_>>().join(", ");
            // A test binary that is aborted names none.
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

/// The seed of a line `seed N: finding`.
fn found_at(line: &str) -> Option<u64> {
    line.strip_prefix("seed ")?.split_once(':')?.0.parse().ok()
}

/// From a line `found after N seeds`.
fn seeds(output: &str) -> Option<u64> {
    let (_, rest) = output.rsplit_once("found after ")?;
    rest.split_once(" seed")?.0.parse().ok()
}

/// How many tests were to run.
fn tests(output: &str) -> u64 {
    let running = output
        .lines()
        .filter_map(|line| line.strip_prefix("running ")?.split(' ').next()?.parse::<u64>().ok());
    running.sum()
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught { by, .. } => write!(f, "caught: {by}"),
            Self::Survived => f.write_str("SURVIVED"),
            Self::DoesNotApply(why) => write!(f, "DOES NOT APPLY: {why}"),
            Self::DoesNotBuild(why) => write!(f, "DOES NOT BUILD: {why}"),
            Self::TimeOver => f.write_str("TIME OVER"),
            Self::Unclear(why) => write!(f, "UNCLEAR: {why}"),
        }
    }
}

#[cfg(test)]
mod tests_of_verdicts {
    use super::*;
    use std::time::Duration;

    fn judged(tier: Tier, code: i32, output: &str) -> String {
        let ended = Ended::With(Some(code));
        let played = Played { ended, output: output.to_owned(), took: Duration::ZERO };
        let verdict = judge(tier, &played);
        let seeds =
            if let Verdict::Caught { seeds: Some(seeds), .. } = verdict { seeds } else { 0 };
        format!("{seeds} {verdict}")
    }

    #[test]
    fn a_simulator_that_finds_something_says_so() {
        let found = "hunting\nseed 41: two holders\nfound after 42 seeds\n";
        assert_eq!(judged(Tier::Sim, 1, found), "42 caught: seed 41: two holders");
        assert_eq!(judged(Tier::Sim, 0, "20000 seeds\n"), "0 SURVIVED");
        assert_eq!(
            judged(Tier::Sim, 2, "unknown option\n"),
            "0 UNCLEAR: ended with Some(2) and no finding"
        );
    }

    #[test]
    fn tests_that_fail_are_named_and_there_must_be_some() {
        let failed =
            "running 2 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest result: FAILED.\n";
        assert_eq!(judged(Tier::Unit, 101, failed), "0 caught: a::c");
        assert_eq!(judged(Tier::It, 0, "running 1 test\ntest a ... ok\n"), "0 SURVIVED");
        assert_eq!(judged(Tier::It, 0, "running 0 tests\n"), "0 UNCLEAR: there is no such test");
        let aborted = "running 1 test\nerror: test failed, to rerun pass `--lib`\n";
        assert_eq!(judged(Tier::Unit, 101, aborted), "0 caught: the tests were aborted");
    }

    #[test]
    fn a_bound_that_is_over_catches_nothing() {
        let played = Played { ended: Ended::TimeOver, output: String::new(), took: Duration::ZERO };
        assert!(!judge(Tier::Sim, &played).is_caught());
    }
}
