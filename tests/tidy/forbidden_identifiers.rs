//! Checks that certain identifiers do not occur in parts of the code that must not use them.

use crate::sources::sources;
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

/// Identifiers that indicate clocks, randomness, I/O, waiting or logging.
const IMPURE: [&str; 21] = [
    "Instant",
    "SystemTime",
    "clock",
    "rand",
    "uuid",
    "Uuid",
    "io",
    "fs",
    "net",
    "env",
    "thread",
    "process",
    "async",
    "await",
    "tokio",
    "futures",
    "redis",
    "println",
    "eprintln",
    "tracing",
    "Mutex",
];

fn identifiers(tokens: TokenStream, found: &mut Vec<(String, usize)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => identifiers(group.stream(), found),
            TokenTree::Ident(name) => found.push((name.to_string(), name.span().start().line)),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn identifiers_of(file: &syn::File) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    identifiers(file.to_token_stream(), &mut found);
    found
}

#[test]
fn protocol_does_no_io() {
    let mut impure = Vec::new();
    let sources = sources("src/protocol");
    assert!(sources.len() >= 6, "src/protocol has too few files: {}", sources.len());
    for source in sources.iter().filter(|source| !source.path.ends_with("enumeration.rs")) {
        for (name, line) in identifiers_of(&source.production()) {
            if IMPURE.contains(&name.as_str()) {
                impure.push(format!("{}:{line}: {name}", source.path.display()));
            }
        }
    }
    assert!(impure.is_empty(), "clock, randomness, I/O, waiting or logging: {impure:#?}");
}

/// Identifiers that the coordinator may use although they are in [`IMPURE`]: values and errors of the `redis` crate,
/// the state of the nodes' clocks, and UUIDs from the coordinator's own source of randomness.
const PERMITTED_IN_COORDINATOR: [&str; 4] = ["redis", "io", "clock", "uuid"];

#[test]
fn coordinator_does_no_io() {
    let mut impure = Vec::new();
    let sources = sources("src/coordinator");
    assert!(sources.len() >= 20, "src/coordinator has too few files: {}", sources.len());
    for source in sources.iter().filter(|source| !source.is_test_file()) {
        for (name, line) in identifiers_of(&source.production()) {
            let name = name.as_str();
            if IMPURE.contains(&name) && !PERMITTED_IN_COORDINATOR.contains(&name) {
                impure.push(format!("{}:{line}: {name}", source.path.display()));
            }
        }
    }
    assert!(impure.is_empty(), "src/coordinator uses {impure:#?}");
}

/// Checks that unit tests start no servers. They must compile in the published package, which does not contain
/// `tests/kit`.
#[test]
fn unit_tests_start_no_servers() {
    let mut users = sources("src");
    users.retain(|source| identifiers_of(&source.file).iter().any(|(name, _)| name == "kit"));
    let users: Vec<_> = users.into_iter().map(|source| source.path).collect();
    assert!(users.is_empty(), "unit tests must not use tests/kit: {users:#?}");
}
