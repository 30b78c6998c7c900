//! A static timeline of the whole run, for browsers without scripts.

use crate::record::Stretch;

use super::{
    html::{Html, Text},
    layout::{Layout, Row, Target},
    nemeses::Nemesis,
    words::{at, counted, number, took},
};

const GUTTER: u64 = 96;
const PLOT: u64 = 1_024;
/// The number of time bins. Each is two SVG units wide.
const BINS: usize = 512;
const AXIS: u64 = 22;
const LANE: u64 = 11;
const ROW: u64 = 16;
/// If the run has more resources than this, several resources share a row.
const MOST_ROWS: usize = 48;
/// The maximum number of faults with tooltips. More tooltips would make the page too large.
const MOST_TITLES: usize = 2_000;
/// The number of shades. A darker shade means that the resources were held for more of the bin's
/// time.
const SHADES: usize = 4;

pub(super) fn picture(out: &mut Html, layout: &Layout<'_>, nemeses: &[Nemesis<'_>]) {
    let lanes: usize = layout.targets.iter().map(|target| target.lanes).sum();
    let groups: Vec<_> = layout.rows.chunks(layout.rows.len().div_ceil(MOST_ROWS).max(1)).collect();
    let top = AXIS + number(lanes) * LANE + number(layout.targets.len()) * 3 + 8;
    let height = top + number(groups.len()) * ROW + 6;
    let faults: usize = layout.targets.iter().map(|target| target.faults.len()).sum();
    let holds: usize = layout.rows.iter().map(|row| row.holds.len()).sum();
    let overlaps: usize = layout.rows.iter().map(|row| row.overlaps.len()).sum();
    let width = GUTTER + PLOT;
    out.put(format_args!(
        "<div id=\"still\" class=\"scroll\" role=\"region\" tabindex=\"0\" \
         aria-label=\"Timeline\">\n<svg class=\"still\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}, {} and {} over {}\">\n",
        counted(number(holds), "tenure", "tenures"),
        counted(number(faults), "fault", "faults"),
        counted(number(overlaps), "overlap", "overlaps"),
        took(layout.end),
    ));
    axis(out, layout.end, height);
    changes(out, layout, height);
    let mut y = AXIS;
    for target in &layout.targets {
        draw_target(out, layout.end, nemeses, target, y, faults <= MOST_TITLES);
        y += number(target.lanes) * LANE + 3;
    }
    shades(out, layout.end, &groups, top);
    marks(out, layout.end, &groups, top);
    out.raw("</svg>\n</div>\n");
}

/// Returns the x coordinate of a time, in tenths of an SVG unit.
fn x(time: u64, end: u64) -> u64 {
    let tenths = u128::from(time.min(end)) * u128::from(PLOT) * 10 / u128::from(end);
    GUTTER * 10 + u64::try_from(tenths).unwrap_or(0)
}

fn tenths(n: u64) -> String {
    if n.is_multiple_of(10) { (n / 10).to_string() } else { format!("{}.{}", n / 10, n % 10) }
}

fn axis(out: &mut Html, end: u64, height: u64) {
    // The distance between ticks is 1, 2 or 5 times a power of ten, so that at most ten distances fit on the axis.
    let mut step = 1;
    let mut factors = [2, 5, 10].into_iter().cycle();
    let mut power = 1;
    while end / step > 10 {
        let factor = factors.next().unwrap_or(10);
        step = power * factor;
        if factor == 10 {
            power = step;
        }
    }
    for time in (0..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let x = tenths(x(time, end));
        let label =
            if time == 0 { "0".into() } else { took(time).replace(".00", "").replace(".0", "") };
        // A label near the end would not fit.
        if end - time >= end / 20 {
            out.put(format_args!("<text x=\"{x}\" y=\"12\" dx=\"4\">{label}</text>"));
        }
        out.put(format_args!("<path class=\"tick\" d=\"M{x} 3V{height}\"/>\n"));
    }
}

/// Draws a labelled line at each change of the number of nodes.
fn changes(out: &mut Html, layout: &Layout<'_>, height: u64) {
    for Stretch { nodes, from } in layout.changes {
        let x = tenths(x(*from, layout.end));
        let nodes = counted(u64::from(*nodes), "node", "nodes");
        out.put(format_args!(
            "<path class=\"change\" d=\"M{x} 0V{height}\"/>\
             <text class=\"change\" x=\"{x}\" y=\"{AXIS}\" dx=\"4\">{nodes}</text>\n"
        ));
    }
}

fn draw_target(
    out: &mut Html,
    end: u64,
    nemeses: &[Nemesis<'_>],
    target: &Target<'_>,
    top: u64,
    has_titles: bool,
) {
    out.put(format_args!("<text x=\"0\" y=\"{}\">{}</text>\n", top + 9, Text(short(target.name))));
    for placed in &target.faults {
        let Some(by) = nemeses.get(placed.nemesis) else { continue };
        let fault = placed.fault;
        let left = x(fault.from, end);
        let width = x(fault.until, end).saturating_sub(left).max(15);
        let y = top + number(placed.lane) * LANE;
        out.put(format_args!(
            "<rect class=\"f{}\" x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{}\"",
            by.color,
            tenths(left),
            tenths(width),
            LANE - 1
        ));
        if has_titles {
            out.put(format_args!(
                "><title>{}, {}: at {} for {}</title></rect>",
                Text(&fault.nemesis),
                Text(&fault.target),
                at(fault.from),
                took(fault.until.saturating_sub(fault.from))
            ));
        } else {
            out.raw("/>");
        }
        if width > 110 {
            let (x, y) = (tenths(left + 20), y + 8);
            out.put(format_args!("<text class=\"in\" x=\"{x}\" y=\"{y}\">{}</text>", by.letter));
        }
        out.raw("\n");
    }
}

/// Shortens a name so that it fits to the left of the plot.
fn short(name: &str) -> String {
    if name.chars().count() <= 15 {
        return name.into();
    }
    name.chars().take(14).chain(['…']).collect()
}

/// Returns how long the rows' resources were held in each bin, in nanoseconds.
fn held(rows: &[Row<'_>], end: u64) -> Vec<u64> {
    let width = end.div_ceil(number(BINS)).max(1);
    let mut bins = vec![0; BINS];
    for hold in rows.iter().flat_map(|row| &row.holds) {
        let mut from = hold.from;
        while from < hold.until {
            let bin = from / width;
            let until = hold.until.min((bin + 1) * width);
            if let Some(held) = usize::try_from(bin).ok().and_then(|bin| bins.get_mut(bin)) {
                *held += until - from;
            }
            from = until;
        }
    }
    bins
}

/// Draws the holds as one path per shade. Adjacent bins of equal shade form one rectangle.
fn shades(out: &mut Html, end: u64, groups: &[&[Row<'_>]], top: u64) {
    let mut paths = std::array::from_fn::<Html, SHADES, _>(|_| Html::default());
    for (nth, rows) in groups.iter().enumerate() {
        let y = top + number(nth) * ROW;
        let label = match rows {
            [first, .., last] => format!("res. {}–{}", first.resource, last.resource),
            _ => format!("resource {}", rows.first().map_or(0, |row| row.resource)),
        };
        out.put(format_args!("<text x=\"0\" y=\"{}\">{label}</text>\n", y + 12));
        let full = end.div_ceil(number(BINS)).max(1) * number(rows.len());
        let shade = |held: u64| (held * number(SHADES)).div_ceil(full).min(number(SHADES));
        let shades: Vec<_> = held(rows, end).into_iter().map(shade).collect();
        let mut bin = 0;
        for run in shades.chunk_by(|one, next| one == next) {
            let path = usize::try_from(run[0]).ok().and_then(|shade| shade.checked_sub(1));
            if let Some(path) = path.and_then(|path| paths.get_mut(path)) {
                let (x, width) = (GUTTER + bin * 2, run.len() * 2);
                path.put(format_args!("M{x} {}h{width}v{}h-{width}z", y + 3, ROW - 5));
            }
            bin += number(run.len());
        }
    }
    for (nth, path) in paths.into_iter().enumerate() {
        out.put(format_args!("<path class=\"hold s{}\" d=\"{}\"/>\n", nth + 1, path.finish()));
    }
}

/// Draws a red line and a triangle for each overlap. Overlaps at the same coordinate are drawn
/// once.
fn marks(out: &mut Html, end: u64, groups: &[&[Row<'_>]], top: u64) {
    for (nth, rows) in groups.iter().enumerate() {
        let y = top + number(nth) * ROW;
        let overlaps = rows.iter().flat_map(|row| &row.overlaps);
        let mut places: Vec<_> =
            overlaps.map(|(_, overlap)| x(overlap.second.from, end) / 10).collect();
        places.sort_unstable();
        places.dedup();
        for x in places {
            let (left, bottom) = (x - 1, y + ROW - 1);
            out.put(format_args!(
                "<path class=\"mark\" d=\"M{left} {y}h3V{bottom}h-3zM{} {y}h9l-4.5 6z\"/>\n",
                left - 3
            ));
        }
    }
}
