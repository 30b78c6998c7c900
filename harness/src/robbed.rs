//! Leases that nodes have forgotten while they were valid, and when that is no wonder.

use crate::boot;
use crate::line::Robbery;
use crate::steps::{FELT, Steps};
use std::time::Duration;

/// Those that nothing explains which the holder had to expect, in words: a key goes as much too early
/// as the clock of its node has stepped, and all of them go where nodes come back empty, in the spans of `amnesias`. Nobody
/// else may have the lock for that; whether somebody has, the check of overlaps tells.
pub(crate) fn unexplained(
    robbed: &[(u16, Robbery)],
    steps: &Steps,
    amnesias: &[(u64, u64)],
) -> Vec<String> {
    let is_explained = |robbery: &Robbery| {
        let Robbery { early, at, .. } = *robbery;
        let since = at.saturating_sub(boot::nanos(FELT));
        let forgot = |(from, until): &(u64, u64)| *from <= at && *until >= since;
        early <= steps.felt(at, at) || amnesias.iter().any(forgot)
    };
    let left = robbed.iter().filter(|(_, robbery)| !is_explained(robbery));
    let told = left.map(|(client, Robbery { said, early, at })| {
        let [early, at] = [*early, *at].map(Duration::from_nanos);
        format!("client {client}: {said}, {early:?} too early, at {at:?}")
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_step_explains_as_much_as_it_is_long_and_an_amnesia_explains_all() {
        let robbery = |early, at| (7, Robbery { said: "gone".to_owned(), early, at: at * SECOND });
        let mut steps = Steps::default();
        steps.note(2, 10 * SECOND, 100);
        let robbed = [robbery(100, 11), robbery(101, 11), robbery(50, 9), robbery(9_999, 21)];
        assert_eq!(unexplained(&robbed, &steps, &[]).len(), 3);
        let of_restart = [(20 * SECOND, 20 * SECOND)];
        assert_eq!(unexplained(&robbed, &steps, &of_restart).len(), 2);
        assert_eq!(unexplained(&robbed, &steps, &[(22 * SECOND, 23 * SECOND)]).len(), 3);
    }
}
