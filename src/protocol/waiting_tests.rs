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
    for (random, ms) in [(0, 1.0), (u64::MAX / 2, 2.0), (u64::MAX, 3.0)] {
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
