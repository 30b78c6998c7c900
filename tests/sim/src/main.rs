//! Runs seeds of the simulation: `make sim`.

use clap::Parser;
use sim::{Mode, Parts, Rule, run, shrink, sweep, watch};
use std::process::ExitCode;
use std::time::Instant;
use std::{env, thread};

/// The maximum number of findings that are printed per mode.
const MOST_SHOWN: usize = 10;

/// Simulates complete quorlock clients; a seed determines each run
#[derive(Parser)]
struct Arguments {
    /// Number of seeds per mode. With `all`, slow modes run only a fraction of them
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Mode to run; `all` runs every mode with a guarantee, `outside` the others
    #[arg(long, default_value = "all")]
    mode: String,
    /// Runs only this seed, and prints its trace
    #[arg(long)]
    seed: Option<u64>,
    /// Runs only these parts of the seed's scenario, in the format that is printed for a finding
    #[arg(long, default_value = "")]
    only: String,
    /// Stops at the first finding, and does not reduce it to the necessary parts
    #[arg(long)]
    hunt: bool,
    /// Number of threads [default: all processors]
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    match Arguments::parse().play() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    /// Runs the requested seeds. Returns true if no guarantee was violated.
    fn play(&self) -> Result<bool, String> {
        watch();
        let modes = self.modes()?;
        if let Some(seed) = self.seed {
            let [mode] = modes[..] else { return Err("--seed needs a single --mode".to_owned()) };
            return self.replay(mode, seed);
        }
        if self.hunt {
            return Ok(self.hunt(&modes));
        }
        let mut is_kept = true;
        for mode in modes {
            is_kept &= self.sweep(mode);
        }
        Ok(is_kept)
    }

    fn modes(&self) -> Result<Vec<Mode>, String> {
        let all = Mode::ALL.iter();
        let found: Vec<_> = all
            .filter(|(label, mode)| match self.mode.as_str() {
                "all" => mode.is_promised(),
                "outside" => !mode.is_promised(),
                wanted => *label == wanted,
            })
            .map(|(_, mode)| *mode)
            .collect();
        if found.is_empty() {
            let labels: Vec<_> = Mode::ALL.iter().map(|(label, _)| *label).collect();
            return Err(format!("unknown mode {}: use one of {}", self.mode, labels.join(", ")));
        }
        Ok(found)
    }

    fn replay(&self, mode: Mode, seed: u64) -> Result<bool, String> {
        let parts = if self.only.is_empty() { None } else { Some(self.only.parse::<Parts>()?) };
        let outcome = run(mode, seed, parts.as_ref(), true);
        print!("{}", outcome.trace);
        println!("seed {seed}, {}: hash {:016x}", mode.label(), outcome.hash);
        if let Some((rule, how)) = &outcome.violation {
            println!("{rule}\n  {how}");
        }
        Ok(outcome.violation.is_none() || !mode.is_promised())
    }

    #[allow(clippy::cast_precision_loss)] // Only for display.
    fn sweep(&self, mode: Mode) -> bool {
        let start = Instant::now();
        let count = if self.mode == "all" { mode.share(self.seeds) } else { self.seeds };
        let seeds = self.from..self.from.saturating_add(count);
        let swept = sweep(mode, seeds, self.threads(), false);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{}: {} seeds, {} findings, in {seconds:.1} s ({:.0} a second); {} calls, {} locks, {} faults; hash {:016x}",
            mode.label(),
            swept.seeds,
            swept.findings.len(),
            swept.seeds as f64 / seconds,
            swept.calls,
            swept.grants,
            swept.faults,
            swept.hash
        );
        println!("  {}", swept.counts);
        if !mode.is_promised() {
            println!(
                "  {} runs with {} overlaps, {} runs with {} tokens out of order",
                swept.overlaps.0, swept.overlaps.1, swept.disorders.0, swept.disorders.1
            );
        }
        for (seed, rule, how) in swept.findings.iter().take(MOST_SHOWN) {
            println!("seed {seed}: {rule:?}: {how}");
        }
        let rare = swept.rare_conditions(mode);
        for (condition, count, floor) in &rare {
            println!("too few: {condition} {count}, expected at least {floor} in these seeds");
        }
        let Some((seed, rule, _)) = swept.findings.first() else { return rare.is_empty() };
        print_shrunk_run(mode, *seed, *rule);
        !mode.is_promised()
    }

    fn threads(&self) -> usize {
        let processors = || thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(processors)
    }

    /// Runs a few seeds of each mode in turn until a rule is violated, or until `self.seeds` seeds
    /// have run. Returns true if no rule was violated.
    fn hunt(&self, modes: &[Mode]) -> bool {
        let (mut played, mut round) = (0, 0);
        while played < self.seeds {
            for mode in modes {
                let turn = mode.turn();
                let from = self.from + round * turn;
                let swept = sweep(*mode, from..from + turn, self.threads(), true);
                played += swept.seeds;
                if let Some((seed, rule, how)) = swept.findings.first() {
                    println!("seed {seed}: {}: {rule:?}: {how}", mode.label());
                    println!("found after {played} seeds");
                    return false;
                }
            }
            round += 1;
        }
        println!("{played} seeds of {} modes without findings", modes.len());
        true
    }
}

/// Reduces the run to a few calls and faults that still violate `rule`. Prints the trace and the
/// command that repeats it.
fn print_shrunk_run(mode: Mode, seed: u64, rule: Rule) {
    let parts = shrink(mode, seed, rule);
    let outcome = run(mode, seed, Some(&parts), true);
    print!("{}", outcome.trace);
    if let Some((rule, how)) = &outcome.violation {
        println!("{rule}\n  {how}");
    }
    let program = env::var("CARGO_PKG_NAME").unwrap_or_else(|_| env!("CARGO_PKG_NAME").to_owned());
    println!(
        "cargo run --release -p {program} -- --mode {} --seed {seed} --only {parts}",
        mode.label()
    );
}
