//! The command line.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pico_args::Arguments;

use crate::scenario::{SCENARIOS, Scenario};
use crate::waiting::{CROWDS, Crowd};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Measures quorlock beside rslock on the same five redis-server processes: how fast they are, what a
cycle takes, and what it takes to wait for locks that others hold.

  --slice-ms <N>       length of one slice of one contender in milliseconds (1000)
  --rounds <N>         how often the contenders take turns (6)
  --only <NAME>        only the scenario of this name, or those whose names contain it
  --json <FILE>        also write the figures to this file
  --no-counts          do not count allocations and system calls, which takes a slice of its own each
  --svg <FILE>         also draw the rates by the number of tasks
  --help               this text";

/// The parsed command line.
pub(crate) struct Args {
    /// Length of one slice.
    pub(crate) slice: Duration,
    /// How often the contenders take turns.
    pub(crate) rounds: usize,
    /// Only the scenario of this name, or those whose names contain it.
    pub(crate) only: Option<String>,
    /// Where to write the figures as JSON.
    pub(crate) json: Option<PathBuf>,
    /// Where to draw the rates as SVG.
    pub(crate) svg: Option<PathBuf>,
    /// Whether allocations and system calls are counted.
    pub(crate) counts: bool,
    /// Whether only the help was asked for.
    pub(crate) help: bool,
}

impl Args {
    /// Parses the arguments of this process.
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
        if args.scenarios().next().is_none() && args.crowds().next().is_none() {
            let names: Vec<_> = names().collect();
            return Err(format!("--only matches none of {names:?}"));
        }
        Ok(args)
    }

    /// The scenarios to run.
    pub(crate) fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        SCENARIOS.iter().filter(|scenario| self.means(scenario.name))
    }

    /// The crowds that are to wait.
    pub(crate) fn crowds(&self) -> impl Iterator<Item = &'static Crowd> {
        CROWDS.iter().filter(|crowd| self.means(crowd.name))
    }

    /// Whether `--only` is this name; or a part of it, and no whole name.
    fn means(&self, name: &str) -> bool {
        let only = self.only.as_deref().unwrap_or_default();
        if names().any(|name| name == only) { name == only } else { name.contains(only) }
    }
}

/// The names of all that can be run.
fn names() -> impl Iterator<Item = &'static str> {
    let crowds = CROWDS.iter().map(|crowd| crowd.name);
    SCENARIOS.iter().map(|scenario| scenario.name).chain(crowds)
}

/// The arguments that give the same run again.
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

/// A whole number of at least 1.
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

    fn meant(only: &str) -> Vec<&'static str> {
        let args = parse(&["--only", only]).expect("it matches");
        let scenarios = args.scenarios().map(|scenario| scenario.name);
        scenarios.chain(args.crowds().map(|crowd| crowd.name)).collect()
    }

    #[test]
    fn a_whole_name_means_itself_and_a_part_all_that_contain_it() {
        assert_eq!(meant("64 tasks"), ["64 tasks"]);
        assert_eq!(meant("8 processes"), ["1 key, 8 processes, 1 ms hold"]);
        assert_eq!(meant("10,000").len(), 2);
        assert_eq!(meant("").len(), names().count());
        assert!(parse(&["--only", "no such thing"]).is_err());
    }

    #[test]
    fn the_printed_arguments_give_the_same_run() {
        let words = ["--slice-ms", "300", "--rounds", "2", "--no-counts"];
        let args = parse(&words).expect("they are good");
        assert_eq!(args.to_string(), words.join(" "));
        assert!(parse(&["--rounds", "0"]).is_err());
        assert!(parse(&["--fast"]).is_err());
    }
}
