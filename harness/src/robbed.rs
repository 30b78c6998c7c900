//! Leases whose keys the nodes lost before the validity ended, and the faults that explain the losses.

use crate::boot;
use crate::line::Robbery;
use crate::steps::{FELT, Steps};
use std::time::Duration;

/// Descriptions of the leases whose loss no fault explains. A key expires early by as much as the clock of its node has
/// stepped. In the spans of `amnesias`, nodes restart without data and lose all keys. The check for overlaps detects
/// whether another client acquired such a lock.
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
        format!("client {client}: {said}, {early:?} before the validity ended, at {at:?}")
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn step_explains_its_length_and_data_loss_explains_any_early_loss() {
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
