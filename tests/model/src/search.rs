//! Breadth-first search of all states, so the first trace found is a shortest one.
//!
//! The crate `stateright` does not fit: its breadth-first search has no symmetry reduction, and its
//! depth-first search has no shortest traces. It also identifies a state by a 64-bit hash, so it
//! could confuse two states. This search merges states that differ only in names, which leaves a
//! twelfth of them, and compares states in full.

use crate::action::Action;
use crate::seen::Seen;
use crate::setting::Setting;
use crate::state::{Orders, State};
use std::time::{Duration, Instant};

/// Name of a condition on states, and the condition.
pub(crate) type Query<const C: usize, const K: usize> =
    (&'static str, fn(&Setting, &State<C, K>) -> bool);

/// An action, with the state after it.
pub(crate) type Move<const C: usize, const K: usize> = (Action, State<C, K>);

/// Result of a search.
pub(crate) struct Explored<const C: usize, const K: usize> {
    /// Number of states, with states that differ only in names counted once.
    pub(crate) states: usize,
    /// Number of steps from the first state to the farthest one.
    pub(crate) depth: usize,
    /// Duration of the search.
    pub(crate) time: Duration,
    /// A shortest trace to a forbidden state, if found. The search ends there.
    pub(crate) found: Option<Vec<Move<C, K>>>,
    /// For each goal, the number of steps to the first state that satisfies it, if any.
    pub(crate) goals: Vec<(&'static str, Option<usize>)>,
}

/// Visits all states reachable from `start`, until a state satisfies `stop`.
pub(crate) fn explore<const C: usize, const K: usize>(
    setting: &Setting,
    start: State<C, K>,
    stop: impl Fn(&Setting, &State<C, K>) -> bool,
    goals: &[Query<C, K>],
) -> Explored<C, K> {
    explore_in(&Orders::all(setting), setting, start, stop, goals)
}

/// Like `explore`, without merging of states that differ in names, for a `stop` that names a
/// client.
pub(crate) fn explore_named<const C: usize, const K: usize>(
    setting: &Setting,
    start: State<C, K>,
    stop: impl Fn(&Setting, &State<C, K>) -> bool,
) -> Explored<C, K> {
    explore_in(&Orders::names(), setting, start, stop, &[])
}

fn explore_in<const C: usize, const K: usize>(
    orders: &Orders<C, K>,
    setting: &Setting,
    start: State<C, K>,
    stop: impl Fn(&Setting, &State<C, K>) -> bool,
    goals: &[Query<C, K>],
) -> Explored<C, K> {
    let started = Instant::now();
    let mut seen = Seen::starting_from(start.canonical(orders));
    let mut reached = vec![None; goals.len()];
    let (mut depth, mut end_of_level, mut actions) = (0, 1, Vec::new());
    let mut place = 0;
    let mut found = None;
    'search: while place < seen.len() {
        if place == end_of_level {
            (depth, end_of_level) = (depth + 1, seen.len());
        }
        let state = seen.get(place);
        for (first, (_, is_reached)) in reached.iter_mut().zip(goals) {
            if first.is_none() && is_reached(setting, &state) {
                *first = Some(depth);
            }
        }
        state.actions(setting, &mut actions);
        for action in &actions {
            let next = state.after(setting, *action).canonical(orders);
            if seen.insert(next, place) && stop(setting, &next) {
                let path = seen.path_to(seen.len() - 1);
                found = Some(restore_names(setting, start, &path, orders));
                break 'search;
            }
        }
        place += 1;
    }
    let goals = goals.iter().zip(reached).map(|((name, _), first)| (*name, first));
    let goals = goals.collect();
    Explored { states: seen.len(), depth, time: started.elapsed(), found, goals }
}

/// Repeats a path of canonical states from a state with names.
fn restore_names<const C: usize, const K: usize>(
    setting: &Setting,
    start: State<C, K>,
    path: &[State<C, K>],
    orders: &Orders<C, K>,
) -> Vec<Move<C, K>> {
    let mut trace = Vec::new();
    let (mut state, mut actions) = (start, Vec::new());
    for canonical in &path[1..] {
        state.actions(setting, &mut actions);
        let is_next =
            |action: &&Action| state.after(setting, **action).canonical(orders) == *canonical;
        let action = *actions
            .iter()
            .find(is_next)
            .expect("an action that leads to the same canonical state");
        state = state.after(setting, action);
        trace.push((action, state));
    }
    trace
}
