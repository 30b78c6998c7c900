//! What must not be, found in the books of a run.

use crate::record::{Call, Fault, Hold, Overlap, Verb};
use crate::steps::Steps;
use std::collections::BTreeMap;

/// What a busy machine may add to what is promised.
pub(crate) const SLACK: u64 = 1_000_000_000;

/// When clients could not run, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses(BTreeMap<u16, Vec<(u64, u64)>>);

/// A loss that was told: the end of the validity, and when it was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldLoss {
    pub(crate) client: u16,
    pub(crate) until: u64,
    pub(crate) at: u64,
}

/// All pairs of tenures of one resource that overlap, each once. Those that touch do not.
pub(crate) fn overlaps(holds: &[Hold], faults: &[Fault]) -> Vec<Overlap> {
    let mut sorted: Vec<_> = holds.iter().filter(|hold| hold.from < hold.until).collect();
    sorted.sort_by_key(|hold| (hold.resource, hold.from, hold.until));
    let mut found = Vec::new();
    let mut open: Vec<&Hold> = Vec::new();
    for second in sorted {
        open.retain(|first| first.resource == second.resource && first.until > second.from);
        found.extend(open.iter().map(|first| Overlap {
            first: (*first).clone(),
            second: second.clone(),
            // A node may have lost the lock of either before its acquire returned: after a step of the node's clock,
            // a grant counts late.
            under: at_work(faults, first.asked.min(second.asked), second.from),
        }));
        open.push(second);
    }
    found
}

/// The names of the nemeses at work between two times, sorted.
pub(crate) fn at_work(faults: &[Fault], from: u64, until: u64) -> Vec<String> {
    let at_work = faults.iter().filter(|fault| fault.from <= until && fault.until >= from);
    let mut names: Vec<_> = at_work.map(|fault| fault.nemesis.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// The calls that took longer than their bound and the slack. An acquire may wait until what clocks
/// have stepped is made up for.
pub(crate) fn overdue<'a>(calls: &'a [Call], pauses: &Pauses, steps: &Steps) -> Vec<&'a Call> {
    let took = |call: &Call| pauses.running(call.client, call.from, call.until);
    let waits = |call: &Call| match call.verb {
        Verb::Acquire => steps.felt(call.from, call.until),
        Verb::Extend | Verb::Release => 0,
    };
    calls.iter().filter(|call| took(call) > call.bound + SLACK + waits(call)).collect()
}

/// The losses that were told after the end of the validity and the slack.
pub(crate) fn late(losses: &[ToldLoss], pauses: &Pauses) -> Vec<ToldLoss> {
    let late = |told: &&ToldLoss| pauses.running(told.client, told.until, told.at) > SLACK;
    losses.iter().filter(late).copied().collect()
}

impl Pauses {
    /// Notes that a client could not run.
    pub(crate) fn note(&mut self, client: u16, from: u64, until: u64) {
        self.0.entry(client).or_default().push((from, until));
    }

    /// Whether a client could not run at that time.
    pub(crate) fn is_in(&self, client: u16, at: u64) -> bool {
        let mut pauses = self.0.get(&client).into_iter().flatten();
        pauses.any(|(stop, cont)| (*stop..*cont).contains(&at))
    }

    /// How much of the time between the two a client could run.
    fn running(&self, client: u16, from: u64, until: u64) -> u64 {
        let pauses = self.0.get(&client).into_iter().flatten();
        let missed = pauses.map(|(stop, cont)| cont.min(&until).saturating_sub(*stop.max(&from)));
        until.saturating_sub(from).saturating_sub(missed.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::End;

    const SECOND: u64 = 1_000_000_000;

    fn hold(resource: u16, from: u64, until: u64) -> Hold {
        let end = End::Released;
        let (token, asked) = (None, from);
        let is_renewed = false;
        Hold { resource, client: 0, task: 0, id: 0, token, asked, from, until, end, is_renewed }
    }

    fn pairs(holds: &[Hold]) -> Vec<(u64, u64)> {
        let found = overlaps(holds, &[]);
        found.iter().map(|overlap| (overlap.first.from, overlap.second.from)).collect()
    }

    #[test]
    fn tenures_that_overlap_are_found_in_whatever_order_they_are_told() {
        assert_eq!(pairs(&[hold(1, 0, 10), hold(1, 9, 20)]), [(0, 9)]);
        assert_eq!(pairs(&[hold(1, 9, 20), hold(1, 0, 10)]), [(0, 9)]);
        assert_eq!(pairs(&[hold(1, 5, 6), hold(1, 5, 7)]), [(5, 5)], "begun at the same time");
    }

    #[test]
    fn tenures_that_touch_do_not_overlap() {
        assert!(pairs(&[hold(1, 0, 10), hold(1, 10, 20)]).is_empty());
        assert!(pairs(&[hold(1, 0, 10), hold(1, 5, 5)]).is_empty(), "one without a length");
    }

    #[test]
    fn resources_have_nothing_to_do_with_each_other() {
        assert!(pairs(&[hold(1, 0, 10), hold(2, 5, 20)]).is_empty());
    }

    #[test]
    fn every_pair_is_counted_once() {
        let holds = [hold(1, 0, 100), hold(1, 10, 20), hold(1, 15, 30), hold(1, 40, 50)];
        assert_eq!(pairs(&holds), [(0, 10), (0, 15), (10, 15), (0, 40)]);
    }

    #[test]
    fn an_overlap_names_the_nemeses_at_work_from_one_acquire_to_the_other() {
        let fault = |nemesis: &str, from, until| Fault {
            nemesis: nemesis.to_owned(),
            target: "node 0".to_owned(),
            from: from * SECOND,
            until: until * SECOND,
            is_promised: true,
        };
        let faults =
            [fault("early", 0, 4), fault("b", 4, 6), fault("a", 6, 6), fault("late", 9, 10)];
        let holds = [hold(1, 7 * SECOND, 11 * SECOND), hold(1, 8 * SECOND, 12 * SECOND)];
        for place in 0..2 {
            let mut holds = holds.clone();
            holds[place].asked = 5 * SECOND;
            assert_eq!(overlaps(&holds, &faults)[0].under, ["a", "b"]);
        }
    }

    #[test]
    fn a_call_is_overdue_after_its_bound_and_the_slack_unless_its_process_was_stopped() {
        let call = |until| Call {
            verb: Verb::Acquire,
            client: 3,
            from: 0,
            until,
            bound: SECOND,
            outcome: "ok".to_owned(),
        };
        let calls = [call(2 * SECOND), call(2 * SECOND + 1), call(4 * SECOND)];
        let mut pauses = Pauses::default();
        let mut steps = Steps::default();
        assert_eq!(overdue(&calls, &pauses, &steps).len(), 2);
        pauses.note(2, 0, 10 * SECOND);
        assert_eq!(overdue(&calls, &pauses, &steps).len(), 2, "another one was stopped");
        pauses.note(3, SECOND, 2 * SECOND);
        assert_eq!(overdue(&calls, &pauses, &steps), [&calls[2]]);
        steps.note(0, SECOND, SECOND);
        assert!(overdue(&calls, &pauses, &steps).is_empty(), "a step was waited for");
        let extension = [Call { verb: Verb::Extend, ..calls[2].clone() }];
        assert_eq!(overdue(&extension, &pauses, &steps).len(), 1, "it counts at once");
        pauses.note(3, 3 * SECOND, 10 * SECOND);
        assert!(overdue(&calls, &pauses, &Steps::default()).is_empty());
    }

    #[test]
    fn a_loss_is_late_after_the_slack_unless_its_process_was_stopped() {
        let told = |at| ToldLoss { client: 0, until: 5 * SECOND, at };
        let mut pauses = Pauses::default();
        let losses = [told(4 * SECOND), told(6 * SECOND), told(6 * SECOND + 1)];
        assert_eq!(late(&losses, &pauses).len(), 1);
        pauses.note(0, 4 * SECOND, 5 * SECOND + 1);
        assert!(late(&losses, &pauses).is_empty());
    }
}
