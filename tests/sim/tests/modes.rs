//! Tests of the simulation's modes: which rules they check, and that faults outside the guarantee
//! violate mutual exclusion. `make sim` runs the modes with a guarantee, and the ignored tests.

use sim::{Mode, Rule, sweep};

#[test]
#[cfg_attr(debug_assertions, ignore = "many runs, so only in optimised builds: make sim")]
fn faults_outside_the_guarantee_cause_overlaps_only() {
    for label in ["amnesia", "guard-off", "standstill"] {
        let (_, mode) = mode(label);
        let swept = sweep(mode, 0..80, 2, false);
        assert!(swept.overlaps.0 > 0, "{label}");
        assert!(swept.findings.is_empty(), "{label}: {:?}", swept.findings);
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "many runs, so only in optimised builds: make sim")]
fn lost_counters_of_a_majority_cause_token_disorder() {
    let (_, mode) = mode("wiped-majority-no-hint");
    let swept = sweep(mode, 560..600, 2, false);
    assert!(swept.disorders.0 > 0);
    assert!(swept.findings.is_empty(), "{:?}", swept.findings);
}

#[test]
fn modes_check_the_rules_of_their_guarantee() {
    for (label, mode) in Mode::ALL {
        assert_eq!(mode.label(), label);
        assert!(mode.checks(Rule::NoPanic), "{label}");
        assert!(mode.is_promised() || !mode.checks(Rule::Exclusion), "{label}");
    }
    assert!(!mode("tokens").1.checks(Rule::Exclusion));
    assert!(mode("tokens").1.checks(Rule::Tokens));
    assert!(mode("guard-fresh").1.checks(Rule::Withheld));
}

fn mode(label: &str) -> (&'static str, Mode) {
    let found = Mode::ALL.into_iter().find(|(name, _)| *name == label);
    found.expect("a mode of this name")
}
