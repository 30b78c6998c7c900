//! The latency section: percentiles and histograms of the calls' durations.

use super::{
    html::Html,
    words::{count, counted, number, took},
};
use crate::record::{Call, Verb};

/// The lower limits of the ten bins of a decade, as percentages of the start of the decade.
const STEPS: [u64; 10] = [100, 126, 158, 200, 251, 316, 398, 501, 631, 794];
const BIN_WIDTH: usize = 6;
const HEIGHT: u32 = 90;

pub(super) fn name(verb: Verb) -> &'static str {
    match verb {
        Verb::Acquire => "acquire",
        Verb::AcquireAny => "acquire any",
        Verb::AcquirePermit => "acquire permit",
        Verb::AcquireRead => "acquire for reading",
        Verb::AcquireWrite => "acquire for writing",
        Verb::StartJob => "start job",
        Verb::Campaign => "campaign",
        Verb::Extend => "extend",
        Verb::Downgrade => "downgrade",
        Verb::Release => "release",
    }
}

pub(super) fn section(out: &mut Html, calls: &[Call]) {
    out.raw("<section>\n<h2>Latency</h2>\n");
    if calls.is_empty() {
        out.raw("<p>No calls were made.</p>\n</section>\n");
        return;
    }
    let of = |verb: Verb, is_ok: bool| {
        let calls =
            calls.iter().filter(|call| call.verb == verb && (!is_ok || call.outcome == "ok"));
        let mut took: Vec<_> = calls.map(|call| call.until.saturating_sub(call.from)).collect();
        took.sort_unstable();
        took
    };
    out.begin_table("Percentiles", 1, &["Call", "Calls", "p50", "p90", "p99", "p99.9", "max"]);
    let mut all = Vec::new();
    for verb in Verb::ALL {
        let (every, ok) = (of(verb, false), of(verb, true));
        if every.is_empty() {
            continue;
        }
        row(out, name(verb), &every);
        if !ok.is_empty() && ok.len() < every.len() {
            row(out, &format!("{}, successful", name(verb)), &ok);
        }
        all.push((name(verb), every));
    }
    out.end_table();
    let shortest = all.iter().filter_map(|(_, took)| took.first()).min().copied().unwrap_or(1);
    let longest = all.iter().filter_map(|(_, took)| took.last()).max().copied().unwrap_or(1);
    // The histograms begin and end at a whole decade.
    let (first, last) = (bin(shortest) / 10, bin(longest) / 10);
    out.raw("<div class=\"histograms\">\n");
    for (name, took) in &all {
        histogram(out, name, took, first, last);
    }
    out.raw(
        "</div>\n<p class=\"note\">Calls with any outcome. Both axes are logarithmic. The dashed \
         lines mark p50 and p99.</p>\n</section>\n",
    );
}

fn row(out: &mut Html, name: &str, took_sorted: &[u64]) {
    out.put(format_args!(
        "<tr><th scope=\"row\">{name}</th><td class=\"n\">{}</td>",
        count(number(took_sorted.len()))
    ));
    for permille in [500, 900, 990, 999, 1_000] {
        out.put(format_args!("<td class=\"n\">{}</td>", took(percentile(took_sorted, permille))));
    }
    out.raw("</tr>");
}

/// Returns the smallest value that is at least as large as `permille` thousandths of the values
/// (nearest-rank method).
pub(super) fn percentile(sorted: &[u64], permille: usize) -> u64 {
    let rank = (sorted.len() * permille).div_ceil(1_000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// Returns the index of the bin that contains a duration. Each decade of nanoseconds has ten bins.
fn bin(nanos: u64) -> usize {
    let nanos = nanos.max(1);
    let decade = nanos.ilog10();
    let hundredths = u128::from(nanos) * 100 / u128::from(10_u64.pow(decade));
    let step = STEPS.partition_point(|step| u128::from(*step) <= hundredths).max(1) - 1;
    usize::try_from(decade).unwrap_or(0) * 10 + step
}

fn histogram(out: &mut Html, name: &str, took_sorted: &[u64], first: usize, last: usize) {
    let mut bins = vec![0_u32; (last - first + 1) * 10];
    for nanos in took_sorted {
        if let Some(bin) = bins.get_mut(bin(*nanos) - first * 10) {
            *bin = bin.saturating_add(1);
        }
    }
    let (width, bottom) = (bins.len() * BIN_WIDTH, HEIGHT + 8);
    let log = |n: u32| (f64::from(n) + 1.0).log10();
    let tallest = log(bins.iter().copied().max().unwrap_or(0).max(1));
    out.put(format_args!(
        "<figure><figcaption>{name}</figcaption><svg viewBox=\"-24 0 {} {}\" role=\"img\" \
         aria-label=\"Histogram of {} of {name}, from {} to {}\">\n",
        width + 48,
        HEIGHT + 26,
        counted(number(took_sorted.len()), "call", "calls"),
        took(percentile(took_sorted, 0)),
        took(percentile(took_sorted, 1_000)),
    ));
    for decade in first..=last + 1 {
        let x = (decade - first) * 10 * BIN_WIDTH;
        let label = took(10_u64.saturating_pow(u32::try_from(decade).unwrap_or(0)));
        let label = label.replace(".00", "").replace(".0", "");
        out.put(format_args!(
            "<path class=\"tick\" d=\"M{x} 8V{bottom}\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{label}</text>\n",
            bottom + 14
        ));
    }
    for (nth, n) in bins.iter().enumerate().filter(|(_, n)| **n > 0) {
        let height = log(*n) / tallest * f64::from(HEIGHT);
        out.put(format_args!(
            "<rect class=\"hold\" x=\"{}\" y=\"{:.1}\" width=\"{}\" height=\"{height:.1}\">\
             <title>{}</title></rect>",
            nth * BIN_WIDTH,
            f64::from(bottom) - height,
            BIN_WIDTH - 1,
            counted((*n).into(), "call", "calls"),
        ));
    }
    for permille in [500, 990] {
        let x = (bin(percentile(took_sorted, permille)) - first * 10) * BIN_WIDTH + BIN_WIDTH / 2;
        out.put(format_args!("<path class=\"percentile\" d=\"M{x} 0V{bottom}\"/>"));
    }
    out.raw("</svg></figure>\n");
}
