//! Tests of the semaphore search: an ordinary lock for each permit limits the number of holders,
//! and counting the permits on each node does not.

use model::{safe_semaphores, search_semaphore, unsafe_semaphores};

fn assert_safe(index: usize, states: usize) {
    let semaphore = safe_semaphores()[index];
    let report = search_semaphore(&semaphore);
    let trace = report.trace.unwrap_or_default().join("\n");
    assert!(trace.is_empty(), "{}: too many holders:\n{trace}", semaphore.name);
    for (goal, depth) in report.goals {
        assert!(depth.is_some(), "{}: no state where {goal}", semaphore.name);
    }
    assert_eq!(report.states, states, "{}", semaphore.name);
}

fn assert_unsafe(index: usize, holders: usize, steps: usize) {
    let semaphore = unsafe_semaphores()[index];
    let trace = search_semaphore(&semaphore).trace.unwrap_or_default();
    let lines = trace.join("\n");
    assert_eq!(trace.len(), steps, "{}:\n{lines}", semaphore.name);
    assert_eq!(lines.matches("HOLDS A PERMIT").count(), holders, "{}:\n{lines}", semaphore.name);
    assert!(holders > semaphore.permits(), "{}", semaphore.name);
}

#[test]
fn lock_per_permit_never_has_a_third_holder() {
    assert_safe(0, 4_usize.pow(10)); // Each of 10 locks is free or held by one of 3 clients.
}

#[test]
fn one_counted_permit_never_has_two_holders() {
    assert_safe(1, 4_usize.pow(3));
}

#[test]
fn two_counted_permits_with_quorum_of_four_are_safe() {
    assert_safe(2, 7_usize.pow(5)); // Each node has one of the 7 sets of at most 2 of 3 clients.
}

#[test]
fn two_permits_counted_on_3_nodes_have_three_holders() {
    assert_unsafe(0, 3, 6);
}

#[test]
fn two_permits_counted_on_5_nodes_have_three_holders() {
    assert_unsafe(1, 3, 9);
}
