//! Tests that the model and a real server send identical replies to the same random commands.
//!
//! `SERVER_MODEL_SEED` repeats a run with one seed, and `SERVER_MODEL_COMMANDS` sets the number of commands for each
//! seed.
#![cfg(target_os = "linux")]
#![allow(unreachable_pub, reason = "a test's modules")]

mod comparison;
mod condition;
mod events;
mod frames;
mod generator;
mod programs;
mod readers;
mod real;
mod rng;
mod scripts;

use comparison::Comparison;
use real::Real;
use std::collections::BTreeMap;
use std::env;

/// A snapshot schedule that never causes a snapshot.
const SAVE: &str = "2000000000 1000000000";
const SEEDS: u64 = 10;
const COMMANDS: usize = 10_000;

/// The minimum number of replies of each kind, so that a run does not compare only errors.
const KINDS: [(&str, usize); 21] = [
    ("+OK", 10_000),
    (":-1", 1_000),
    (":-2", 1_000),
    (":0", 1_000),
    (":1", 1_000),
    (":", 1_000),
    ("_", 1_000),
    ("$-1", 100),
    ("key invalidation", 1_000),
    ("full invalidation", 100),
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
fn model_replies_equal_those_of_a_real_server() {
    let commands = number("SERVER_MODEL_COMMANDS").unwrap_or(COMMANDS);
    let one = number("SERVER_MODEL_SEED");
    let is_short = one.is_some() || commands < COMMANDS;
    let seeds = one.map_or((0..SEEDS).collect(), |seed| vec![seed]);
    let mut seen = BTreeMap::<String, usize>::new();
    let mut real = Real::start(None);
    if !real.follows_its_clock() {
        eprintln!("skipped: this server caches its time, as Valkey 9 does");
        return;
    }
    let version = real.version();
    drop(real);
    for seed in seeds {
        let mut comparison = Comparison::new(seed);
        while comparison.sent < commands {
            comparison.step();
        }
        comparison.finish();
        for (kind, count) in comparison.seen {
            *seen.entry(kind).or_default() += count;
        }
    }
    for (kind, least) in KINDS {
        let count = seen.get(kind).copied().unwrap_or_default();
        assert!(
            is_short || !version.has_exact_errors() || count >= least,
            "only {count} replies of kind {kind}: {seen:#?}"
        );
    }
}
