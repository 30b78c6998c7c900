//! Tests of usage errors. The command exits with code 2 and prints advice before it contacts any node.

use crate::shell_session::ShellSession;
use regex::Regex;
use std::fs;
use std::path::Path;

/// No server listens on these ports.
const NODES: &str = "redis://127.0.0.1:1 redis://127.0.0.1:2 redis://127.0.0.1:3";

#[test]
fn missing_arguments_are_named() {
    let mut session = ShellSession::default();
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
        session.run(arguments);
    }
    session.compare_with("usage-missing.txt");
}

/// Invalid options of `run` for jobs and readers.
const INVALID_JOBS_AND_READERS: [&[&str]; 13] = [
    &["--every", "0.5s", "a"],
    &["--every", "31d", "a"],
    &["--every", "999ms", "a"],
    &["--every", "1h", "--offset", "1h", "a"],
    &["--every", "1h", "--at-least", "61s", "a"],
    &["--every", "1h", "--permits", "2", "a"],
    &["--every", "1h", "--shared", "a"],
    &["--every", "1h", "a", "b"],
    &["--every", "1h", "a{b"],
    &["--take-over", "a"],
    &["--shared", "a", "b"],
    &["--shared", "a{b"],
    &["--shared", "--permits", "2", "a"],
];

#[test]
fn invalid_options_are_refused() {
    let mut session = ShellSession::default().with("QUORLOCK_NODES", NODES);
    let long = "m".repeat(4097);
    session.name("[LONG]", &long);
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
        &["--max-hold", "4s", "--grace", "4s"],
        &["--time", "1s"],
        &["--max-ttl", "5s"],
        &["--max-ttl", "5m", "--ttl", "4m", "--grace", "3m"],
    ] {
        session.run(&[&["run"], options, &["a", "--", "true"]].concat());
    }
    for names in [&["0", "a"][..], &["1001", "a"], &["two", "a"], &["2", "a", "b"], &["2", "a{b"]] {
        session.run(&[&["run", "--permits"], names, &["--", "true"]].concat());
    }
    session.run(&["run", "--permits", "2", "--fenced", "a", "--", "true"]);
    for options in INVALID_JOBS_AND_READERS {
        session.run(&[&["run"], options, &["--", "true"]].concat());
    }
    session.run(&["status", "--permits", "0", "a"]);
    for (name, value) in [
        ("QUORLOCK_TOKEN_TTL", "5s"),
        ("QUORLOCK_DRIFT_FACTOR", "1"),
        ("QUORLOCK_DRIFT_CONSTANT", "10s"),
        ("QUORLOCK_NODE_TIMEOUT", "0s"),
        ("QUORLOCK_MAX_TTL", "0s"),
    ] {
        session.run_with(name, value, &["hold", "a"]);
    }
    for options in
        [&["hold", "--ttl", "2m", "a"][..], &["lead", "--grace", "6s", "a", "--", "true"]]
    {
        session.run(options);
    }
    // These subcommands have no options for the lock.
    for verb in [&["check"][..], &["status", "a"], &["release", "a", "--force"], &["torture"]] {
        session.run_with("QUORLOCK_TTL", "2m", verb);
    }
    session.run_with("QUORLOCK_METADATA", &long, &["check"]);
    let value = "v".repeat(5000);
    session.name("[VALUE]", &value);
    session.run(&["release", "a", "--value", &value]);
    session.compare_with("usage-options.txt");
}

#[test]
fn invalid_torture_options_are_refused() {
    let mut session =
        ShellSession::default().with("QUORLOCK_NODES", "redis://127.0.0.1:1 redis://127.0.0.1:2");
    for options in [
        &["--fault", "a"][..],
        &["--mend", "b"],
        &["--fault", "a", "--mend", "b"],
        &["--fault", "3: a", "--mend", "b"],
        &["--fault", " ", "--mend", "b"],
        &["--for", "5"],
        &["--clients", "0"],
        &["--also-nodes-file", "/no/such/file"],
        &["--out", "/dev/null/here"],
    ] {
        session.run(&[&["torture"], options].concat());
    }
    session.run_with("QUORLOCK_NODE_TIMEOUT", "251ms", &["torture"]);
    session.compare_with("usage-torture.txt");
}

#[test]
fn invalid_resource_names_are_refused() {
    let mut session = ShellSession::default().with("QUORLOCK_NODES", NODES);
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
        &["release", "a", "--value", "quorlock:readers"],
        &["run", "--shared", "a#quorlock:b", "--", "true"],
    ] {
        session.run(arguments);
    }
    session.compare_with("usage-names.txt");
}

/// The library's messages name builder methods, which do not exist in a shell.
#[test]
fn messages_about_settings_name_no_rust_method() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).expect("a source file");
    let (errors, messages) = (read("../src/error/config.rs"), read("src/settings.rs"));
    let method = Regex::new(r"[a-z_]\(").expect("a valid pattern");
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

/// Errors that the library never returns for the calls of the command.
const UNREACHABLE: [&str; 7] = [
    "EnsureExceedsMax",
    "NoResources",
    "AdoptsSet",
    "CoolDownExceedsMax",
    "MarginTooLong",
    "BadRenewDeadline",
    "BadRetryDelay",
];
