//! The model's results, as they must be.

use model::{guards, hand_over, rehearse, safe_settings, search, unsafe_settings};

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
fn two_clients_never_hold_sets_at_once_that_have_a_key_in_common() {
    assert_safe(4);
}

#[test]
#[ignore = "millions of states: `make model` searches them"]
fn a_guard_lets_nobody_in_who_has_met_the_nodes_before_all_restarted() {
    assert_safe(5);
}

#[test]
#[ignore = "millions of states: `make model` searches them"]
fn a_guard_lets_no_newcomer_in_while_a_node_is_always_old() {
    assert_safe(6);
}

#[test]
#[ignore = "millions of states: `make model` searches them"]
fn a_strict_guard_lets_no_newcomer_in_when_all_nodes_restart() {
    assert_safe(7);
}

#[test]
fn a_state_remembers_what_a_client_knows_of_its_nodes() {
    for guard in guards() {
        let histories = rehearse(guard, 7).expect("the same nodes count");
        assert!(histories > 10_000, "only {histories} of {guard:?}");
    }
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

#[test]
fn a_set_that_is_set_in_part_is_found() {
    assert_unsafe(6, 10);
}

#[test]
fn a_restart_without_a_guard_is_found() {
    assert_unsafe(7, 11);
}

#[test]
fn a_term_that_is_too_short_is_found() {
    assert_unsafe(8, 12);
}

#[test]
fn a_newcomer_that_meets_no_old_node_is_found() {
    assert_unsafe(9, 16);
}

#[test]
fn a_newcomer_that_does_not_wait_to_meet_the_nodes_is_found() {
    assert_unsafe(10, 15);
}

#[test]
fn servers_that_say_that_they_are_older_than_allowed_for_are_found() {
    assert_unsafe(11, 14);
}
