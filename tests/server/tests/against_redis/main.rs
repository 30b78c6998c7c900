//! The model answers as a real server does, to the byte, whatever is said to both.
//!
//! A run is played again, or made longer, by `SERVER_MODEL_SEED` and `SERVER_MODEL_COMMANDS`.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "a test's modules")]

mod author;
mod dice;
mod duel;
mod frames;
mod real;
mod scripts;

use duel::Duel;
use std::env;

/// When the server saves snapshots, where it cannot: never.
const SAVE: &str = "2000000000 1000000000";
const SEEDS: u64 = 10;
const COMMANDS: usize = 10_000;

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}

#[test]
fn the_model_answers_as_a_real_server_does() {
    let commands = number("SERVER_MODEL_COMMANDS").unwrap_or(COMMANDS);
    let seeds = number("SERVER_MODEL_SEED").map_or((0..SEEDS).collect(), |seed| vec![seed]);
    for seed in seeds {
        let mut duel = Duel::new(seed);
        while duel.sent < commands {
            duel.play();
        }
        duel.finish();
    }
}
