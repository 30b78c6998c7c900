//! What every plan keeps to.

use super::*;
use crate::nemesis::TERM;
use harness::steps::FELT;
use std::collections::BTreeSet;

fn field(nodes: u16, is_inside: bool) -> Field {
    Field { nodes, clients: 4, lasts: Duration::from_mins(2), is_inside, turn: 0 }
}

/// Plans inside the promise, of all kinds.
fn inside() -> impl Iterator<Item = (Field, Vec<Planned>)> {
    let fields = [1, 3, 5]
        .into_iter()
        .flat_map(|nodes| (0..4).map(move |turn| Field { turn, ..field(nodes, true) }));
    fields.map(|field| (field, field.plan(3 + field.turn, 0)))
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let inside = field(5, true);
    assert_eq!(inside.plan(7, 0), inside.plan(7, 0));
    assert_ne!(inside.plan(7, 0), inside.plan(8, 0));
    assert_ne!(inside.plan(7, 0), inside.plan(7, 1));
}

#[test]
fn inside_the_promise_a_minority_is_broken_at_a_time() {
    for (field, plan) in inside() {
        let most = usize::from((field.nodes - 1) / 2).max(1);
        for (index, fault) in plan.iter().enumerate() {
            let at_work = plan[..=index].iter().filter(|one| one.end() >= fault.at);
            let broken: BTreeSet<_> = at_work
                .filter(|one| one.nemesis.kind().breaks() && matches!(one.target, Target::Node(_)))
                .map(|one| one.target)
                .collect();
            assert!(broken.len() <= most, "{broken:?} of {}", field.nodes);
            assert!(fault.nemesis.is_promised(true));
        }
    }
}

#[test]
fn inside_the_promise_nobody_comes_new_while_a_step_is_felt() {
    for (field, plan) in inside() {
        let is_new = |one: &&Planned| one.nemesis.kind() == Kind::Newcomer;
        let steps = plan.iter().filter(|one| one.nemesis == Nemesis::StepForward);
        let steps: Vec<_> = steps.map(|one| one.at).collect();
        assert!(steps.len() > 15, "{} steps of {} nodes", steps.len(), field.nodes);
        assert!(plan.iter().filter(is_new).count() > 10);
        for new in plan.iter().filter(is_new) {
            let felt = |step: &Duration| *step <= new.end() && *step + FELT > new.at;
            assert!(!steps.iter().any(felt), "{new:?}");
        }
    }
}

#[test]
fn inside_the_promise_no_clock_steps_while_replies_of_its_node_are_delayed() {
    for (_, plan) in inside() {
        let is_step = |one: &&Planned| one.nemesis.kind() == Kind::Step;
        for step in plan.iter().filter(is_step) {
            for fault in plan.iter().filter(|one| one.nemesis.delays()) {
                let is_there = [Target::Network, step.target].contains(&fault.target);
                let is_over = fault.end() + REREAD < step.at;
                assert!(!is_there || fault.at > step.at || is_over, "{fault:?} at {step:?}");
            }
        }
    }
}

#[test]
fn clocks_step_on_a_majority_while_each_step_is_felt_and_by_as_little_and_as_much_as_said() {
    let plan = field(3, true).plan(5, 0);
    let steps: Vec<_> = plan.iter().filter(|one| one.nemesis == Nemesis::StepForward).collect();
    let most = steps.iter().map(|step| {
        let felt = steps.iter().filter(|one| one.at <= step.at && one.end() > step.at);
        felt.map(|one| one.target).collect::<BTreeSet<_>>().len()
    });
    assert_eq!(most.max(), Some(3));
    let length = |least: bool| {
        let each = steps.iter().map(|step| step.delay.as_millis());
        if least { each.min() } else { each.max() }
    };
    assert!(matches!(length(true), Some(5..10)), "{:?}", length(true));
    assert!(matches!(length(false), Some(150..=200)), "{:?}", length(false));
    assert!(plan.iter().any(|one| one.nemesis == Nemesis::StepBack));
}

#[test]
fn inside_the_promise_one_old_node_is_in_reach_while_others_forget() {
    for (field, plan) in inside() {
        let rolling = |one: &Planned| Some((one.at, one.end(), one.rolling.clone()?));
        let all: Vec<_> = plan.iter().filter_map(rolling).collect();
        assert_eq!(all.is_empty(), field.nodes == 1, "{} nodes", field.nodes);
        for (at, end, rolling) in &all {
            let witness = rolling.witness.expect("inside there is one");
            assert!(*end >= *at + TERM);
            assert!(rolling.nodes.len() < usize::from(field.nodes));
            assert!(field.is_old() || *at >= OLD, "a new deployment");
            for other in plan.iter().filter(|one| one.at <= *end) {
                let breaks = matches!(other.nemesis.kind(), Kind::Server | Kind::Wire);
                let is_here = other.target == Target::Node(witness) && breaks;
                let is_near = other.shakes_until() >= *at;
                assert!(!(is_here && is_near), "{other:?} at the witness of {at:?}");
            }
            for (before, _, other) in all.iter().filter(|(before, ..)| before < at) {
                let is_young = *before + other.lasts() + TERM > *at;
                assert!(!(is_young && other.nodes.contains(&witness)), "{before:?} and {at:?}");
            }
            let loses = |node: &u16| field.is_trusting() && Field::is_durable(*node);
            assert!(!rolling.nodes.iter().any(loses), "what is trusted keeps its data");
        }
    }
}

#[test]
fn clients_come_new_while_nodes_are_restarted_and_both_come_often() {
    for nodes in [3, 5] {
        let field = Field { lasts: Duration::from_secs(40), ..field(nodes, true) };
        let mut rolling = 0;
        let mut visited = 0;
        for seed in 0..8 {
            let plan = Field { turn: seed, ..field }.plan(seed, 0);
            for one in plan.iter().filter(|one| one.rolling.is_some()) {
                let new = |new: &&Planned| new.nemesis.kind() == Kind::Newcomer;
                let is_then = |new: &Planned| (one.at..one.end()).contains(&new.at);
                rolling += 1;
                visited += plan.iter().filter(new).filter(|new| is_then(new)).count();
            }
        }
        assert!(rolling >= 8, "{rolling} in eight times 40 s, of {nodes} nodes");
        assert!(visited >= 2 * rolling, "{visited} newcomers in {rolling}, of {nodes} nodes");
    }
}

#[test]
fn every_nemesis_has_its_turn_and_they_come_often() {
    let plan = field(5, false).plan(1, 0);
    let seen: BTreeSet<_> = plan.iter().map(|fault| fault.nemesis).collect();
    assert_eq!(seen.len(), Nemesis::ALL.len(), "{seen:?}");
    assert!((500..800).contains(&plan.len()), "{}", plan.len());
    assert!(plan.is_sorted_by_key(|fault| fault.at));
}
