//! The command line.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use pico_args::Arguments;

use crate::scenario::{SCENARIOS, Scenario};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Measures quorlock beside rslock on the same five redis-server processes.

  --slice-ms <N>       length of one slice of one contender in milliseconds (1000)
  --rounds <N>         how often the contenders take turns (6)
  --only <NAME>        only the scenario of this name, or those whose names contain it
  --json <FILE>        also write the figures to this file
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
        if args.scenarios().next().is_none() {
            let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            return Err(format!("--only matches none of {names:?}"));
        }
        Ok(args)
    }

    /// The scenarios to run.
    pub(crate) fn scenarios(&self) -> impl Iterator<Item = &'static Scenario> {
        let only = self.only.as_deref().unwrap_or_default();
        let is_named = SCENARIOS.iter().any(|scenario| scenario.name == only);
        let is_meant = move |name: &str| if is_named { name == only } else { name.contains(only) };
        SCENARIOS.iter().filter(move |scenario| is_meant(scenario.name))
    }
}

/// The arguments that give the same run again.
impl fmt::Display for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--slice-ms {} --rounds {}", self.slice.as_millis(), self.rounds)?;
        if let Some(only) = &self.only {
            write!(f, " --only '{only}'")?;
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
