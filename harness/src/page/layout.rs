//! The rows of the timeline: targets with their faults, and resources with their holds.

use std::{cmp::Reverse, collections::BTreeMap};

use super::nemeses::Nemesis;
use crate::record::{Fault, Hold, Overlap, Run, Stretch};

pub(super) struct Layout<'a> {
    /// The end of the time axis in nanoseconds. Never 0, because the page divides by it.
    pub(super) end: u64,
    pub(super) targets: Vec<Target<'a>>,
    /// The parts of the run. Empty if the number of nodes does not change.
    pub(super) changes: &'a [Stretch],
    pub(super) rows: Vec<Row<'a>>,
}

pub(super) struct Target<'a> {
    pub(super) name: &'a str,
    /// The number of lanes that the target's overlapping faults need.
    pub(super) lanes: usize,
    pub(super) faults: Vec<Placed<'a>>,
}

pub(super) struct Placed<'a> {
    pub(super) fault: &'a Fault,
    pub(super) nemesis: usize,
    pub(super) lane: usize,
}

#[derive(Default)]
pub(super) struct Row<'a> {
    pub(super) resource: u16,
    pub(super) holds: Vec<&'a Hold>,
    /// The overlaps with their indices in the findings.
    pub(super) overlaps: Vec<(usize, &'a Overlap)>,
}

impl<'a> Layout<'a> {
    pub(super) fn of(run: &'a Run, nemeses: &[Nemesis<'_>]) -> Self {
        let held = run.holds.iter().map(|hold| hold.until);
        let worked = run.faults.iter().map(|fault| fault.until);
        let end = held.chain(worked).max().unwrap_or(0).max(run.setting.lasted).max(1);
        let changes = if run.stretches.len() > 1 { run.stretches.as_slice() } else { &[] };
        Self { end, targets: targets(&run.faults, nemeses), changes, rows: rows(run) }
    }
}

fn rows(run: &Run) -> Vec<Row<'_>> {
    let mut rows: BTreeMap<u16, Row<'_>> = BTreeMap::new();
    for hold in &run.holds {
        rows.entry(hold.resource).or_default().holds.push(hold);
    }
    for (nth, overlap) in run.findings.overlaps.iter().enumerate() {
        rows.entry(overlap.first.resource).or_default().overlaps.push((nth, overlap));
    }
    rows.into_iter()
        .map(|(resource, mut row)| {
            row.resource = resource;
            row.holds.sort_by_key(|hold| hold.from);
            row
        })
        .collect()
}

fn targets<'a>(faults: &'a [Fault], nemeses: &[Nemesis<'_>]) -> Vec<Target<'a>> {
    let mut targets: BTreeMap<_, Vec<&Fault>> = BTreeMap::new();
    for fault in faults {
        targets.entry(order(&fault.target)).or_default().push(fault);
    }
    targets
        .into_values()
        .map(|mut faults| {
            faults.sort_by_key(|fault| fault.from);
            let name = faults.first().map_or("", |fault| fault.target.as_str());
            let (lanes, faults) = placed(&faults, nemeses);
            Target { name, lanes, faults }
        })
        .collect()
}

/// Returns the sort key of a target. Nodes come before other targets, and `node 2` before
/// `node 10`.
fn order(target: &str) -> (Reverse<bool>, &str, u64, &str) {
    let name = target.trim_end_matches(|char: char| char.is_ascii_digit());
    let number = target[name.len()..].parse().unwrap_or(u64::MAX);
    (Reverse(target.starts_with("node")), name, number, target)
}

/// Assigns overlapping faults to different lanes. Returns the number of lanes and the placed
/// faults.
fn placed<'a>(faults: &[&'a Fault], nemeses: &[Nemesis<'_>]) -> (usize, Vec<Placed<'a>>) {
    let mut ends: Vec<u64> = Vec::new();
    let mut all = Vec::with_capacity(faults.len());
    for fault in faults {
        let free = ends.iter().position(|end| *end <= fault.from);
        let lane = free.unwrap_or_else(|| {
            ends.push(0);
            ends.len() - 1
        });
        ends[lane] = fault.until;
        // `nemeses` is sorted by name and contains all names.
        let by = nemeses.partition_point(|nemesis| nemesis.name < fault.nemesis.as_str());
        all.push(Placed { fault, nemesis: by, lane });
    }
    (ends.len().max(1), all)
}
