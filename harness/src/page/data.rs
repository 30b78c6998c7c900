//! The data for the page's script: compact JSON that is safe inside a `<script>` element.

use serde::Serialize;
use std::collections::BTreeSet;

use super::{
    findings::length,
    layout::{Layout, Row, Target},
    nemeses::Nemesis,
};
use crate::record::{End, Hold, Stretch};

/// Nanoseconds per microsecond. The data contains times in microseconds, which are finer than a
/// screen can show, and make the JSON shorter than nanoseconds would.
const MICROSECOND: u64 = 1_000;
/// A flag in the end code of a hold: the library renewed the lease in the background.
const RENEWED: u64 = 4;

#[derive(Serialize)]
struct Data<'a> {
    end: u64,
    nemeses: Vec<NemesisData<'a>>,
    targets: Vec<TargetData<'a>>,
    /// For each part of the run, two numbers: number of nodes, and start. Empty if the run has only
    /// one part.
    changes: Vec<u64>,
    /// For each holder, two numbers: client, and task.
    who: Vec<u16>,
    rows: Vec<RowData>,
    /// For each overlap, six numbers: row, index in the findings, start and duration of the
    /// overlap, and start and duration of the span that covers both holds.
    overlaps: Vec<u64>,
}

#[derive(Serialize)]
struct NemesisData<'a> {
    name: &'a str,
    letter: &'a str,
    color: usize,
    promised: bool,
}

#[derive(Serialize)]
struct TargetData<'a> {
    name: &'a str,
    lanes: usize,
    /// For each fault, four numbers: index of its kind, lane, start, and duration.
    faults: Vec<u64>,
}

#[derive(Serialize)]
struct RowData {
    resource: u16,
    /// For each hold, four numbers: start relative to the previous hold's start, duration, index in
    /// `who`, and end code.
    holds: Vec<u64>,
}

/// Serializes the data. The JSON contains no `<`, so no text in it can close the script element.
pub(super) fn json(layout: &Layout<'_>, nemeses: &[Nemesis<'_>]) -> String {
    let holds = layout.rows.iter().flat_map(|row| &row.holds);
    let who: BTreeSet<_> = holds.map(|hold| (hold.client, hold.task)).collect();
    let who: Vec<_> = who.into_iter().collect();
    let data = Data {
        end: layout.end.div_ceil(MICROSECOND),
        nemeses: nemeses.iter().map(kind).collect(),
        targets: layout.targets.iter().map(faults).collect(),
        changes: layout.changes.iter().flat_map(nodes_and_start).collect(),
        rows: layout.rows.iter().map(|row| holds_of(row, &who)).collect(),
        overlaps: overlaps(layout),
        who: who.into_iter().flat_map(|(client, task)| [client, task]).collect(),
    };
    serde_json::to_string(&data).expect("numbers and text are JSON").replace('<', "\\u003c")
}

fn kind<'a>(nemesis: &'a Nemesis<'a>) -> NemesisData<'a> {
    let Nemesis { name, letter, color, is_guaranteed, .. } = nemesis;
    NemesisData { name, letter, color: *color, promised: *is_guaranteed }
}

/// Returns the start and the duration in microseconds. Rounds both ends down, so that disjoint
/// spans stay disjoint.
fn span(from: u64, until: u64) -> (u64, u64) {
    let from_micros = from / MICROSECOND;
    (from_micros, (until / MICROSECOND).saturating_sub(from_micros))
}

fn nodes_and_start(stretch: &Stretch) -> [u64; 2] {
    [u64::from(stretch.nodes), stretch.from / MICROSECOND]
}

fn faults<'a>(target: &Target<'a>) -> TargetData<'a> {
    let flat = target.faults.iter().flat_map(|placed| {
        let (from, long) = span(placed.fault.from, placed.fault.until);
        [place(placed.nemesis), place(placed.lane), from, long]
    });
    TargetData { name: target.name, lanes: target.lanes, faults: flat.collect() }
}

fn holds_of(row: &Row<'_>, who: &[(u16, u16)]) -> RowData {
    let mut before = 0;
    let mut flat = Vec::with_capacity(row.holds.len() * 4);
    for hold in &row.holds {
        let (from, long) = span(hold.from, hold.until);
        let by = who.partition_point(|other| *other < (hold.client, hold.task));
        flat.extend([from - before, long, place(by), end(hold)]);
        before = from;
    }
    RowData { resource: row.resource, holds: flat }
}

fn end(hold: &Hold) -> u64 {
    let end = match hold.end {
        End::Released => 0,
        End::ValidUntil => 1,
        End::Lost => 2,
    };
    end + if hold.is_renewed { RENEWED } else { 0 }
}

fn overlaps(layout: &Layout<'_>) -> Vec<u64> {
    let mut flat = Vec::new();
    for (at, row) in layout.rows.iter().enumerate() {
        for (nth, overlap) in &row.overlaps {
            let (first, second) = (&overlap.first, &overlap.second);
            let (from, long) = span(second.from, second.from + length(overlap));
            let (begin, whole) = span(first.from.min(second.from), first.until.max(second.until));
            flat.extend([place(at), place(*nth), from, long, begin, whole]);
        }
    }
    flat
}

fn place(at: usize) -> u64 {
    super::words::number(at)
}
