//! Measures the share of fencing tokens that need only one round trip to the nodes. Eight processes, whose wall clocks
//! differ, compete for one lock: `cargo bench --bench tokens [-- how-a-row-begins] [seconds]`.
//!
//! The library is compared with two minimal clients. One obtains tokens with the library's script, the other with a
//! transaction, a method that the library does not use. All three alternate on the same five servers. The benchmark
//! exits with an error if a token is not higher than the previous token. The shares and the number of tokens depend on
//! the machine's load, and are only printed.

#[path = "tokens/bare.rs"]
mod bare;
#[path = "../tests/it/processes/skewed.rs"]
mod skewed;

use bare::{Bare, Method};
use skewed::{Assignment, LIBRARY, LibraryClient, Scenario, Setup, Turns};
use std::time::Duration;

const SLICES: usize = 3;
const SCRIPT: &str = "script";
const TRANSACTION: &str = "transaction";
const CONTENDERS: [&str; 3] = [LIBRARY, SCRIPT, TRANSACTION];

/// The differences between the processes' clocks. `HOLDS` lists how long a client holds the lock, in milliseconds.
const CLOCK_DIFFERENCES_MS: [u64; 3] = [0, 5, 20];
const HOLDS: [u64; 4] = [0, 1, 5, 20];

/// If this is a child process, does the work that the environment assigns to it. Returns false otherwise.
fn is_child() -> bool {
    let Some(assignment) = Assignment::given() else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match assignment.contender.as_str() {
            LIBRARY => {
                let client = LibraryClient::new(&assignment).await;
                assignment.take_turns(client).await;
            }
            method => {
                let method = if method == SCRIPT { Method::Script } else { Method::Transaction };
                let bare = Bare::connect(method, &assignment.nodes).await;
                assignment.take_turns(bare).await;
            }
        }
    });
    true
}

/// Formats two table cells. The first one contains the share of tokens that needed one round trip (overall, and the
/// lowest and highest share of a slice) and the number of tokens. The second one contains the median rate.
fn cell(slices: &[Turns], lasting: Duration) -> String {
    let shares = slices.iter().map(Turns::share);
    let min = shares.clone().fold(1.0, f64::min);
    let max = shares.fold(0.0, f64::max);
    let mut rates: Vec<_> =
        slices.iter().map(|slice| f64::from(slice.tokens) / lasting.as_secs_f64()).collect();
    rates.sort_by(f64::total_cmp);
    format!(
        "{:.1} % ({:.1} to {:.1}) of {} | {:.0}",
        100.0 * share(slices),
        100.0 * min,
        100.0 * max,
        slices.iter().map(|slice| slice.tokens).sum::<u32>(),
        rates[rates.len() / 2],
    )
}

fn share(slices: &[Turns]) -> f64 {
    let sum = |of: fn(&Turns) -> u32| f64::from(slices.iter().map(of).sum::<u32>());
    sum(|slice| slice.one_round) / sum(|slice| slice.tokens)
}

fn run(setup: &Setup, name: &str, apart: Duration, hold: Duration, lasting: Duration) {
    let mut results = CONTENDERS.map(|_| Vec::new());
    for _ in 0..SLICES {
        for (contender, slices) in CONTENDERS.iter().zip(&mut results) {
            slices.push(setup.run_processes(&Scenario { contender, apart, hold, lasting }));
        }
    }
    println!("| {name} | {} |", results.map(|slices| cell(&slices, lasting)).join(" | "));
}

fn main() {
    if is_child() {
        return;
    }
    let args = || std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let seconds = args().find_map(|arg| arg.parse::<u64>().ok()).unwrap_or(1);
    let prefix = args().find(|arg| arg.parse::<u64>().is_err()).unwrap_or_default();
    let setup = Setup::new(&[]);
    let columns = CONTENDERS.map(|name| format!("{name}: one round | acquires/s"));
    println!("| clocks apart, hold | {} |", columns.join(" | "));
    println!("|---|{}", "---|".repeat(2 * CONTENDERS.len()));
    for (apart, hold) in
        CLOCK_DIFFERENCES_MS.iter().flat_map(|apart| HOLDS.map(|hold| (*apart, hold)))
    {
        let name = format!("{apart} ms, {hold} ms");
        if name.starts_with(&prefix) {
            let [apart, hold] = [apart, hold].map(Duration::from_millis);
            run(&setup, &name, apart, hold, Duration::from_secs(seconds));
        }
    }
}
