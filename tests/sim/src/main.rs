//! Plays seeds of the simulation: `cargo run --release -p quorlock-sim -- --help`.

use clap::Parser;
use sim::{Mode, Mutation, Sweep, run, sweep};
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
    /// Inside the promise: safety, liveness, tokens, steps, steps-restarts, guard-observed,
    /// guard-minority, guard-strict, guard-rolling, guard-fresh. Several: guard, mutations, outside, wiped
    /// (counters are lost); all, which plays a tenth of the seeds of what is about restart guards, steps of
    /// clocks and lost counters. And what outside and wiped list
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
            "guard" | "mutations" | "outside" | "wiped" | "all" if self.seed.is_some() => {
                let labels: Vec<_> = Mode::ALL.iter().map(|(label, _)| *label).collect();
                Err(format!("one seed needs one mode of {}", labels.join(", ")))
            }
            "guard" => Ok(guard(&self.seeds(), mutation)),
            "mutations" => Ok(mutations()),
            "outside" => {
                outside(&self.seeds());
                Ok(true)
            }
            "wiped" => {
                wiped(&self.seeds());
                Ok(true)
            }
            "all" => {
                let is_kept = [Mode::Safety, Mode::Liveness, Mode::Tokens]
                    .map(|mode| inside(&self.seeds(), mode, mutation))
                    .iter()
                    .all(|is_kept| *is_kept);
                let few = self.from..self.from.saturating_add(self.seeds / 10);
                let is_guarded = guard(&few, mutation);
                let is_caught = mutations();
                outside(&few);
                wiped(&few);
                Ok(is_kept && is_guarded && is_caught)
            }
            label => {
                let found = Mode::ALL.iter().find(|(name, _)| *name == label);
                let (_, mode) = found.ok_or_else(|| format!("there is no mode {label}"))?;
                Ok(match self.seed {
                    Some(seed) => replay(seed, *mode, mutation, self.trace),
                    None => inside(&self.seeds(), *mode, mutation),
                })
            }
        }
    }

    fn seeds(&self) -> Range<u64> {
        self.from..self.from.saturating_add(self.seeds)
    }

    fn mutation(&self) -> Result<Option<Mutation>, String> {
        let Some(label) = &self.mutation else { return Ok(None) };
        let found = Mutation::ALL.iter().copied().find(|mutation| mutation.label() == label);
        let known: Vec<_> = Mutation::ALL.iter().map(|mutation| mutation.label()).collect();
        found.map(Some).ok_or_else(|| format!("there is no {label}, but {}", known.join(", ")))
    }
}

/// Plays seeds, and prints how often what happened in a thousand of them.
fn inside(seeds: &Range<u64>, mode: Mode, mutation: Option<Mutation>) -> bool {
    let start = Instant::now();
    let sweep = sweep(seeds.clone(), mode, mutation, false);
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
    sweep.violations == 0 || !mode.is_promised()
}

/// The restart guard and the steps of clocks, in each of their modes.
fn guard(seeds: &Range<u64>, mutation: Option<Mutation>) -> bool {
    let is_guarded = |(_, mode): &(&str, Mode)| matches!(mode, Mode::Guarded(_) | Mode::Stepped(_));
    let mut all = true;
    for (_, mode) in Mode::ALL.into_iter().filter(is_guarded) {
        all &= inside(seeds, mode, mutation);
    }
    all
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

/// Counts what happens outside of the promise, in the modes for which `is_meant`. There is nothing
/// that it must be.
fn measure(what: &str, seeds: &Range<u64>, is_meant: fn(Mode) -> bool) {
    println!("| outside the promise | seeds | of 1,000, with {what} | {what} in 1,000 | first |");
    println!("|---|---|---|---|---|");
    for (label, mode) in Mode::ALL.into_iter().filter(|(_, mode)| is_meant(*mode)) {
        let sweep = sweep(seeds.clone(), mode, None, false);
        let rate = per_thousand(sweep.violations, &sweep);
        let is_wiped = matches!(mode, Mode::Wiped(_));
        let times = per_thousand(if is_wiped { sweep.disorders } else { sweep.overlaps }, &sweep);
        let first = sweep.first.map_or(String::from("none"), |(seed, _)| seed.to_string());
        println!("| {label} | {} | {rate} | {times} | {first} |", sweep.seeds);
    }
}

fn is_outside(mode: Mode) -> bool {
    matches!(mode, Mode::Outside(_))
}

fn outside(seeds: &Range<u64>) {
    measure("overlaps", seeds, is_outside);
}

fn wiped(seeds: &Range<u64>) {
    measure("tokens out of order", seeds, |mode| matches!(mode, Mode::Wiped(_)));
}
