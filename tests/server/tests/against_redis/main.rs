//! The model answers as a real server does, to the byte, whatever is said to both.
//!
//! A run is played again, or made longer, by `SERVER_MODEL_SEED` and `SERVER_MODEL_COMMANDS`.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "a test's modules")]

mod author;
mod dice;
mod duel;
mod frames;
mod moments;
mod real;
mod scripts;
mod weather;

use duel::Duel;
use real::Real;
use std::collections::BTreeMap;
use std::env;

/// When the server saves snapshots, where it cannot: never.
const SAVE: &str = "2000000000 1000000000";
const SEEDS: u64 = 10;
const COMMANDS: usize = 10_000;

/// What must have come so often at least: a comparison of refusals only would show nothing.
const KINDS: [(&str, usize); 21] = [
    ("+OK", 10_000),
    (":-1", 1_000),
    (":-2", 1_000),
    (":0", 1_000),
    (":1", 1_000),
    (":", 1_000),
    ("_", 1_000),
    ("$-1", 100),
    ("a key pushed", 1_000),
    ("all pushed", 100),
    ("-BUSY", 100),
    ("-COUNTER", 100),
    ("-MASTERDOWN", 100),
    ("-MISCONF", 100),
    ("-NOAUTH", 100),
    ("-NOPERM", 100),
    ("-NOSCRIPT", 100),
    ("-OOM", 100),
    ("-OOM in a script", 20),
    ("-READONLY", 100),
    ("-WRONGTYPE", 100),
];

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    env::var(name).ok()?.parse().ok()
}

#[test]
fn the_model_answers_as_a_real_server_does() {
    let commands = number("SERVER_MODEL_COMMANDS").unwrap_or(COMMANDS);
    let one = number("SERVER_MODEL_SEED");
    let is_short = one.is_some() || commands < COMMANDS;
    let seeds = one.map_or((0..SEEDS).collect(), |seed| vec![seed]);
    let mut seen = BTreeMap::<String, usize>::new();
    let mut real = Real::start(None);
    if !real.follows_its_clock() {
        eprintln!(
            "skipped: this server looks at its clock from time to time only, as Valkey 9 does"
        );
        return;
    }
    let version = real.version();
    drop(real);
    for seed in seeds {
        let mut duel = Duel::new(seed);
        while duel.sent < commands {
            duel.play();
        }
        duel.finish();
        for (kind, count) in duel.seen {
            *seen.entry(kind).or_default() += count;
        }
    }
    for (kind, least) in KINDS {
        let count = seen.get(kind).copied().unwrap_or_default();
        assert!(
            is_short || !version.has_exact_errors() || count >= least,
            "{kind} came {count} times: {seen:#?}"
        );
    }
}
