//! How many fencing tokens come at once, where eight processes want one lock and their wall clocks differ:
//! `cargo bench --bench tokens [-- how-a-row-begins] [seconds]`.
//!
//! Beside the library two bare contenders, which differ in how they draw a token: by the library's script, or by the way
//! that it does not take. All three take turns in slices on the same five servers. Ends with an error if a token is not
//! above the one before it. How many come at once, and how many there are, depends on the machine's other work as
//! well, and is only printed.

#[path = "tokens/bare.rs"]
mod bare;
#[path = "../tests/it/processes/skewed.rs"]
mod skewed;

use bare::{Bare, Way};
use skewed::{Assignment, LIBRARY, LibraryClient, Scenario, Setup, Turns};
use std::time::Duration;

/// Slices of a row, for each contender.
const SLICES: usize = 3;
const SCRIPT: &str = "script";
const TRANSACTION: &str = "transaction";
const CONTENDERS: [&str; 3] = [LIBRARY, SCRIPT, TRANSACTION];

/// In milliseconds.
const APART: [u64; 3] = [0, 5, 20];
const HOLDS: [u64; 4] = [0, 1, 5, 20];

/// Does what the environment says; false if this process is not a child.
fn is_child() -> bool {
    let Some(assignment) = Assignment::given() else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match assignment.contender.as_str() {
            LIBRARY => {
                let ours = LibraryClient::new(&assignment).await;
                assignment.play(ours).await;
            }
            way => {
                let way = if way == SCRIPT { Way::Script } else { Way::Transaction };
                let bare = Bare::connect(way, &assignment.nodes).await;
                assignment.play(bare).await;
            }
        }
    });
    true
}

/// The share of all slices, the least and the most of one, and the median rate.
fn told(slices: &[Turns], lasting: Duration) -> String {
    let shares = slices.iter().map(Turns::share);
    let least = shares.clone().fold(1.0, f64::min);
    let most = shares.fold(0.0, f64::max);
    let mut rates: Vec<_> =
        slices.iter().map(|slice| f64::from(slice.tokens) / lasting.as_secs_f64()).collect();
    rates.sort_by(f64::total_cmp);
    format!(
        "{:.1} % ({:.1} to {:.1}) of {} | {:.0}",
        100.0 * share(slices),
        100.0 * least,
        100.0 * most,
        slices.iter().map(|slice| slice.tokens).sum::<u32>(),
        rates[rates.len() / 2],
    )
}

fn share(slices: &[Turns]) -> f64 {
    let sum = |of: fn(&Turns) -> u32| f64::from(slices.iter().map(of).sum::<u32>());
    sum(|slice| slice.one_round) / sum(|slice| slice.tokens)
}

/// Prints the row.
fn run(stage: &Setup, name: &str, apart: Duration, hold: Duration, lasting: Duration) {
    let mut seen = CONTENDERS.map(|_| Vec::new());
    for _ in 0..SLICES {
        for (contender, slices) in CONTENDERS.iter().zip(&mut seen) {
            slices.push(stage.play(&Scenario { contender, apart, hold, lasting }));
        }
    }
    println!("| {name} | {} |", seen.map(|slices| told(&slices, lasting)).join(" | "));
}

fn main() {
    if is_child() {
        return;
    }
    let args = || std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let seconds = args().find_map(|arg| arg.parse::<u64>().ok()).unwrap_or(1);
    let assignment = args().find(|arg| arg.parse::<u64>().is_err()).unwrap_or_default();
    let stage = Setup::new(&[]);
    let columns = CONTENDERS.map(|name| format!("{name}: at once | acquires/s"));
    println!("| clocks apart, hold | {} |", columns.join(" | "));
    println!("|---|{}", "---|".repeat(2 * CONTENDERS.len()));
    for (apart, hold) in APART.iter().flat_map(|apart| HOLDS.map(|hold| (*apart, hold))) {
        let name = format!("{apart} ms, {hold} ms");
        if name.starts_with(&assignment) {
            let [apart, hold] = [apart, hold].map(Duration::from_millis);
            run(&stage, &name, apart, hold, Duration::from_secs(seconds));
        }
    }
}
