//! A part of what `make sim` plays, small enough for every run of the tests.

use sim::{Count, Counts, Guarded, Hint, Mode, Mutation, Outside, Stepped, Wiped, run, sweep};

/// Mutations must be caught within so many seeds.
const MOST_SEEDS: u64 = 20_000;

/// No seed has a violation; the first that has one is told, with its trace's tail.
fn play(seeds: u64, mode: Mode) -> Counts {
    let sweep = sweep(0..seeds, mode, None, false);
    if let Some((seed, what)) = sweep.first {
        let trace = run(seed, mode, None, true).trace;
        let lines: Vec<_> = trace.lines().collect();
        let tail = lines[lines.len().saturating_sub(60)..].join("\n");
        let mode = mode.label();
        let again =
            format!("cargo run --release -p quorlock-sim -- --mode {mode} --seed {seed} --trace");
        panic!("{tail}\n{what}, in {} of {seeds} seeds\n{again}", sweep.violations);
    }
    sweep.counts
}

#[test]
fn no_two_hold_at_a_time_inside_the_promise() {
    play(2_000, Mode::Safety);
}

#[test]
fn all_get_the_lock_and_leave_nothing_behind_once_all_is_healed() {
    play(1_000, Mode::Liveness);
}

#[test]
fn committed_tokens_follow_the_order_of_tenures_whatever_becomes_of_keys() {
    play(2_000, Mode::Tokens);
}

#[test]
fn no_two_hold_at_a_time_where_nodes_that_have_forgotten_do_not_count() {
    for guarded in [Guarded::Observed, Guarded::Minority, Guarded::Strict, Guarded::Rolling] {
        play(500, Mode::Guarded(guarded));
    }
}

#[test]
fn no_two_hold_at_a_time_whatever_steps_the_clocks_of_nodes_make() {
    let counts = play(1_000, Mode::Stepped(Stepped::Known));
    assert!(counts.get(Count::Waits) > 500, "grants that count later are waited for");
    assert!(counts.get(Count::Checks) > 100, "leases are mended");
    let counts = play(500, Mode::Stepped(Stepped::Restarts));
    assert!(counts.get(Count::Quarantines) > 500 && counts.get(Count::Deferred) > 500);
}

#[test]
fn a_new_deployment_is_served_while_its_nodes_start_one_after_the_other() {
    let counts = play(500, Mode::Guarded(Guarded::Fresh));
    assert!(counts.get(Count::Wins) > 5 * 500 && counts.get(Count::Settlings) > 50);
}

/// Of each kind, something has happened, but for what can `never` be.
fn expect_all_but(never: &[Count], counts: &Counts) {
    for what in Count::ALL.iter().copied() {
        assert_eq!(counts.get(what) == 0, never.contains(&what), "{what:?}: {}", counts.get(what));
    }
    assert!(counts.get(Count::Wins) > 4 * 500, "{} wins", counts.get(Count::Wins));
}

/// What the restart guard does, and what only newcomers see.
const GUARD: [Count; 5] =
    [Count::Quarantines, Count::Youths, Count::Unheard, Count::Newcomers, Count::Settlings];

/// What only steps of clocks bring about.
const STEPS: [Count; 2] = [Count::Barred, Count::FastGrants];

#[test]
fn much_happens_in_a_run() {
    use Count::{AmnesiaCrashes, Fades, JumpsForth, QuorumLost, TakenOver, WallJumps};
    // What only happens when the protocol is broken, or outside the promise.
    let fenced = [Count::Committed, Count::Raises, Count::Confirmed];
    let never = [QuorumLost, TakenOver, AmnesiaCrashes, JumpsForth, Fades, WallJumps];
    let never = [&never[..], &fenced, &GUARD, &STEPS].concat();
    expect_all_but(&never, &play(500, Mode::Safety));
}

#[test]
fn much_happens_to_tokens_and_to_clients_that_guard_against_restarts() {
    let counts = play(500, Mode::Tokens);
    expect_all_but(&[&[Count::EmptyCrashes, Count::FastGrants], &GUARD[..]].concat(), &counts);
    let (raises, confirmed) = (counts.get(Count::Raises), counts.get(Count::Confirmed));
    assert!(confirmed > 500 && confirmed < raises, "{confirmed} of {raises}");
    let counts = play(500, Mode::Guarded(Guarded::Minority));
    // A holder of a bare majority can find it taken by one who may not count a node that has restarted.
    let seldom = Count::TakenOver;
    let never = [Count::JumpsForth, Count::Fades, Count::WallJumps].into_iter().chain(STEPS);
    let never = never.chain((counts.get(seldom) == 0).then_some(seldom));
    expect_all_but(&never.collect::<Vec<_>>(), &counts);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let guarded = Mode::Guarded(Guarded::Minority);
    for mode in [Mode::Safety, Mode::Liveness, Mode::Tokens, guarded, Mode::Outside(Outside::Jump)]
    {
        for seed in 0..5 {
            let (one, other) = (run(seed, mode, None, true), run(seed, mode, None, true));
            assert!(one.trace.len() > 1_000, "something is written");
            assert!(one == other, "seed {seed}: the traces differ");
            let unwritten = run(seed, mode, None, false);
            assert_eq!(unwritten.hash, one.hash, "seed {seed}: writing the trace changes the run");
        }
        let hash = || sweep(0..200, mode, None, false).hash;
        assert_eq!(hash(), hash(), "whatever thread plays which seed");
    }
}

#[test]
fn every_mutation_is_caught() {
    let is_missed = |mutation: &&Mutation| {
        sweep(0..MOST_SEEDS, mutation.mode(), Some(**mutation), true).violations == 0
    };
    let missed: Vec<_> = Mutation::ALL.iter().filter(is_missed).collect();
    assert!(Mutation::ALL.len() >= 12);
    assert!(missed.is_empty(), "not caught within {MOST_SEEDS} seeds: {missed:?}");
}

#[test]
fn faults_outside_the_promise_do_harm() {
    for outside in Outside::ALL {
        let mode = Mode::Outside(outside);
        let sweep = sweep(0..300, mode, None, false);
        // Where whole groups of nodes forget at once, much is lost; what nodes' clocks do is found out.
        let (least, most) = match outside {
            Outside::Jump | Outside::FastNodes | Outside::StepDrift => (0, 3),
            _ if mode.restarts_groups() => (1, 225),
            _ => (1, 150),
        };
        assert!(sweep.violations >= least, "{outside:?}: the checker sees nothing");
        assert!(sweep.violations < most, "{outside:?}: in {} of 300 runs", sweep.violations);
    }
}

#[test]
fn lost_counters_do_harm_and_hints_by_clocks_that_agree_mend_it() {
    let violations = |is_majority, hint| {
        sweep(0..300, Mode::Wiped(Wiped { is_majority, hint }), None, false).violations
    };
    assert!(violations(true, Hint::None) > 50);
    assert!(violations(true, Hint::Within(5_000)) < violations(true, Hint::None));
    assert!(violations(true, Hint::Within(5)) < 3);
    assert!(violations(false, Hint::None) > 0);
    assert!(violations(false, Hint::Within(5)) < 3);
}
