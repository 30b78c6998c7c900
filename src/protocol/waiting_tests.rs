use super::*;

fn at(ms: u64) -> Time {
    Time::default().after(Duration::from_millis(ms))
}

fn first() -> Waiting {
    let mut waiting = Waiting::default();
    waiting.handle_turn();
    waiting
}

fn free(nodes: NodeSet) -> FreeNodes {
    FreeNodes { nodes, ..FreeNodes::default() }
}

#[test]
fn requeued_waiter_waits_for_its_turn() {
    let mut waiting = first();
    assert!(waiting.is_first());
    waiting.handle_requeued();
    assert!(!waiting.is_first());
}

#[test]
fn free_quorum_causes_one_attempt() {
    let quorum = Quorum::majority(5);
    let node = NodeId::new;
    let granted = [node(0), node(1)].into_iter().collect();
    let mut waiting = first();
    waiting.handle_begin();
    let freed = |waiting: &mut Waiting, id| {
        waiting.handle_freed(node(id));
        waiting.next_useful_try(free(granted), quorum, at(1_000))
    };
    assert_eq!(freed(&mut waiting, 1), None, "two of five nodes are free");
    assert_eq!(freed(&mut waiting, 4), Some(at(1_000)));
    waiting.schedule_try(at(1_000));
    assert_eq!(freed(&mut waiting, 3), None, "an attempt is already due");
    waiting.handle_begin();
    assert_eq!(waiting.try_at(), None);
    waiting.handle_freed(node(4));
    assert_eq!(waiting.next_useful_try(FreeNodes::default(), quorum, at(1_000)), None);
    let later = FreeNodes { nodes: granted, from: at(1_700) };
    waiting.handle_freed(node(3));
    assert_eq!(waiting.next_useful_try(later, quorum, at(1_000)), Some(at(1_700)));
    assert_eq!(waiting.next_useful_try(later, quorum, at(1_800)), Some(at(1_800)));
}

/// Checks that a push is not missed if it arrives before the refusal is evaluated. With two nodes, the refusing node
/// can send a push and the other node can grant before the evaluation.
#[test]
fn push_before_refusal_causes_an_attempt() {
    let quorum = Quorum::majority(2);
    let granted = [NodeId::new(1)].into_iter().collect();
    for (granted, is_freed, reason) in
        [(granted, true, Some(at(1_000))), (granted, false, None), (NodeSet::default(), true, None)]
    {
        let mut waiting = first();
        waiting.handle_begin();
        if is_freed {
            waiting.handle_freed(NodeId::new(0));
            assert_eq!(waiting.next_useful_try(FreeNodes::default(), quorum, at(999)), None);
        }
        waiting.handle_refusal(free(granted), quorum, at(1_000), u64::MAX);
        let try_at = waiting.try_at().map(|at| at.as_nanos().div_ceil(1_000_000));
        assert_eq!(try_at, reason.map(|at| at.as_nanos() / 1_000_000), "{granted:?} {is_freed}");
    }
}

/// Handles a push from the only node, which has refused the attempt. Returns the time of the next try.
fn pushed(waiting: &mut Waiting, now: u64) -> Option<Time> {
    waiting.handle_freed(NodeId::new(0));
    let try_at = waiting.next_useful_try(FreeNodes::default(), Quorum::majority(1), at(now));
    if let Some(at) = try_at {
        waiting.schedule_try(at);
    }
    try_at
}

fn refused(waiting: &mut Waiting, now: u64, random: u64) {
    waiting.handle_begin();
    waiting.handle_refusal(FreeNodes::default(), Quorum::majority(1), at(now), random);
}

#[test]
fn waiter_without_lost_races_reacts_to_push_at_once() {
    let mut waiting = first();
    refused(&mut waiting, 999, u64::MAX);
    assert_eq!(pushed(&mut waiting, 1_000), Some(at(1_000)));
    assert!(!waiting.asks_one_first());
}

/// Returns the longest possible rest after a refusal at `now`, in microseconds.
fn longest_rest(waiting: &mut Waiting, now: u64) -> u128 {
    refused(waiting, now, u64::MAX);
    waiting.rests_until.since(at(now)).as_nanos().div_ceil(1_000)
}

#[test]
fn lost_race_causes_a_rest() {
    let mut waiting = first();
    refused(&mut waiting, 0, u64::MAX);
    for race in 1..5 {
        let now = race * 1_000;
        assert_eq!(pushed(&mut waiting, now), Some(at(now)), "race {race}");
        assert_eq!(longest_rest(&mut waiting, now), 3_500 << race, "race {race}");
    }
    refused(&mut waiting, 9_000, u64::MAX);
    assert!(waiting.rests_until < at(9_000), "a refusal without a push loses no race");
    assert_eq!(pushed(&mut waiting, 9_500), Some(at(9_500)));
    refused(&mut waiting, 9_500, 0);
    assert_eq!(waiting.rests_until, at(9_500), "the shortest rest is zero");
}

fn contention(races: u64) -> Contention {
    let mut waiting = first();
    refused(&mut waiting, 0, 0);
    for now in 1..=races {
        pushed(&mut waiting, now);
        refused(&mut waiting, now, 0);
    }
    waiting.contention()
}

#[test]
fn returning_client_rests_if_many_compete() {
    for (races, longest) in [(0, 0), (3, 0), (4, 56_000), (5, 112_000)] {
        let mut next = first();
        next.handle_return(contention(races), at(5_000));
        // The first attempt after a return is not a race.
        next.handle_begin();
        assert_eq!(longest_rest(&mut next, 5_002), longest, "after {races}");
        let rests_until = next.rests_until;
        refused(&mut next, 5_200, u64::MAX);
        assert_eq!(next.rests_until, rests_until, "its second attempt follows no return");
    }
}

#[test]
fn waiter_with_a_recent_turn_reacts_later_and_loses_no_race() {
    let mut waiting = first();
    for holder in [1, 2, 3] {
        waiting.handle_holder(Some(ClientId(holder)));
    }
    waiting.handle_win();
    assert_eq!(waiting.handle_yield(), Duration::from_millis(3));
    waiting.handle_holder(Some(ClientId(2)));
    refused(&mut waiting, 999, u64::MAX);
    assert_eq!(pushed(&mut waiting, 1_000), Some(at(1_002)), "two clients are before it");
    waiting.handle_holder(Some(ClientId(3)));
    refused(&mut waiting, 1_003, u64::MAX);
    assert!(waiting.rests_until < at(1_003));
    assert_eq!(pushed(&mut waiting, 1_010), Some(at(1_011)), "one client is before it");
}

#[test]
fn resting_waiter_reacts_once_when_its_rest_ends() {
    let mut waiting = first();
    refused(&mut waiting, 0, u64::MAX);
    pushed(&mut waiting, 1_000);
    refused(&mut waiting, 1_000, u64::MAX);
    let rests_until = waiting.rests_until;
    assert_eq!(pushed(&mut waiting, 1_001), Some(rests_until));
    assert_eq!(pushed(&mut waiting, 1_002), None, "an attempt is already due");
    assert!(waiting.asks_one_first());
    refused(&mut waiting, 1_006, u64::MAX);
    assert_eq!(waiting.rests_until, rests_until, "an attempt after a rest is not a race");
}

#[test]
fn returning_client_holds_back_and_asks_one_node() {
    let mut waiting = first();
    assert!(!waiting.asks_one_first());
    waiting.handle_return(contention(0), at(10));
    assert_eq!((waiting.rests_until, waiting.asks_one_first()), (at(11), true));
    refused(&mut waiting, 12, 0);
    assert!(!waiting.asks_one_first());
    assert_eq!(pushed(&mut waiting, 20), Some(at(20)));
    assert!(waiting.asks_one_first(), "other clients compete");
    let mut waiting = first();
    waiting.handle_rivals(contention(0));
    assert!(!waiting.asks_one_first(), "no node has sent a push");
    pushed(&mut waiting, 30);
    assert!(waiting.asks_one_first());
    waiting.handle_begin();
    assert!(!waiting.asks_one_first());
}

#[test]
fn push_of_the_refusing_node_causes_an_attempt() {
    let (quorum, node) = (Quorum::majority(5), NodeId::new);
    for freed_before in [false, true] {
        let mut waiting = first();
        waiting.handle_begin();
        if freed_before {
            waiting.handle_freed(node(3));
        }
        waiting.handle_single_refusal(node(3), quorum, at(1_000), 0);
        assert_eq!(waiting.try_at().is_some(), freed_before);
        waiting.handle_freed(node(1));
        let by_another = waiting.next_useful_try(FreeNodes::default(), quorum, at(1_001));
        assert_eq!(by_another, None, "a push by another node is not enough");
        waiting.handle_freed(node(3));
        let try_at = waiting.next_useful_try(FreeNodes::default(), quorum, at(1_002));
        assert_eq!(try_at, Some(at(1_002)).filter(|_| !freed_before));
        assert_eq!(waiting.freed(), [node(1), node(3)].into_iter().collect());
    }
}
