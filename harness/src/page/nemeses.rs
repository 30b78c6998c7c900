//! The faults section. For each kind of fault (nemesis), it shows how often and how long the fault
//! was active, and the acquires and overlaps during that time.

use std::collections::BTreeMap;

use super::{
    html::{Html, Text},
    words::{count, number, share, took},
};
use crate::record::{Fault, Overlap, Run, SkippedFault};

/// The number of fault colors in the style sheet.
const COLORS: usize = 10;

pub(super) struct Nemesis<'a> {
    pub(super) name: &'a str,
    /// A label for readers who cannot distinguish the colors.
    pub(super) letter: String,
    pub(super) color: usize,
    /// Whether Redlock's guarantee covers all faults of this kind.
    pub(super) is_guaranteed: bool,
    times: u64,
    /// The disjoint intervals in which a fault of this kind was active, in order.
    spans: Vec<(u64, u64)>,
}

pub(super) fn of(run: &Run) -> Vec<Nemesis<'_>> {
    let mut by_name: BTreeMap<&str, Vec<&Fault>> = BTreeMap::new();
    for fault in &run.faults {
        by_name.entry(&fault.nemesis).or_default().push(fault);
    }
    by_name
        .into_iter()
        .enumerate()
        .map(|(nth, (name, faults))| Nemesis {
            name,
            letter: letter(nth),
            color: nth % COLORS,
            is_guaranteed: faults.iter().all(|fault| fault.is_guaranteed),
            times: number(faults.len()),
            spans: merged(faults.iter().map(|fault| (fault.from, fault.until)).collect()),
        })
        .collect()
}

/// Returns item `nth` of the sequence A … Z, AA, AB, …
fn letter(mut nth: usize) -> String {
    let mut letters = Vec::new();
    loop {
        letters.push(char::from(b'A' + u8::try_from(nth % 26).unwrap_or(0)));
        if nth < 26 {
            return letters.into_iter().rev().collect();
        }
        nth = nth / 26 - 1;
    }
}

fn merged(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (from, until) in spans {
        match all.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => all.push((from, until.max(from))),
        }
    }
    all
}

fn time(spans: &[(u64, u64)]) -> u64 {
    spans.iter().map(|(from, until)| until - from).sum()
}

/// Counts the moments that lie within the spans. `moments` must be sorted.
fn within(moments: &[u64], spans: &[(u64, u64)]) -> u64 {
    let before = |time: u64| moments.partition_point(|moment| *moment < time);
    spans.iter().map(|(from, until)| number(before(*until) - before(*from))).sum()
}

pub(super) fn section(out: &mut Html, run: &Run, nemeses: &[Nemesis<'_>]) {
    out.raw("<section>\n<h2>Faults</h2>\n");
    if nemeses.is_empty() {
        out.raw("<p>No fault was applied.</p>\n");
        skipped(out, run);
        out.raw("</section>\n");
        return;
    }
    let lasted = run.setting.lasted;
    let mut begun: Vec<_> = run.holds.iter().map(|hold| hold.from).collect();
    begun.sort_unstable();
    out.begin_table(
        "By kind of fault",
        2,
        &[
            "Fault",
            "Guarantee",
            "Applied",
            "Active time",
            "Share of the run",
            "Acquires",
            "Acquires/s",
            "Overlaps",
        ],
    );
    for each in nemeses {
        let is_under = |overlap: &&Overlap| overlap.under.iter().any(|name| name == each.name);
        let under = number(run.findings.overlaps.iter().filter(is_under).count());
        let name = format!("{}{}", legend_key(each), Text(each.name));
        let promise = if each.is_guaranteed { "inside" } else { "outside" };
        let acquired = within(&begun, &each.spans);
        let first = [&name, promise, &count(each.times)];
        row(out, first, time(&each.spans), lasted, acquired, under);
    }
    let all = merged(nemeses.iter().flat_map(|each| each.spans.iter().copied()).collect());
    let calm = lasted.saturating_sub(time(&all));
    let acquired = number(begun.len()) - within(&begun, &all);
    let under = run.findings.overlaps.iter().filter(|overlap| overlap.under.is_empty()).count();
    row(out, ["no fault", "–", "–"], calm, lasted, acquired, number(under));
    out.end_table();
    out.raw(
        "<p class=\"note\">Time in which a fault is active on several targets is counted once. \
         Different faults can be active at the same time.</p>\n",
    );
    skipped(out, run);
    out.raw("</section>\n");
}

fn skipped(out: &mut Html, run: &Run) {
    if run.skipped.is_empty() {
        return;
    }
    out.raw("<p>Skipped, because they could not be applied:</p>\n<ul>\n");
    for SkippedFault { target, from, why, .. } in &run.skipped {
        out.put(format_args!("<li>{} after {}: {}</li>\n", Text(target), took(*from), Text(why)));
    }
    out.raw("</ul>\n");
}

/// Writes a table row. The cells in `first` are already HTML. `acquired` and `overlaps` are the
/// numbers of acquires and overlaps within `time`.
fn row(out: &mut Html, first: [&str; 3], time: u64, lasted: u64, acquired: u64, overlaps: u64) {
    let [name, promise, times] = first;
    let rate = u128::from(acquired) * 1_000_000_000 / u128::from(time.max(1));
    let rate =
        if time == 0 { "–".into() } else { count(u64::try_from(rate).unwrap_or(u64::MAX)) };
    let (class, mark) = if overlaps > 0 { (" bad", "✕ ") } else { ("", "") };
    out.put(format_args!(
        "<tr><th scope=\"row\">{name}</th><td>{promise}</td><td class=\"n\">{times}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{rate}</td><td class=\"n{class}\">{mark}{}</td></tr>",
        took(time),
        share(time, lasted),
        count(acquired),
        count(overlaps),
    ));
}

pub(super) fn legend_key(nemesis: &Nemesis<'_>) -> String {
    format!("<span class=\"key f{}\" aria-hidden=\"true\">{}</span>", nemesis.color, nemesis.letter)
}
