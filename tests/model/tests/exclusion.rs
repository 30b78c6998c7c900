//! Tests of the model's results: one safe setting never leads to two holders, and every unsafe
//! setting does. `make model` also searches the other safe settings, which takes minutes.

use model::{check_rebuilt_quarantine, guards, hand_over, safe_settings, search, unsafe_settings};

fn assert_unsafe(index: usize, steps: usize) {
    let setting = unsafe_settings()[index];
    let trace = search(&setting).trace.unwrap_or_default();
    assert_eq!(trace.len(), steps, "{}:\n{}", setting.name, trace.join("\n"));
}

#[test]
fn two_retrying_clients_never_hold_at_once() {
    let setting = safe_settings()[0];
    let report = search(&setting);
    let trace = report.trace.unwrap_or_default().join("\n");
    assert!(trace.is_empty(), "{}: two holders:\n{trace}", setting.name);
    for (goal, depth) in report.goals {
        assert!(depth.is_some(), "{}: no state where {goal}", setting.name);
    }
    assert!(report.states > 1_000_000, "{}: only {} states", setting.name, report.states);
}

#[test]
fn quarantine_rebuilt_from_a_state_equals_the_original() {
    for guard in guards() {
        let histories =
            check_rebuilt_quarantine(guard, 7).expect("the same nodes count in both quarantines");
        assert!(histories > 10_000, "only {histories} of {guard:?}");
    }
}

#[test]
fn lock_passes_from_one_client_to_the_other() {
    let steps = hand_over().expect("a trace in which the lock passes from A to B");
    for client in ["A", "B"] {
        let acquired = format!("{client} HOLDS THE LOCK");
        assert_eq!(steps.iter().filter(|step| step.contains(&acquired)).count(), 1, "{steps:#?}");
    }
}

#[test]
fn immediate_restart_without_keys_gives_two_holders() {
    assert_unsafe(0, 11);
}

#[test]
fn clock_jump_of_a_node_gives_two_holders() {
    assert_unsafe(1, 11);
}

#[test]
fn quorum_of_one_gives_two_holders() {
    assert_unsafe(2, 6);
}

#[test]
fn release_without_comparison_gives_two_holders() {
    assert_unsafe(3, 16);
}

#[test]
fn validity_from_the_last_reply_gives_two_holders() {
    assert_unsafe(4, 13);
}

#[test]
fn fast_clock_without_drift_allowance_gives_two_holders() {
    assert_unsafe(5, 13);
}

#[test]
fn partly_set_key_set_gives_two_holders() {
    assert_unsafe(6, 10);
}

#[test]
fn restart_without_a_guard_gives_two_holders() {
    assert_unsafe(7, 11);
}

#[test]
fn term_shorter_than_the_ttl_gives_two_holders() {
    assert_unsafe(8, 12);
}

#[test]
fn observed_guard_fails_new_client_without_an_old_node() {
    assert_unsafe(9, 16);
}

#[test]
fn assuming_unseen_nodes_unreachable_gives_two_holders() {
    assert_unsafe(10, 15);
}

#[test]
fn uptime_error_above_the_allowance_gives_two_holders() {
    assert_unsafe(11, 14);
}
