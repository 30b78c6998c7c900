//! Tests of the properties that every plan must have.

use super::*;
use crate::nemesis::QUARANTINE;
use harness::steps::STEP_EFFECT;
use std::collections::BTreeSet;

fn setup(nodes: u16, is_inside: bool) -> Setup {
    Setup { nodes, clients: 4, lasts: Duration::from_mins(2), is_inside, variant: 0 }
}

fn inside() -> impl Iterator<Item = (Setup, Vec<Planned>)> {
    let setups = [1, 3, 5]
        .into_iter()
        .flat_map(|nodes| (0..4).map(move |variant| Setup { variant, ..setup(nodes, true) }));
    setups.map(|setup| (setup, setup.plan(3 + setup.variant, 0)))
}

#[test]
fn plan_depends_only_on_seed_and_part() {
    let inside = setup(5, true);
    assert_eq!(inside.plan(7, 0), inside.plan(7, 0));
    assert_ne!(inside.plan(7, 0), inside.plan(8, 0));
    assert_ne!(inside.plan(7, 0), inside.plan(7, 1));
}

#[test]
fn plan_within_guarantee_breaks_at_most_a_minority() {
    for (setup, plan) in inside() {
        let most = usize::from((setup.nodes - 1) / 2).max(1);
        for (index, fault) in plan.iter().enumerate() {
            let active = plan[..=index].iter().filter(|one| one.end() >= fault.at);
            let broken: BTreeSet<_> = active
                .filter(|one| {
                    one.nemesis.target_class().breaks() && matches!(one.target, Target::Node(_))
                })
                .map(|one| one.target)
                .collect();
            assert!(broken.len() <= most, "{broken:?} of {}", setup.nodes);
            assert!(fault.nemesis.is_guaranteed(true));
        }
    }
}

#[test]
fn plan_within_guarantee_starts_no_client_after_a_step() {
    for (setup, plan) in inside() {
        let is_new = |one: &&Planned| one.nemesis.target_class() == TargetClass::NewClient;
        let steps = plan.iter().filter(|one| one.nemesis == Nemesis::StepForward);
        let steps: Vec<_> = steps.map(|one| one.at).collect();
        assert!(steps.len() > 15, "{} steps of {} nodes", steps.len(), setup.nodes);
        assert!(plan.iter().filter(is_new).count() > 10);
        for new in plan.iter().filter(is_new) {
            let has_effect = |step: &Duration| *step <= new.end() && *step + STEP_EFFECT > new.at;
            assert!(!steps.iter().any(has_effect), "{new:?}");
        }
    }
}

#[test]
fn plan_within_guarantee_has_no_step_of_delayed_nodes() {
    for (_, plan) in inside() {
        let is_step = |one: &&Planned| one.nemesis.target_class() == TargetClass::Step;
        for step in plan.iter().filter(is_step) {
            for fault in plan.iter().filter(|one| one.nemesis.delays()) {
                let is_there = [Target::Network, step.target].contains(&fault.target);
                let is_over = fault.end() + CLOCK_REREAD_LIMIT < step.at;
                assert!(!is_there || fault.at > step.at || is_over, "{fault:?} at {step:?}");
            }
        }
    }
}

#[test]
fn steps_affect_a_majority_and_have_all_lengths() {
    let plan = setup(3, true).plan(5, 0);
    let steps: Vec<_> = plan.iter().filter(|one| one.nemesis == Nemesis::StepForward).collect();
    let most = steps.iter().map(|step| {
        let has_effect = steps.iter().filter(|one| one.at <= step.at && one.end() > step.at);
        has_effect.map(|one| one.target).collect::<BTreeSet<_>>().len()
    });
    assert_eq!(most.max(), Some(3));
    let length = |least: bool| {
        let each = steps.iter().map(|step| step.magnitude.as_millis());
        if least { each.min() } else { each.max() }
    };
    assert!(matches!(length(true), Some(5..10)), "{:?}", length(true));
    assert!(matches!(length(false), Some(150..=200)), "{:?}", length(false));
    assert!(plan.iter().any(|one| one.nemesis == Nemesis::StepBack));
}

#[test]
fn plan_within_guarantee_keeps_a_witness_in_restarts() {
    for (setup, plan) in inside() {
        let rolling = |one: &Planned| Some((one.at, one.end(), one.rolling.clone()?));
        let all: Vec<_> = plan.iter().filter_map(rolling).collect();
        assert_eq!(all.is_empty(), setup.nodes == 1, "{} nodes", setup.nodes);
        for (at, end, rolling) in &all {
            let witness = rolling.witness.expect("a plan within the guarantee has a witness");
            assert!(*end >= *at + QUARANTINE);
            assert!(rolling.nodes.len() < usize::from(setup.nodes));
            assert!(setup.is_old() || *at >= MIN_OLD_AGE, "a new deployment");
            for other in plan.iter().filter(|one| one.at <= *end) {
                let breaks =
                    matches!(other.nemesis.target_class(), TargetClass::Server | TargetClass::Wire);
                let is_here = other.target == Target::Node(witness) && breaks;
                let is_near = other.recovers_at() >= *at;
                assert!(!(is_here && is_near), "{other:?} at the witness of {at:?}");
            }
            for (before, _, other) in all.iter().filter(|(before, ..)| before < at) {
                let is_young = *before + other.lasts() + QUARANTINE > *at;
                assert!(!(is_young && other.nodes.contains(&witness)), "{before:?} and {at:?}");
            }
            let loses = |node: &u16| setup.is_trusting() && Setup::is_durable(*node);
            assert!(!rolling.nodes.iter().any(loses), "a trusted node loses its data");
        }
    }
}

#[test]
fn clients_often_start_during_rolling_restarts() {
    for nodes in [3, 5] {
        let setup = Setup { lasts: Duration::from_secs(40), ..setup(nodes, true) };
        let mut rolling = 0;
        let mut visited = 0;
        for seed in 0..8 {
            let plan = Setup { variant: seed, ..setup }.plan(seed, 0);
            for one in plan.iter().filter(|one| one.rolling.is_some()) {
                let new = |new: &&Planned| new.nemesis.target_class() == TargetClass::NewClient;
                let is_then = |new: &Planned| (one.at..one.end()).contains(&new.at);
                rolling += 1;
                visited += plan.iter().filter(new).filter(|new| is_then(new)).count();
            }
        }
        assert!(rolling >= 8, "{rolling} in eight times 40 s, of {nodes} nodes");
        assert!(visited >= 2 * rolling, "{visited} new clients in {rolling}, of {nodes} nodes");
    }
}

#[test]
fn plan_outside_guarantee_contains_every_fault() {
    let plan = setup(5, false).plan(1, 0);
    let seen: BTreeSet<_> = plan.iter().map(|fault| fault.nemesis).collect();
    assert_eq!(seen.len(), Nemesis::ALL.len(), "{seen:?}");
    assert!((500..800).contains(&plan.len()), "{}", plan.len());
    assert!(plan.is_sorted_by_key(|fault| fault.at));
}
