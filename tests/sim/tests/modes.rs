//! The modes of the simulation: what is promised is kept, and what is outside of the promise is broken.

use sim::{Mode, Rule, sweep};

#[test]
fn nothing_is_found_in_the_first_seeds_of_any_mode_that_is_promised() {
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
fn what_is_outside_of_the_promise_breaks_exclusion_and_is_no_finding() {
    for label in ["amnesia", "guard-off", "standstill"] {
        let (_, mode) = mode(label);
        let swept = sweep(mode, 0..25, 2, false);
        assert!(swept.overlaps.0 > 0, "{label}");
        assert!(swept.findings.is_empty(), "{label}: {:?}", swept.findings);
    }
}

#[test]
fn tokens_are_out_of_order_once_a_majority_has_lost_its_counters() {
    let (_, mode) = mode("wiped-majority-no-hint");
    let swept = sweep(mode, 280..320, 2, false);
    assert!(swept.disorders.0 > 0);
    assert!(swept.findings.is_empty(), "{:?}", swept.findings);
}

#[test]
fn modes_say_what_they_look_at() {
    for (label, mode) in Mode::ALL {
        assert_eq!(mode.label(), label);
        assert!(mode.looks_at(Rule::NoPanic), "{label}");
        assert!(mode.is_promised() || !mode.looks_at(Rule::Exclusion), "{label}");
    }
    assert!(!mode("tokens").1.looks_at(Rule::Exclusion));
    assert!(mode("tokens").1.looks_at(Rule::Tokens));
    assert!(mode("guard-fresh").1.looks_at(Rule::Withheld));
}

fn mode(label: &str) -> (&'static str, Mode) {
    let found = Mode::ALL.into_iter().find(|(name, _)| *name == label);
    found.expect("a mode of this name")
}
