//! The settings that are checked, and what is asked of each state.

use crate::NODES;
use crate::decision::Verdict;
use crate::search::{Goal, explore, explore_by_name};
use crate::setting::{Crash, SAFE, Setting};
use crate::state::{Extension, Node, Phase, State};
use crate::words::tell;
use std::time::Duration;

/// What a search has come to, in numbers and words.
pub struct Report {
    /// How many states there are, those that differ only in names counted once.
    pub states: usize,
    /// How many steps the last of them is away from the first.
    pub depth: usize,
    /// How long it took.
    pub time: Duration,
    /// A shortest way to two holders at once, if there is one; each step a line, then who holds.
    pub trace: Option<Vec<String>>,
    /// Of each thing that should be possible, in how many steps it is, if it is.
    pub sometimes: Vec<(&'static str, Option<usize>)>,
}

/// The settings within the promise. They differ in their bounds, which no machine can have all wide
/// at once.
pub fn safe_settings() -> [Setting; 4] {
    [
        Setting { name: "two clients, two attempts each, crashes", ..SAFE },
        Setting {
            name: "two clients, an extension each, crashes",
            attempts: 1,
            extends: true,
            ..SAFE
        },
        Setting {
            name: "two clients, an extension each, lost requests",
            attempts: 1,
            extends: true,
            crash: Crash::Never,
            loses: true,
            ..SAFE
        },
        Setting {
            name: "three clients",
            clients: 3,
            attempts: 1,
            ttl: 2,
            crash: Crash::Never,
            ..SAFE
        },
    ]
}

/// One safety rule broken, or one fault beyond the promise, in each.
pub fn unsafe_settings() -> [Setting; 6] {
    let calm = Setting { attempts: 1, crash: Crash::Never, ..SAFE };
    [
        Setting {
            name: "immediate amnesia: a node that crashed is back at once, empty",
            crash: Crash::BackAtOnce,
            ..calm
        },
        Setting { name: "a node's clock jumps", jumps: true, ..calm },
        Setting { name: "a quorum that is too small: 1 of 3", electorate: 1, ..calm },
        Setting {
            name: "a release that deletes without compare",
            attempts: 2,
            ttl: 2,
            compares: false,
            ..calm
        },
        Setting {
            name: "validity counted from the reply that decides, not from T1",
            from_t1: false,
            ..calm
        },
        Setting {
            name: "no allowance for drift, and a node whose clock is a tick ahead",
            allowance: 0,
            ..calm
        },
    ]
}

/// Searches `setting` for two clients that hold the lock at once.
///
/// # Panics
/// If there are not two or three clients, or more is asked of them than a line can carry.
pub fn search(setting: &Setting) -> Report {
    match setting.clients {
        2 => search_with::<2>(setting),
        3 => search_with::<3>(setting),
        clients => panic!("{clients} clients: two or three"),
    }
}

fn search_with<const C: usize>(setting: &Setting) -> Report {
    let start = State::<C>::start();
    let two_hold = |setting: &Setting, state: &State<C>| state.holders(setting) > 1;
    let explored = explore(setting, start, two_hold, &goals(setting));
    Report {
        states: explored.states,
        depth: explored.depth,
        time: explored.time,
        trace: explored.found.map(|trace| tell(setting, start, &trace)),
        sometimes: explored.sometimes,
    }
}

/// What must be possible, or else nothing was shown.
fn goals<const C: usize>(setting: &Setting) -> Vec<Goal<C>> {
    let mut goals: Vec<Goal<C>> = vec![
        ("a client holds the lock", |setting, state| state.holders(setting) == 1),
        ("a grant comes too late, and is refused", is_refused_late),
        ("a lease expires in its holder's hands", |_, state| {
            state.clients.iter().any(|it| matches!(it.phase, Phase::Holding { left: 0, .. }))
        }),
        ("a client holds the lock, and another has ended", |setting, state| {
            let has_ended = |it: &_| matches!(it, (Phase::Idle, attempts) if *attempts > 0);
            let mut others = state.clients.iter().map(|it| (it.phase, it.attempts));
            state.holders(setting) == 1 && others.any(|it| has_ended(&it))
        }),
    ];
    if setting.extends {
        goals.push(("an extension counts", |_, state| {
            let extended = |phase| match phase {
                Phase::Holding { left, extension } => left > 0 && extension == Extension::Over,
                _ => false,
            };
            state.clients.iter().any(|it| extended(it.phase))
        }));
    }
    if setting.crash == Crash::StaysAway {
        goals.push(("a node is away while a client holds the lock", |setting, state| {
            let is_away = |node: &Node| matches!(node, Node::Away { .. });
            state.holders(setting) == 1 && state.nodes.iter().any(is_away)
        }));
    }
    goals
}

fn is_refused_late<const C: usize>(setting: &Setting, state: &State<C>) -> bool {
    let of = |client| (0..NODES).map(move |node| (client, node));
    (0..C).flat_map(of).any(|(client, node)| {
        state.is_coming(client, node) && state.verdict(setting, client, node) == Verdict::TooLate
    })
}

/// A shortest way for A to get the lock, and from there for B, by name.
pub fn hand_over() -> Option<Vec<String>> {
    let setting = Setting { attempts: 1, ..SAFE };
    let start = State::<2>::start();
    let a_holds = |setting: &Setting, state: &State<2>| state.believes(setting, 0);
    let first = explore_by_name(&setting, start, a_holds).found?;
    let (_, middle) = *first.last()?;
    let b_holds = |setting: &Setting, state: &State<2>| state.believes(setting, 1);
    let second = explore_by_name(&setting, middle, b_holds).found?;
    Some(tell(&setting, start, &[first, second].concat()))
}
