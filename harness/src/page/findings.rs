//! The findings section: the result of each check, and the details of the findings.

use super::{
    html::{Html, Text},
    words::{at, count, counted, number, took},
};
use crate::record::{BreachKind, Call, End, Findings, Hold, Overlap, Run};

/// The maximum number of findings per kind that the page lists. The timeline marks all overlaps.
const MOST_LISTED: usize = 200;
const MOST_CALLS: usize = 10;

pub(super) fn section(out: &mut Html, run: &Run) {
    out.raw("<section>\n<h2>Findings</h2>\n");
    overlaps(out, &run.findings.overlaps);
    overdue(out, run);
    if !run.findings.others.is_empty() {
        out.raw("<h3>Other findings</h3>\n<ul class=\"others\">");
        for other in run.findings.others.iter().take(MOST_LISTED) {
            out.put(format_args!("<li>{}</li>", Text(other)));
        }
        out.raw("</ul>\n");
        more(out, run.findings.others.len(), MOST_LISTED);
    }
    checks(out, &run.findings);
    out.raw("</section>\n");
}

fn checks(out: &mut Html, found: &Findings) {
    let breaches = |kind: BreachKind| kind.count(&found.breaches);
    let rows = [
        (
            "Overlaps",
            "two tenures of one resource at the same time, not both of readers, or too many of a semaphore",
            number(found.overlaps.len()),
        ),
        (
            "Stale writes accepted",
            "although a later holder had written",
            breaches(BreachKind::StaleWrite),
        ),
        (
            "Tokens out of order",
            "lower than the token of an earlier holder",
            breaches(BreachKind::LowerToken),
        ),
        ("Equal tokens", "of two tenures of one resource", breaches(BreachKind::EqualTokens)),
        ("Holders refused", "although their lease was valid", breaches(BreachKind::HolderRefused)),
        ("Lost updates", "of counters that are updated under a lock", found.lost_updates),
        ("Losses reported late", "after the validity had ended", found.late_losses),
        ("Overdue calls", "that exceeded their time limit", found.overdue_calls),
        ("Panics", "in clients", found.panics),
        ("Leaked tasks", "left in clients", found.leaked_tasks),
        ("Leaked connections", "left open on nodes", found.leaked_connections),
        ("Leaked keys", "left on nodes without an expiry", found.leaked_keys),
        ("Other findings", "not counted above", number(found.others.len())),
    ];
    out.raw("<div class=\"checks\">");
    out.begin_table("Checks: all counts must be zero", 2, &["Check", "Result", "Count"]);
    for (name, what, n) in rows {
        let (class, result) = if n == 0 { ("", "none") } else { (" class=\"bad\"", "✕ found") };
        out.put(format_args!(
            "<tr{class}><th scope=\"row\">{name}<span class=\"what\"> {what}</span></th>\
             <td class=\"result\">{result}</td><td class=\"n\">{}</td></tr>",
            count(n)
        ));
    }
    out.end_table();
    out.raw("</div>\n");
}

fn overlaps(out: &mut Html, overlaps: &[Overlap]) {
    if overlaps.is_empty() {
        return;
    }
    out.put(format_args!(
        "<h3>{}</h3>\n<ol class=\"overlaps\">\n",
        counted(number(overlaps.len()), "overlap", "overlaps")
    ));
    for (nth, overlap) in overlaps.iter().take(MOST_LISTED).enumerate() {
        let length = length(overlap);
        out.put(format_args!(
            "<li><h4>Resource {}, for {}</h4><p>at {}</p>\
             <button type=\"button\" class=\"show\" data-overlap=\"{nth}\" hidden>Show in the \
             timeline</button>",
            overlap.first.resource,
            took(length),
            at(overlap.second.from),
        ));
        picture(out, overlap);
        out.raw("<dl>");
        out.define("First holder", holder(&overlap.first));
        out.define("Second holder", holder(&overlap.second));
        let under = if overlap.under.is_empty() { "none".into() } else { overlap.under.join(", ") };
        out.define("Active faults", under);
        out.raw("</dl></li>\n");
    }
    out.raw("</ol>\n");
    more(out, overlaps.len(), MOST_LISTED);
}

pub(super) fn more(out: &mut Html, len: usize, listed: usize) {
    if len > listed {
        let rest = count(number(len - listed));
        out.put(format_args!("<p>{rest} more are not listed.</p>\n"));
    }
}

/// Returns how long both clients held the lock at the same time, in nanoseconds.
pub(super) fn length(overlap: &Overlap) -> u64 {
    overlap.first.until.min(overlap.second.until).saturating_sub(overlap.second.from)
}

pub(super) fn holder(hold: &Hold) -> String {
    let end = match hold.end {
        End::Released => "released",
        End::ValidUntil => "expired",
        End::Lost => "lost",
    };
    let renewed = if hold.is_renewed { ", renewed" } else { "" };
    let reads =
        hold.shared_from.map_or_else(String::new, |from| format!(", a reader from {}", at(from)));
    format!(
        "client {}, task {}: {} – {}, {end}{renewed}{reads}",
        hold.client,
        hold.task,
        at(hold.from),
        at(hold.until)
    )
}

fn picture(out: &mut Html, overlap: &Overlap) {
    const WIDTH: u64 = 1_000;
    let (first, second) = (&overlap.first, &overlap.second);
    let begin = first.from.min(second.from);
    let whole = first.until.max(second.until).saturating_sub(begin).max(1);
    let x = |time: u64| {
        let part = u128::from(time.saturating_sub(begin)) * u128::from(WIDTH) / u128::from(whole);
        u64::try_from(part).unwrap_or(WIDTH).min(WIDTH)
    };
    let bar = |from: u64, until: u64| (x(from).min(WIDTH - 6), (x(until) - x(from)).max(6));
    let (first_x, first_width) = bar(first.from, first.until.max(first.from));
    let (second_x, second_width) = bar(second.from, second.until.max(second.from));
    let (shared_x, shared_width) = bar(second.from, second.from + length(overlap));
    out.put(format_args!(
        "<svg class=\"pair\" viewBox=\"0 0 {WIDTH} 40\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"The second tenure begins before the first one ends\">\
         <rect class=\"hold\" x=\"{first_x}\" y=\"2\" width=\"{first_width}\" height=\"16\"/>\
         <rect class=\"hold\" x=\"{second_x}\" y=\"22\" width=\"{second_width}\" height=\"16\"/>\
         <rect class=\"mark\" x=\"{shared_x}\" y=\"0\" width=\"{shared_width}\" height=\"40\"/>\
         </svg>"
    ));
}

fn overdue(out: &mut Html, run: &Run) {
    if run.findings.overdue_calls == 0 {
        return;
    }
    let over = |call: &Call| call.until.saturating_sub(call.from).saturating_sub(call.bound);
    let mut worst: Vec<_> = run.calls.iter().filter(|call| over(call) > 0).collect();
    worst.sort_unstable_by_key(|call| std::cmp::Reverse(over(call)));
    out.begin_table(
        "Calls that exceeded their time limit the most",
        2,
        &["Call", "Outcome", "Client", "Start", "Duration", "Limit"],
    );
    // Calls that exceeded their limit by less than the slack are not findings.
    let most = usize::try_from(run.findings.overdue_calls).unwrap_or(MOST_CALLS).min(MOST_CALLS);
    for call in worst.into_iter().take(most) {
        out.put(format_args!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            super::latency::name(call.verb),
            Text(&call.outcome),
            call.client,
            at(call.from),
            took(call.until.saturating_sub(call.from)),
            took(call.bound),
        ));
    }
    out.end_table();
}
