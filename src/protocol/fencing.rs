//! Fencing tokens: the choice of a token from the counters of the nodes.
//!
//! Each node keeps a counter beside a resource's key. When a node grants the lock, it increments the counter and
//! replies with the new number. This number is higher than all numbers that the node granted or confirmed before.
//!
//! A token is **committed** once a quorum of nodes meets two conditions. Each node holds this client's key with a
//! counter that is not lower than the token, and each node's reply was not higher than the token. The quorum of any
//! later holder shares a node with this quorum. That node replies to the later holder with a number above the token,
//! and the later holder's token is not lower than that number.

use super::quorum::Quorum;

/// The upper bound of all counters. Numbers in the nodes' Lua scripts are doubles, which cannot distinguish consecutive
/// integers from this value onwards.
pub(crate) const LIMIT: u64 = 1 << 53;

/// The exclusive upper bound of the numbers that [`hint`] returns. It prevents a wrong clock or another client's
/// counter from raising a counter close to [`LIMIT`].
const MAX_HINT: u64 = LIMIT / 2;

/// The token chosen from the counters of an acquire round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The token is committed, because a quorum replied with this number.
    Committed(u64),
    /// The token is committed once a quorum confirms it. To confirm, each node raises its counter to the token if the
    /// key still holds this client's value.
    Confirm(u64),
}

/// Chooses the fencing token from `numbers`, which the nodes that granted the lock reported, in any order. Returns
/// `None` if these nodes are fewer than a quorum.
///
/// If a quorum reported the same number, this number is the token. Otherwise, the token is the lowest number that a
/// quorum of nodes does not exceed. A node with a number above the token cannot confirm the token: an earlier holder
/// may have received that number, or a number in between, from that node alone.
pub(crate) fn choose(quorum: Quorum, mut numbers: Vec<u64>) -> Option<Choice> {
    numbers.sort_unstable();
    let highest_of_lowest = *numbers.get(quorum.needed() - 1)?;
    let agreed = numbers.windows(quorum.needed()).find(|same| same.first() == same.last());
    Some(
        agreed
            .and_then(<[u64]>::first)
            .map_or(Choice::Confirm(highest_of_lowest), |v| Choice::Committed(*v)),
    )
}

/// Returns the minimum number that an acquire requests from the counters, so that all nodes reply with the same number.
/// The minimum is higher than `seen`, the last number that this client received. It is also not below `wall_clock_us`,
/// the wall clock in microseconds. An input that gives [`MAX_HINT`] or more is ignored. Safety depends on the minimum
/// only if counters were lost.
pub(crate) fn hint(seen: u64, wall_clock_us: u64) -> u64 {
    let sound = |number: &u64| *number < MAX_HINT;
    let after_seen = Some(seen.saturating_add(1)).filter(sound);
    let on_the_wall = Some(wall_clock_us).filter(sound);
    after_seen.max(on_the_wall).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn number_of_a_quorum_is_committed() {
        let quorum = Quorum::majority(5);
        for (numbers, choice) in [
            (vec![], None),
            (vec![7, 7], None),
            (vec![7, 7, 7], Some(Choice::Committed(7))),
            (vec![9, 7, 3, 7, 7], Some(Choice::Committed(7))),
            (vec![7, 8, 7], Some(Choice::Confirm(8))),
            (vec![9, 3, 8, 5], Some(Choice::Confirm(8))),
            (vec![9, 3, 8, 5, 4], Some(Choice::Confirm(5))),
        ] {
            assert_eq!(choose(quorum, numbers.clone()), choice, "{numbers:?}");
        }
        assert_eq!(choose(Quorum::majority(1), vec![1]), Some(Choice::Committed(1)));
    }

    #[test]
    fn hint_exceeds_seen_and_stays_below_maximum() {
        for (seen, clock, hinted) in [
            (0, 0, 1),
            (5, 1_700_000_000_000_000, 1_700_000_000_000_000),
            (1_700_000_000_000_000, 5, 1_700_000_000_000_001),
            (LIMIT - 2, 5, 5),
            (MAX_HINT - 2, 5, MAX_HINT - 1),
            (MAX_HINT - 1, 5, 5),
            (5, MAX_HINT - 1, MAX_HINT - 1),
            (5, MAX_HINT, 6),
            (7, u64::MAX, 8),
            (u64::MAX, u64::MAX, 0),
        ] {
            assert_eq!(hint(seen, clock), hinted, "{seen} {clock}");
        }
    }

    proptest! {
        #[test]
        fn quorum_numbers_do_not_exceed_token(
            nodes in 1..=7usize, numbers in proptest::collection::vec(0..6u64, 1..=7),
        ) {
            let quorum = Quorum::majority(nodes);
            let numbers: Vec<_> = numbers.into_iter().take(nodes).collect();
            let choice = choose(quorum, numbers.clone());
            prop_assert_eq!(choice.is_some(), quorum.reached(numbers.len()));
            if let Some(Choice::Committed(token) | Choice::Confirm(token)) = choice {
                let not_above = numbers.iter().filter(|number| **number <= token).count();
                prop_assert!(quorum.reached(not_above), "{numbers:?}: {token}");
                prop_assert!(numbers.contains(&token));
            }
        }
    }
}
