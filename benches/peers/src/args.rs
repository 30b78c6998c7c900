//! Parses the command line.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pico_args::Arguments;

use crate::scenario::{SCENARIOS, Scenario};
use crate::waiting::{WAITING_SCENARIOS, WaitingScenario};

pub(crate) const HELP: &str = "\
Compares quorlock with rslock on the same five redis-server processes: throughput, the cost of a
cycle, and the cost of waiting for held locks.

  --slice-ms <N>       length of a contender's slice in milliseconds (1000)
  --rounds <N>         number of slices per contender (6)
  --only <NAME>        run only this scenario, or those whose names contain NAME
  --json <FILE>        also write the results to this file
  --no-counts          do not count allocations and system calls, for which each contender needs one more slice
  --svg <FILE>         also draw the throughput by number of tasks
  --help               print this help";

pub(crate) struct Args {
    pub(crate) slice: Duration,
    pub(crate) rounds: usize,
    /// The name of one scenario, or text that the names of several scenarios contain.
    pub(crate) only: Option<String>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) counts: bool,
    pub(crate) help: bool,
}

impl Args {
    pub(crate) fn from_env() -> Result<Self, String> {
        Self::parse(Arguments::from_env())
    }

    fn parse(mut input: Arguments) -> Result<Self, String> {
        let args = Self {
            help: input.contains(["-h", "--help"]),
            counts: !input.contains("--no-counts"),
            slice: Duration::from_millis(number(&mut input, "--slice-ms", 1000)?),
            rounds: usize::try_from(number(&mut input, "--rounds", 6)?)
                .map_err(|error| error.to_string())?,
            only: input.opt_value_from_str("--only").map_err(|error| error.to_string())?,
            svg: input.opt_value_from_str("--svg").map_err(|error| error.to_string())?,
            json: input.opt_value_from_str("--json").map_err(|error| error.to_string())?,
        };
        let rest = input.finish();
        if !rest.is_empty() {
            return Err(format!("unknown arguments {rest:?}"));
        }
        if args.scenarios().next().is_none() && args.waiting_scenarios().next().is_none() {
            let names: Vec<_> = names().collect();
            return Err(format!("--only matches none of {names:?}"));
        }
        Ok(args)
    }

    pub(crate) fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        SCENARIOS.iter().filter(|scenario| self.matches(scenario.name))
    }

    pub(crate) fn waiting_scenarios(&self) -> impl Iterator<Item = &'static WaitingScenario> {
        WAITING_SCENARIOS.iter().filter(|scenario| self.matches(scenario.name))
    }

    /// Returns true if `--only` selects the scenario `name`. If `--only` is no scenario's exact name, it selects every
    /// scenario whose name contains it.
    fn matches(&self, name: &str) -> bool {
        let only = self.only.as_deref().unwrap_or_default();
        if names().any(|name| name == only) { name == only } else { name.contains(only) }
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    let waiting = WAITING_SCENARIOS.iter().map(|scenario| scenario.name);
    SCENARIOS.iter().map(|scenario| scenario.name).chain(waiting)
}

/// Formats the arguments that repeat this run.
impl fmt::Display for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--slice-ms {} --rounds {}", self.slice.as_millis(), self.rounds)?;
        if let Some(only) = &self.only {
            write!(f, " --only '{only}'")?;
        }
        if !self.counts {
            write!(f, " --no-counts")?;
        }
        Ok(())
    }
}

fn number(input: &mut Arguments, name: &'static str, default: u64) -> Result<u64, String> {
    let value = input.opt_value_from_str(name).map_err(|error| error.to_string())?;
    match value.unwrap_or(default) {
        0 => Err(format!("{name} must be at least 1")),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use pico_args::Arguments;

    use super::{Args, names};

    fn parse(words: &[&str]) -> Result<Args, String> {
        Args::parse(Arguments::from_vec(words.iter().map(OsString::from).collect()))
    }

    fn selected(only: &str) -> Vec<&'static str> {
        let args = parse(&["--only", only]).expect("the name matches");
        let scenarios = args.scenarios().map(|scenario| scenario.name);
        scenarios.chain(args.waiting_scenarios().map(|scenario| scenario.name)).collect()
    }

    #[test]
    fn whole_name_selects_itself_and_a_part_all_matches() {
        assert_eq!(selected("64 tasks"), ["64 tasks"]);
        assert_eq!(selected("8 processes"), ["1 key, 8 processes, 1 ms hold"]);
        assert_eq!(selected("10,000").len(), 2);
        assert_eq!(selected("").len(), names().count());
        assert!(parse(&["--only", "no such thing"]).is_err());
    }

    #[test]
    fn printed_arguments_repeat_the_run() {
        let words = ["--slice-ms", "300", "--rounds", "2", "--no-counts"];
        let args = parse(&words).expect("valid arguments");
        assert_eq!(args.to_string(), words.join(" "));
        assert!(parse(&["--rounds", "0"]).is_err());
        assert!(parse(&["--fast"]).is_err());
    }
}
