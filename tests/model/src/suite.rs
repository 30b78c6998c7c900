//! The settings that the checks search, and the goals of each search.

use crate::NODES;
use crate::decision::Decided;
use crate::node::ModelNode;
use crate::search::{Query, explore, explore_named};
use crate::setting::{CountingRule, Crash, GUARD, GuardPromises, SAFE, Setting};
use crate::state::{ClientPhase, ExtensionPhase, State};
use crate::trace_text::describe;
use std::time::Duration;

/// The result of a search, with its trace as text.
pub struct SearchReport {
    /// The number of distinct states. States that differ only in names count once.
    pub states: usize,
    /// The number of steps from the first state to the farthest one.
    pub depth: usize,
    /// The duration of the search.
    pub time: Duration,
    /// A shortest trace to a second holder of the lock, or to more holders of a semaphore than
    /// permits, with one step per line. `None` if the search found no such state.
    pub trace: Option<Vec<String>>,
    /// For each goal, the number of steps to the first state that satisfies the goal. `None` if no
    /// state satisfies it.
    pub goals: Vec<(&'static str, Option<usize>)>,
}

/// Returns the settings within the safety guarantee, each with its number of states. A search with
/// all bounds at their widest is infeasible, so each setting widens different bounds.
pub fn safe_settings() -> [(Setting, usize); 8] {
    [
        (Setting { name: "two clients, two attempts each, crashes", ..SAFE }, 2_474_285),
        (
            Setting {
                name: "two clients, an extension each, crashes",
                attempts: 1,
                extends: true,
                ..SAFE
            },
            2_731_593,
        ),
        (
            Setting {
                name: "two clients, an extension each, lost requests",
                attempts: 1,
                extends: true,
                crash: Crash::Never,
                loses: true,
                ..SAFE
            },
            1_962_556,
        ),
        (
            Setting {
                name: "three clients",
                clients: 3,
                attempts: 1,
                ttl: 2,
                crash: Crash::Never,
                ..SAFE
            },
            2_506_235,
        ),
        (
            Setting {
                name: "sets: two clients with two keys each, one key in common, crashes",
                ..SETS
            },
            1_350_784,
        ),
        (
            Setting {
                name: "guard Observed: all nodes restart, and B was connected before",
                ..restarts(GuardPromises { is_new: false, keeps_an_old_node: false, ..GUARD })
            },
            3_467_776,
        ),
        (
            Setting {
                name: "guard Observed: nodes restart while another is old, and B is new",
                ..restarts(GUARD)
            },
            9_759_460,
        ),
        (
            Setting {
                name: "guard Strict: all nodes restart, and B is new",
                ..restarts(GuardPromises {
                    rule: CountingRule::Strict,
                    keeps_an_old_node: false,
                    ..GUARD
                })
            },
            4_457_457,
        ),
    ]
}

/// A setting in which client A locks the keys x and y, and client B locks the keys y and z.
const SETS: Setting = Setting { name: "", attempts: 1, sets: &[&[0, 1], &[1, 2]], ..SAFE };

/// Creates a setting in which clocks are equal and crashed nodes restart immediately.
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

/// Returns settings in which two clients can hold the lock, each with the number of steps of a
/// shortest trace to two holders. Each setting breaks one safety rule, or has one fault outside the
/// guarantee.
pub fn unsafe_settings() -> [(Setting, usize); 12] {
    let calm = Setting { attempts: 1, crash: Crash::Never, ..SAFE };
    [
        (
            Setting {
                name: "immediate amnesia: a crashed node restarts at once without keys",
                crash: Crash::BackAtOnce,
                ..calm
            },
            11,
        ),
        (Setting { name: "a node's clock jumps", jumps: true, ..calm }, 11),
        (Setting { name: "quorum too small: 1 of 3", electorate: 1, ..calm }, 6),
        (
            Setting {
                name: "release without a comparison of values",
                attempts: 2,
                ttl: 2,
                compares: false,
                ..calm
            },
            16,
        ),
        (
            Setting {
                name: "validity from the deciding reply instead of T1",
                from_t1: false,
                ..calm
            },
            13,
        ),
        (
            Setting {
                name: "no drift allowance, and a node's clock a tick ahead",
                allowance: 0,
                ..calm
            },
            13,
        ),
        (
            Setting {
                name: "sets: a node sets only the free keys of a set",
                is_whole: false,
                crash: Crash::Never,
                ..SETS
            },
            10,
        ),
        (
            Setting {
                name: "guard off: a node restarts, and B was connected before",
                ..restarts(GuardPromises { rule: CountingRule::Off, is_new: false, ..GUARD })
            },
            11,
        ),
        (
            Setting {
                name: "guard Observed: a term shorter than the ttl",
                ..restarts(GuardPromises { quarantine_period: 1, is_new: false, ..GUARD })
            },
            12,
        ),
        (
            Setting {
                name: "guard Observed: all nodes restart, and B is new",
                ..restarts(GuardPromises { keeps_an_old_node: false, ..GUARD })
            },
            16,
        ),
        (
            Setting {
                name: "guard Observed: B is new, and assumes that unseen nodes are unreachable",
                ..restarts(GuardPromises { assumes_unreachable: true, ..GUARD })
            },
            15,
        ),
        (
            Setting {
                name: "guard Observed: B is new, and servers report two seconds too much uptime",
                ..restarts(GuardPromises { uptime_error: 2, ..GUARD })
            },
            14,
        ),
    ]
}

/// Returns the restart guard of each setting that has one, with the promises that the guard relies on.
pub fn guards() -> Vec<GuardPromises> {
    let all = safe_settings().into_iter().chain(unsafe_settings());
    all.filter_map(|(setting, _)| setting.guard).collect()
}

/// Searches `setting` for a state in which two clients hold the lock.
///
/// # Panics
/// Panics if no search exists for the setting's numbers of clients and keys. Also panics if the
/// setting needs more requests than a channel holds.
pub fn search(setting: &Setting) -> SearchReport {
    let keys = setting.sets.iter().flat_map(|set| set.iter()).max().map_or(0, |last| last + 1);
    match (setting.clients, keys) {
        (2, 1) => search_with::<2, 1>(setting),
        (3, 1) => search_with::<3, 1>(setting),
        (2, 3) => search_with::<2, 3>(setting),
        (clients, keys) => panic!("no search for {clients} clients and {keys} keys"),
    }
}

fn search_with<const C: usize, const K: usize>(setting: &Setting) -> SearchReport {
    let start = State::<C, K>::start(setting);
    let has_two_holders = |setting: &Setting, state: &State<C, K>| state.is_broken(setting);
    let explored = explore(setting, start, has_two_holders, &goals(setting));
    SearchReport {
        states: explored.states,
        depth: explored.depth,
        time: explored.time,
        trace: explored.found.map(|trace| describe(setting, start, &trace)),
        goals: explored.goals,
    }
}

/// Returns conditions, each of which at least one state must satisfy. If no state satisfies one of
/// the conditions, the setting is too narrow to prove anything.
fn goals<const C: usize, const K: usize>(setting: &Setting) -> Vec<Query<C, K>> {
    let mut goals: Vec<Query<C, K>> =
        vec![("a client holds the lock", |setting, state| state.holders(setting) == 1)];
    if setting.guard.is_some() {
        goals.push((
            "A holds the lock, and a node's grant to B does not count",
            |setting, state| {
                let withheld = |node| {
                    state.is_grant_in_flight(1, node) && !state.clients[1].counts(setting, node)
                };
                state.believes(setting, 0) && (0..NODES).any(withheld)
            },
        ));
        goals.push(("B acquires the lock while A does not hold it", |setting, state| {
            let is_last = |node| matches!(state.verdict(setting, 1, node), Decided::Held(_));
            let counts =
                |node| state.is_grant_in_flight(1, node) && state.clients[1].counts(setting, node);
            !state.believes(setting, 0) && (0..NODES).any(|node| counts(node) && is_last(node))
        }));
        return goals;
    }
    let common: [Query<C, K>; 3] = [
        ("a grant arrives too late and does not count", has_late_grant),
        ("a lease expires before its release", |_, state| {
            state.clients.iter().any(|it| matches!(it.phase, ClientPhase::Holding { left: 0, .. }))
        }),
        ("a client holds the lock after another has ended", |setting, state| {
            let has_ended = |it: &_| matches!(it, (ClientPhase::Idle, attempts) if *attempts > 0);
            let mut others = state.clients.iter().map(|it| (it.phase, it.attempts));
            state.holders(setting) == 1 && others.any(|it| has_ended(&it))
        }),
    ];
    goals.extend(common);
    if setting.extends {
        goals.push(("an extension succeeds", |_, state| {
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
        goals.push(("a node is down while a client holds the lock", |setting, state| {
            let is_down = |node: &ModelNode<K>| matches!(node, ModelNode::Down { .. });
            state.holders(setting) == 1 && state.nodes.iter().any(is_down)
        }));
    }
    goals
}

fn has_late_grant<const C: usize, const K: usize>(setting: &Setting, state: &State<C, K>) -> bool {
    let of = |client| (0..NODES).map(move |node| (client, node));
    (0..C).flat_map(of).any(|(client, node)| {
        state.is_grant_in_flight(client, node)
            && state.verdict(setting, client, node) == Decided::TooLate
    })
}

/// Returns a shortest trace in which client A acquires the lock, and client B acquires it
/// afterwards. Returns `None` if no such trace exists.
pub fn hand_over() -> Option<Vec<String>> {
    let setting = Setting { attempts: 1, ..SAFE };
    let start = State::<2, 1>::start(&setting);
    let a_holds = |setting: &Setting, state: &State<2, 1>| state.believes(setting, 0);
    let first = explore_named(&setting, start, a_holds).found?;
    let (_, middle) = *first.last()?;
    let b_holds = |setting: &Setting, state: &State<2, 1>| state.believes(setting, 1);
    let second = explore_named(&setting, middle, b_holds).found?;
    Some(describe(&setting, start, &[first, second].concat()))
}
