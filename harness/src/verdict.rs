//! Prints the summary of a run on standard output.

use crate::check;
use crate::record::{Breach, BreachKind, Fencing, Run, SkippedFault, Verb, WIPE};
use crate::say;
use crate::session::Outcome;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many findings of each kind the summary prints in full. The JSON record contains all
/// findings.
const SHOWN: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct RunCounts {
    updates: u64,
    late_writes: u64,
    undelivered: u64,
    losses: usize,
    lost_early: usize,
    longest_gap: u64,
    due: u64,
    runs: usize,
    repeated_runs: usize,
}

impl RunCounts {
    pub(crate) fn count(&mut self, part: &Outcome) {
        self.updates += part.updates;
        self.late_writes += part.records.late_writes;
        self.undelivered += part.records.undelivered;
        self.losses += part.records.losses.len();
        self.lost_early += part.records.lost_early.len();
        let holds = &part.records.holds;
        self.runs += holds.iter().filter(|hold| hold.period.is_some()).count();
        self.repeated_runs += check::repeated_runs(holds, &[]).len();
        let gaps = part.gaps.iter().map(|gap| gap.lasts);
        self.due += gaps.clone().sum::<u64>();
        self.longest_gap = self.longest_gap.max(gaps.max().unwrap_or(0));
    }
}

pub(crate) fn print(run: &Run, counts: &RunCounts) {
    say!("");
    work(run, counts);
    say!("");
    fencing(run);
    say!("");
    nemeses(run);
    say!("");
    findings(run);
}

/// Prints the amount of work, which shows how much evidence the verdict is based on.
fn work(run: &Run, counts: &RunCounts) {
    say!("{} tenures, {} counter updates", run.holds.len(), counts.updates);
    for verb in Verb::ALL {
        let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
        for call in run.calls.iter().filter(|call| call.verb == verb) {
            *outcomes.entry(&call.outcome).or_default() += 1;
        }
        let outcomes: Vec<_> =
            outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        say!("{verb:?}: {}", outcomes.join(", "));
    }
    say!(
        "{} losses reported; the keys of {} locks were deleted before the validity ended",
        counts.losses,
        counts.lost_early
    );
    if run.setting.mode == "inside" {
        let [due, longest] = [counts.due, counts.longest_gap].map(Duration::from_nanos);
        say!(
            "a majority was available for {due:.1?}; the longest time without a new lock was {longest:.1?}"
        );
    }
    say!(
        "{} runs of jobs that run once per period, {} repeated",
        counts.runs,
        counts.repeated_runs
    );
    say!("{} writes arrived after the validity had ended and were refused", counts.late_writes);
    say!("{} releases were still pending when their client closed", counts.undelivered);
}

fn fencing(run: &Run) {
    let Fencing { tokens, ordered, accepted, refused, late, slept_through, excused } = &run.fencing;
    say!("{tokens} fencing tokens; {ordered} had to exceed the token of an earlier holder");
    say!("{accepted} writes with a token were accepted, {refused} were refused");
    say!(
        "{late} of these writes arrived after the lease had ended; they are refused if a later holder has written"
    );
    say!("{slept_through} leases with a token expired while their client was stopped");
    let (refused, across): (Vec<_>, Vec<_>) =
        excused.iter().cloned().partition(|breach| breach.kind == BreachKind::HolderRefused);
    say!(
        "{} holders were refused in outside mode, because another client also held the lock",
        refused.len()
    );
    let wipes = run.faults.iter().filter(|fault| fault.nemesis == WIPE).count() as u64;
    if wipes > 0 {
        let (rate, kinds) = (share(across.len() as u64, wipes), kinds(&across));
        say!(
            "{} fencing violations after {wipes} wipes of all nodes ({rate:.3} per wipe){kinds}; not counted as findings",
            across.len()
        );
    }
}

/// Formats the number of violations of each kind as a list to append to a line: `, 2 NAME, 1 NAME`.
fn kinds(breaches: &[Breach]) -> String {
    let counts = BreachKind::ALL.map(|kind| (kind.count(breaches), kind.names().1));
    let seen = counts.into_iter().filter(|(count, _)| *count > 0);
    seen.fold(String::new(), |line, (count, name)| line + &format!(", {count} {name}"))
}

fn nemeses(run: &Run) {
    let mut table: BTreeMap<&str, (u64, u64, bool)> = BTreeMap::new();
    for fault in &run.faults {
        let row = table.entry(&fault.nemesis).or_insert((0, 0, fault.is_guaranteed));
        row.0 += 1;
    }
    let outside = names_outside(run);
    for overlap in &run.findings.overlaps {
        // If a fault outside the guarantee was active, it explains the overlap. Otherwise, each
        // active fault is a possible cause.
        let is_outside = |name: &&String| outside.contains(&name.as_str());
        let is_explained = overlap.under.iter().any(|name| is_outside(&name));
        for name in overlap.under.iter().filter(|name| is_outside(name) || !is_explained) {
            if let Some(row) = table.get_mut(name.as_str()) {
                row.1 += 1;
            }
        }
    }
    say!("{:52} {:>7} {:>9} {:>10}", "fault", "applied", "overlaps", "per fault");
    for (nemesis, (faults, overlaps, is_guaranteed)) in table {
        let rate = share(overlaps, faults);
        let note = if is_guaranteed { "" } else { "  outside the guarantee" };
        say!("{nemesis:52} {faults:7} {overlaps:9} {rate:10.3}{note}");
    }
    for SkippedFault { target, why, .. } in &run.skipped {
        say!("skipped ({target}): {why}");
    }
    say!(
        "an overlap is counted for the active faults outside the guarantee, or for all active faults if there are none"
    );
}

fn findings(run: &Run) {
    let found = &run.findings;
    for overlap in found.overlaps.iter().take(SHOWN) {
        say!(
            "overlap: {:?}\n    and  {:?}\n faults  {:?}",
            overlap.first,
            overlap.second,
            overlap.under
        );
    }
    for breach in found.breaches.iter().take(SHOWN) {
        say!(
            "{}: {:?}\n    and  {:?}\n faults  {:?}",
            breach.kind.names().0,
            breach.first,
            breach.second,
            breach.under
        );
    }
    let rate = share(found.overlaps.len() as u64, run.holds.len() as u64) * 1_000.0;
    say!("{:7} overlaps ({rate:.3} per 1000 tenures)", found.overlaps.len());
    for kind in BreachKind::ALL {
        say!("{:7} {}", kind.count(&found.breaches), kind.names().1);
    }
    for (count, what) in [
        (found.lost_updates, "lost updates"),
        (found.late_losses, "losses reported late"),
        (found.overdue_calls, "overdue calls"),
        (found.panics, "panics"),
        (found.leaked_tasks, "leaked tasks"),
        (found.leaked_connections, "leaked connections"),
        (found.leaked_keys, "leaked keys"),
        (found.others.len() as u64, "other findings"),
    ] {
        say!("{count:7} {what}");
    }
    found.others.iter().take(SHOWN).for_each(|other| say!("        {other}"));
    let outside = names_outside(run);
    let is_explained = |names: &[String]| names.iter().any(|name| outside.contains(&name.as_str()));
    let overlaps = found.overlaps.iter();
    let unexplained = overlaps.filter(|overlap| !is_explained(&overlap.under)).count();
    let verdict = match (run.setting.mode.as_str(), found.is_clean()) {
        ("outside", false) if !found.breaches.is_empty() => "FENCING FAILED".to_owned(),
        (_, true) => "no findings".to_owned(),
        ("inside", false) => "FINDINGS WITHIN THE GUARANTEE".to_owned(),
        _ => format!("{unexplained} overlaps without an active fault outside the guarantee"),
    };
    say!("{}, seed {}: {verdict}", run.setting.mode, run.setting.seed);
}

/// Returns the names of the faults that Redlock's guarantee does not cover.
fn names_outside(run: &Run) -> Vec<&str> {
    let outside = run.faults.iter().filter(|fault| !fault.is_guaranteed);
    let mut names: Vec<_> = outside.map(|fault| fault.nemesis.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[expect(clippy::cast_precision_loss, reason = "a rate for display")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
