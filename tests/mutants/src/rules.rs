//! Writes the table of docs/INVARIANTS.md: the patches that break each rule, and the tests that detect them.

use crate::patch::Patch;
use crate::tier::Tier;
use std::fmt::Write;

/// Returns a Markdown table with one row for each patch that names a rule, in the order of the rules.
pub fn rules_table(patches: &[Patch]) -> String {
    let number = |rule: &str| rule.trim_start_matches('I').parse::<u32>().unwrap_or(u32::MAX);
    let ruled = patches.iter().filter_map(|patch| Some((patch.header.rule.as_deref()?, patch)));
    let mut ruled: Vec<_> = ruled.collect();
    ruled.sort_by_key(|(rule, patch)| (number(rule), &patch.name));
    let mut table = String::from("| rule | patch | seen by |\n|---|---|---|\n");
    for (rule, patch) in ruled {
        let header = &patch.header;
        let first = (header.tier, header.test.as_deref().unwrap_or_default());
        let also = header.also.as_ref().map(|(tier, tests)| (*tier, tests.as_str()));
        let seen: Vec<_> = [first].into_iter().chain(also).map(format_tests).collect();
        let _ = writeln!(table, "| {rule} | `{}` | {} |", patch.name, seen.join("; "));
    }
    table
}

/// Formats a tier and its tests as `unit: a, b`. The modules of the tests are omitted.
fn format_tests((tier, tests): (Tier, &str)) -> String {
    let names = tests.split_whitespace().map(|test| test.rsplit("::").next().unwrap_or(test));
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { tier.to_string() } else { format!("{tier}: {}", names.join(", ")) }
}
