//! Finds leases whose keys disappeared from the nodes before the validity ended, although no fault
//! explains the loss.

use crate::boot;
use crate::line::EarlyLoss;
use crate::steps::{STEP_EFFECT, Steps};
use std::time::Duration;

/// Describes each early loss that no fault explains. Two kinds of faults explain a loss: a clock
/// step expires keys early by at most its length, and nodes lose all keys if they restart without
/// data (`data_losses`). Overlaps that follow an early loss are found by another check.
pub(crate) fn unexplained(
    lost_early: &[(u16, EarlyLoss)],
    steps: &Steps,
    data_losses: &[(u64, u64)],
) -> Vec<String> {
    let is_explained = |loss: &EarlyLoss| {
        let EarlyLoss { early, at, .. } = *loss;
        let since = at.saturating_sub(boot::nanos(STEP_EFFECT));
        let is_near = |(from, until): &(u64, u64)| *from <= at && *until >= since;
        early <= steps.largest(at, at) || data_losses.iter().any(is_near)
    };
    let unexplained = lost_early.iter().filter(|(_, loss)| !is_explained(loss));
    let descriptions = unexplained.map(|(client, EarlyLoss { report, early, at })| {
        let [early, at] = [*early, *at].map(Duration::from_nanos);
        format!("client {client}: {report}, {early:?} before the validity ended, at {at:?}")
    });
    descriptions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn step_explains_its_length_and_data_loss_any_early_loss() {
        let loss = |early, at| (7, EarlyLoss { report: "gone".to_owned(), early, at: at * SECOND });
        let mut steps = Steps::default();
        steps.record(2, 10 * SECOND, 100);
        let losses = [loss(100, 11), loss(101, 11), loss(50, 9), loss(9_999, 21)];
        assert_eq!(unexplained(&losses, &steps, &[]).len(), 3);
        let of_restart = [(20 * SECOND, 20 * SECOND)];
        assert_eq!(unexplained(&losses, &steps, &of_restart).len(), 2);
        assert_eq!(unexplained(&losses, &steps, &[(22 * SECOND, 23 * SECOND)]).len(), 3);
    }
}
