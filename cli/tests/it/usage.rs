//! What cannot work is a usage error, 2, that says what to do; no node is asked.

use crate::scene::Scene;
use regex::Regex;
use std::fs;
use std::path::Path;

/// Nobody listens there, and nobody is asked.
const NODES: &str = "redis://127.0.0.1:1 redis://127.0.0.1:2 redis://127.0.0.1:3";

#[test]
fn each_verb_says_what_is_missing() {
    let mut scene = Scene::default();
    for arguments in [
        &[][..],
        &["rum"],
        &["run"],
        &["run", "a"],
        &["run", "--", "true"],
        &["run", "a", "b"],
        &["hold"],
        &["lead"],
        &["lead", "a"],
        &["lead", "a", "b", "--", "true"],
        &["status"],
        &["status", "a", "b"],
        &["status", "-q", "--watch", "a"],
        &["status", "-q", "--json", "a"],
        &["check", "--fail-on", "note"],
        &["release", "a"],
        &["release", "a", "--force", "--value", "v"],
        &["completions"],
        &["completions", "csh"],
    ] {
        scene.run(arguments);
    }
    scene.compare_with("usage-missing.txt");
}

#[test]
fn options_that_cannot_work_are_refused() {
    let mut scene = Scene::default().with("QUORLOCK_NODES", NODES);
    let long = "m".repeat(4097);
    scene.name("[LONG]", &long);
    for options in [
        &["--ttl", "10"][..],
        &["--ttl", "0s"],
        &["--ttl", "2m"],
        &["--ttl", "10ms"],
        &["--wait", "soon"],
        &["--max-hold", "1ms"],
        &["--max-hold", "-1s"],
        &["--at-least", "20s"],
        &["--metadata", &long],
        &["-n", "-w", "1s"],
        &["-E", "256"],
        &["-E", "held"],
        &["--on-lost", "hup"],
        &["--grace", "6s"],
        &["--ttl", "4s", "--grace", "2001ms"],
        &["--time", "1s"],
        &["--max-ttl", "5s"],
        &["--max-ttl", "5m", "--ttl", "4m", "--grace", "3m"],
    ] {
        scene.run(&[&["run"], options, &["a", "--", "true"]].concat());
    }
    for (name, value) in [
        ("QUORLOCK_TOKEN_TTL", "5s"),
        ("QUORLOCK_DRIFT_FACTOR", "1"),
        ("QUORLOCK_DRIFT_CONSTANT", "10s"),
        ("QUORLOCK_NODE_TIMEOUT", "0s"),
        ("QUORLOCK_MAX_TTL", "0s"),
    ] {
        scene.run_with(name, value, &["hold", "a"]);
    }
    for options in
        [&["hold", "--ttl", "2m", "a"][..], &["lead", "--grace", "6s", "a", "--", "true"]]
    {
        scene.run(options);
    }
    scene.compare_with("usage-options.txt");
}

#[test]
fn names_that_cannot_be_locked_are_refused() {
    let mut scene = Scene::default().with("QUORLOCK_NODES", NODES);
    for arguments in [
        &["run", "", "--", "true"][..],
        &["run", "a", "", "--", "true"],
        &["hold", ""],
        &["lead", "", "--", "true"],
        &["status", ""],
        &["release", "", "--force"],
        &["status", "a#quorlock:b"],
        &["release", "a#quorlock:b", "--force"],
        &["release", "a#quorlock:b", "--value", "v"],
        &["run", "a#quorlock:b", "--", "true"],
        &["run", "--fenced", "a{b", "--", "true"],
        &["release", "a", "--value", "0123456789abcdef0123456789abcdef+2"],
    ] {
        scene.run(arguments);
    }
    scene.compare_with("usage-names.txt");
}

/// The library's messages name methods of its builder, which a shell does not have.
#[test]
fn errors_of_settings_name_no_rust_method() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).expect("a source file");
    let (errors, messages) = (read("../src/error/config.rs"), read("src/settings.rs"));
    let method = Regex::new(r"[a-z_]\(").expect("a good pattern");
    let mut named = 0;
    for variant in errors.split("#[error(").skip(1) {
        let (message, rest) = variant.split_once(")]\n").expect("an attribute ends");
        if !method.is_match(message) {
            continue;
        }
        let name = rest.trim_start().split([' ', ',']).next().expect("a variant has a name");
        named += 1;
        assert!(
            UNREACHABLE.contains(&name) || messages.contains(&format!("ConfigError::{name} ")),
            "{name} needs a message in cli/src/settings.rs: {message}"
        );
    }
    assert!(named >= UNREACHABLE.len(), "only {named} variants name a method");
}

/// No call that the command makes returns them.
const UNREACHABLE: [&str; 6] = [
    "OpaqueTls",
    "EnsureExceedsMax",
    "NoResources",
    "AdoptsSet",
    "CoolDownExceedsMax",
    "MarginTooLong",
];
