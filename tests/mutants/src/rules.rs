//! Writes the table of docs/INVARIANTS.md: the patches that break each rule, and the tests that detect them.

use crate::header::{Header, RULES, invariant};
use crate::patch::Patch;
use std::fmt::Write;

/// Returns a Markdown table with one row for each patch: first the invariants, then the other rules.
pub fn rules_table(patches: &[Patch]) -> String {
    let mut sorted: Vec<_> = patches.iter().collect();
    sorted.sort_by_key(|patch| {
        let rule = &*patch.header.rule;
        (invariant(rule).unwrap_or(u32::MAX), RULES.iter().position(|other| *other == rule))
    });
    let mut table = String::from("| rule | patch | seen by |\n|---|---|---|\n");
    for patch in sorted {
        let (rule, seen_by) = (&patch.header.rule, seen_by(&patch.header));
        let _ = writeln!(table, "| {rule} | `{}` | {seen_by} |", patch.name);
    }
    table
}

/// Formats a tier and its tests as `unit: a, b`. The modules of the tests are omitted.
fn seen_by(header: &Header) -> String {
    let tests = header.test.split_whitespace();
    let names = tests.map(|test| format!("`{}`", test.rsplit("::").next().unwrap_or(test)));
    let names: Vec<_> = names.collect();
    let tier = header.tier;
    if names.is_empty() { tier.to_string() } else { format!("{tier}: {}", names.join(", ")) }
}
