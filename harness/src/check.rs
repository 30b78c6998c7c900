//! Searches the records of a run for violations.

use crate::boot;
use crate::choice::LONGEST_TTL;
use crate::record::{Call, Fault, Hold, Overlap, Verb};
use crate::resources::Semaphore;
use crate::steps::Steps;
use std::collections::BTreeMap;

/// The tolerance for a busy machine, in nanoseconds. The checks add it to every time limit that the
/// library promises.
pub(crate) const SLACK: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses(BTreeMap<u16, Vec<(u64, u64)>>);

/// A loss that the library reported at the time `at`. The lease's validity ended at `until`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedLoss {
    pub(crate) client: u16,
    pub(crate) until: u64,
    pub(crate) at: u64,
}

/// Returns each pair of holds of the same resource that overlap in time while at least one of them
/// is not a reader's. Holds that only touch do not overlap. Also returns each hold of a semaphore
/// that begins while as many others are valid as the semaphore has permits, with the oldest of
/// these, unless the hold is in a pair already.
pub(crate) fn overlaps(holds: &[Hold], faults: &[Fault]) -> Vec<Overlap> {
    let mut sorted: Vec<_> = holds.iter().filter(|hold| hold.from < hold.until).collect();
    sorted.sort_by_key(|hold| (rule(hold), hold.from, hold.until));
    let mut found = Vec::new();
    let mut open: Vec<&Hold> = Vec::new();
    for second in sorted {
        open.retain(|first| rule(first) == rule(second) && first.until > second.from);
        found.extend(conflicts(&open, second).into_iter().map(|first| Overlap {
            first: first.clone(),
            second: second.clone(),
            // Faults count from the start of the earlier acquire. After a clock step, a grant
            // counts late, so a node may have lost either lock before its acquire returned.
            under: active_faults(faults, first.asked.min(second.asked), second.from),
        }));
        open.push(second);
    }
    found
}

/// Returns the first resource of the lock or semaphore, and its maximum number of holders. Holds
/// with the same rule exclude each other.
fn rule(hold: &Hold) -> (u16, usize) {
    match Semaphore::of(hold.resource) {
        Some(semaphore) => (semaphore.resources().start, usize::from(semaphore.limit())),
        None => (hold.resource, 1),
    }
}

/// Returns the holds with which `second` conflicts. `open` contains the valid holds with the same
/// rule, in the order of their beginning.
fn conflicts<'a>(open: &[&'a Hold], second: &Hold) -> Vec<&'a Hold> {
    let (_, limit) = rule(second);
    let excludes = |first: &&&Hold| {
        first.resource == second.resource
            && first.exclusive_until().max(second.exclusive_until()) > second.from
    };
    let same: Vec<_> = open.iter().filter(excludes).copied().collect();
    let is_full = Semaphore::of(second.resource).is_some() && open.len() >= limit;
    if same.is_empty() && is_full { open[..1].to_vec() } else { same }
}

/// Describes each run of a job in a period in which the job had already run. `losses` contains the
/// intervals in which nodes may have lost counters. A node without its counter counts again after a
/// quarantine period, which is longer than [`LONGEST_TTL`]. From then on, the loss explains a
/// second run, by a call that began in the period and was stopped or had to wait.
pub(crate) fn repeated_runs(holds: &[Hold], losses: &[(u64, u64)]) -> Vec<String> {
    let of_period = |hold: &Hold| (hold.resource, hold.period);
    let mut runs: Vec<_> = holds.iter().filter(|hold| hold.period.is_some()).collect();
    runs.sort_by_key(|hold| (of_period(hold), hold.from));
    let is_explained = |first: &Hold, second: &Hold| {
        let counts_again = |end: u64| end + boot::nanos(LONGEST_TTL) <= second.from;
        losses.iter().any(|(_, end)| *end >= first.asked && counts_again(*end))
    };
    let pairs = runs.windows(2).filter(|pair| of_period(pair[0]) == of_period(pair[1]));
    pairs
        .filter(|pair| !is_explained(pair[0], pair[1]))
        .map(|pair| format!("a job ran again in its period: {:?} and {:?}", pair[0], pair[1]))
        .collect()
}

/// Returns the names of the faults that were active between `from` and `until`, sorted and without
/// duplicates.
pub(crate) fn active_faults(faults: &[Fault], from: u64, until: u64) -> Vec<String> {
    let active_faults = faults.iter().filter(|fault| fault.from <= until && fault.until >= from);
    let mut names: Vec<_> = active_faults.map(|fault| fault.nemesis.clone()).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the calls that exceeded their limit by more than [`SLACK`]. Time during which the client
/// was stopped does not count. If a node's clock stepped during an acquire, the limit increases by
/// the length of the step.
pub(crate) fn overdue<'a>(calls: &'a [Call], pauses: &Pauses, steps: &Steps) -> Vec<&'a Call> {
    let running = |call: &Call| pauses.running(call.client, call.from, call.until);
    let allowance = |call: &Call| match call.verb {
        Verb::Extend | Verb::Downgrade | Verb::Release => 0,
        _ => steps.largest(call.from, call.until),
    };
    calls.iter().filter(|call| running(call) > call.bound + SLACK + allowance(call)).collect()
}

/// Returns the losses that the library reported more than [`SLACK`] after the end of the validity.
/// Time during which the client was stopped does not count.
pub(crate) fn late(losses: &[ReportedLoss], pauses: &Pauses) -> Vec<ReportedLoss> {
    let late = |told: &&ReportedLoss| pauses.running(told.client, told.until, told.at) > SLACK;
    losses.iter().filter(late).copied().collect()
}

impl Pauses {
    pub(crate) fn record(&mut self, client: u16, from: u64, until: u64) {
        self.0.entry(client).or_default().push((from, until));
    }

    pub(crate) fn is_in(&self, client: u16, at: u64) -> bool {
        let mut pauses = self.0.get(&client).into_iter().flatten();
        pauses.any(|(stop, cont)| (*stop..*cont).contains(&at))
    }

    /// Returns how many nanoseconds between `from` and `until` the client was not stopped.
    fn running(&self, client: u16, from: u64, until: u64) -> u64 {
        let pauses = self.0.get(&client).into_iter().flatten();
        let stopped = pauses.map(|(stop, cont)| cont.min(&until).saturating_sub(*stop.max(&from)));
        until.saturating_sub(from).saturating_sub(stopped.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::SEMAPHORES;

    const SECOND: u64 = 1_000_000_000;

    fn hold(resource: u16, from: u64, until: u64) -> Hold {
        Hold::released(resource, from, until)
    }

    fn shared(shared_from: u64, from: u64, until: u64) -> Hold {
        Hold { shared_from: Some(shared_from), ..hold(1, from, until) }
    }

    fn pairs(holds: &[Hold]) -> Vec<(u64, u64)> {
        let found = overlaps(holds, &[]);
        found.iter().map(|overlap| (overlap.first.from, overlap.second.from)).collect()
    }

    #[test]
    fn overlaps_are_found_in_any_order_of_the_records() {
        assert_eq!(pairs(&[hold(1, 0, 10), hold(1, 9, 20)]), [(0, 9)]);
        assert_eq!(pairs(&[hold(1, 9, 20), hold(1, 0, 10)]), [(0, 9)]);
        assert_eq!(pairs(&[hold(1, 5, 6), hold(1, 5, 7)]), [(5, 5)], "begun at the same time");
    }

    #[test]
    fn adjacent_tenures_do_not_overlap() {
        assert!(pairs(&[hold(1, 0, 10), hold(1, 10, 20)]).is_empty());
        assert!(pairs(&[hold(1, 0, 10), hold(1, 5, 5)]).is_empty(), "one without a length");
    }

    #[test]
    fn tenures_of_different_resources_do_not_overlap() {
        assert!(pairs(&[hold(1, 0, 10), hold(2, 5, 20)]).is_empty());
    }

    #[test]
    fn each_overlapping_pair_is_counted_once() {
        let holds = [hold(1, 0, 100), hold(1, 10, 20), hold(1, 15, 30), hold(1, 40, 50)];
        assert_eq!(pairs(&holds), [(0, 10), (0, 15), (10, 15), (0, 40)]);
    }

    #[test]
    fn readers_may_overlap_and_exclude_all_others() {
        let readers = [shared(0, 0, 30), shared(5, 5, 20), shared(5, 5, 40)];
        assert!(pairs(&readers).is_empty());
        let with = |other: Hold| pairs(&[&readers[..], &[other]].concat());
        assert_eq!(with(hold(1, 30, 35)), [(5, 30)], "the last reader");
        assert_eq!(with(hold(1, 4, 6)), [(0, 4), (4, 5), (4, 5)], "a writer before two readers");
        assert!(with(hold(1, 40, 50)).is_empty() && with(hold(2, 0, 50)).is_empty());
    }

    #[test]
    fn downgraded_writer_overlaps_only_with_later_readers() {
        let writer = shared(20, 10, 50);
        let with = |other| pairs(&[writer.clone(), other]);
        assert!(with(shared(20, 20, 30)).is_empty());
        assert_eq!(with(shared(19, 19, 30)), [(10, 19)], "a reader before the downgrade");
        assert_eq!(with(shared(5, 5, 11)), [(5, 10)], "a reader before the writer");
        assert_eq!(with(hold(1, 49, 60)), [(10, 49)], "another writer");
        assert_eq!(with(shared(45, 30, 60)), [(10, 30)], "a writer that becomes a reader later");
        assert!(pairs(&[shared(90, 10, 50), shared(50, 50, 60)]).is_empty(), "ended before");
    }

    #[test]
    fn second_run_of_a_period_is_reported() {
        let run = |resource, period, from| Hold { period, ..hold(resource, from, from + 1) };
        let runs = [run(1, Some(7), 0), run(2, Some(7), 5), run(1, Some(8), 9), run(1, None, 9)];
        assert!(repeated_runs(&runs, &[]).is_empty());
        let again = [&runs[..], &[run(2, Some(7), 3 * SECOND), run(1, None, 99)]].concat();
        assert_eq!(repeated_runs(&again, &[]).len(), 1);
        let explains = |from, until| repeated_runs(&again, &[(from, until)]).is_empty();
        assert!(explains(3, 8) && explains(5, SECOND));
        assert!(!explains(5, SECOND + 1), "the node does not count yet");
        assert!(!explains(0, 4), "a loss before the first run");
    }

    #[test]
    fn semaphore_has_at_most_as_many_holders_as_permits() {
        let [two, three] = SEMAPHORES.each_ref().map(|semaphore| semaphore.resources().start);
        assert_eq!(SEMAPHORES.each_ref().map(Semaphore::limit), [2, 3]);
        let within = [hold(two, 0, 20), hold(two + 1, 5, 10), hold(two + 2, 10, 30)];
        assert!(pairs(&within).is_empty(), "two at a time");
        assert!(pairs(&[&within[..], &[hold(three, 5, 15)]].concat()).is_empty(), "of another one");
        let exceeding = [hold(two, 0, 20), hold(two + 1, 5, 10), hold(two + 2, 9, 30)];
        assert_eq!(pairs(&exceeding), [(0, 9)], "a third holder, and the oldest");
        assert_eq!(pairs(&[hold(two, 0, 20), hold(two, 19, 30)]), [(0, 19)], "the same permit");
        let mut all: Vec<_> = (0..3).map(|nth| hold(three + nth, u64::from(nth), 20)).collect();
        assert!(pairs(&all).is_empty(), "the largest number of permits counts");
        all.push(hold(three + 3, 3, 20));
        assert_eq!(pairs(&all), [(0, 3)]);
        all[3].resource = three + 1;
        assert_eq!(pairs(&all), [(1, 3)], "a pair is reported once");
    }

    #[test]
    fn overlap_lists_faults_active_between_both_acquires() {
        let fault = |nemesis: &str, from, until| Fault {
            nemesis: nemesis.to_owned(),
            target: "node 0".to_owned(),
            from: from * SECOND,
            until: until * SECOND,
            is_guaranteed: true,
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
    fn call_is_overdue_after_limit_slack_and_process_stops() {
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
        pauses.record(2, 0, 10 * SECOND);
        assert_eq!(overdue(&calls, &pauses, &steps).len(), 2, "another client was stopped");
        pauses.record(3, SECOND, 2 * SECOND);
        assert_eq!(overdue(&calls, &pauses, &steps), [&calls[2]]);
        steps.record(0, SECOND, SECOND);
        assert!(
            overdue(&calls, &pauses, &steps).is_empty(),
            "the acquire waited for the clock step"
        );
        let extension = [Call { verb: Verb::Extend, ..calls[2].clone() }];
        assert_eq!(
            overdue(&extension, &pauses, &steps).len(),
            1,
            "extensions do not wait for clock steps"
        );
        pauses.record(3, 3 * SECOND, 10 * SECOND);
        assert!(overdue(&calls, &pauses, &Steps::default()).is_empty());
    }

    #[test]
    fn loss_is_late_after_slack_and_process_stops() {
        let told = |at| ReportedLoss { client: 0, until: 5 * SECOND, at };
        let mut pauses = Pauses::default();
        let losses = [told(4 * SECOND), told(6 * SECOND), told(6 * SECOND + 1)];
        assert_eq!(late(&losses, &pauses).len(), 1);
        pauses.record(0, 4 * SECOND, 5 * SECOND + 1);
        assert!(late(&losses, &pauses).is_empty());
    }
}
