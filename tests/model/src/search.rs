//! Breadth first through all states: what is found first is found by a shortest way.
//!
//! The search is of the house and not that of the crate `stateright`: there, breadth first knows
//! no symmetry (only depth first does, and its traces are not shortest), and a state is known by a
//! hash of 64 bits, so that two could be taken for one. Here states that differ only in names are
//! one, which leaves a twelfth of them, and they are compared in full.

use crate::action::Action;
use crate::seen::Seen;
use crate::setting::Setting;
use crate::state::{Orders, State};
use std::time::{Duration, Instant};

/// Something to look for: what it is called, and whether a state is one.
pub(crate) type Query<const C: usize, const K: usize> =
    (&'static str, fn(&Setting, &State<C, K>) -> bool);

/// An action with the state after it.
pub(crate) type Move<const C: usize, const K: usize> = (Action, State<C, K>);

/// What a search has come to.
pub(crate) struct Explored<const C: usize, const K: usize> {
    /// How many states there are, those that differ only in names counted once.
    pub(crate) states: usize,
    /// How many steps the last of them is away from the first.
    pub(crate) depth: usize,
    /// How long it took.
    pub(crate) time: Duration,
    /// A shortest way to what must not be, where it was found; the search has ended there.
    pub(crate) found: Option<Vec<Move<C, K>>>,
    /// Of each thing that should be possible, in how many steps it is, if it is.
    pub(crate) sometimes: Vec<(&'static str, Option<usize>)>,
}

/// Visits all states that `start` leads to, until there are no more or one is as `stop` says.
pub(crate) fn explore<const C: usize, const K: usize>(
    setting: &Setting,
    start: State<C, K>,
    stop: impl Fn(&Setting, &State<C, K>) -> bool,
    sometimes: &[Query<C, K>],
) -> Explored<C, K> {
    explore_in(&Orders::all(setting), setting, start, stop, sometimes)
}

/// The same, with the clients told apart, for a `stop` that names one.
pub(crate) fn explore_by_name<const C: usize, const K: usize>(
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
    sometimes: &[Query<C, K>],
) -> Explored<C, K> {
    let begun = Instant::now();
    let mut seen = Seen::starting_from(start.nameless(orders));
    let mut reached = vec![None; sometimes.len()];
    let (mut depth, mut end_of_level, mut actions) = (0, 1, Vec::new());
    let mut place = 0;
    let mut found = None;
    'search: while place < seen.len() {
        if place == end_of_level {
            (depth, end_of_level) = (depth + 1, seen.len());
        }
        let state = seen.get(place);
        for (first, (_, is_one)) in reached.iter_mut().zip(sometimes) {
            if first.is_none() && is_one(setting, &state) {
                *first = Some(depth);
            }
        }
        state.actions(setting, &mut actions);
        for action in &actions {
            let next = state.after(setting, *action).nameless(orders);
            if seen.insert(next, place) && stop(setting, &next) {
                let path = seen.path_to(seen.len() - 1);
                found = Some(with_names(setting, start, &path, orders));
                break 'search;
            }
        }
        place += 1;
    }
    let sometimes = sometimes.iter().zip(reached).map(|((name, _), first)| (*name, first));
    let sometimes = sometimes.collect();
    Explored { states: seen.len(), depth, time: begun.elapsed(), found, sometimes }
}

/// Goes a way of nameless states again from a state with names.
fn with_names<const C: usize, const K: usize>(
    setting: &Setting,
    start: State<C, K>,
    path: &[State<C, K>],
    orders: &Orders<C, K>,
) -> Vec<Move<C, K>> {
    let mut trace = Vec::new();
    let (mut state, mut actions) = (start, Vec::new());
    for nameless in &path[1..] {
        state.actions(setting, &mut actions);
        let leads_on =
            |action: &&Action| state.after(setting, **action).nameless(orders) == *nameless;
        let action = *actions.iter().find(leads_on).expect("names change nothing");
        state = state.after(setting, action);
        trace.push((action, state));
    }
    trace
}
