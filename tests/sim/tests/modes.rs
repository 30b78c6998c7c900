//! Tests of the simulation's modes: guarantees hold, and faults outside the guarantee violate
//! mutual exclusion.

use sim::{Mode, Rule, sweep};

#[test]
fn modes_with_a_guarantee_have_no_findings() {
    for (label, mode) in Mode::ALL.into_iter().filter(|(_, mode)| mode.is_promised()) {
        let swept = sweep(mode, 0..mode.share(5), 2, false);
        assert!(swept.findings.is_empty(), "{label}: {:?}", swept.findings);
        assert!(swept.grants > 4 * swept.seeds, "{label}: {} locks", swept.grants);
        assert!(
            label == "tokens" || swept.overlaps.0 == 0,
            "{label}: {:?} overlaps",
            swept.overlaps
        );
    }
}

#[test]
fn faults_outside_the_guarantee_cause_overlaps_only() {
    for label in ["amnesia", "guard-off", "standstill"] {
        let (_, mode) = mode(label);
        let swept = sweep(mode, 0..80, 2, false);
        assert!(swept.overlaps.0 > 0, "{label}");
        assert!(swept.findings.is_empty(), "{label}: {:?}", swept.findings);
    }
}

#[test]
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
