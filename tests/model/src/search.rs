//! Breadth-first search of all states. The first trace found is therefore a shortest one.
//!
//! The crate `stateright` is not suitable. Its breadth-first search has no symmetry reduction, and
//! its depth-first search finds no shortest traces. Stateright identifies a state by a 64-bit hash,
//! so it could confuse two states. This search merges states that differ only in names, which
//! leaves a twelfth of the states, and compares states in full.

use crate::action::Action;
use crate::seen::Seen;
use crate::setting::Setting;
use crate::state::{Orders, State};
use std::time::{Duration, Instant};

/// A named condition on states.
pub(crate) type Query<const C: usize, const K: usize> =
    (&'static str, fn(&Setting, &State<C, K>) -> bool);

/// An action and the state that it leads to.
pub(crate) type Move<const C: usize, const K: usize> = (Action, State<C, K>);

pub(crate) struct Explored<const C: usize, const K: usize> {
    /// The number of distinct states. States that differ only in names count once.
    pub(crate) states: usize,
    /// The number of steps from the first state to the farthest one.
    pub(crate) depth: usize,
    pub(crate) time: Duration,
    /// A shortest trace to a forbidden state, or `None` if no such state is reachable. The search
    /// ends at that state.
    pub(crate) found: Option<Vec<Move<C, K>>>,
    /// For each goal, the number of steps to the first state that satisfies the goal. `None` if no
    /// state satisfies it.
    pub(crate) goals: Vec<(&'static str, Option<usize>)>,
}

/// Visits all states that are reachable from `start`. Stops early at a state that satisfies `stop`.
pub(crate) fn explore<const C: usize, const K: usize>(
    setting: &Setting,
    start: State<C, K>,
    stop: impl Fn(&Setting, &State<C, K>) -> bool,
    goals: &[Query<C, K>],
) -> Explored<C, K> {
    explore_in(&Orders::all(setting), setting, start, stop, goals)
}

/// Visits all states that are reachable from `start`, without merging states that differ only in
/// names. A `stop` condition that names a client requires this search.
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

/// Converts a path of canonical states to a trace from `start` with the original names of nodes,
/// clients and keys.
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
