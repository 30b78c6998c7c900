//! The model's results, as they must be.

use model::{hand_over, safe_settings, search, unsafe_settings};

/// Searches a safe setting to its end.
fn assert_safe(which: usize) {
    let setting = safe_settings()[which];
    let report = search(&setting);
    let trace = report.trace.unwrap_or_default().join("\n");
    assert!(trace.is_empty(), "{}: two holders:\n{trace}", setting.name);
    for (what, depth) in report.sometimes {
        assert!(depth.is_some(), "{}: it must be possible that {what}", setting.name);
    }
    assert!(report.states > 1_000_000, "{}: only {} states", setting.name, report.states);
}

/// Searches an unsafe setting, and compares the length of the shortest trace.
fn assert_unsafe(which: usize, steps: usize) {
    let setting = unsafe_settings()[which];
    let trace = search(&setting).trace.unwrap_or_default();
    assert_eq!(trace.len(), steps, "{}:\n{}", setting.name, trace.join("\n"));
}

#[test]
fn two_clients_that_try_again_never_hold_at_once() {
    assert_safe(0);
}

#[test]
fn two_clients_that_extend_never_hold_at_once() {
    assert_safe(1);
}

#[test]
fn two_clients_never_hold_at_once_when_requests_are_lost() {
    assert_safe(2);
}

#[test]
fn three_clients_never_hold_at_once() {
    assert_safe(3);
}

#[test]
fn each_client_gets_the_lock() {
    let steps = hand_over().expect("the lock is not handed over");
    for who in ["A", "B"] {
        let gets = format!("{who} HOLDS THE LOCK");
        assert_eq!(steps.iter().filter(|step| step.contains(&gets)).count(), 1, "{steps:#?}");
    }
}

#[test]
fn a_node_that_forgets_and_is_back_at_once_is_found() {
    assert_unsafe(0, 11);
}

#[test]
fn a_node_whose_clock_jumps_is_found() {
    assert_unsafe(1, 11);
}

#[test]
fn a_quorum_too_small_is_found() {
    assert_unsafe(2, 6);
}

#[test]
fn a_release_without_compare_is_found() {
    assert_unsafe(3, 16);
}

#[test]
fn validity_from_the_last_reply_is_found() {
    assert_unsafe(4, 13);
}

#[test]
fn a_fast_node_without_an_allowance_is_found() {
    assert_unsafe(5, 13);
}
