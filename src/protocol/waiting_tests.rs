use super::*;
use proptest::prelude::*;

const DEADLINE: u64 = 60_000;

fn at(ms: u64) -> Time {
    Time::default().after(Duration::from_millis(ms))
}

fn waiting() -> Waiting {
    Waiting::new(at(DEADLINE))
}

fn first() -> Waiting {
    let mut waiting = waiting();
    waiting.handle_turn();
    waiting
}

fn free(nodes: NodeSet) -> Free {
    Free { nodes, ..Free::default() }
}

#[test]
fn who_is_woken_and_does_not_move_is_bypassed_and_keeps_its_place() {
    let mut waiting = first();
    assert_eq!(waiting.neglect(at(1_000)), None, "it has nothing to do");
    waiting.handle_wake(at(1_000));
    waiting.handle_wake(at(1_090));
    assert_eq!(waiting.neglect(at(1_099)), None);
    assert_eq!(waiting.neglect(at(1_100)), Some(Neglect::Bypass));
    assert!(waiting.set_aside(at(1_100)) && !waiting.is_first() && !waiting.is_queued());
    assert_eq!(waiting.try_at(), Some(Time::default()), "it has to find a place first");
    assert_eq!(waiting.handle_move(), Move::Enter { at_end: false });
    assert_eq!(waiting.handle_move(), Move::Compete);
}

#[test]
fn who_goes_to_another_queue_waits_for_its_turn_there() {
    let mut waiting = first();
    waiting.handle_requeued();
    assert!(waiting.is_queued() && !waiting.is_first());
    assert_eq!(waiting.handle_move(), Move::Wait);
}

#[test]
fn who_is_polled_in_time_is_not_neglected() {
    let mut waiting = first();
    waiting.handle_wake(at(1_000));
    waiting.handle_poll();
    assert_eq!(waiting.neglect(at(9_000)), None);
    assert!(!waiting.set_aside(at(9_000)));
    let mut queued = self::waiting();
    queued.handle_wake(at(0));
    assert_eq!(queued.neglect(at(9_000)), None, "it could not have moved");
    assert_eq!(queued.handle_move(), Move::Wait);
}

#[test]
fn an_attempt_is_given_up_when_it_is_of_no_use_or_when_others_want_it() {
    for (valid_until, now, neglect) in [
        (50_000, 100, None),
        (50_000, 1_999, None),
        (50_000, 2_000, Some(Neglect::GiveUpIfWanted)),
        (500, 499, None),
        (500, 500, Some(Neglect::GiveUp)),
        (DEADLINE * 2, DEADLINE, Some(Neglect::GiveUp)),
    ] {
        let mut waiting = first();
        waiting.handle_begin(at(valid_until));
        waiting.handle_wake(at(0));
        assert_eq!(waiting.neglect(at(now)), neglect, "at {now} ms");
    }
    let mut waiting = first();
    waiting.handle_begin(at(500));
    waiting.handle_wake(at(0));
    assert!(waiting.set_aside(at(500)));
    waiting.handle_end();
    assert!(!waiting.is_first(), "it was given up before it ended");
    assert_eq!(waiting.handle_move(), Move::Enter { at_end: true });
    assert!(waiting.is_queued());
}

#[test]
fn a_quorum_of_free_nodes_is_a_reason_to_try_once() {
    let quorum = Quorum::majority(5);
    let node = NodeId::new;
    let granted = [node(0), node(1)].into_iter().collect();
    let mut waiting = first();
    waiting.handle_begin(at(10_000));
    waiting.handle_end();
    let freed = |waiting: &mut Waiting, id| {
        waiting.handle_freed(node(id));
        waiting.worth_while_at(free(granted), quorum, at(1_000), u64::MAX)
    };
    assert_eq!(freed(&mut waiting, 1), None, "two of five");
    assert_eq!(freed(&mut waiting, 4), Some(at(1_000)));
    waiting.handle_news(at(1_000));
    assert_eq!(freed(&mut waiting, 3), None, "it was told already");
    waiting.handle_begin(at(10_000));
    assert_eq!(waiting.try_at(), None);
    waiting.handle_freed(node(4));
    assert_eq!(waiting.worth_while_at(Free::default(), quorum, at(1_000), 0), None);
    let later = Free { nodes: granted, from: at(1_700) };
    waiting.handle_freed(node(3));
    assert_eq!(waiting.worth_while_at(later, quorum, at(1_000), 0), Some(at(1_700)));
    assert_eq!(waiting.worth_while_at(later, quorum, at(1_800), 0), Some(at(1_800)));
}

/// With two nodes, the one that refuses can tell that it is free, and the other one grant, before the refusal is looked
/// at.
#[test]
fn what_came_in_before_a_refusal_was_looked_at_is_a_reason_to_try_soon() {
    let quorum = Quorum::majority(2);
    let granted = [NodeId::new(1)].into_iter().collect();
    for (granted, is_freed, reason) in
        [(granted, true, Some(at(1_003))), (granted, false, None), (NodeSet::default(), true, None)]
    {
        let mut waiting = first();
        waiting.handle_begin(at(10_000));
        if is_freed {
            waiting.handle_freed(NodeId::new(0));
            assert_eq!(waiting.worth_while_at(Free::default(), quorum, at(999), 0), None);
        }
        waiting.handle_end();
        waiting.handle_refusal(free(granted), quorum, at(1_000), u64::MAX);
        let try_at = waiting.try_at().map(|at| at.as_nanos().div_ceil(1_000_000));
        assert_eq!(try_at, reason.map(|at| at.as_nanos() / 1_000_000), "{granted:?} {is_freed}");
    }
}

#[test]
fn who_was_just_refused_spreads_out() {
    let quorum = Quorum::majority(1);
    for (random, ms) in [(0, 0.0), (1, 1.0), (u64::MAX / 2, 2.0), (u64::MAX, 3.0)] {
        let mut waiting = first();
        waiting.handle_refusal(Free::default(), quorum, at(998), 0);
        waiting.handle_freed(NodeId::new(0));
        let free = waiting.worth_while_at(Free::default(), quorum, at(1_000), random);
        let delay = free.expect("it is free").since(at(1_000));
        assert!((delay.as_secs_f64() * 1e3 - ms).abs() < 1e-3, "{delay:?}");
        let mut waiting = first();
        waiting.handle_refusal(Free::default(), quorum, at(997), 0);
        waiting.handle_freed(NodeId::new(0));
        let free = waiting.worth_while_at(Free::default(), quorum, at(1_000), random);
        assert_eq!(free, Some(at(1_000)));
    }
}

#[test]
fn one_of_sixteen_who_were_just_refused_tries_at_once() {
    let quorum = Quorum::majority(1);
    let bold = (0..800).filter(|random| {
        let mut waiting = refused_and_freed();
        waiting.worth_while_at(Free::default(), quorum, at(1_000), *random) == Some(at(1_000))
    });
    assert_eq!(bold.count(), 50);
}

/// One that was refused 2 ms before a node told at 1,000 ms that it is free.
fn refused_and_freed() -> Waiting {
    let mut waiting = first();
    waiting.handle_begin(at(10_000));
    waiting.handle_end();
    waiting.handle_refusal(Free::default(), Quorum::majority(1), at(998), 0);
    waiting.handle_freed(NodeId::new(0));
    waiting
}

/// Tells it what is worth while, as queues do. When it tries.
fn told(waiting: &mut Waiting, quorum: Quorum, now: u64) -> Time {
    let try_at = waiting.worth_while_at(Free::default(), quorum, at(now), u64::MAX);
    waiting.handle_news(try_at.expect("it is free"));
    waiting.try_at().expect("it was told")
}

#[test]
fn who_let_others_go_first_glances_four_times_at_a_node_that_was_free_and_then_asks_all() {
    let quorum = Quorum::majority(5);
    let node = NodeId::new;
    let mut waiting = first();
    waiting.handle_begin(at(10_000));
    waiting.handle_end();
    waiting.handle_refusal(Free::default(), quorum, at(998), 0);
    for id in [1, 3, 4] {
        waiting.handle_freed(node(id));
    }
    assert_eq!(waiting.glance(at(1_001), 0), None, "it was not told");
    let due = told(&mut waiting, quorum, 1_000);
    assert_eq!(waiting.glance(at(1_001), 0), None, "it lets others go first");
    let asked: Vec<_> = (0..4).map(|random| waiting.glance(due, random)).collect();
    assert_eq!(asked, [1, 3, 4, 1].map(|id| Some(node(id))));
    waiting.handle_glance();
    assert_eq!((waiting.glance(due, 0), waiting.try_at()), (None, None), "all of that is past");
    waiting.handle_held(node(3), quorum, at(1_004), 0);
    waiting.handle_freed(node(1));
    assert_eq!(waiting.worth_while_at(Free::default(), quorum, at(1_005), 1), None);
    waiting.handle_freed(node(3));
    let mut due = told(&mut waiting, quorum, 1_005);
    assert!(due > at(1_005), "it lets others go first again");
    for ms in [1_010, 1_020, 1_030] {
        assert!(waiting.glance(due, 0).is_some(), "{ms}");
        waiting.handle_glance();
        waiting.handle_held(node(3), quorum, at(ms), 0);
        waiting.handle_freed(node(3));
        due = told(&mut waiting, quorum, ms + 1);
    }
    assert_eq!(waiting.glance(due, 0), None, "four times were enough");
    waiting.handle_begin(at(10_000));
    waiting.handle_end();
    waiting.handle_refusal(Free::default(), quorum, at(1_040), 0);
    for id in [1, 3, 4] {
        waiting.handle_freed(node(id));
    }
    let due = told(&mut waiting, quorum, 1_041);
    assert!(waiting.glance(due, 0).is_some(), "since its last attempt it has not glanced");
}

#[test]
fn who_has_another_reason_to_try_asks_all_nodes() {
    let quorum = Quorum::majority(1);
    let mut waiting = refused_and_freed();
    let due = told(&mut waiting, quorum, 1_000);
    waiting.handle_news(at(1_000));
    assert_eq!(waiting.glance(due, 0), None, "the lock was let go of in this process");
    // Nobody else was told.
    let mut waiting = first();
    waiting.handle_refusal(Free::default(), quorum, at(10), 0);
    waiting.handle_freed(NodeId::new(0));
    let due = told(&mut waiting, quorum, 1_000);
    assert_eq!((due, waiting.glance(due, 0)), (at(1_000), None));
}

#[test]
fn a_node_that_told_before_it_was_heard_to_be_held_is_a_reason_to_try() {
    let quorum = Quorum::majority(3);
    let mut waiting = first();
    waiting.handle_glance();
    waiting.handle_freed(NodeId::new(2));
    waiting.handle_held(NodeId::new(2), quorum, at(1_000), u64::MAX);
    let try_at = waiting.try_at().expect("it is free by now");
    assert!(try_at > at(1_002) && try_at <= at(1_003), "{try_at:?}");
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    Wake,
    Poll,
    Begin,
    End,
    Turn,
    Aside,
    Move,
}

proptest! {
    /// Whoever moves whenever it is asked to is never set aside, and whoever never moves holds nothing for
    /// longer than its attempt is of use.
    #[test]
    fn states_follow_each_other_as_a_model_says(
        story in prop::collection::vec((0..500_u64, prop::sample::select(&[
            Happens::Wake, Happens::Poll, Happens::Begin, Happens::End, Happens::Turn, Happens::Aside,
            Happens::Move,
        ][..])), 1..60),
    ) {
        let mut waiting = waiting();
        let (mut now, mut woken, mut has_attempt) = (0, None, false);
        for (passed, happens) in story {
            now += passed;
            match happens {
                Happens::Wake => { waiting.handle_wake(at(now)); woken = woken.or(Some(now)); }
                Happens::Poll => { waiting.handle_poll(); woken = None; }
                Happens::Begin if waiting.is_first() => {
                    waiting.handle_begin(at(now + 1_000));
                    has_attempt = true;
                }
                Happens::End if waiting.is_first() => { waiting.handle_end(); has_attempt = false; }
                Happens::Turn if waiting.is_queued() => waiting.handle_turn(),
                Happens::Aside => {
                    let is_idle = waiting.is_first() && woken.is_some_and(|at| now - at >= 100);
                    prop_assert!(is_idle || waiting.neglect(at(now)).is_none());
                    prop_assert!(!is_idle || has_attempt || waiting.neglect(at(now)).is_some());
                    prop_assert_eq!(waiting.set_aside(at(now)), is_idle);
                }
                Happens::Move => {
                    let was_aside = !waiting.is_first() && !waiting.is_queued();
                    let moved = waiting.handle_move();
                    prop_assert_eq!(matches!(moved, Move::Enter { .. }), was_aside);
                    if let Move::Enter { at_end } = moved {
                        prop_assert_eq!(at_end, has_attempt, "who lost an attempt queues anew");
                        has_attempt = false;
                    }
                }
                Happens::Begin | Happens::End | Happens::Turn => {}
            }
        }
    }
}
