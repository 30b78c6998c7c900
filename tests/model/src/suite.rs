//! The settings that are checked, and what is asked of each state.

use crate::NODES;
use crate::decision::Decided;
use crate::node::ModelNode;
use crate::search::{Query, explore, explore_by_name};
use crate::setting::{CountingRule, Crash, GUARD, GuardPromises, SAFE, Setting};
use crate::state::{ClientPhase, ExtensionPhase, State};
use crate::words::tell;
use std::time::Duration;

/// What a search has come to, in numbers and words.
pub struct SearchReport {
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
pub fn safe_settings() -> [Setting; 8] {
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
        Setting {
            name: "sets: two clients, each wants two keys, one of them both, crashes",
            ..SETS
        },
        Setting {
            name: "guard Observed: all nodes restart, and B has met them before",
            ..restarts(GuardPromises { is_new: false, spares: false, ..GUARD })
        },
        Setting {
            name: "guard Observed: nodes restart while another is old, and B comes new",
            ..restarts(GUARD)
        },
        Setting {
            name: "guard Strict: all nodes restart, and B comes new",
            ..restarts(GuardPromises { rule: CountingRule::Strict, spares: false, ..GUARD })
        },
    ]
}

/// A wants x and y, B wants y and z.
const SETS: Setting = Setting { name: "", attempts: 1, sets: &[&[0, 1], &[1, 2]], ..SAFE };

/// Clocks that go alike, and nodes that are back at once.
fn restarts(guard: GuardPromises) -> Setting {
    Setting {
        attempts: 1,
        ends: false,
        ttl: 2,
        allowance: 0,
        ahead: 0,
        crash: Crash::BackAtOnce,
        guard: Some(guard),
        ..SAFE
    }
}

/// One safety rule broken, or one fault beyond the promise, in each.
pub fn unsafe_settings() -> [Setting; 12] {
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
        Setting {
            name: "sets: a node sets those keys of a set that are free",
            is_whole: false,
            crash: Crash::Never,
            ..SETS
        },
        Setting {
            name: "guard off: a node restarts, and B has met it before",
            ..restarts(GuardPromises { rule: CountingRule::Off, is_new: false, ..GUARD })
        },
        Setting {
            name: "guard Observed: a term that is shorter than the ttl",
            ..restarts(GuardPromises { term: 1, is_new: false, ..GUARD })
        },
        Setting {
            name: "guard Observed: all nodes restart, and B comes new",
            ..restarts(GuardPromises { spares: false, ..GUARD })
        },
        Setting {
            name: "guard Observed: B comes new, and takes nodes that it has not met for dead",
            ..restarts(GuardPromises { hastes: true, ..GUARD })
        },
        Setting {
            name: "guard Observed: B comes new, and servers say that they are two seconds older",
            ..restarts(GuardPromises { uptime_error: 2, ..GUARD })
        },
    ]
}

/// All that is done about restarts in the settings.
pub fn guards() -> Vec<GuardPromises> {
    let all = safe_settings().into_iter().chain(unsafe_settings());
    all.filter_map(|setting| setting.guard).collect()
}

/// Searches `setting` for two clients that hold the lock at once.
///
/// # Panics
/// If there are not two or three clients, or more is asked of them than a line can carry.
pub fn search(setting: &Setting) -> SearchReport {
    let keys = setting.sets.iter().flat_map(|set| set.iter()).max().map_or(0, |last| last + 1);
    match (setting.clients, keys) {
        (2, 1) => search_with::<2, 1>(setting),
        (3, 1) => search_with::<3, 1>(setting),
        (2, 3) => search_with::<2, 3>(setting),
        (clients, keys) => panic!("{clients} clients, {keys} keys"),
    }
}

fn search_with<const C: usize, const K: usize>(setting: &Setting) -> SearchReport {
    let start = State::<C, K>::start(setting);
    let two_hold = |setting: &Setting, state: &State<C, K>| state.is_broken(setting);
    let explored = explore(setting, start, two_hold, &goals(setting));
    SearchReport {
        states: explored.states,
        depth: explored.depth,
        time: explored.time,
        trace: explored.found.map(|trace| tell(setting, start, &trace)),
        sometimes: explored.sometimes,
    }
}

/// What must be possible, or else nothing was shown.
fn goals<const C: usize, const K: usize>(setting: &Setting) -> Vec<Query<C, K>> {
    let mut goals: Vec<Query<C, K>> =
        vec![("a client holds the lock", |setting, state| state.holders(setting) == 1)];
    if setting.guard.is_some() {
        goals.push((
            "A holds the lock, and what a node grants to B does not count",
            |setting, state| {
                let withheld =
                    |node| state.is_coming(1, node) && !state.clients[1].counts(setting, node);
                state.believes(setting, 0) && (0..NODES).any(withheld)
            },
        ));
        goals.push(("B gets the lock, as A does not hold it", |setting, state| {
            let is_last = |node| matches!(state.verdict(setting, 1, node), Decided::Held(_));
            let counts = |node| state.is_coming(1, node) && state.clients[1].counts(setting, node);
            !state.believes(setting, 0) && (0..NODES).any(|node| counts(node) && is_last(node))
        }));
        return goals;
    }
    let of_all: [Query<C, K>; 3] = [
        ("a grant comes too late, and is refused", is_refused_late),
        ("a lease expires in its holder's hands", |_, state| {
            state.clients.iter().any(|it| matches!(it.phase, ClientPhase::Holding { left: 0, .. }))
        }),
        ("a client holds the lock, and another has ended", |setting, state| {
            let has_ended = |it: &_| matches!(it, (ClientPhase::Idle, attempts) if *attempts > 0);
            let mut others = state.clients.iter().map(|it| (it.phase, it.attempts));
            state.holders(setting) == 1 && others.any(|it| has_ended(&it))
        }),
    ];
    goals.extend(of_all);
    if setting.extends {
        goals.push(("an extension counts", |_, state| {
            let extended = |phase| match phase {
                ClientPhase::Holding { left, extension } => {
                    left > 0 && extension == ExtensionPhase::Over
                }
                _ => false,
            };
            state.clients.iter().any(|it| extended(it.phase))
        }));
    }
    if setting.crash == Crash::StaysAway {
        goals.push(("a node is away while a client holds the lock", |setting, state| {
            let is_away = |node: &ModelNode<K>| matches!(node, ModelNode::Away { .. });
            state.holders(setting) == 1 && state.nodes.iter().any(is_away)
        }));
    }
    goals
}

fn is_refused_late<const C: usize, const K: usize>(setting: &Setting, state: &State<C, K>) -> bool {
    let of = |client| (0..NODES).map(move |node| (client, node));
    (0..C).flat_map(of).any(|(client, node)| {
        state.is_coming(client, node) && state.verdict(setting, client, node) == Decided::TooLate
    })
}

/// A shortest way for A to get the lock, and from there for B, by name.
pub fn hand_over() -> Option<Vec<String>> {
    let setting = Setting { attempts: 1, ..SAFE };
    let start = State::<2, 1>::start(&setting);
    let a_holds = |setting: &Setting, state: &State<2, 1>| state.believes(setting, 0);
    let first = explore_by_name(&setting, start, a_holds).found?;
    let (_, middle) = *first.last()?;
    let b_holds = |setting: &Setting, state: &State<2, 1>| state.believes(setting, 1);
    let second = explore_by_name(&setting, middle, b_holds).found?;
    Some(tell(&setting, start, &[first, second].concat()))
}
