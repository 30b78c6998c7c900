//! Plays seeds of the simulation: `cargo run --release -p quorlock-sim -- --help`.

use clap::Parser;
use sim::{Mode, Mutation, Outside, Sweep, run, sweep};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

/// Mutations must be caught within so many seeds.
const MOST_SEEDS: u64 = 20_000;

/// Lines of a failing trace that are shown.
const TAIL: usize = 60;

/// Simulates quorlock's protocol, from seeds.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to play
    #[arg(long, default_value_t = 100_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// safety, liveness, amnesia, jump, fast-nodes; or: mutations, outside, all
    #[arg(long, default_value = "all")]
    mode: String,
    /// Plays this seed only
    #[arg(long)]
    seed: Option<u64>,
    /// Writes the whole trace of that seed
    #[arg(long)]
    trace: bool,
    /// Breaks the protocol in this way
    #[arg(long)]
    mutation: Option<String>,
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
    /// Plays what was asked for; true if all was as it must be.
    fn play(&self) -> Result<bool, String> {
        let mutation = self.mutation()?;
        match self.mode.as_str() {
            "mutations" | "outside" | "all" if self.seed.is_some() => {
                Err("one seed needs one mode: safety, liveness, amnesia, jump or fast-nodes".into())
            }
            "mutations" => Ok(mutations()),
            "outside" => Ok(outside(self.seeds())),
            "all" => {
                let is_safe = self.inside(Mode::Safety, mutation);
                let is_live = self.inside(Mode::Liveness, mutation);
                Ok(is_safe & is_live & mutations() & outside(self.seeds()))
            }
            label => {
                let found = Mode::ALL.iter().find(|(name, _)| *name == label);
                let (_, mode) = found.ok_or_else(|| format!("there is no mode {label}"))?;
                Ok(match self.seed {
                    Some(seed) => replay(seed, *mode, mutation, self.trace),
                    None => self.inside(*mode, mutation),
                })
            }
        }
    }

    fn seeds(&self) -> Range<u64> {
        self.from..self.from.saturating_add(self.seeds)
    }

    /// Plays seeds, and prints how often what happened in a thousand of them.
    fn inside(&self, mode: Mode, mutation: Option<Mutation>) -> bool {
        let start = Instant::now();
        let sweep = sweep(self.seeds(), mode, mutation, false);
        let seconds = start.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // It is for reading.
        let rate = sweep.seeds as f64 / seconds;
        println!(
            "{}: {} seeds, {} with a violation, in {seconds:.1} s ({rate:.0} a second), hash {:016x}",
            mode.label(),
            sweep.seeds,
            sweep.violations,
            sweep.hash
        );
        println!("  per 1,000 seeds:");
        for (label, count) in sweep.counts.each() {
            println!("  {:>12}  {label}", per_thousand(count, &sweep));
        }
        if let Some((seed, _)) = sweep.first {
            replay(seed, mode, mutation, false);
        }
        // Outside of the promise there is nothing that must not be.
        sweep.violations == 0 || matches!(mode, Mode::Outside(_))
    }

    fn mutation(&self) -> Result<Option<Mutation>, String> {
        let Some(label) = &self.mutation else { return Ok(None) };
        let found = Mutation::ALL.iter().copied().find(|mutation| mutation.label() == label);
        let known: Vec<_> = Mutation::ALL.iter().map(|mutation| mutation.label()).collect();
        found.map(Some).ok_or_else(|| format!("there is no {label}, but {}", known.join(", ")))
    }
}

/// The command that plays a seed again.
fn command(seed: u64, mode: Mode, mutation: Option<Mutation>) -> String {
    let mutation = mutation.map(|mutation| format!(" --mutation {}", mutation.label()));
    let mode = mode.label();
    format!(
        "cargo run --release -p quorlock-sim -- --mode {mode} --seed {seed} --trace{}",
        mutation.unwrap_or_default()
    )
}

fn replay(seed: u64, mode: Mode, mutation: Option<Mutation>, is_whole: bool) -> bool {
    let outcome = run(seed, mode, mutation, true);
    let lines: Vec<_> = outcome.trace.lines().collect();
    let from = if is_whole { 0 } else { lines.len().saturating_sub(TAIL) };
    lines[from..].iter().for_each(|line| println!("{line}"));
    println!("seed {seed}, {}: hash {:016x}", mode.label(), outcome.hash);
    match outcome.violation {
        Some(what) => println!("{what}\n{}", command(seed, mode, mutation)),
        None => return true,
    }
    false
}

#[allow(clippy::cast_precision_loss)] // It is for reading.
fn per_thousand(count: u64, sweep: &Sweep) -> String {
    format!("{:.1}", count as f64 * 1_000.0 / sweep.seeds as f64)
}

/// Each mutation must be caught.
fn mutations() -> bool {
    println!("| mutation | caught in | seeds it took | how |\n|---|---|---|---|");
    let mut all = true;
    for mutation in Mutation::ALL {
        let mode = mutation.mode();
        let sweep = sweep(0..MOST_SEEDS, mode, Some(*mutation), true);
        let (seeds, what) = match sweep.first {
            Some((seed, what)) => ((seed + 1).to_string(), what),
            None => (format!("not in {MOST_SEEDS}"), String::new()),
        };
        all &= sweep.violations > 0;
        println!("| {} | {} | {seeds} | {what} |", mutation.label(), mode.label());
    }
    all
}

/// What happens outside of the promise. There is nothing that it must be.
fn outside(seeds: Range<u64>) -> bool {
    println!("| fault outside the promise | seeds | seeds with overlaps, of 1,000 | overlaps |");
    println!("|---|---|---|---|");
    for outside in Outside::ALL {
        let mode = Mode::Outside(outside);
        let sweep = sweep(seeds.clone(), mode, None, false);
        let rate = per_thousand(sweep.violations, &sweep);
        let overlaps = per_thousand(sweep.overlaps, &sweep);
        println!("| {} | {} | {rate} | {overlaps} |", mode.label(), sweep.seeds);
    }
    true
}
